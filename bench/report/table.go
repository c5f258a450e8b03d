package report

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"github.com/mattn/go-runewidth"
	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"

	"github.com/lockbench/lockbench/bench"
)

// padding is what the table puts around a cell's text.
const padding = 2

// textWidth is the widest that sentences are set.
const textWidth = 110

// writeTable writes the report for a terminal: of several races one after the other.
func writeTable(w io.Writer, r *bench.Report, o Options) error {
	width := textWidth
	if o.Width > 0 {
		width = min(width, o.Width)
	}
	if r.Partial {
		for _, l := range wrap("PARTIAL: the run was stopped; this is what was measured until then", width) {
			if _, err := fmt.Fprintln(w, paint(o, yellow, l)); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
	}
	p := &prose{w: w, width: width}
	for i, part := range r.Parts() {
		if part.Name != "" {
			if i > 0 {
				fmt.Fprintln(w)
			}
			if _, err := fmt.Fprintf(w, "%s\n\n", paint(o, bold, elide(printable(part.Name), width))); err != nil {
				return err
			}
		}
		if err := tableOf(w, p, part, o); err != nil {
			return err
		}
	}
	p.footer(footer(r))
	return p.err
}

// tableOf writes what is to be said of one race.
func tableOf(w io.Writer, p *prose, part bench.Part, o Options) error {
	r := part.Report
	sound, others := ranked(r)
	grid := newGrid(worthwhile(r.Cells), sound, others)
	dropped := grid.fit(o.Width)
	if err := grid.draw(w, o); err != nil {
		return err
	}
	p.wrote = false // a table stands before what follows
	p.note("", grid.legend())
	if len(dropped) > 0 {
		p.note("", "left out for want of width: "+strings.Join(dropped, ", ")+" (a wider terminal, --format markdown or csv has them)")
	}
	p.note("", counting(r))
	p.gap()
	for _, s := range sentences(r) {
		p.note("", s)
	}
	p.gap()
	for _, f := range failures(r) {
		p.note(paint(o, red, "failed:  "), f)
	}
	for _, wg := range warnings(r) {
		p.note(paint(o, yellow, "warning: "), wg.message)
		if wg.fix != "" {
			p.note("         ", "fix: "+wg.fix)
		}
	}
	if part.Name != "" {
		p.gap()
		p.note("", load(r))
	}
	return p.err
}

// counting says whose counts the table shows, where that is not plain.
func counting(r *bench.Report) string {
	most := 0
	for i := range r.Cells {
		most = max(most, len(r.Cells[i].Trials))
	}
	if most < 2 {
		return ""
	}
	return fmt.Sprintf("counts: of the median of %d trials by goodput, and of the worst one where something was violated; latencies: confirmed operations of all", most)
}

// grid is the table as text, before it is drawn.
type grid struct {
	cols  []column
	rows  [][]string
	cells []*bench.Cell // of the rows
	rules []int         // rows above which a rule stands
}

func newGrid(cols []column, sound, others []line) *grid {
	g := &grid{cols: cols, rules: []int{len(sound)}}
	for _, lines := range [][]line{sound, others} {
		for i := range lines {
			row := make([]string, len(cols))
			for j := range cols {
				row[j] = printable(cols[j].text(&lines[i]))
			}
			g.rows = append(g.rows, row)
			g.cells = append(g.cells, lines[i].cell)
		}
	}
	return g
}

func (g *grid) widths() []int {
	ws := make([]int, len(g.cols))
	for j, c := range g.cols {
		ws[j] = columnsOf(c.head)
		for _, row := range g.rows {
			ws[j] = max(ws[j], columnsOf(row[j]))
		}
	}
	return ws
}

func (g *grid) width() int {
	total := 0
	for _, w := range g.widths() {
		total += w + padding
	}
	return total
}

// keepAtLeast is how many of the most important columns stay however narrow the terminal is.
const keepAtLeast = 2

// What labels are shortened to before a figure has to go, and before an essential one has to.
const (
	shortLabel    = 24
	shortestLabel = 18
)

// fit shortens long labels, leaves out the least important columns until the table fits, and gives the essential ones shorter heads and
// labels before one of those has to go. It returns the heads left out.
func (g *grid) fit(width int) (dropped []string) {
	if width <= 0 {
		return nil
	}
	g.shorten(max(shortLabel, g.widths()[g.label()]-max(0, g.width()-width)))
	for g.width() > width && g.cols[g.least()].rank > essential {
		dropped = append(dropped, g.drop())
	}
	if g.width() > width {
		for j := range g.cols {
			if c := &g.cols[j]; c.short != "" {
				c.full, c.head = c.head, c.short
			}
		}
		g.shorten(max(shortestLabel, g.widths()[g.label()]-max(0, g.width()-width)))
	}
	for g.width() > width && len(g.cols) > keepAtLeast {
		dropped = append(dropped, g.drop())
	}
	if over := g.width() - width; over > 0 {
		g.shorten(max(4, g.widths()[g.label()]-over))
	}
	slices.SortStableFunc(dropped, func(a, b string) int { return cmp.Compare(order(a), order(b)) })
	return dropped
}

// legend says what the shorter heads stand for; "" if there are none.
func (g *grid) legend() string {
	var all, ms []string
	for _, c := range g.cols {
		switch {
		case c.full == "":
		case c.full == c.head+" ms":
			ms = append(ms, c.head)
		default:
			all = append(all, c.head+" "+c.full)
		}
	}
	if len(ms) > 0 {
		all = append(all, strings.Join(ms, " and ")+" in ms")
	}
	if len(all) == 0 {
		return ""
	}
	return "heads: " + strings.Join(all, ", ")
}

// least is the least important column, the last of several.
func (g *grid) least() int {
	worst := 0
	for j := range g.cols {
		if g.cols[j].rank >= g.cols[worst].rank {
			worst = j
		}
	}
	return worst
}

// drop leaves out the least important column and returns its head. Where it counted anomalies the verdict says how many there were.
func (g *grid) drop() string {
	at := g.least()
	gone := g.cols[at]
	g.cols = slices.Delete(g.cols, at, at+1)
	for i := range g.rows {
		g.rows[i] = slices.Delete(g.rows[i], at, at+1)
	}
	if gone.anomaly {
		for j, c := range g.cols {
			for i := range g.rows {
				if c.head == "verdict" {
					g.rows[i][j] = countedVerdict(&line{cell: g.cells[i]})
				}
			}
		}
	}
	return cmp.Or(gone.full, gone.head)
}

// label is the column that can be shortened: the widest of those that never go.
func (g *grid) label() int {
	widest := 0
	for j, w := range g.widths() {
		if g.cols[j].rank == 0 && w > g.widths()[widest] {
			widest = j
		}
	}
	return widest
}

// shorten cuts labels to a width.
func (g *grid) shorten(width int) {
	j := g.label()
	for i := range g.rows {
		g.rows[i][j] = elide(g.rows[i][j], width)
	}
	g.cols[j].head = elide(g.cols[j].head, width)
}

// elide leaves out the middle of a text: variants of a strategy often differ in their last option only.
func elide(text string, width int) string {
	over := columnsOf(text) - width
	if over <= 0 {
		return text
	}
	tail := (width - 1) / 3
	var c runewidth.Condition
	return c.Truncate(text, width-1-tail, "") + "…" + c.TruncateLeft(text, columnsOf(text)-tail, "")
}

// columnsOf is how many columns of a terminal a text takes, whatever the locale of the machine that renders it.
func columnsOf(text string) int {
	var c runewidth.Condition
	return c.StringWidth(text)
}

// printable replaces what would steer the terminal rather than be read: a report may come from anywhere.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return ' '
		}
		return r
	}, text)
}

