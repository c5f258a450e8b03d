package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/lockbench/lockbench/bench"
)

// line is one cell of the report as a row of the table.
type line struct {
	cell    *bench.Cell
	fastest float64 // goodput of the fastest sound cell; 0: this one is not ranked
}

// column is one column of the table.
type column struct {
	head    string
	short   string // what the head becomes before an essential column has to go; "" if it stays as it is
	full    string // the head that became short
	rank    int    // importance: where space is short, the highest goes first
	left    bool
	anomaly bool // counts what an audit found
	text    func(l *line) string
	// when says whether the column is worth its space in this report; nil: always.
	when func(cells []bench.Cell) bool
}

// essential is the rank up to which columns stay on 80 columns: who was right, how many were served, and what that cost.
const essential = 7

// columns lists them in reading order.
func columns() []column {
	return []column{
		{head: "strategy", rank: 0, left: true, text: func(l *line) string { return l.cell.Strategy }},
		{head: "verdict", rank: 1, left: true, text: verdict},
		{head: "confirmed", short: "conf.", rank: 3, text: outcome(bench.Confirmed)},
		{head: "rejected", rank: 15, text: outcome(bench.Rejected)},
		{head: "busy", rank: 14, text: outcome(bench.Busy)},
		{head: "not found", rank: 13, text: outcome(bench.NotFound), when: anyone(bench.NotFound)},
		{head: "indeterminate", rank: 11, text: outcome(bench.Indeterminate), when: anyone(bench.Indeterminate)},
		{head: "failed", rank: 9, text: outcome(bench.Failed), when: anyone(bench.Failed)},
		{head: "overbooked", rank: 8, anomaly: true, text: audit("overbooked"), when: audited("overbooked")},
		{head: "lost", rank: 10, anomaly: true, text: audit("lost_updates"), when: audited("lost_updates")},
		{head: "undersold", rank: 10, anomaly: true, text: audit("undersold"), when: found("undersold")},
		{head: "negative", rank: 10, anomaly: true, text: audit("negative"), when: found("negative")},
		{head: "unexplained", rank: 10, anomaly: true, text: audit("unexplained"), when: found("unexplained")},
		{head: "write skew", rank: 8, anomaly: true, text: audit("write_skew"), when: audited("write_skew")},
		{head: "sum drift", rank: 9, anomaly: true, text: audit("sum_drift"), when: audited("sum_drift")},
		{head: "double charged", rank: 8, anomaly: true, text: audit("double_charged"), when: audited("double_charged")},
		{head: "stuck", rank: 10, anomaly: true, text: audit("stuck_reservations"), when: audited("stuck_reservations")},
		{head: "leaked", rank: 10, anomaly: true, text: audit("leaked_locks"), when: found("leaked_locks")},
		{head: "conflicts", short: "confl.", rank: 5, text: func(l *line) string { return scaled(l.cell.ConflictRate, 100, " %") }},
		{head: "attempts/conf", short: "att.", rank: 7, text: func(l *line) string { return scaled(l.cell.Amplification, 1, "") }},
		{head: "goodput/s", short: "good/s", rank: 2, text: func(l *line) string { return scaled(l.cell.Goodput, 1, "") }},
		{head: "× fastest", rank: 12, text: ratio},
		{head: "p50 ms", short: "p50", rank: 4, text: percentile(50, func(p *bench.Percentiles) *float64 { return p.P50 })},
		{head: "p95 ms", rank: 16, text: percentile(95, func(p *bench.Percentiles) *float64 { return p.P95 })},
		{head: "p99 ms", short: "p99", rank: 6, text: percentile(99, func(p *bench.Percentiles) *float64 { return p.P99 })},
		{head: "max ms", rank: 17, text: percentile(0, func(p *bench.Percentiles) *float64 { return p.Max })},
	}
}

// worthwhile returns the columns that have something to say in this report. What an audit found under a name that has no column of its
// own gets one.
func worthwhile(cells []bench.Cell) []column {
	all := columns()
	at := slices.IndexFunc(all, func(c column) bool { return c.head == "leaked" })
	for i := range cells {
		for _, name := range slices.Sorted(maps.Keys(cells[i].Audit)) {
			head := strings.ReplaceAll(name, "_", " ")
			known := slices.Contains(ownColumn, name) || slices.ContainsFunc(all, func(c column) bool { return c.head == head })
			if cells[i].Audit[name] > 0 && !known {
				all = slices.Insert(all, at, column{head: head, rank: 5, anomaly: true, text: audit(name)})
			}
		}
	}
	return slices.DeleteFunc(all, func(c column) bool { return c.when != nil && !c.when(cells) })
}

