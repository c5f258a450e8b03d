package report

import (
	"cmp"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/bench/sweep"
)

// sweepSeries are the strategies of a sweep, as pictures know them.
func sweepSeries(s *sweep.Sweep) []series {
	var all []series
	for i := range s.Curves {
		c := &s.Curves[i]
		all = append(all, series{&bench.Cell{Strategy: c.Strategy, Verdict: c.Verdict}, i, c.Verdict != bench.Violated})
	}
	return all
}

// sweepPlots are the pictures of a sweep.
func sweepPlots(s *sweep.Sweep) ([]plot, error) {
	p, err := sweep.Lookup(s.Parameter)
	if err != nil {
		return nil, err
	}
	if len(s.Curves) == 0 {
		return nil, nothingToPlot()
	}
	var ps []plot
	for _, f := range []sweepFigure{
		{
			name: "goodput", title: "Goodput", help: "confirmed a second", unit: "/s",
			of: func(f *bench.Figures) *float64 { return f.Goodput }, law: (*sweep.Scaling).At,
		},
		{
			name: "amplification", title: "Attempts per confirmed operation", help: "1: nobody had to try again",
			of: func(f *bench.Figures) *float64 { return f.Amplification }, logarithmic: true,
		},
		{
			name: "p99_ms", title: "99th percentile of confirmed operations", help: "where enough were confirmed", unit: "ms",
			of: func(f *bench.Figures) *float64 {
				if l := f.Latency[bench.Confirmed.String()]; l.Count >= bench.MinSamples(99) {
					return l.P99
				}
				return nil
			}, logarithmic: true,
		},
	} {
		if drawn := sweepPlot(s, p, f); drawn != nil {
			ps = append(ps, headed(*drawn))
		}
	}
	return ps, nil
}

// sweepFigure is what one picture of a sweep shows.
type sweepFigure struct {
	name, title, help, unit string // the name is that of its interval, too
	of                      func(f *bench.Figures) *float64
	law                     func(s *sweep.Scaling, n float64) float64 // the fitted curve, drawn thin; nil: none
	logarithmic             bool
}

// dodge is by which share of the width the strategies of one point stand apart.
const dodge = 0.008

// narrow is the share of a linear axis below which a curve could not be read.
const narrow = 0.02

func sweepPlot(s *sweep.Sweep, p sweep.Parameter, f sweepFigure) *plot {
	type spread struct{ at, value, low, high float64 }
	all := sweepSeries(s)
	of := make([][]spread, len(all))
	var values []float64
	least, most, highest := math.Inf(1), 0.0, math.Inf(1) // highest: the lowest of the curves' highest values
	interval := true
	for i, se := range all {
		top := 0.0
		for _, pt := range s.Points(se.Strategy) {
			v := f.of(&pt.Cell.Figures)
			if v == nil || *v <= 0 {
				continue
			}
			sp := spread{pt.Value, *v, *v, *v}
			if iv, ok := pt.Cell.Intervals[f.name]; ok {
				sp.low, sp.high = iv.Low, iv.High
			} else {
				interval = false
				for k := range pt.Cell.Trials {
					if w := f.of(&pt.Cell.Trials[k].Figures); w != nil && *w > 0 {
						sp.low, sp.high = min(sp.low, *w), max(sp.high, *w)
					}
				}
			}
			of[i] = append(of[i], sp)
			values = append(values, pt.Value)
			least, most, top = min(least, sp.low), max(most, sp.high), max(top, *v)
		}
		if top > 0 {
			highest = min(highest, top)
		}
	}
	if len(values) == 0 {
		return nil // nothing was confirmed, or not often enough
	}
	x := across(values)
	var y scale
	if f.logarithmic || highest < narrow*most {
		low := min(least, most/1.5)
		y = logarithmic(low, most)
		if most/low < 10 {
			y = logarithmicBy(low, most, 1, 1.2, 1.5, 2, 3, 4, 6, 8)
		}
	} else {
		y = linear(most, 6)
	}
	kind := "lowest and highest trial"
	if interval {
		kind = "95 % interval of the median"
	}
	f.help += "; bars: " + kind
	var curves []curve
	thin := false
	for i, se := range all {
		c := curve{series: se}
		fitted := s.Curves[i].Scaling
		for _, sp := range of[i] {
			// Side by side, so that the bars of one point can be told apart.
			here := point{x.of(sp.at) + dodge*(float64(i)-float64(len(all)-1)/2), y.of(sp.value)}
			c.pts = append(c.pts, here)
			tip := fmt.Sprintf("%s at %s: %s%s (%s to %s)", printable(se.Strategy), at(p, sp.at), number(sp.value), f.unit, number(sp.low), number(sp.high))
			c.dots = append(c.dots, dot{here, tip})
			if sp.high > sp.low {
				c.bars = append(c.bars, [2]point{{here.x, y.of(sp.low)}, {here.x, y.of(sp.high)}})
			}
		}
		c.thin = len(c.pts)
		curves = append(curves, c)
		if f.law != nil && fitted != nil {
			thin = true
			law := curve{series: se, bare: true}
			from, to := fitted.From, fitted.To
			for k := range 61 {
				n := from * math.Pow(to/from, float64(k)/60)
				if v := f.law(fitted, n); y.of(v) <= 1.02 {
					law.pts = append(law.pts, point{x.of(n), y.of(v)})
				}
			}
			curves = append(curves, law)
		}
	}
	if thin {
		f.help += "; thin: the law"
	}
	name := p.Name
	if p.Unit != "" {
		name += ", " + p.Unit
	}
	drawn := curvePlot(plot{name: f.name, title: f.title, help: f.help}, curves, x, y, tickText, name, f.unit)
	return &drawn
}

