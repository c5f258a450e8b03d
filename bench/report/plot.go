package report

import (
	"fmt"
	"math"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/lockbench/lockbench/bench"
)

// Measures of every plot, in CSS pixels.
const (
	plotWidth   = 520.0
	plotGutter  = 180.0 // left of bars, for labels
	plotLabel   = 20    // columns of a label in it
	legendLabel = 31    // columns of an entry of the legend
	plotRight   = 66.0  // right of bars, for their values
	plotLeft    = 52.0  // left of curves, for the axis
	plotTop     = 54.0  // title and what it means
	plotCurve   = 250.0 // height of a curve's field
	barHeight   = 15.0
	barPitch    = 22.0
	legendPitch = 18.0
	textSize    = 12.0
)

// plot is one picture.
type plot struct {
	name   string
	title  string
	help   string // how to read it
	height float64
	draw   func(cv canvas)
}

// series is a cell in a picture; its number decides what it looks like in all of them.
type series struct {
	*bench.Cell
	number int
	sound  bool
}

// seriesOf returns the cells that ran, in the order of the table.
func seriesOf(r *bench.Report) []series {
	sound, others := ranked(r)
	var all []series
	for _, l := range append(sound, others...) {
		if ran(&l) {
			all = append(all, series{l.cell, len(all), len(all) < len(sound)})
		}
	}
	return all
}

// plots are the pictures that a report has the figures for.
func plots(r *bench.Report) ([]plot, error) {
	var all []plot
	for _, part := range r.Parts() {
		ps, err := plotsOf(part)
		if err != nil {
			return nil, err
		}
		all = append(all, ps...)
	}
	return all, nil
}

// plotsOf are the pictures of one race.
func plotsOf(part bench.Part) ([]plot, error) {
	all := seriesOf(part.Report)
	if len(all) == 0 {
		return nil, nil
	}
	ps := []plot{goodputPlot(all), conflictPlot(all)}
	latency, err := latencyPlot(all, part.Plan.Mode)
	if err != nil {
		return nil, err
	}
	if latency != nil {
		ps = append(ps, *latency)
	}
	if t := timelinePlot(all); t != nil {
		ps = append(ps, *t)
	}
	for i := range ps {
		if part.Name != "" {
			ps[i].name = part.Name + "-" + ps[i].name
			ps[i].title = elide(printable(part.Name), plotLabel) + ": " + ps[i].title
		}
		ps[i] = headed(ps[i])
	}
	return ps, nil
}

// headed is the plot under its title and what it means.
func headed(p plot) plot {
	draw := p.draw
	p.draw = func(cv canvas) {
		cv.text(point{12, 20}, p.title, face{ink: black, size: 15, bold: true})
		cv.text(point{12, 38}, p.help, face{ink: dim, size: textSize})
		draw(cv)
	}
	return p
}

// bar is one bar of a picture.
type bar struct {
	series
	value    float64
	text     string
	interval *bench.Interval
}

func goodputPlot(all []series) plot {
	var bars []bar
	for _, s := range all {
		if s.Goodput == nil {
			continue
		}
		b := bar{series: s, value: *s.Goodput, text: number(*s.Goodput) + "/s"}
		if i, ok := s.Intervals["goodput"]; ok {
			b.interval = &i
		}
		bars = append(bars, b)
	}
	most := 0.0
	for _, b := range bars {
		most = max(most, b.value)
		if b.interval != nil {
			most = max(most, b.interval.High)
		}
	}
	return barPlot(plot{
		name: "goodput", title: "Goodput", help: "confirmed operations per second; outlined: not sound, so not ranked",
	}, bars, linear(most, 6), "/s")
}

func conflictPlot(all []series) plot {
	var bars []bar
	for _, s := range all {
		if s.ConflictRate != nil {
			bars = append(bars, bar{series: s, value: *s.ConflictRate * 100, text: scaled(s.ConflictRate, 100, " %")})
		}
	}
	return barPlot(plot{name: "conflicts", title: "Conflict rate", help: "attempts that lost a race, of all attempts"}, bars, linear(100, 5), "%")
}