// order is a column's place in reading order.
func order(head string) int {
	return slices.IndexFunc(columns(), func(c column) bool { return c.head == head })
}

func (g *grid) draw(w io.Writer, o Options) error {
	aligns := make(tw.Alignment, len(g.cols))
	heads := make([]string, len(g.cols))
	for j, c := range g.cols {
		heads[j] = c.head
		aligns[j] = tw.AlignRight
		if c.left {
			aligns[j] = tw.AlignLeft
		}
	}
	var buf bytes.Buffer
	t := tablewriter.NewTable(&buf,
		tablewriter.WithRenderer(renderer.NewBlueprint(tw.Rendition{
			Borders: tw.BorderNone, Symbols: tw.NewSymbols(tw.StyleLight),
			Settings: tw.Settings{
				Separators: tw.Separators{BetweenColumns: tw.Off, BetweenRows: tw.Off, ShowHeader: tw.On},
				Lines:      tw.Lines{ShowTop: tw.Off, ShowBottom: tw.Off, ShowHeaderLine: tw.On},
			},
		})),
		tablewriter.WithHeaderAutoFormat(tw.Off), tablewriter.WithHeaderAutoWrap(tw.WrapNone), tablewriter.WithRowAutoWrap(tw.WrapNone),
		tablewriter.WithAlignment(aligns))
	t.Header(heads)
	ws := g.widths()
	for i, row := range g.rows {
		if i > 0 && slices.Contains(g.rules, i) {
			rule := make([]string, len(ws))
			for j := range ws {
				rule[j] = strings.Repeat("─", ws[j])
			}
			if err := t.Append(rule); err != nil {
				return err
			}
		}
		if err := t.Append(g.colored(i, row, o)); err != nil {
			return err
		}
	}
	if err := t.Render(); err != nil {
		return err
	}
	for l := range strings.Lines(buf.String()) {
		if _, err := fmt.Fprintln(w, strings.TrimRight(l, " \n")); err != nil {
			return err
		}
	}
	return nil
}

