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
func (p pair) cpu() float64   { return p.own.cpu() / p.pgbench.cpu() }

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
func ownCPU(p pair) float64      { return p.own.cpu() * 1e6 }
func pgbenchCPU(p pair) float64  { return p.pgbench.cpu() * 1e6 }

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

// printGoals says for each goal whether the median over its cells meets it, and which cell is the worst.
func printGoals(w io.Writer, results []*result) {
	fmt.Fprintf(w, "| goal, median over %d rows | limit | median | worst cell | |\n|---|--:|--:|---|---|\n", plenty)
	for _, g := range goals() {
		type point struct {
			cell  cell
			value float64
		}
		var points []point
		for _, r := range results {
			if g.in(r.cell) {
				points = append(points, point{r.cell, r.median(g.ratio)})
			}
		}
		if len(points) == 0 {
			continue
		}
		slices.SortFunc(points, func(a, b point) int { return cmp.Compare(a.value, b.value) })
		mid := (points[(len(points)-1)/2].value + points[len(points)/2].value) / 2
		worst, sign, met := points[0], "≥", mid >= g.limit
		if g.atMost {
			worst, sign, met = points[len(points)-1], "≤", mid <= g.limit
		}
		verdict := "not met"
		if met {
			verdict = "met"
		}
		fmt.Fprintf(w, "| %s | %s %.2f | %.2f | %.2f %s, %s | %s |\n", g.text, sign, g.limit, mid, worst.value, worst.cell.name(), worst.cell.durability(), verdict)
	}
}
