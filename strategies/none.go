package strategies

import "github.com/lockbench/lockbench/bench"

// None reads, decides and writes an absolute value, and hopes.
type None struct{}

// Info describes the strategy.
func (None) Info() bench.StrategyInfo {
	return bench.StrategyInfo{
		Name:     "none",
		Summary:  "read, decide, write an absolute value: no protection",
		How:      "A plain SELECT, the decision in the application, a plain UPDATE, in one READ COMMITTED transaction. Between read and write anybody else may do the same.",
		LoserIs:  "told yes, like the winner; the last writer overwrites the others",
		Use:      "never where two users can want the same row; here to see what the others prevent",
		Options:  []bench.OptionDoc{{Name: "bump", Doc: "count the version up, without looking at it"}},
		Mistakes: "believing that a transaction alone protects: READ COMMITTED does not stop two transactions from acting on the same read",
	}
}

// Bind writes the SQL.
func (None) Bind(b bench.Binding) (bench.Discipline, error) {
	_, bump := b.Options["bump"]
	return bindRows(b, rowwise{versioned: bump})
}
