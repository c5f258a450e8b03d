// Package claims holds what people say about locking, each claim with the commands that show it, both ways where there are two: what is
// protected holds, and what is not is seen to break.
package claims

import (
	"fmt"
	"strings"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/bench/trace"
)

// Claim is something that is said about locking.
type Claim struct {
	ID   string // a letter and a number, as A1
	Text string
	// But is where only half of it is right on PostgreSQL; "" where it holds as it stands.
	But      string
	Needs    []string // strategies whose lock services must be there; empty: the database is enough
	Commands []string // what shows it, as typed behind "lockbench"
	Checks   []Check
}

// Check is one thing that a claim's commands must show.
type Check struct {
	Expect  string
	measure func(o *Observed) (measured string, v Verdict)
}

// Observed is what a claim's commands gave: of each a report or a trace, by its place among [Claim.Commands].
type Observed struct {
	Reports []*bench.Report
	Traces  []*trace.Trace
}

// Verdict is what became of a claim or a check.
type Verdict string

// The verdicts.
const (
	Confirmed    Verdict = "confirmed"
	Refuted      Verdict = "refuted"
	Inconclusive Verdict = "inconclusive" // too little happened to tell
	NotRun       Verdict = "not run"      // what it needs is not there
)

// Finding is a check with what was measured.
type Finding struct {
	Expect   string  `json:"expected"`
	Measured string  `json:"measured"`
	Verdict  Verdict `json:"verdict"`
}

// Result is a claim with what its commands showed.
type Result struct {
	ID       string    `json:"id"`
	Text     string    `json:"claim"`
	But      string    `json:"but,omitempty"`
	Verdict  Verdict   `json:"verdict"`
	Commands []string  `json:"commands"`
	Findings []Finding `json:"findings"`
	Why      string    `json:"why,omitempty"` // why it was not run
	TookS    float64   `json:"took_s,omitempty"`
}

// Judge holds a claim to what was observed.
func (c *Claim) Judge(o *Observed) Result {
	r := c.begin(Confirmed)
	for _, check := range c.Checks {
		f := Finding{Expect: check.Expect}
		f.Measured, f.Verdict = check.measure(o)
		r.Findings = append(r.Findings, f)
		switch {
		case f.Verdict == Refuted:
			r.Verdict = Refuted
		case f.Verdict == Inconclusive && r.Verdict == Confirmed:
			r.Verdict = Inconclusive
		}
	}
	return r
}

// Skip is the result of a claim that was not run, and why.
func (c *Claim) Skip(why string) Result {
	r := c.begin(NotRun)
	r.Why = why
	return r
}

func (c *Claim) begin(v Verdict) Result {
	r := Result{ID: c.ID, Text: c.Text, But: c.But, Verdict: v, Findings: []Finding{}}
	for _, line := range c.Commands {
		r.Commands = append(r.Commands, "lockbench "+line)
	}
	return r
}

// cell finds a strategy's cell in the report of a command.
func (o *Observed) cell(command int, strategy string) *bench.Cell {
	if command >= len(o.Reports) || o.Reports[command] == nil {
		return nil
	}
	cells := o.Reports[command].Cells
	for i := range cells {
		if cells[i].Strategy == strategy {
			return &cells[i]
		}
	}
	return nil
}

// of makes a check of one cell. command counts from 0.
func of(command int, strategy, expect string, measure func(c *bench.Cell) (string, Verdict)) Check {
	return Check{Expect: strategy + ": " + expect, measure: func(o *Observed) (string, Verdict) {
		c := o.cell(command, strategy)
		if c == nil || len(c.Trials) == 0 {
			return "it was not raced", Inconclusive
		}
		return measure(c)
	}}
}

// sound expects a verdict of sound.
func sound(command int, strategy string) Check {
	return of(command, strategy, "sound", func(c *bench.Cell) (string, Verdict) {
		switch c.Verdict {
		case bench.Sound:
			return fmt.Sprintf("sound, %d users told yes", c.Outcomes["confirmed"]), Confirmed
		case bench.Violated:
			return "violated: " + faults(c), Refuted
		}
		return fmt.Sprintf("undetermined: %d operations met another", met(c)), Inconclusive
	})
}

// broken expects anomalies of a kind, by their name in the audit.
func broken(command int, strategy, anomaly string) Check {
	return of(command, strategy, spoken(anomaly)+" above 0", func(c *bench.Cell) (string, Verdict) {
		switch {
		case c.Audit[anomaly] > 0:
			return fault(c, anomaly), Confirmed
		case met(c) < bench.MinContended:
			return fmt.Sprintf("0, and only %d operations met another", met(c)), Inconclusive
		}
		return "0", Refuted
	})
}

