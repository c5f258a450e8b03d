package strategies

import "github.com/lockbench/lockbench/bench"

// RepeatableRead leaves it to the snapshot: a write to a row that changed after the snapshot fails.
type RepeatableRead struct{}

// Info describes the strategy.
func (RepeatableRead) Info() bench.StrategyInfo {
	return bench.StrategyInfo{
		Name:     "repeatable-read",
		Summary:  "isolation level REPEATABLE READ, 40001 tried again",
		How:      "The transaction reads from one snapshot. Writing a row that somebody else changed since fails with SQLSTATE 40001, and the whole transaction is tried again.",
		Prevents: noLostUpdate(),
		LoserIs:  "given SQLSTATE 40001 at its write, after waiting for the winner's COMMIT",
		Use:      "where transactions write what they read and retrying is already in place",
		Mistakes: "expecting it to stop write skew (two transactions that read the same rows and write different ones); retrying only the failed statement",
	}
}

// Bind writes the SQL.
func (RepeatableRead) Bind(b bench.Binding) (bench.Discipline, error) {
	return bindRows(b, rowwise{isolation: "repeatable read"})
}

// Serializable leaves it to the server: the outcome is that of some serial order.
type Serializable struct{}

// Info describes the strategy.
func (Serializable) Info() bench.StrategyInfo {
	return bench.StrategyInfo{
		Name:     "serializable",
		Summary:  "isolation level SERIALIZABLE, 40001 tried again",
		How:      "As repeatable-read, and the server also watches what was read: transactions whose outcome fits no serial order fail with SQLSTATE 40001, at a statement or at COMMIT.",
		Prevents: append(noLostUpdate(), bench.WriteSkew, bench.Phantom),
		LoserIs:  "given SQLSTATE 40001 at a statement or at COMMIT",
		Use:      "where the rule spans rows that no single lock or version covers, and every writer uses it",
		Mistakes: "other writers at a lower level, which it does not see; believing an answer before its COMMIT succeeded; sequential scans, which make users of different rows conflict",
	}
}

// Bind writes the SQL.
func (Serializable) Bind(b bench.Binding) (bench.Discipline, error) {
	return bindRows(b, rowwise{isolation: "serializable"})
}
