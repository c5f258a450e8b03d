package strategies

import "github.com/lockbench/lockbench/bench"

// Optimistic writes only if the version is still the one that was read.
type Optimistic struct{}

// Info describes the strategy.
func (Optimistic) Info() bench.StrategyInfo {
	return bench.StrategyInfo{
		Name:     "optimistic",
		Summary:  "a version column in the UPDATE's WHERE clause",
		How:      "The read takes the version along, the write demands it and counts it up. A write that matches 0 rows lost the race: the whole transaction is tried again, read included.",
		Prevents: noLostUpdate(),
		LoserIs:  "given 0 affected rows, and must try again or tell the user",
		Use:      "where conflicts are rare, or where the user thinks between read and write and no transaction can stay open",
		Mistakes: "not looking at the number of affected rows; comparing versions in the application instead of in the UPDATE; a writer that does not count the version up; retrying the write without reading again",
	}
}

// Bind writes the SQL.
func (Optimistic) Bind(b bench.Binding) (bench.Discipline, error) {
	return bindRows(b, rowwise{versioned: true, guard: byVersion})
}
