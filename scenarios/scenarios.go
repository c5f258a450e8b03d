// Package scenarios holds what users race for: the data, the operation in plain Go, and the invariant that the audit checks. One file
// a scenario; none of them knows how a strategy locks.
package scenarios

import "github.com/lockbench/lockbench/bench"

// All lists every scenario in the order of reports.
func All() []bench.Scenario {
	return []bench.Scenario{Seats{}, Inventory{}, Transfer{}, OnCall{}, Payment{}, Checkout{}, Queue{}, Mixed{}, Bystanders{}, ForeignKey{}}
}