// barPlot draws horizontal bars, so that labels can be read. A rule parts the ranked from the others.
func barPlot(p plot, bars []bar, sc scale, unit string) plot {
	bottom := plotTop + barPitch*float64(len(bars))
	p.height = bottom + 28
	p.draw = func(cv canvas) {
		width := plotWidth - plotGutter - plotRight
		at := func(v float64) float64 { return plotGutter + width*sc.of(v) }
		for _, t := range sc.ticks {
			segment(cv, point{at(t), plotTop - 2}, point{at(t), bottom}, pen{ink: grey, width: 1})
			cv.text(point{at(t), bottom + 15}, tickText(t), face{ink: dim, size: textSize, anchor: middle})
		}
		cv.text(point{plotWidth - 12, bottom + 15}, unit, face{ink: dim, size: textSize, anchor: end})
		for i, b := range bars {
			y := plotTop + barPitch*float64(i)
			if i > 0 && bars[i-1].sound && !b.sound {
				segment(cv, point{12, y - 1}, point{plotWidth - 12, y - 1}, pen{ink: dim, width: 1, dash: true})
			}
			drawBar(cv, b, y+(barPitch-barHeight)/2, at)
		}
	}
	return p
}

func drawBar(cv canvas, b bar, y float64, at func(float64) float64) {
	base := y + barHeight - 3.5
	mark(cv, b.number, point{18, y + barHeight/2}, 9, "")
	cv.text(point{28, base}, elide(printable(b.Strategy), plotLabel), face{ink: black, size: textSize})
	tip := fmt.Sprintf("%s: %s (%s)", printable(b.Strategy), b.text, b.Verdict)
	x, reach := at(0), at(b.value)
	p := pen{ink: seriesInk(b.number), fill: true, tip: tip}
	if !b.sound {
		p.fill, p.width = false, 1.5
	}
	if reach-x > 0 {
		box(cv, x, y, reach-x, barHeight, p)
	}
	if i := b.interval; i != nil {
		mid := y + barHeight/2
		segment(cv, point{at(i.Low), mid}, point{at(i.High), mid}, pen{ink: black, width: 1.5, tip: fmt.Sprintf("95 %% of the medians: %s to %s", number(i.Low), number(i.High))})
		for _, end := range []float64{i.Low, i.High} {
			segment(cv, point{at(end), mid - 4}, point{at(end), mid + 4}, pen{ink: black, width: 1.5})
		}
		reach = max(reach, at(i.High))
	}
	cv.text(point{reach + 6, base}, b.text, face{ink: black, size: textSize})
}

// curve is one line of a picture; from thin on, it rests on too little to be relied on.
type curve struct {
	series
	pts  []point    // x from 0 to 1, y from 0 to 1 upwards
	thin int        // index of the first point that rests on too little; len(pts): none
	dots []dot      // where a symbol stands
	bars [][2]point // how far the figures at a symbol spread
	bare bool       // a thin line without an entry in the legend: what another curve was fitted with
}

type dot struct {
	at  point
	tip string
}

// latencyPlot shows the latencies of confirmed operations; nil if the report holds no histograms.
func latencyPlot(all []series, mode bench.Mode) (*plot, error) {
	type measured struct {
		series
		h *hdrhistogram.Histogram
	}
	var ms []measured
	var most int64
	low, high := math.Inf(1), 0.0
	for _, s := range all {
		h, err := distribution(s.Cell, bench.Confirmed)
		if err != nil {
			return nil, err
		}
		if h == nil || h.TotalCount() == 0 {
			continue
		}
		ms = append(ms, measured{s, h})
		most = max(most, h.TotalCount())
		low, high = min(low, float64(max(h.Min(), 1))/1000), max(high, float64(max(h.Max(), 1))/1000)
	}
	if len(ms) == 0 {
		return nil, nil
	}
	x, y := nines(most), logarithmic(low, high)
	var curves []curve
	for _, m := range ms {
		curves = append(curves, latencyCurve(m.series, m.h, x, y))
	}
	kind := "service time"
	if mode == bench.Open {
		kind = "response time"
	}
	p := curvePlot(plot{name: "latency", title: "Latency of confirmed operations", help: kind + "; thin: fewer than ten operations lie beyond; dashed: not sound"},
		curves, x, y, func(q float64) string {
			if q == 0 {
				return "min"
			}
			return "p" + tickText(q)
		}, "percentile", "ms")
	return &p, nil
}