// colored paints what a reader looks for: the verdict, and the strategy that won.
func (g *grid) colored(i int, row []string, o Options) []string {
	if !o.Color {
		return row
	}
	row = slices.Clone(row)
	for j, c := range g.cols {
		switch {
		case c.head == "verdict":
			row[j] = paint(o, verdictColor(g.cells[i]), row[j])
		case j == 0 && i == 0 && g.cells[i].Verdict == bench.Sound:
			row[j] = paint(o, bold, row[j])
		}
	}
	return row
}

func verdictColor(c *bench.Cell) string {
	switch {
	case c.NA != "" || len(c.Trials) == 0:
		return faint
	case c.Verdict == bench.Sound:
		return green
	case c.Verdict == bench.Violated:
		return red
	}
	return yellow
}

// ANSI colours; the reader's own palette decides what they look like.
const (
	bold   = "1"
	faint  = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
)

func paint(o Options, color, text string) string {
	if !o.Color || text == "" {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

// prose writes paragraphs, wrapped between words.
type prose struct {
	w     io.Writer
	width int
	fresh bool // nothing was written since the last gap
	wrote bool
	err   error
}

// note writes one paragraph behind a label; lines after the first are set in.
func (p *prose) note(label, text string) {
	if text == "" || p.err != nil {
		return
	}
	if p.fresh && p.wrote {
		_, p.err = fmt.Fprintln(p.w)
	} else if !p.wrote {
		_, p.err = fmt.Fprintln(p.w)
	}
	p.fresh, p.wrote = false, true
	indent := "  "
	if label != "" {
		indent = "         "
	}
	for i, l := range wrap(printable(text), p.width-len(indent)) {
		lead := indent
		if i == 0 {
			lead = label
		}
		if p.err == nil {
			_, p.err = fmt.Fprintln(p.w, strings.TrimRight(lead+l, " "))
		}
	}
}

// footer writes the lines that make the figures reproducible. The command stays in one piece, so that it can be copied from a terminal,
// which breaks lines without putting anything into them.
func (p *prose) footer(lines []string) {
	p.gap()
	for _, l := range lines {
		if !strings.HasPrefix(l, again) {
			p.note("", l)
		} else if p.err == nil {
			_, p.err = fmt.Fprintln(p.w, printable(l))
		}
	}
}

// gap puts an empty line before the next paragraph, if there is one.
func (p *prose) gap() { p.fresh = true }

// wrap breaks text between words; a word that is wider than a line is broken.
func wrap(text string, width int) []string {
	width = max(width, 10)
	var lines []string
	current := ""
	for _, word := range strings.Fields(text) {
		for columnsOf(word) > width {
			if current != "" {
				lines, current = append(lines, current), ""
			}
			var c runewidth.Condition
			head := c.Truncate(word, width, "")
			lines, word = append(lines, head), word[len(head):]
		}
		switch {
		case current == "":
			current = word
		case columnsOf(current)+1+columnsOf(word) <= width:
			current += " " + word
		default:
			lines, current = append(lines, current), word
		}
	}
	if current != "" {
		lines = append(lines, current)
	}
	return lines
}
