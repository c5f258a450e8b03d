// Package article makes docs/article.md: a template whose every measured figure is read out of saved reports. A sentence that compares
// states its direction to the template, which fails where the reports do not bear it out.
package article

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/bench/gate"
	"github.com/lockbench/lockbench/bench/report"
	"github.com/lockbench/lockbench/bench/sweep"
	"github.com/lockbench/lockbench/internal/reference"
)

// Template and Folder are the names of the template and of the folder with reports, traces and plots, below docs.
const (
	Template = "article.md.tmpl"
	Folder   = "article"
)

// author holds what the template may ask for.
type author struct {
	folder string
	races  *bench.Report
	sweep  *sweep.Sweep
	files  map[string][]byte // plots, by path below docs
}

// Make reads template, reports and traces below docs, and returns the article and its plots by their paths below docs.
func Make(docs string) (map[string][]byte, error) {
	a := &author{folder: filepath.Join(docs, Folder), files: map[string][]byte{}}
	text, err := os.ReadFile(filepath.Join(docs, Template)) //nolint:gosec // the caller names the folder
	if err != nil {
		return nil, err
	}
	if err := a.load("races.json", func(f *os.File) (err error) { a.races, err = report.Read(f); return err }); err != nil {
		return nil, err
	}
	if err := a.load("sweep.json", func(f *os.File) (err error) { a.sweep, err = sweep.Read(f); return err }); err != nil {
		return nil, err
	}
	t, err := template.New(Template).Funcs(a.functions()).Option("missingkey=error").Parse(string(text))
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := t.Execute(&out, nil); err != nil {
		return nil, err
	}
	a.files["article.md"] = out.Bytes()
	return a.files, nil
}

