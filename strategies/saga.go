package strategies

import (
	"slices"

	"github.com/lockbench/lockbench/bench"
)

// Saga cuts an operation into short transactions, each with a compensation that undoes it.
type Saga struct{}

// Info describes the strategy.
func (Saga) Info() bench.StrategyInfo {
	return bench.StrategyInfo{
		Name:     "saga",
		Summary:  "reserve, call, confirm or compensate: short transactions instead of one",
		How:      "Each step is a transaction of its own, of guarded statements, so that nothing is locked while another system works. What fails half-way is undone by compensations in reverse order. A compensation looks at the state it undoes, in its WHERE clause: sent twice, or for a step that was never done, it changes nothing. A recovery pass finishes or undoes what a crash left behind.",
		Prevents: append(noLostUpdate(), bench.Stuck, bench.DoubleUndo, bench.DoubleCharge),
		LoserIs:  "made to wait for a step of the winner, not for the whole, then judged on the fresh row",
		Use:      "where an operation calls another system, or writes to several databases",
		Mistakes: "compensations that are not idempotent, or trust that the step they undo was done; no recovery pass; telling the user yes before the last step",
		Options:  []bench.OptionDoc{{Name: "compensation", Values: []string{"guarded", "naive"}, Doc: "compensations that look at the state they undo (default), or that trust they come once"}},
		Variants: []string{"saga:compensation=naive"},
	}
}

// Bind writes the SQL of the steps.
func (Saga) Bind(b bench.Binding) (bench.Discipline, error) {
	if !slices.ContainsFunc(b.Changes, func(c *bench.Change) bool { return c.Saga }) {
		return nil, &bench.NotApplicable{Reason: "the operation is one short transaction: there are no steps to compensate", Remedy: "use atomic, or --scenario checkout"}
	}
	d := bindChanges(b, func(c *bench.Change) bool { return c.Saga })
	s := &sagaSteps{guarded: d, naive: b.Options["compensation"] == "naive"}
	for c, q := range d.changes {
		if c.Once && s.naive {
			trusting := *c
			trusting.Guard.Relation = bench.AtLeast // states only ever rise, so this holds however often it comes
			q.SQL = changeSQL(&trusting)
		}
	}
	return s, nil
}

// sagaSteps is the discipline of saga.
type sagaSteps struct {
	*guarded
	naive bool
}

// Lends adds that an operation may have several transactions.
func (d *sagaSteps) Lends() bench.Lends { return d.guarded.Lends() | bench.LendsSteps }

// Prevents is nothing where compensations are naive.
func (d *sagaSteps) Prevents() []bench.Anomaly {
	if d.naive {
		return nil
	}
	return Saga{}.Info().Prevents
}
