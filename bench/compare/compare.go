// Package compare holds a report against an older one of the same race, and says what became worse by more than noise.
//
// Two things must agree before a figure counts as worse: a Mann–Whitney test over the trials, and a threshold. The test alone does not do:
// the trials of a file share one stretch of the machine's weather, so that two runs of the same code differ by more than the trials of
// either; that is what the threshold is for. The threshold alone does not do either, because one slow trial may pass it.
package compare

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"golang.org/x/perf/benchmath"

	"github.com/lockbench/lockbench/bench"
)

// Schema names the version of the comparison's JSON form.
const Schema = "lockbench.compare/v1"

// alpha bounds, for each figure, the chance that any of the compared cells seems to differ though none does.
const alpha = 0.05

// power is the chance of finding a difference for which [Row.Needed] is reckoned.
const power = 0.8

// Judgement is what became of one figure of one cell.
type Judgement string

// The judgements.
const (
	Same         Judgement = "~"            // no difference beyond noise
	Better       Judgement = "better"       // by more than the threshold, and the trials show it
	Worse        Judgement = "regression"   // as well
	Inconclusive Judgement = "inconclusive" // worse by more than the threshold, which so few trials do not show
)

// Side is a figure in one of the reports.
type Side struct {
	Median float64  `json:"median"` // over trials, in the figure's own unit
	Low    *float64 `json:"low,omitempty"`
	High   *float64 `json:"high,omitempty"` // of a 95 % interval; there is none below six trials
	Trials int      `json:"trials"`
}

// Row is one figure of one cell.
type Row struct {
	Race      string    `json:"race,omitempty"`
	Scenario  string    `json:"scenario"`
	Strategy  string    `json:"strategy"`
	Figure    string    `json:"figure"`
	Old       Side      `json:"old"`
	New       Side      `json:"new"`
	Change    *float64  `json:"change,omitempty"` // new ÷ old − 1; of conflict_rate new − old; absent where old is 0
	Threshold float64   `json:"threshold"`
	P         float64   `json:"p"`          // Mann–Whitney
	Adjusted  float64   `json:"p_adjusted"` // Holm, over the cells that have the figure
	Judgement Judgement `json:"judgement"`
	Needed    int       `json:"needed,omitempty"` // trials a side that would settle what is inconclusive
}

// Broken is a violation that the old report did not have, of a strategy that claims something.
type Broken struct {
	Race     string `json:"race,omitempty"`
	Scenario string `json:"scenario"`
	Strategy string `json:"strategy"`
	Message  string `json:"message"`
}

// Comparison is a report held against an older one.
type Comparison struct {
	Schema     string   `json:"schema"`
	Difference []string `json:"differences"` // in parameters, which a caller went past
	Broken     []Broken `json:"broken"`
	Rows       []Row    `json:"rows"`
	Notes      []string `json:"notes"`
	Powerless  bool     `json:"powerless,omitempty"` // some figure has too few trials to show any difference
}

// Regressed reports whether anything is worse.
func (c *Comparison) Regressed() bool { return len(c.Broken) > 0 || c.count(Worse) > 0 }

// Conclusive reports whether the trials sufficed to judge everything.
func (c *Comparison) Conclusive() bool { return !c.Powerless && c.count(Inconclusive) == 0 }

func (c *Comparison) count(j Judgement) (n int) {
	for _, r := range c.Rows {
		if r.Judgement == j {
			n++
		}
	}
	return n
}

// figure is what is compared.
type figure struct {
	name   string
	higher bool // is better
	points bool // compared by difference: it may be 0, and a ratio of two small shares says nothing
	of     func(f *bench.Figures) *float64
}

func confirmed(of func(p bench.Percentiles) *float64) func(f *bench.Figures) *float64 {
	return func(f *bench.Figures) *float64 { return of(f.Latency[bench.Confirmed.String()]) }
}

