package strategies

import "github.com/lockbench/lockbench/bench"

// CAS writes only if the row still holds the values that were read.
type CAS struct{}

// Info describes the strategy.
func (CAS) Info() bench.StrategyInfo {
	return bench.StrategyInfo{
		Name:     "cas",
		Summary:  "compare and swap: the values read stand in the UPDATE's WHERE clause",
		How:      "As optimistic, without a version column: the write demands that every column still holds what was read. A value that went away and came back (ABA) passes, which is harmless where only the value counts.",
		Prevents: noLostUpdate(),
		LoserIs:  "given 0 affected rows, and must try again or tell the user",
		Use:      "where the table has no version column and the columns written are those decided on",
		Mistakes: "comparing with = where a column may be NULL (use IS NOT DISTINCT FROM); comparing only some of the columns the decision rests on",
	}
}

// Bind writes the SQL.
func (CAS) Bind(b bench.Binding) (bench.Discipline, error) {
	return bindRows(b, rowwise{guard: byValues})
}
