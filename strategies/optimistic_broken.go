package strategies

import "github.com/lockbench/lockbench/bench"

// OptimisticBroken compares versions in the application, which leaves the gap it means to close.
type OptimisticBroken struct{}

// Info describes the strategy.
func (OptimisticBroken) Info() bench.StrategyInfo {
	return bench.StrategyInfo{
		Name:     "optimistic-broken",
		Summary:  "the version compared in the application: a common bug, shown broken",
		How:      "Before it writes, the application reads the version once more and compares it with the one it had. The UPDATE itself demands nothing, so whoever writes between that look and this write is overwritten.",
		LoserIs:  "sometimes caught by the comparison, otherwise told yes like the winner",
		Use:      "never; here because it looks right in a review",
		Mistakes: "this is the mistake: the comparison belongs into the UPDATE's WHERE clause",
	}
}

// Bind writes the SQL.
func (OptimisticBroken) Bind(b bench.Binding) (bench.Discipline, error) {
	return bindRows(b, rowwise{versioned: true, between: func(t *bench.Table) *bench.Stmt {
		return &bench.Stmt{Name: "compare", SQL: "SELECT " + t.Version + " FROM " + schema + t.Name + " WHERE " + t.Key + " = $1", Columns: 1}
	}})
}
