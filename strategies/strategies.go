// Package strategies holds the disciplines of concurrency control: how the read and the write of an operation are protected. One file
// a strategy, its SQL inside; what most of them share, a transaction that reads a row and writes it, is in rowwise.go.
package strategies

import "github.com/lockbench/lockbench/bench"

// All lists every strategy in the order of reports.
func All() []bench.Strategy {
	return []bench.Strategy{
		None{}, Mutex{}, Pessimistic{}, Optimistic{}, OptimisticBroken{}, CAS{}, Atomic{}, Unique{},
		RepeatableRead{}, Serializable{}, Advisory{}, SkipLocked{}, Saga{},
		ZooKeeper{}, Redis{},
	}
}

// noLostUpdate is the claim of every strategy that makes sure a write rests on what its transaction read.
func noLostUpdate() []bench.Anomaly {
	return []bench.Anomaly{bench.LostUpdate, bench.Overbooking, bench.Negative, bench.FalseSoldOut}
}
