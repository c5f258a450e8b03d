package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

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

// writeTable writes the report for a terminal.
func writeTable(w io.Writer, r *bench.Report, o Options) error {
	sound, others := ranked(r)
	cols := worthwhile(r.Cells)
	grid := newGrid(cols, sound, others)
	dropped := grid.fit(o.Width)
	if r.Partial {
		if _, err := fmt.Fprintf(w, "%s\n\n", paint(o, yellow, "PARTIAL: the run was stopped; this is what was measured until then")); err != nil {
			return err
		}
	}
	if err := grid.draw(w, o); err != nil {
		return err
	}
	width := textWidth
	if o.Width > 0 {
		width = min(width, o.Width)
	}
	p := &prose{w: w, width: width}
	if len(dropped) > 0 {
		p.note("", "left out for want of width: "+strings.Join(dropped, ", ")+" (a wider terminal, --format markdown or csv has them)")
	}
	p.note("", counting(r))
	p.gap()
	for _, s := range sentences(r) {
		p.note("", s)
	}
	p.gap()
	for _, wg := range warnings(r) {
		p.note(paint(o, yellow, "warning: "), wg.message)
		if wg.fix != "" {
			p.note("         ", "fix: "+wg.fix)
		}
	}
	p.gap()
	for _, f := range footer(r) {
		p.note("", f)
	}
	return p.err
}

// counting says whose counts the table shows, where that is not plain.
func counting(r *bench.Report) string {
	if r.Plan.Trials < 2 {
		return ""
	}
	return fmt.Sprintf("counts: the median of %d trials by goodput; overbooked, lost and the like: the worst of them; latencies: confirmed operations of all", r.Plan.Trials)
}

// grid is the table as text, before it is drawn.
type grid struct {
	cols  []column
	rows  [][]string
	cells []*bench.Cell // of the rows
	rule  int           // row above which the rule stands; len(rows): none
}

func newGrid(cols []column, sound, others []line) *grid {
	g := &grid{cols: cols, rule: len(sound)}
	if len(sound) == 0 {
		g.rule = len(others)
	}
	for _, lines := range [][]line{sound, others} {
		for i := range lines {
			row := make([]string, len(cols))
			for j := range cols {
				row[j] = cols[j].text(&lines[i])
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
		ws[j] = runewidth.StringWidth(c.head)
		for _, row := range g.rows {
			ws[j] = max(ws[j], runewidth.StringWidth(row[j]))
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

// fit leaves out the least important columns until the table fits, and then shortens labels. It returns the heads left out.
func (g *grid) fit(width int) (dropped []string) {
	if width <= 0 {
		return nil
	}
	for g.width() > width && len(g.cols) > keepAtLeast {
		worst := 0
		for j := range g.cols {
			if g.cols[j].rank >= g.cols[worst].rank {
				worst = j
			}
		}
		dropped = append(dropped, g.cols[worst].head)
		g.cols = slices.Delete(g.cols, worst, worst+1)
		for i := range g.rows {
			g.rows[i] = slices.Delete(g.rows[i], worst, worst+1)
		}
	}
	if over := g.width() - width; over > 0 {
		limit := max(4, g.widths()[0]-over)
		for i := range g.rows {
			g.rows[i][0] = runewidth.Truncate(g.rows[i][0], limit, "…")
		}
		g.cols[0].head = runewidth.Truncate(g.cols[0].head, limit, "…")
	}
	slices.SortStableFunc(dropped, func(a, b string) int { return cmp.Compare(order(a), order(b)) })
	return dropped
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
	t := tablewriter.NewTable(w,
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
		if i == g.rule && i > 0 && i < len(g.rows) {
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
	return t.Render()
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
	for i, l := range wrap(text, p.width-len(indent)) {
		lead := indent
		if i == 0 {
			lead = label
		}
		if p.err == nil {
			_, p.err = fmt.Fprintln(p.w, strings.TrimRight(lead+l, " "))
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
		for runewidth.StringWidth(word) > width {
			if current != "" {
				lines, current = append(lines, current), ""
			}
			head := runewidth.Truncate(word, width, "")
			lines, word = append(lines, head), word[len(head):]
		}
		switch {
		case current == "":
			current = word
		case runewidth.StringWidth(current)+1+runewidth.StringWidth(word) <= width:
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