// ownColumn are the audit's counts whose column has a shorter name.
var ownColumn = []string{"lost_updates", "stuck_reservations", "leaked_locks"}

func verdict(l *line) string {
	switch {
	case l.cell.NA != "":
		return "n/a"
	case len(l.cell.Trials) == 0:
		return "not run"
	}
	return l.cell.Verdict.String()
}

// countedVerdict is the verdict with the largest count of an anomaly, for a table whose columns of anomalies had to go.
func countedVerdict(l *line) string {
	most := int64(0)
	for _, n := range l.cell.Audit {
		most = max(most, n)
	}
	if l.cell.Verdict == bench.Violated && most > 0 {
		return verdict(l) + " " + count(most)
	}
	return verdict(l)
}

func ran(l *line) bool { return len(l.cell.Trials) > 0 }

func outcome(o bench.Outcome) func(*line) string {
	return func(l *line) string {
		if !ran(l) {
			return dash
		}
		return count(l.cell.Outcomes[o.String()])
	}
}

func anyone(o bench.Outcome) func([]bench.Cell) bool {
	return func(cells []bench.Cell) bool {
		return slices.ContainsFunc(cells, func(c bench.Cell) bool { return c.Outcomes[o.String()] > 0 })
	}
}

func audit(name string) func(*line) string {
	return func(l *line) string {
		n, checked := l.cell.Audit[name]
		if !checked {
			return dash
		}
		return count(n)
	}
}

// count writes a whole number.
func count(n int64) string { return grouped(strconv.FormatInt(n, 10)) }

func audited(name string) func([]bench.Cell) bool {
	return func(cells []bench.Cell) bool {
		return slices.ContainsFunc(cells, func(c bench.Cell) bool { _, ok := c.Audit[name]; return ok })
	}
}

func found(name string) func([]bench.Cell) bool {
	return func(cells []bench.Cell) bool {
		return slices.ContainsFunc(cells, func(c bench.Cell) bool { return c.Audit[name] > 0 })
	}
}

func scaled(v *float64, by float64, unit string) string {
	if v == nil {
		return dash
	}
	return number(*v*by) + unit
}

// ratio is a sound strategy's goodput as a share of the fastest one's. Others are not ranked.
func ratio(l *line) string {
	if l.fastest == 0 || l.cell.Goodput == nil {
		return ""
	}
	return fmt.Sprintf("%.2f", *l.cell.Goodput/l.fastest)
}

// percentile is a latency of confirmed operations; ~ marks one that rests on too few of them.
func percentile(q float64, of func(*bench.Percentiles) *float64) func(*line) string {
	return func(l *line) string {
		p := l.cell.Latency[bench.Confirmed.String()]
		v := of(&p)
		if v == nil {
			return dash
		}
		if q > 0 && p.Count < bench.MinSamples(q) {
			return "~" + number(*v)
		}
		return number(*v)
	}
}

// ranked splits the cells: sound ones by goodput, and below the rule the others: violated, undetermined, not run.
func ranked(r *bench.Report) (sound, others []line) {
	for i := range r.Cells {
		c := &r.Cells[i]
		if c.Verdict == bench.Sound && c.NA == "" && len(c.Trials) > 0 {
			sound = append(sound, line{cell: c})
		} else {
			others = append(others, line{cell: c})
		}
	}
	slices.SortStableFunc(sound, func(a, b line) int { return cmp.Compare(goodput(b.cell), goodput(a.cell)) })
	if len(sound) > 0 {
		for i := range sound {
			sound[i].fastest = goodput(sound[0].cell)
		}
	}
	slices.SortStableFunc(others, func(a, b line) int { return cmp.Compare(shelf(a.cell), shelf(b.cell)) })
	return sound, others
}

// shelf orders what is not ranked.
func shelf(c *bench.Cell) int {
	switch {
	case c.NA != "":
		return 3
	case len(c.Trials) == 0:
		return 2
	case c.Verdict == bench.Violated:
		return 0
	}
	return 1
}

func goodput(c *bench.Cell) float64 {
	if c.Goodput == nil {
		return 0
	}
	return *c.Goodput
}