var figures = []figure{
	{"goodput", true, false, func(f *bench.Figures) *float64 { return f.Goodput }},
	{"throughput", true, false, func(f *bench.Figures) *float64 { return f.Throughput }},
	{"p50", false, false, confirmed(func(p bench.Percentiles) *float64 { return p.P50 })},
	{"p95", false, false, confirmed(func(p bench.Percentiles) *float64 { return p.P95 })},
	{"p99", false, false, confirmed(func(p bench.Percentiles) *float64 { return p.P99 })},
	{"conflict_rate", false, true, func(f *bench.Figures) *float64 { return f.ConflictRate }},
	{"amplification", false, false, func(f *bench.Figures) *float64 { return f.Amplification }},
}

// Figures lists the names of what is compared.
func Figures() []string {
	var names []string
	for _, f := range figures {
		names = append(names, f.name)
	}
	return names
}

// Noise holds thresholds by figure, as shares: 0.1 lets a figure become 10 % worse. "" is for those that are not named.
type Noise map[string]float64

func (n Noise) of(figure string) float64 {
	if v, ok := n[figure]; ok {
		return v
	}
	return n[""]
}

type key struct{ race, scenario, strategy string }

func cells(r *bench.Report) (all map[key]*bench.Cell, order []key) {
	all = map[key]*bench.Cell{}
	for i := range r.Cells {
		c := &r.Cells[i]
		if c.NA != "" || len(c.Trials) == 0 {
			continue
		}
		k := key{c.Race, c.Scenario, c.Strategy}
		all[k] = c
		order = append(order, k)
	}
	return all, order
}

// Compare holds newer against older. Whether they may be compared, [Differences] says.
func Compare(older, newer *bench.Report, noise Noise) *Comparison {
	c := &Comparison{Schema: Schema, Difference: []string{}, Broken: []Broken{}, Rows: []Row{}, Notes: []string{}}
	before, order := cells(older)
	after, added := cells(newer)
	for _, side := range []struct {
		name string
		r    *bench.Report
	}{{"old", older}, {"new", newer}} {
		if side.r.Partial {
			c.note("the %s report is of a run that broke off", side.name)
		}
	}
	var both []key
	for _, k := range order {
		if after[k] == nil {
			c.note("%s on %s is in the old report only", k.strategy, k.scenario)
			continue
		}
		both = append(both, k)
	}
	for _, k := range added {
		if before[k] == nil {
			c.note("%s on %s is in the new report only", k.strategy, k.scenario)
		}
	}
	if len(both) == 0 {
		c.note("the reports have no cell in common")
		c.Powerless = true
	}
	for _, k := range both {
		c.audit(k, before[k], after[k])
	}
	for _, f := range figures {
		c.figure(f, both, before, after, noise.of(f.name))
	}
	slices.SortStableFunc(c.Rows, func(a, b Row) int {
		return cmp.Compare(slices.Index(both, a.key()), slices.Index(both, b.key()))
	})
	slices.Sort(c.Notes)
	c.Notes = slices.Compact(c.Notes)
	return c
}

func (r *Row) key() key { return key{r.Race, r.Scenario, r.Strategy} }

func (c *Comparison) note(format string, args ...any) {
	c.Notes = append(c.Notes, fmt.Sprintf(format, args...))
}

// audit looks for violations that are new. They are counted, not sampled: one is enough. A strategy that claims nothing is there to be
// seen breaking, and how often is chance.
func (c *Comparison) audit(k key, before, after *bench.Cell) {
	if len(after.Claim) == 0 {
		return
	}
	say := func(format string, args ...any) {
		c.Broken = append(c.Broken, Broken{k.race, k.scenario, k.strategy, fmt.Sprintf(format, args...)})
	}
	if after.ClaimBroken && !before.ClaimBroken {
		say("its claim is broken, and was not")
	}
	if after.Verdict == bench.Violated && before.Verdict != bench.Violated {
		say("verdict was %s, is violated", before.Verdict)
	}
	for _, name := range slices.Sorted(maps.Keys(after.Audit)) {
		if n := after.Audit[name]; n > 0 && before.Audit[name] == 0 {
			say("%s was 0, is %d", name, n)
		}
	}
}

// values are a figure's over the trials.
func (f *figure) values(c *bench.Cell) (all []float64) {
	for i := range c.Trials {
		if v := f.of(&c.Trials[i].Figures); v != nil {
			all = append(all, *v)
		}
	}
	return all
}