// latencyCurve reads the percentiles of a histogram off at equal steps of the axis.
func latencyCurve(s series, h *hdrhistogram.Histogram, x, y scale) curve {
	c := curve{series: s}
	n := h.TotalCount()
	add := func(q float64) {
		v := float64(max(h.ValueAtPercentile(q), 1)) / 1000
		c.pts = append(c.pts, point{x.of(q), y.of(v)})
		if q == 0 || n >= bench.MinSamples(q) {
			c.thin = len(c.pts)
		}
	}
	const steps = 40 // a decade
	last := math.Log10(float64(n))
	for k := 0; float64(k)/steps <= last; k++ {
		add(100 * (1 - math.Pow(10, -float64(k)/steps)))
	}
	for _, q := range []float64{50, 90, 99, 99.9} {
		if float64(n)*(1-q/100) >= 1 {
			v := float64(h.ValueAtPercentile(q)) / 1000
			mark := ""
			if n < bench.MinSamples(q) {
				mark = "~"
			}
			c.dots = append(c.dots, dot{point{x.of(q), y.of(max(v, 0.001))}, fmt.Sprintf("%s: p%g %s%s ms", printable(s.Strategy), q, mark, number(v))})
		}
	}
	return c
}

// timelinePlot shows what was confirmed in each second of the trial whose counts the table shows; nil if nothing lasted three seconds.
func timelinePlot(all []series) *plot {
	var shown []series
	seconds, most := 0, 0.0
	for _, s := range all {
		tl := timelineOf(s.Cell)
		if len(tl) < 3 {
			continue
		}
		shown = append(shown, s)
		seconds = max(seconds, len(tl))
		for _, sec := range tl {
			most = max(most, float64(sec.Confirmed))
		}
	}
	if len(shown) == 0 {
		return nil
	}
	x, y := linear(float64(seconds), min(10, seconds)), linear(most, 6)
	var curves []curve
	for _, s := range shown {
		c := curve{series: s}
		for i, sec := range timelineOf(s.Cell) {
			at := point{x.of(float64(i) + 0.5), y.of(float64(sec.Confirmed))}
			c.pts = append(c.pts, at)
			c.dots = append(c.dots, dot{at, fmt.Sprintf("%s, second %d: %s confirmed, %s finished, %s lost a race", printable(s.Strategy), i+1,
				count(sec.Confirmed), count(sec.Finished), plural(sec.Contention, "attempt", "attempts"))})
		}
		c.thin = len(c.pts)
		curves = append(curves, c)
	}
	p := curvePlot(plot{name: "timeline", title: "Second by second", help: "confirmed in each whole second of the trial whose counts are shown"},
		curves, x, y, tickText, "seconds since the measured window began", "operations/s")
	return &p
}

// timelineOf is the timeline of the trial whose counts stand in the cell, without a last second that was cut short: it would look like
// a collapse.
func timelineOf(c *bench.Cell) []bench.Second {
	for i := range c.Trials {
		if t := &c.Trials[i]; t.Number == c.Trial {
			return t.Timeline[:min(len(t.Timeline), int(t.DurationS+0.05))]
		}
	}
	return nil
}