// across is the axis of the parameter, with ticks at the values that were measured. It is logarithmic where they span more than a factor
// of four, since values are mostly doubled; a 0 has no place on such an axis.
func across(values []float64) scale {
	slices.SortFunc(values, cmp.Compare)
	values = slices.Compact(values)
	low, high := values[0], values[len(values)-1]
	s := linear(high, 6)
	if low > 0 && high > 4*low {
		s.of = func(v float64) float64 { return math.Log(v/low) / math.Log(high/low) }
		s.ticks = nil
	}
	if s.ticks == nil || len(values) == 1 {
		const apart = 0.06 // of the width: a tick's text
		s.ticks = nil
		for _, v := range values {
			if n := len(s.ticks); n == 0 || s.of(v)-s.of(s.ticks[n-1]) >= apart {
				s.ticks = append(s.ticks, v)
			}
		}
	}
	return s
}

func sweepSVG(w io.Writer, s *sweep.Sweep, _ Options) error {
	ps, err := sweepPlots(s)
	if err != nil {
		return err
	}
	return drawSVG(w, "sweep of "+s.Parameter, ps)
}

func sweepPNG(w io.Writer, s *sweep.Sweep, _ Options) error {
	ps, err := sweepPlots(s)
	if err != nil {
		return err
	}
	return drawPNG(w, ps)
}

// judged holds one cell a strategy, with what its points say of it together.
func judged(s *sweep.Sweep) *bench.Report {
	r := &bench.Report{Partial: s.Report.Partial}
	for _, c := range s.Curves {
		var one bench.Cell
		for _, pt := range s.Points(c.Strategy) {
			broken := one.ClaimBroken || pt.Cell.ClaimBroken
			one = *pt.Cell
			one.Verdict, one.ClaimBroken = c.Verdict, broken
		}
		r.Cells = append(r.Cells, one)
	}
	return r
}

// sweepHTML writes the sweep as one page that needs nothing else.
func sweepHTML(w io.Writer, s *sweep.Sweep, _ Options) error {
	parts := s.Report.Parts()
	last := parts[len(parts)-1]
	one := *s.Report
	one.Plan, one.Races = last.Plan, nil
	p := &page{
		Title:   fmt.Sprintf("%s, %s: %s swept", printable(one.Plan.Scenario), one.Plan.Mode, s.Parameter),
		Partial: one.Partial, Command: printable(one.Command), Inks: template.CSS(inkRules()), //nolint:gosec // made of constants
	}
	race := htmlRace{Note: "One row a strategy and point. ~ marks a percentile that rests on fewer than ten operations beyond it, – what was not measured."}
	p.Verdict, p.Headline = headline(judged(s))
	p.Headline = printable(p.Headline)
	for _, text := range sweepSentences(s) {
		race.Sentences = append(race.Sentences, printable(text))
	}
	told := telling(s)
	for _, f := range failures(told) {
		race.Failures = append(race.Failures, printable(f))
	}
	for _, wg := range warnings(told) {
		race.Warnings = append(race.Warnings, htmlWarning{printable(wg.message), printable(wg.fix)})
	}
	cols, rows := sweepRows(s)
	for _, c := range cols {
		race.Head = append(race.Head, htmlHead{c.head, c.left})
	}
	symbols := map[string]template.HTML{}
	for _, se := range sweepSeries(s) {
		symbols[se.Strategy] = symbol(se.number)
	}
	var body []htmlRow
	for i := range rows {
		l := &rows[i]
		row := htmlRow{Mark: symbols[l.cell.Strategy], Class: verdict(l)}
		for _, c := range cols {
			row.Cells = append(row.Cells, htmlCell{printable(c.text(l)), c.left})
		}
		if i > 0 && rows[i-1].cell.Strategy != l.cell.Strategy {
			race.Bodies, body = append(race.Bodies, body), nil
		}
		body = append(body, row)
	}
	race.Bodies = append(race.Bodies, body)
	race.violations(&one)
	p.environment(&one)
	ps, err := sweepPlots(s)
	if err != nil {
		return err
	}
	for i := range ps {
		race.Plots = append(race.Plots, htmlPlot{ps[i].name, ps[i].title, template.HTML(ps[i].element())}) //nolint:gosec // svg escapes every text
	}
	p.Races = []htmlRace{race}
	t, err := template.New("report").Parse(htmlTemplate)
	if err != nil {
		return err
	}
	return t.Execute(w, p)
}