// figure judges one figure of all cells, together: the more cells are looked at, the likelier one seems to differ.
func (c *Comparison) figure(f figure, keys []key, before, after map[key]*bench.Cell, threshold float64) {
	var rows []Row
	var worse, above []float64 // change for the worse; chance that a new trial is worse than an old one
	for _, k := range keys {
		x, y := f.values(before[k]), f.values(after[k])
		if len(x) == 0 || len(y) == 0 {
			if len(x)+len(y) > 0 {
				c.note("%s of %s was measured on one side only", f.name, k.strategy)
			}
			continue
		}
		old, now := benchmath.NewSample(x, &benchmath.DefaultThresholds), benchmath.NewSample(y, &benchmath.DefaultThresholds)
		r := Row{
			Race: k.race, Scenario: k.scenario, Strategy: k.strategy, Figure: f.name, Old: side(old), New: side(now),
			P: benchmath.AssumeNothing.Compare(old, now).P, Threshold: threshold, Judgement: Same,
		}
		change := r.New.Median - r.Old.Median
		if !f.points && change != 0 {
			change /= r.Old.Median
		}
		if !math.IsInf(change, 0) {
			r.Change = &change
		}
		chance := superior(old.Values, now.Values)
		w := change
		if f.higher {
			w, chance = -change, 1-chance
		}
		rows, worse, above = append(rows, r), append(worse, w), append(above, chance)
	}
	holm(rows)
	for i := range rows {
		r := &rows[i]
		least := enough(len(rows))
		few := min(r.Old.Trials, r.New.Trials) < least
		if few {
			c.Powerless = true
			c.note("%d against %d trials cannot show a difference in %d cells, whatever it is: that takes %d a side", r.Old.Trials, r.New.Trials, len(rows), least)
		}
		shown := r.Adjusted <= alpha
		switch {
		case shown && worse[i] > threshold:
			r.Judgement = Worse
		case shown && -worse[i] > threshold:
			r.Judgement = Better
		case worse[i] > threshold:
			r.Judgement = Inconclusive
			r.Needed = max(least, needed(above[i], len(rows)))
		}
	}
	c.Rows = append(c.Rows, rows...)
}

// side sums up one side.
func side(s *benchmath.Sample) Side {
	sum := benchmath.AssumeNothing.Summary(s, 0.95)
	d := Side{Median: sum.Center, Trials: len(s.Values)}
	if !math.IsInf(sum.Lo, 0) && !math.IsInf(sum.Hi, 0) {
		d.Low, d.High = &sum.Lo, &sum.Hi
	}
	return d
}

// holm sets the adjusted p of rows (Holm 1979).
func holm(rows []Row) {
	order := make([]int, len(rows))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rows[a].P, rows[b].P) })
	high := 0.0
	for rank, i := range order {
		high = max(high, min(1, rows[i].P*float64(len(rows)-rank)))
		rows[i].Adjusted = high
	}
}

// superior is the share of pairs in which the new value is greater; ties count half.
func superior(old, now []float64) float64 {
	var n float64
	for _, x := range old {
		for _, y := range now {
			n += float64(cmp.Compare(y, x)+1) / 2
		}
	}
	return n / float64(len(old)*len(now))
}

// enough is how many trials a side the test needs to find anything at all among so many cells: the least p it can give, where every new
// trial is worse than every old one, is 2 ÷ C(2n, n).
func enough(cells int) int {
	n, p := 1, 1.0
	for p*float64(max(cells, 1)) > alpha {
		n++
		p *= float64(n) / float64(2*(2*n-1)) // C(2n, n) from C(2n-2, n-1)
	}
	return n
}

// needed is how many trials a side would find a difference as great as this one seems (Noether 1987); 0 if none would.
func needed(above float64, cells int) int {
	if above <= 0.5 {
		return 0
	}
	z := func(p float64) float64 { return math.Sqrt2 * math.Erfinv(2*p-1) }
	sum := z(1-alpha/2/float64(cells)) + z(power)
	return int(math.Ceil(sum * sum / (6 * (above - 0.5) * (above - 0.5))))
}