// curvePlot draws curves over a grid, with the legend below: beside them it would take the width that they need on a phone.
func curvePlot(p plot, curves []curve, x, y scale, tick func(float64) string, across, up string) plot {
	bottom := plotTop + 14 + plotCurve
	named := slices.DeleteFunc(slices.Clone(curves), func(c curve) bool { return c.bare })
	rows := (len(named) + 1) / 2
	p.height = bottom + 48 + legendPitch*float64(rows) + 10
	p.draw = func(cv canvas) {
		left, width := plotLeft, plotWidth-plotLeft-24
		at := func(q point) point { return point{left + width*q.x, bottom - plotCurve*q.y} }
		for _, t := range x.ticks {
			a := at(point{x.of(t), 0})
			segment(cv, a, point{a.x, bottom - plotCurve}, pen{ink: grey, width: 1})
			cv.text(point{a.x, bottom + 16}, tick(t), face{ink: dim, size: textSize, anchor: middle})
		}
		for _, t := range y.ticks {
			a := at(point{0, y.of(t)})
			segment(cv, a, point{left + width, a.y}, pen{ink: grey, width: 1})
			cv.text(point{left - 6, a.y + 4}, tickText(t), face{ink: dim, size: textSize, anchor: end})
		}
		cv.text(point{left - 6, bottom - plotCurve - 12}, up, face{ink: dim, size: textSize, anchor: start})
		cv.text(point{left + width, bottom + 32}, across, face{ink: dim, size: textSize, anchor: end})
		for i := len(curves) - 1; i >= 0; i-- { // the best lies on top
			drawCurve(cv, curves[i], at)
		}
		for i, c := range named {
			row, column := float64(i%rows), float64(i/rows)
			legend(cv, c.series, point{left + column*(plotWidth-left)/2, bottom + 52 + legendPitch*row})
		}
	}
	return p
}

func drawCurve(cv canvas, c curve, at func(point) point) {
	pts := make([]point, len(c.pts))
	for i, q := range c.pts {
		pts[i] = at(q)
	}
	p := pen{ink: seriesInk(c.number), width: 2, dash: !c.sound, tip: printable(c.Strategy)}
	for _, b := range c.bars {
		low, high := at(b[0]), at(b[1])
		segment(cv, low, high, pen{ink: seriesInk(c.number), width: 1.5})
		for _, end := range []point{low, high} {
			segment(cv, point{end.x - 3, end.y}, point{end.x + 3, end.y}, pen{ink: seriesInk(c.number), width: 1.5})
		}
	}
	if c.thin > 1 {
		cv.path(pts[:c.thin], false, p)
	}
	if c.thin < len(pts) {
		p.width = 0.8
		cv.path(pts[max(0, c.thin-1):], false, p)
	}
	for _, d := range c.dots {
		mark(cv, c.number, at(d.at), 8, d.tip)
	}
}

func legend(cv canvas, s series, at point) {
	segment(cv, point{at.x, at.y}, point{at.x + 22, at.y}, pen{ink: seriesInk(s.number), width: 2, dash: !s.sound})
	mark(cv, s.number, point{at.x + 11, at.y}, 8, "")
	suffix := ""
	if !s.sound {
		suffix = " (" + s.Verdict.String() + ")"
	}
	text := elide(printable(s.Strategy), legendLabel-len(suffix)) + suffix
	cv.text(point{at.x + 29, at.y + 4}, text, face{ink: black, size: textSize})
}

// stack puts all plots below each other and returns the height.
func stack(ps []plot) (height float64, draw func(cv canvas)) {
	for _, p := range ps {
		height += p.height + 8
	}
	return height, func(cv canvas) {
		down := 0.0
		for _, p := range ps {
			p.draw(shifted{cv, down})
			down += p.height + 8
		}
	}
}

// nothingToPlot is the error of a report without cells that ran.
func nothingToPlot() error {
	return bench.Hintf("take the report of a run that was not stopped at once", "this report holds nothing to plot: no cell has run")
}