func (a *author) load(name string, read func(*os.File) error) error {
	f, err := os.Open(filepath.Join(a.folder, name)) //nolint:gosec // the caller names the folder
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := read(f); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// functions are what the template may call. Each fails where the reports do not hold what is asked for.
func (a *author) functions() template.FuncMap {
	return template.FuncMap{
		"is":         a.is,
		"n":          a.n,
		"percent":    a.percent,
		"times":      a.times,
		"more":       a.more,
		"about":      a.about,
		"none":       a.none,
		"few":        a.few,
		"sum":        a.sum,
		"plan":       a.plan,
		"claimed":    a.claimed,
		"finding":    a.finding,
		"table":      a.table,
		"plot":       a.plot,
		"command":    a.command,
		"trace":      a.trace,
		"where":      a.where,
		"sweepTable": a.sweepTable,
		"sweepPlot":  a.sweepPlot,
		"curves":     a.curves,
		"sweepRun":   func() string { return a.sweep.Report.Command },
	}
}

func (a *author) race(name string) (*bench.Report, error) {
	var names []string
	for _, p := range a.races.Parts() {
		if p.Name == name {
			return p.Report, nil
		}
		names = append(names, p.Name)
	}
	return nil, fmt.Errorf("no race is called %q; there are %v", name, names)
}

func (a *author) cell(race, strategy string) (*bench.Cell, error) {
	r, err := a.race(race)
	if err != nil {
		return nil, err
	}
	for i := range r.Cells {
		if c := &r.Cells[i]; c.Strategy == strategy && c.NA == "" {
			return c, nil
		}
	}
	return nil, fmt.Errorf("%s does not race in %s", strategy, race)
}

func (a *author) value(race, strategy, figure string) (float64, error) {
	c, err := a.cell(race, strategy)
	if err != nil {
		return 0, err
	}
	return gate.Value(c, figure)
}

// is holds a strategy to a verdict; it writes nothing.
func (a *author) is(race, strategy, verdict string) (string, error) {
	c, err := a.cell(race, strategy)
	if err == nil && c.Verdict.String() != verdict {
		err = fmt.Errorf("%s is %s in %s, not %s", strategy, c.Verdict, race, verdict)
	}
	return "", err
}

// n is a figure in its own unit.
func (a *author) n(race, strategy, figure string) (string, error) {
	v, err := a.value(race, strategy, figure)
	return number(v), err
}

// percent is a share.
func (a *author) percent(race, strategy, figure string) (string, error) {
	v, err := a.value(race, strategy, figure)
	return number(100*v) + "\u00a0%", err
}

// pair reads the same figure of two strategies. Where both have an interval over trials, they must not overlap if the two are said to
// differ.
func (a *author) pair(race, figure, high, low string) (x, y float64, settled bool, err error) {
	p, err := a.cell(race, high)
	if err != nil {
		return 0, 0, false, err
	}
	q, err := a.cell(race, low)
	if err != nil {
		return 0, 0, false, err
	}
	if x, err = gate.Value(p, figure); err == nil {
		y, err = gate.Value(q, figure)
	}
	settled = x > y
	i, iok := p.Intervals[figure]
	j, jok := q.Intervals[figure]
	if iok && jok {
		settled = i.Low > j.High
	}
	return x, y, settled, err
}

// more holds one strategy to a higher figure than another's; it writes nothing.
func (a *author) more(race, figure, high, low string) (string, error) {
	x, y, settled, err := a.pair(race, figure, high, low)
	if err == nil && !settled {
		err = fmt.Errorf("that %s of %s (%s) is more than of %s (%s) in %s is not what the trials say", figure, high, number(x), low, number(y), race)
	}
	return "", err
}

// times is how many times as high one strategy's figure is as another's, which must be lower.
func (a *author) times(race, figure, high, low string) (string, error) {
	if _, err := a.more(race, figure, high, low); err != nil {
		return "", err
	}
	x, y, _, err := a.pair(race, figure, high, low)
	if err == nil && y <= 0 {
		err = fmt.Errorf("%s of %s is 0 in %s: nothing is a multiple of it", figure, low, race)
	}
	return strconv.FormatFloat(x/y, 'f', 1, 64) + "\u00a0×", err
}

// about holds two strategies to figures that are alike, within a fifth; it writes nothing.
func (a *author) about(race, figure, one, other string) (string, error) {
	x, y, _, err := a.pair(race, figure, one, other)
	if err == nil && math.Abs(x-y) > math.Max(x, y)/5 {
		err = fmt.Errorf("%s of %s (%s) and of %s (%s) are not alike in %s", figure, one, number(x), other, number(y), race)
	}
	return "", err
}

// none holds a figure to 0, in the cell and in each trial; it writes nothing.
func (a *author) none(race, strategy, figure string) (string, error) {
	c, err := a.cell(race, strategy)
	if err != nil {
		return "", err
	}
	all := []bench.Figures{c.Figures}
	for i := range c.Trials {
		all = append(all, c.Trials[i].Figures)
	}
	for _, f := range all {
		v, err := gate.Value(&bench.Cell{Strategy: strategy, Figures: f}, figure)
		if err != nil {
			return "", err
		}
		if v != 0 {
			return "", fmt.Errorf("%s of %s is %s in %s, not 0", figure, strategy, number(v), race)
		}
	}
	return "", nil
}

// few holds a share to a tenth at the most; it writes nothing.
func (a *author) few(race, strategy, figure string) (string, error) {
	v, err := a.value(race, strategy, figure)
	if err == nil && v > 0.1 {
		err = fmt.Errorf("%s of %s is %s in %s, which is not few", figure, strategy, number(v), race)
	}
	return "", err
}

// sum adds a figure up over all trials; it must be more than 0.
func (a *author) sum(race, strategy, figure string) (string, error) {
	c, err := a.cell(race, strategy)
	if err != nil {
		return "", err
	}
	total := 0.0
	for i := range c.Trials {
		v, err := gate.Value(&bench.Cell{Strategy: strategy, Figures: c.Trials[i].Figures}, figure)
		if err != nil {
			return "", err
		}
		total += v
	}
	if total == 0 {
		return "", fmt.Errorf("%s of %s is 0 in every trial of %s", figure, strategy, race)
	}
	return number(total), nil
}

// plan is a parameter of a race, by its name in the JSON form, or one of the scenario's own.
func (a *author) plan(race, name string) (string, error) {
	r, err := a.race(race)
	if err != nil {
		return "", err
	}
	p := &r.Plan
	if text, ok := p.Options[name]; ok {
		return text, nil
	}
	switch name {
	case "users":
		return number(float64(p.Users)), nil
	case "connections":
		return number(float64(p.Connections)), nil
	case "instances":
		return number(float64(p.Processes())), nil
	case "rows":
		return number(float64(p.Rows)), nil
	case "capacity":
		return number(float64(p.Capacity)), nil
	case "trials":
		return number(float64(p.Trials)), nil
	case "think":
		return p.Think.String(), nil
	}
	return "", fmt.Errorf("race %s has no parameter %q that the article knows", race, name)
}

// claimed holds every sound strategy of a race to the same figure, and returns it.
func (a *author) claimed(race, figure string) (string, error) {
	r, err := a.race(race)
	if err != nil {
		return "", err
	}
	same := math.NaN()
	for i := range r.Cells {
		c := &r.Cells[i]
		if c.Verdict != bench.Sound {
			continue
		}
		v, err := gate.Value(c, figure)
		if err != nil {
			return "", err
		}
		if !math.IsNaN(same) && v != same {
			return "", fmt.Errorf("%s of the sound strategies in %s is %s and %s", figure, race, number(same), number(v))
		}
		same = v
	}
	if math.IsNaN(same) {
		return "", fmt.Errorf("no strategy is sound in %s", race)
	}
	return number(same), nil
}

// finding tells what the audit found of a strategy first.
func (a *author) finding(race, strategy string) (string, error) {
	c, err := a.cell(race, strategy)
	if err != nil {
		return "", err
	}
	if len(c.Findings) == 0 {
		return "", fmt.Errorf("nothing was found of %s in %s", strategy, race)
	}
	return c.Findings[0].Message, nil
}

// table is the race's own, in Markdown.
func (a *author) table(race string) (string, error) {
	r, err := a.race(race)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	err = report.Write(&out, "markdown", r, report.Options{})
	return tableOf(out.String()), err
}

// tableOf leaves what is a table of a Markdown text.
func tableOf(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "|") {
			lines = append(lines, line)
		}
	}
	return strings.TrimSpace(strings.Join(lines, ""))
}