// none expects no anomaly of a kind, where a strategy is not called sound for other reasons.
func none(command int, strategy, anomaly string) Check {
	return of(command, strategy, "no "+spoken(anomaly), func(c *bench.Cell) (string, Verdict) {
		switch {
		case c.Audit[anomaly] > 0:
			return fault(c, anomaly), Refuted
		case met(c) < bench.MinContended || c.Outcomes["confirmed"] == 0:
			return fmt.Sprintf("0, and only %d operations met another", met(c)), Inconclusive
		}
		return fmt.Sprintf("0, %d users told yes", c.Outcomes["confirmed"]), Confirmed
	})
}

// lost expects attempts that lost a race in a certain way.
func lost(command int, strategy, kind string) Check {
	return of(command, strategy, spoken(kind)+" conflicts", func(c *bench.Cell) (string, Verdict) {
		n := total(c, func(t *bench.Trial) int64 { return t.Contention[kind] })
		text := fmt.Sprintf("%d in %d attempts", n, total(c, func(t *bench.Trial) int64 { return t.Attempts }))
		switch {
		case n > 0:
			return text, Confirmed
		case met(c) < bench.MinContended:
			return text, Inconclusive
		}
		return text, Refuted
	})
}

// told expects how many users got an answer, in every trial.
func told(command int, strategy, outcome string, want int64) Check {
	return of(command, strategy, fmt.Sprintf("%s exactly %d", outcome, want), func(c *bench.Cell) (string, Verdict) {
		for _, t := range c.Trials {
			if t.Outcomes[outcome] != want {
				return fmt.Sprintf("%d in trial %d", t.Outcomes[outcome], t.Number), Refuted
			}
		}
		return fmt.Sprintf("%d in each of %d trials", want, len(c.Trials)), Confirmed
	})
}

// some expects that some users got an answer.
func some(command int, strategy, outcome string) Check {
	return of(command, strategy, outcome+" above 0", func(c *bench.Cell) (string, Verdict) {
		n := total(c, func(t *bench.Trial) int64 { return t.Outcomes[outcome] })
		if n == 0 {
			return "0", Refuted
		}
		return fmt.Sprint(n), Confirmed
	})
}

// figure reads a number from a cell; false if it was not measured.
type figure func(c *bench.Cell) (float64, bool)

// times expects that a figure of one cell is at least factor times that of another. What was not measured, or lies below least in both,
// decides nothing.
func times(what string, f figure, high, low place, factor float64) Check {
	return Check{
		Expect: fmt.Sprintf("%s: %s at least %.3g × that of %s", what, high, factor, low),
		measure: func(o *Observed) (string, Verdict) {
			a, b := o.cell(high.command, high.strategy), o.cell(low.command, low.strategy)
			if a == nil || b == nil {
				return "it was not raced", Inconclusive
			}
			x, okx := f(a)
			y, oky := f(b)
			if !okx || !oky {
				return "it was not measured", Inconclusive
			}
			text := fmt.Sprintf("%.4g against %.4g", x, y)
			if x >= factor*y && x > 0 {
				return text, Confirmed
			}
			return text, Refuted
		},
	}
}

// place is a strategy's cell in the report of a command. as names it in a sentence.
type place struct {
	command  int
	strategy string
	as       string
}

func (p place) String() string {
	if p.as != "" {
		return p.as
	}
	return p.strategy
}

// total sums a count over the trials of a cell.
func total(c *bench.Cell, count func(t *bench.Trial) int64) (n int64) {
	for i := range c.Trials {
		n += count(&c.Trials[i])
	}
	return n
}

// met is how many operations met another on their row.
func met(c *bench.Cell) int64 { return total(c, func(t *bench.Trial) int64 { return t.Contended }) }

// fault is what the audit found of one kind.
func fault(c *bench.Cell, anomaly string) string {
	for _, f := range c.Findings {
		if f.Check == anomaly {
			return f.Message
		}
	}
	return fmt.Sprint(c.Audit[anomaly])
}

// faults lists what the audit found.
func faults(c *bench.Cell) string {
	var all []string
	for _, f := range c.Findings {
		all = append(all, f.Message)
	}
	if len(all) == 0 {
		return "nothing"
	}
	return strings.Join(all, "; ")
}

// spoken is a name of the JSON as it is said.
func spoken(name string) string { return strings.ReplaceAll(name, "_", " ") }
