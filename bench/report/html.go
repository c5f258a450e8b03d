package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/lockbench/lockbench/bench"
)

//go:embed html.tmpl
var htmlTemplate string

// page is what the template shows.
type page struct {
	Title, Headline string
	Verdict         bench.Verdict
	Partial         bool
	Races           []htmlRace
	Facts           [][2]string
	Settings        [][2]string
	Command         string
	Build           string
	Inks            template.CSS
}

// htmlRace is what the page shows of one race.
type htmlRace struct {
	Name       string // empty where there is only one
	Load       string
	Sentences  []string
	Failures   []string
	Note       string // how to read the table
	Counting   string
	Head       []htmlHead
	Bodies     [][]htmlRow // ranked cells and the others, which are sorted apart
	Plots      []htmlPlot
	Violations []htmlViolation
	Warnings   []htmlWarning
	Trials     []htmlTrial
}

type htmlHead struct {
	Text string
	Left bool
}

type htmlRow struct {
	Mark  template.HTML
	Class string
	Cells []htmlCell
}

type htmlCell struct {
	Text string
	Left bool
}

type htmlPlot struct {
	Name, Title string
	SVG         template.HTML
}

type htmlViolation struct {
	Strategy string
	Broken   bool
	Findings []htmlFinding
}

type htmlFinding struct {
	Anomaly, Message string
	Count            string
	Trial            int
	Witnesses        []htmlWitness
}

type htmlWitness struct {
	Which, User, Row, Tries, From, To string
	Told, Holds                       string
}

type htmlWarning struct{ Message, Fix string }

type htmlTrial struct {
	Strategy string
	Number   int
	Order    int
	Verdict  string
	Figures  []string
}

// writeHTML writes one file that needs nothing else: no network, and no script but for sorting the table.
func writeHTML(w io.Writer, r *bench.Report, _ Options) error {
	t, err := template.New("report").Parse(htmlTemplate)
	if err != nil {
		return err
	}
	p, err := newPage(r)
	if err != nil {
		return err
	}
	return t.Execute(w, p)
}

func newPage(r *bench.Report) (*page, error) {
	p := &page{Partial: r.Partial, Command: printable(r.Command), Inks: template.CSS(inkRules())} //nolint:gosec // made of constants
	p.Verdict, p.Headline = headline(r)
	p.Headline = printable(p.Headline)
	for _, part := range r.Parts() {
		race, err := newRace(part)
		if err != nil {
			return nil, err
		}
		p.Races = append(p.Races, *race)
	}
	p.Title = plural(len(r.Races), "race", "races")
	if len(r.Races) == 0 {
		p.Title = loadTitle(r)
	}
	p.environment(r)
	return p, nil
}

// loadTitle says what was raced, in a line.
func loadTitle(r *bench.Report) string {
	return fmt.Sprintf("%s, %s: %s on %s", printable(r.Plan.Scenario), r.Plan.Mode, plural(r.Plan.Users, "user", "users"), plural(r.Plan.Connections, "connection", "connections"))
}

func newRace(part bench.Part) (*htmlRace, error) {
	r := part.Report
	p := &htmlRace{
		Name: printable(part.Name), Counting: counting(r),
		Note: "Only sound strategies are ranked; the others stand below the rule. ~ marks a percentile that rests on fewer than ten operations beyond it, – what was not measured.",
	}
	if part.Name != "" {
		p.Load = printable(load(r))
	}
	for _, s := range sentences(r) {
		p.Sentences = append(p.Sentences, printable(s))
	}
	for _, f := range failures(r) {
		p.Failures = append(p.Failures, printable(f))
	}
	for _, wg := range warnings(r) {
		p.Warnings = append(p.Warnings, htmlWarning{printable(wg.message), printable(wg.fix)})
	}
	p.table(r)
	p.violations(r)
	p.trials(r)
	ps, err := plotsOf(part)
	for i := range ps {
		p.Plots = append(p.Plots, htmlPlot{ps[i].name, ps[i].title, template.HTML(ps[i].element())}) //nolint:gosec // svg escapes every text
	}
	return p, err
}

