package report

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/bench/sweep"
)

// WriteSweep writes the sweep in a format. Those that have no form of their own for it write its races.
func WriteSweep(w io.Writer, name string, s *sweep.Sweep, o Options) error {
	own := map[string]func(w io.Writer, s *sweep.Sweep, o Options) error{
		"table": sweepTable, "markdown": sweepMarkdown, "json": sweepJSON, "html": sweepHTML, "svg": sweepSVG, "png": sweepPNG,
	}
	if write := own[name]; write != nil {
		return write(w, s, o)
	}
	return Write(w, name, s.Report, o)
}

// sweepRows are the points of all strategies as rows of one table.
func sweepRows(s *sweep.Sweep) (cols []column, rows []line) {
	p, err := sweep.Lookup(s.Parameter)
	if err != nil {
		return nil, nil // refused where it was read
	}
	values := map[*bench.Cell]string{}
	var cells []bench.Cell
	for _, strategy := range s.Strategies() {
		for _, pt := range s.Points(strategy) {
			values[pt.Cell] = p.Text(pt.Value)
			rows = append(rows, line{cell: pt.Cell})
			cells = append(cells, *pt.Cell)
		}
	}
	head := p.Name
	switch p.Unit {
	case "ms":
		head += " ms"
	default:
		head += p.Unit
	}
	for _, c := range worthwhile(cells) {
		switch {
		case slices.Contains([]string{"× fastest", "rejected", "max ms"}, c.head):
			continue // what a run's own table is for
		case !slices.ContainsFunc(rows, func(l line) bool { text := c.text(&l); return text != "0" && text != dash }):
			continue // nothing of the kind at any point
		case c.head == "verdict":
			cols = append(cols, column{head: head, text: func(l *line) string { return values[l.cell] }})
		}
		// On a narrow terminal a curve needs its figures first; counts are summed up by the verdict.
		if i := slices.Index([]string{"strategy", "goodput/s", "attempts/conf", "verdict", "p99 ms", "conflicts", "p50 ms"}, c.head); i >= 0 {
			c.rank = i
		} else {
			c.rank += 10
		}
		cols = append(cols, c)
	}
	return cols, rows
}

// sweepTable writes the sweep for a terminal.
func sweepTable(w io.Writer, s *sweep.Sweep, o Options) error {
	width := textWidth
	if o.Width > 0 {
		width = min(width, o.Width)
	}
	if s.Report.Partial {
		for _, l := range wrap(sweepStopped, width) {
			if _, err := fmt.Fprintln(w, paint(o, yellow, l)); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
	}
	cols, rows := sweepRows(s)
	g := newGrid(cols, nil, rows)
	dropped := g.fit(o.Width)
	if err := g.draw(w, o); err != nil {
		return err
	}
	p := &prose{w: w, width: width}
	p.note("", g.legend())
	if len(dropped) > 0 {
		p.note("", "left out for want of width: "+strings.Join(dropped, ", ")+" (a wider terminal, --format markdown or csv has them)")
	}
	p.gap()
	for _, text := range sweepSentences(s) {
		p.note("", text)
	}
	p.gap()
	told := telling(s)
	for _, f := range failures(told) {
		p.note(paint(o, red, "failed:  "), f)
	}
	for _, wg := range warnings(told) {
		p.note(paint(o, yellow, "warning: "), wg.message)
		if wg.fix != "" {
			p.note("         ", "fix: "+wg.fix)
		}
	}
	p.gap()
	p.footer(sweepFooter(s))
	return p.err
}

const sweepStopped = "PARTIAL: the sweep was stopped; this is what was measured until then"

// telling is the sweep's report without warnings that say of a single point what other points have settled, as that one user alone meets
// nobody. The others say at which point they were given.
func telling(s *sweep.Sweep) *bench.Report {
	r := *s.Report
	r.Warnings = nil
	for _, w := range s.Report.Warnings {
		c := s.Curve(w.Strategy)
		if c != nil && c.Verdict != bench.Undetermined && slices.Contains([]string{"no-contention", "little-contention", "no-anomaly", "nothing-confirmed"}, w.Code) {
			continue
		}
		if w.Race != "" {
			w.Message = "at " + w.Race + ": " + w.Message
		}
		r.Warnings = append(r.Warnings, w)
	}
	r.Gate = slices.Clone(r.Gate)
	for i := range r.Gate {
		if a := &r.Gate[i]; a.Race != "" {
			a.Message = "at " + a.Race + ": " + a.Message
		}
	}
	return &r
}

// sweepFooter is what makes the figures reproducible.
func sweepFooter(s *sweep.Sweep) []string {
	parts := s.Report.Parts()
	last := parts[len(parts)-1]
	p, err := sweep.Lookup(s.Parameter)
	if err != nil {
		return nil
	}
	var values []string
	for _, part := range parts {
		values = append(values, p.Text(p.Of(&part.Plan)))
	}
	one := *last.Report
	lines := footer(&one)
	swept := fmt.Sprintf("swept: %s %s%s; the last point was", p.Name, strings.Join(values, ", "), p.Unit)
	for i, l := range lines {
		if strings.HasPrefix(l, one.Plan.Scenario+", ") {
			lines[i] = swept + " " + l
		}
	}
	return lines
}

// sweepMarkdown writes the sweep for a post.
func sweepMarkdown(w io.Writer, s *sweep.Sweep, _ Options) error {
	if s.Report.Partial {
		if _, err := fmt.Fprint(w, "**Partial:** the sweep was stopped; this is what was measured until then.\n\n"); err != nil {
			return err
		}
	}
	var b strings.Builder
	for _, text := range sweepSentences(s) {
		fmt.Fprintf(&b, "- %s\n", literal(text))
	}
	b.WriteString("\n")
	if _, err := io.WriteString(w, b.String()); err != nil {
		return err
	}
	cols, rows := sweepRows(s)
	if err := newGrid(cols, nil, rows).markdown(w); err != nil {
		return err
	}
	b.Reset()
	notes(&b, telling(s))
	for _, f := range sweepFooter(s) {
		if command, ok := strings.CutPrefix(f, again); ok {
			f = again + code(command)
		} else {
			f = literal(f)
		}
		fmt.Fprintf(&b, "<sub>%s</sub><br>\n", f)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func sweepJSON(w io.Writer, s *sweep.Sweep, _ Options) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(s)
}