// plot draws a race into a file and returns the picture.
func (a *author) plot(race string) (string, error) {
	r, err := a.race(race)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	if err := report.Write(&out, "svg", r, report.Options{}); err != nil {
		return "", err
	}
	a.files[Folder+"/"+race+".svg"] = out.Bytes()
	return fmt.Sprintf("![%s: goodput, conflicts and latencies](%s/%s.svg)", race, Folder, race), nil
}

// command races the race alone.
func (a *author) command(race string) (string, error) {
	r, err := a.race(race)
	if err != nil {
		return "", err
	}
	p := &r.Plan
	words := []string{"lockbench run"}
	if p.Scenario != "seats" {
		words = append(words, "--scenario "+p.Scenario)
	}
	if all := strings.Join(p.Strategies, ","); all != bench.All {
		words = append(words, "--strategy "+all)
	}
	words = append(words, fmt.Sprintf("--users %d --rows %d --capacity %d --think %s --trials %d", p.Users, p.Rows, p.Capacity, p.Think, p.Trials))
	if p.Instances > 1 {
		words = append(words, fmt.Sprintf("--instances %d", p.Instances))
	}
	return reference.Flags(strings.Join(words, " "), p.Options), nil
}

// trace is a recorded trace, as Mermaid.
func (a *author) trace(name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(a.folder, filepath.Base(name)+".mmd"))
	return "```mermaid\n" + strings.TrimSpace(string(text)) + "\n```", err
}

// where says on what the figures were measured.
func (a *author) where() string {
	s, h := &a.races.Environment.Server, &a.races.Environment.Host
	durable := "durable"
	if !s.Durable {
		durable = "not durable"
	}
	return fmt.Sprintf("PostgreSQL %s, %s, on %s/%s with %d processors, %s", s.Version, durable, h.OS, h.Arch, h.CPUs, a.races.Started.UTC().Format("2 January 2006"))
}

func (a *author) swept(format string) (string, error) {
	var out strings.Builder
	err := report.WriteSweep(&out, format, a.sweep, report.Options{})
	return out.String(), err
}

func (a *author) sweepTable() (string, error) {
	text, err := a.swept("markdown")
	return tableOf(text), err
}

func (a *author) sweepPlot() (string, error) {
	text, err := a.swept("svg")
	a.files[Folder+"/sweep.svg"] = []byte(text)
	return fmt.Sprintf("![how goodput and attempts change with users](%s/sweep.svg)", Folder), err
}

// curves are the sentences of the sweep, one a strategy.
func (a *author) curves() (string, error) {
	text, err := a.swept("markdown")
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "|") || strings.HasPrefix(line, "<sub>") || strings.HasPrefix(line, "*") || strings.HasPrefix(line, "- **") {
			continue
		}
		lines = append(lines, "- "+strings.TrimPrefix(line, "- "))
	}
	return strings.Join(lines, "\n"), err
}

// number writes a figure with three significant digits, a whole number with all of them.
func number(v float64) string {
	if v == math.Trunc(v) && math.Abs(v) < 1e6 {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	digits := max(0, 2-int(math.Floor(math.Log10(math.Abs(v)))))
	return strconv.FormatFloat(v, 'f', digits, 64)
}
