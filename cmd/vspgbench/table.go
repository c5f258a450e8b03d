package main

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"slices"
)

// pair is two runs that followed each other.
type pair struct{ own, pgbench sample }

func (p pair) speed() float64 { return p.own.rate() / p.pgbench.rate() }
func (p pair) cpu() float64   { return p.own.Cost / p.pgbench.Cost }

// result is what a cell gave. Its ratios are those of pairs: the median of ratios holds on a machine whose speed drifts, a ratio of
// medians does not.
type result struct {
	cell  cell
	pairs []pair
}

func (r *result) median(f func(pair) float64) float64 {
	xs := r.sorted(f)
	return (xs[(len(xs)-1)/2] + xs[len(xs)/2]) / 2
}

func (r *result) sorted(f func(pair) float64) []float64 {
	xs := make([]float64, 0, len(r.pairs))
	for _, p := range r.pairs {
		xs = append(xs, f(p))
	}
	slices.Sort(xs)
	return xs
}

func ownRate(p pair) float64     { return p.own.rate() }
func pgbenchRate(p pair) float64 { return p.pgbench.rate() }
func ownCPU(p pair) float64      { return p.own.Cost * 1e6 }
func pgbenchCPU(p pair) float64  { return p.pgbench.Cost * 1e6 }

// line is the row for a terminal while the runs go on.
func (r *result) line() string {
	xs := r.sorted(pair.speed)
	return fmt.Sprintf("%-52s %6.0f /s, pgbench %6.0f /s: %.2f (%.2f–%.2f); CPU %.1f×", r.cell, r.median(ownRate), r.median(pgbenchRate),
		r.median(pair.speed), xs[0], xs[len(xs)-1], r.median(pair.cpu))
}

// printTable prints the table in Markdown.
func printTable(w io.Writer, o options, results []*result) {
	fmt.Fprintf(w, "%d connections, %d processors, medians of %d pairs of %d s (hot row: 1 s)\n\n", clients, runtime.NumCPU(), o.pairs, o.seconds)
	fmt.Fprintln(w, "| strategy | rows | commits | lockbench /s | pgbench /s | ratio | min–max | lockbench CPU µs | pgbench CPU µs | CPU ratio |")
	fmt.Fprintln(w, "|---|---|---|--:|--:|--:|--:|--:|--:|--:|")
	for _, r := range results {
		xs := r.sorted(pair.speed)
		fmt.Fprintf(w, "| %s | %s | %s | %.0f | %.0f | %.2f | %.2f–%.2f | %.0f | %.0f | %.2f |\n", r.cell.name(), r.cell.rows(), r.cell.durability(),
			r.median(ownRate), r.median(pgbenchRate), r.median(pair.speed), xs[0], xs[len(xs)-1],
			r.median(ownCPU), r.median(pgbenchCPU), r.median(pair.cpu))
	}
	fmt.Fprintln(w)
}

// spread is the largest ratio of a cell's pairs over the smallest that two runs of the same thing should show.
const spread = 1.5

// printDoubt says when the figures are not worth much.
func printDoubt(w io.Writer, results []*result) {
	var wide int
	for _, r := range results {
		if xs := r.sorted(pair.speed); xs[len(xs)-1] > spread*xs[0] {
			wide++
		}
	}
	if wide > 0 {
		fmt.Fprintf(w, "In %d of %d cells the pairs differ by more than a factor of %.1f: the machine was busy with something else, and the medians\nare rough. Repeat it when the machine is idle, or with more --pairs.\n\n", wide, len(results), spread)
	}
}

// goal is a limit on the median, over cells, of a ratio.
type goal struct {
	text   string
	ratio  func(pair) float64
	in     func(cell) bool
	atMost bool
	limit  float64
}

// goals are for many rows only: on a hot row the server's queue decides, and how it orders its waiters is chance.
func goals() []goal {
	many := func(pipeline bool, durable ...bool) func(cell) bool {
		return func(c cell) bool {
			return c.Rows == plenty && c.Pipeline == pipeline && slices.Contains(durable, c.Durable)
		}
	}
	return []goal{
		{text: "attempts/s, same round trips", ratio: pair.speed, in: many(false, true, false), limit: 0.85},
		{text: "attempts/s, same round trips, aim", ratio: pair.speed, in: many(false, true, false), limit: 0.95},
		{text: "attempts/s, --pipeline-begin, durable", ratio: pair.speed, in: many(true, true), limit: 1.05},
		{text: "attempts/s, --pipeline-begin, not durable", ratio: pair.speed, in: many(true, false), limit: 1.25},
		{text: "CPU per attempt, same round trips", ratio: pair.cpu, in: many(false, true, false), atMost: true, limit: 2},
		{text: "CPU per attempt, --pipeline-begin", ratio: pair.cpu, in: many(true, true, false), atMost: true, limit: 2},
	}
}

// verdict is what became of a goal.
type verdict struct {
	goal
	median float64
	worst  cell
	extent float64 // the worst cell's median
	// pairs of runs, and how many of them meet the limit by themselves: on a busy machine a median alone says little.
	pairs, meet int
}

func (g goal) met(x float64) bool { return x == g.limit || x < g.limit == g.atMost }

func (v verdict) sign() string {
	if v.atMost {
		return "≤"
	}
	return "≥"
}

func (v verdict) word() string {
	if v.met(v.median) {
		return "met"
	}
	return "not met"
}

// judge takes, for each goal of which cells were run, the median over those cells.
func judge(results []*result) []verdict {
	var all []verdict
	for _, g := range goals() {
		var in []*result
		for _, r := range results {
			if g.in(r.cell) {
				in = append(in, r)
			}
		}
		if len(in) == 0 {
			continue
		}
		slices.SortFunc(in, func(a, b *result) int { return cmp.Compare(a.median(g.ratio), b.median(g.ratio)) })
		v := verdict{goal: g, median: (in[(len(in)-1)/2].median(g.ratio) + in[len(in)/2].median(g.ratio)) / 2}
		worst := in[0]
		if g.atMost {
			worst = in[len(in)-1]
		}
		v.worst, v.extent = worst.cell, worst.median(g.ratio)
		for _, r := range in {
			for _, p := range r.pairs {
				v.pairs++
				if g.met(g.ratio(p)) {
					v.meet++
				}
			}
		}
		all = append(all, v)
	}
	return all
}

func printGoals(w io.Writer, all []verdict) {
	fmt.Fprintf(w, "| goal, median over the cells of %d rows | limit | median | | pairs that meet it | worst cell |\n|---|--:|--:|---|--:|---|\n", plenty)
	for _, v := range all {
		fmt.Fprintf(w, "| %s | %s %.2f | %.2f | %s | %d of %d | %.2f %s, %s |\n", v.text, v.sign(), v.limit, v.median, v.word(), v.meet, v.pairs,
			v.extent, v.worst.name(), v.worst.durability())
	}
}
