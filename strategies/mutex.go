package strategies

import (
	"context"

	"github.com/lockbench/lockbench/bench"
)

// Mutex guards the unprotected read and write with a lock of this process.
type Mutex struct{}

// Info describes the strategy.
func (Mutex) Info() bench.StrategyInfo {
	return bench.StrategyInfo{
		Name:     "mutex",
		Summary:  "one mutex of the process around none",
		How:      "The application takes a mutex before it asks for a connection, and gives it back after COMMIT: Java's synchronized, a sync.Mutex. The SQL is that of none.",
		Prevents: append(noLostUpdate(), bench.WriteSkew, bench.Phantom), Scope: bench.InOneProcess,
		LoserIs:  "queued in the process; then reads the winner's row",
		Use:      "only where a single process will ever write, which is rarely true for long",
		Mistakes: "starting a second instance of the application; taking the lock inside the transaction and giving it back before COMMIT",
		Options:  []bench.OptionDoc{{Name: "per", Values: []string{"process", "row"}, Doc: "one mutex for everything (default), or one a row"}},
		Variants: []string{"mutex:per=row"},
	}
}

// Bind writes the SQL of none and makes the mutexes.
func (Mutex) Bind(b bench.Binding) (bench.Discipline, error) {
	d, err := bindRows(b, rowwise{})
	if err != nil {
		return nil, err
	}
	m := &mutexed{Discipline: d, stripes: make([]chan struct{}, 1)}
	if b.Options["per"] == "row" {
		m.stripes = make([]chan struct{}, 1024) // rows share a stripe now and then, which costs a wait but no safety
	}
	for i := range m.stripes {
		m.stripes[i] = make(chan struct{}, 1)
	}
	return m, nil
}

// mutexed is a discipline behind mutexes. They are channels because waiting for one must end with the operation's deadline, and
// because channels hand over first come first served.
type mutexed struct {
	bench.Discipline
	stripes []chan struct{}
}

// Enter takes the mutex of each row.
func (m *mutexed) Enter(ctx context.Context, r *bench.Request) (*bench.Hold, error) {
	first, second := m.stripe(r.Key), m.stripe(r.Key)
	if r.To > 0 {
		second = m.stripe(r.To)
	}
	if first > second { // two mutexes are taken in one order, or two users could wait for each other
		first, second = second, first
	}
	if err := m.lock(ctx, first); err != nil {
		return nil, err
	}
	if first == second {
		return &bench.Hold{Leave: func() { <-m.stripes[first] }}, nil
	}
	if err := m.lock(ctx, second); err != nil {
		<-m.stripes[first]
		return nil, err
	}
	return &bench.Hold{Leave: func() { <-m.stripes[second]; <-m.stripes[first] }}, nil
}

func (m *mutexed) stripe(key int64) int { return int(uint64(key) % uint64(len(m.stripes))) }

func (m *mutexed) lock(ctx context.Context, stripe int) error {
	select {
	case m.stripes[stripe] <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
