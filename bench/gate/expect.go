package gate

import (
	"fmt"

	"github.com/lockbench/lockbench/bench"
)

// Expectation is the verdict that a strategy is expected to get.
type Expectation struct {
	Strategy string // label, name, or [bench.All] for those that no other expectation names
	Verdict  bench.Verdict
}

// Concerns reports whether the expectation is about a strategy of this label and name.
func (e Expectation) Concerns(label, name string) bool {
	return e.Strategy == bench.All || e.Strategy == label || e.Strategy == name
}

// Judge holds each cell against what is expected of it, in the order of the cells: a label is more telling than a name, and a name more
// than all. A combination that makes no sense is passed over, unless it was named.
func Judge(expected []Expectation, cells []bench.Cell) []bench.Assertion {
	var all []bench.Assertion
	for i := range cells {
		c := &cells[i]
		var most *Expectation
		for j := range expected {
			if e := &expected[j]; e.Concerns(c.Strategy, c.Name) && (most == nil || e.rank(c) > most.rank(c)) {
				most = e
			}
		}
		if most == nil || c.NA != "" && most.Strategy == bench.All {
			continue
		}
		all = append(all, most.judge(c))
	}
	return all
}

// rank says how closely the expectation names a cell.
func (e *Expectation) rank(c *bench.Cell) int {
	switch e.Strategy {
	case c.Strategy:
		return 2
	case bench.All:
		return 0
	}
	return 1
}

func (e *Expectation) judge(c *bench.Cell) bench.Assertion {
	a := bench.Assertion{
		Race: c.Race, Scenario: c.Scenario, Strategy: c.Strategy, Text: "expect: " + e.Verdict.String(), Figure: bench.FigureVerdict,
		Failed: c.NA != "" || len(c.Trials) == 0 || c.Verdict != e.Verdict,
	}
	switch {
	case c.NA != "":
		a.Message = fmt.Sprintf("it makes no sense here (%s), and %s was expected", c.NA, e.Verdict)
	case len(c.Trials) == 0:
		a.Message = fmt.Sprintf("it was not run, and %s was expected", e.Verdict)
	case a.Failed:
		a.Message = fmt.Sprintf("verdict is %s, and %s was expected", c.Verdict, e.Verdict)
		if len(c.Findings) > 0 {
			a.Message += ": " + c.Findings[0].Message
		}
	default:
		a.Message = fmt.Sprintf("verdict is %s, as expected", c.Verdict)
	}
	return a
}

// Say tells an assertion in a line, without a full stop.
func Say(a bench.Assertion) string {
	text := a.Message
	if a.Strategy != "" {
		text = a.Strategy + ": " + text
	}
	if a.Race != "" {
		text = a.Race + ": " + text
	}
	return text
}