// table fills in the rows, with the symbols by which the plots know them.
func (p *htmlRace) table(r *bench.Report) {
	cols := worthwhile(r.Cells)
	for _, c := range cols {
		p.Head = append(p.Head, htmlHead{c.head, c.left})
	}
	symbols := map[*bench.Cell]template.HTML{}
	for _, s := range seriesOf(r) {
		symbols[s.Cell] = symbol(s.number)
	}
	sound, others := ranked(r)
	for _, lines := range [][]line{sound, others} {
		var rows []htmlRow
		for i := range lines {
			l := &lines[i]
			row := htmlRow{Mark: symbols[l.cell], Class: strings.NewReplacer("/", "", " ", "").Replace(verdict(l))}
			for _, c := range cols {
				row.Cells = append(row.Cells, htmlCell{printable(c.text(l)), c.left})
			}
			rows = append(rows, row)
		}
		if len(rows) > 0 {
			p.Bodies = append(p.Bodies, rows)
		}
	}
}

// symbol is a strategy's mark as a picture of its own.
func symbol(number int) template.HTML {
	var s svg
	mark(&s, number, point{6, 6}, 9, "")
	return template.HTML(`<svg viewBox="0 0 12 12" width="12" height="12" aria-hidden="true">` + s.b.String() + `</svg>`) //nolint:gosec // made of numbers
}

func (p *htmlRace) violations(r *bench.Report) {
	_, others := ranked(r)
	for _, l := range others {
		if len(l.cell.Findings) == 0 {
			continue
		}
		v := htmlViolation{Strategy: printable(l.cell.Strategy), Broken: l.cell.ClaimBroken}
		for i := range l.cell.Findings {
			v.Findings = append(v.Findings, htmlFindingOf(&l.cell.Findings[i]))
		}
		p.Violations = append(p.Violations, v)
	}
}

func htmlFindingOf(f *bench.Finding) htmlFinding {
	out := htmlFinding{Anomaly: string(f.Anomaly), Message: printable(f.Message), Count: count(f.Count), Trial: f.Trial}
	switch {
	case f.First != nil && f.Worst != nil && *f.First == *f.Worst:
		out.Witnesses = append(out.Witnesses, htmlWitnessOf("first, worst", f.First))
	default:
		if f.First != nil {
			out.Witnesses = append(out.Witnesses, htmlWitnessOf("first", f.First))
		}
		if f.Worst != nil {
			out.Witnesses = append(out.Witnesses, htmlWitnessOf("worst", f.Worst))
		}
	}
	return out
}

// htmlWitnessOf leaves out user and times of what no single user was told, as the sum of all confirmations.
func htmlWitnessOf(which string, w *bench.Witness) htmlWitness {
	h := htmlWitness{Which: which, User: dash, Row: fmt.Sprint(w.Row), Tries: dash, From: dash, To: dash, Told: printable(w.Told), Holds: printable(w.Holds)}
	if w.User > 0 {
		h.User, h.Tries = fmt.Sprint(w.User), fmt.Sprint(w.Attempts)
		h.From, h.To = fmt.Sprintf("%.1f", w.StartMS), fmt.Sprintf("%.1f", w.EndMS)
	}
	return h
}

func (p *htmlRace) trials(r *bench.Report) {
	sound, others := ranked(r)
	for _, l := range append(sound, others...) {
		for i := range l.cell.Trials {
			t := &l.cell.Trials[i]
			one := &line{cell: &bench.Cell{Figures: t.Figures, Trials: l.cell.Trials[i : i+1]}}
			row := htmlTrial{Strategy: printable(l.cell.Strategy), Number: t.Number, Order: t.Order, Verdict: t.Verdict.String()}
			for _, c := range trialColumns() {
				row.Figures = append(row.Figures, c.text(one))
			}
			p.Trials = append(p.Trials, row)
		}
	}
}

// trialColumns are the figures shown of every trial.
func trialColumns() []column {
	return slices.DeleteFunc(columns(), func(c column) bool {
		return !slices.Contains([]string{"confirmed", "goodput/s", "p50 ms", "p99 ms"}, c.head)
	})
}

// environment is where and how the figures were taken.
func (p *page) environment(r *bench.Report) {
	lines := footer(r)
	names := []string{"server", "load", "program"}
	if len(r.Races) > 0 {
		names = []string{"server", "program"}
	}
	if len(lines) > 0 && r.Command != "" {
		lines = lines[:len(lines)-1] // the command stands alone
	}
	if r.Environment.Server.Version == "" {
		names = names[1:]
	}
	for i, l := range lines {
		p.Facts = append(p.Facts, [2]string{names[i], printable(l)})
	}
	if d := r.Environment.Server.Description; d != "" {
		p.Facts = append(p.Facts, [2]string{"installation", printable(d)})
	}
	s := r.Environment.Server.Settings
	for _, name := range slices.Sorted(maps.Keys(s)) {
		p.Settings = append(p.Settings, [2]string{printable(name), printable(s[name])})
	}
	p.Build = "lockbench " + printable(r.Lockbench.Version)
}
