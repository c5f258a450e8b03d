package report

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/lockbench/lockbench/bench"
)

// Source is a report with the name by which it is told from others, as that of its file.
type Source struct {
	Name string
	*bench.Report
}

// trait is something by which cells of several reports can be put together.
type trait struct {
	name string
	of   func(s *Source, c *bench.Cell) string
}

func traits() []trait {
	all := []trait{
		{"file", func(s *Source, _ *bench.Cell) string { return s.Name }},
		{"race", func(_ *Source, c *bench.Cell) string { return c.Race }},
		{"scenario", func(_ *Source, c *bench.Cell) string { return c.Scenario }},
		{"strategy", func(_ *Source, c *bench.Cell) string { return c.Strategy }},
	}
	for _, p := range settings() {
		all = append(all, trait{p.name, func(s *Source, c *bench.Cell) string { return p.of(s.PlanOf(c)) }})
	}
	return all
}

// GroupKeys lists what cells can be grouped by.
func GroupKeys() []string {
	var names []string
	for _, t := range traits() {
		names = append(names, t.name)
	}
	return names
}

// groupWriter writes grouped rows.
type groupWriter func(w io.Writer, g *sideBySide, o Options) error

func groupFormats() map[string]groupWriter {
	return map[string]groupWriter{"table": groupTable, "markdown": groupMarkdown, "csv": groupCSV}
}

// CanGroup refuses a format in which cells of several reports do not stand side by side.
func CanGroup(format string) error {
	if _, ok := groupFormats()[format]; ok {
		return nil
	}
	return bench.Hintf("use table, markdown or csv", "there is no %q form of several reports side by side", format)
}

// WriteGrouped writes the cells of several reports into one table: those that are alike in what by names stand together. The order of
// names is that of the table's first columns.
func WriteGrouped(w io.Writer, format string, sources []Source, by []string, o Options) error {
	if err := CanGroup(format); err != nil {
		return err
	}
	return groupFormats()[format](w, newSideBySide(sources, by), o)
}

// sideBySide are the cells of several reports in the order of their groups.
type sideBySide struct {
	sources []Source
	keys    []trait // what they are grouped by, then what else tells them apart
	by      int     // how many of the keys they are grouped by
	rows    []groupedRow
}

type groupedRow struct {
	source *Source
	cell   *bench.Cell
	keys   []string
}

func newSideBySide(sources []Source, by []string) *sideBySide {
	g := &sideBySide{sources: sources, by: len(by)}
	all := traits()
	for _, name := range by {
		g.keys = append(g.keys, all[slices.IndexFunc(all, func(t trait) bool { return t.name == name })])
	}
	// A trait in which all cells are alike tells nothing; the strategy always stands.
	for _, t := range all {
		if !slices.Contains(by, t.name) && (t.name == "strategy" || g.differs(t)) {
			g.keys = append(g.keys, t)
		}
	}
	for i := range sources {
		for j := range sources[i].Cells {
			row := groupedRow{source: &sources[i], cell: &sources[i].Cells[j]}
			for _, t := range g.keys {
				row.keys = append(row.keys, t.of(row.source, row.cell))
			}
			g.rows = append(g.rows, row)
		}
	}
	g.sort()
	return g
}

// differs reports whether a trait tells cells apart.
func (g *sideBySide) differs(t trait) bool {
	seen := map[string]bool{}
	for i := range g.sources {
		for j := range g.sources[i].Cells {
			seen[t.of(&g.sources[i], &g.sources[i].Cells[j])] = true
		}
	}
	return len(seen) > 1
}

// sort puts groups together: numbers by size, names in the order in which they first came. Within a group, cells stay as they came.
func (g *sideBySide) sort() {
	first := make([]map[string]int, g.by)
	for k := range first {
		first[k] = map[string]int{}
		for i, row := range g.rows {
			if _, seen := first[k][row.keys[k]]; !seen {
				first[k][row.keys[k]] = i
			}
		}
	}
	slices.SortStableFunc(g.rows, func(a, b groupedRow) int {
		for k := range g.by {
			x, err := strconv.ParseFloat(a.keys[k], 64)
			y, err2 := strconv.ParseFloat(b.keys[k], 64)
			c := cmp.Compare(first[k][a.keys[k]], first[k][b.keys[k]])
			if err == nil && err2 == nil {
				c = cmp.Compare(x, y)
			}
			if c != 0 {
				return c
			}
		}
		return 0
	})
}

// grid is the table as text, with a rule between groups. A share of the fastest is left out: cells of different runs are not ranked.
func (g *sideBySide) grid() *grid {
	var cells []bench.Cell
	var lines []line
	of := map[*bench.Cell]*groupedRow{}
	for i := range g.rows {
		row := &g.rows[i]
		cells = append(cells, *row.cell)
		lines = append(lines, line{cell: row.cell})
		of[row.cell] = row
	}
	var cols []column
	for k, t := range g.keys {
		_, err := strconv.ParseFloat(g.rows[0].keys[k], 64)
		rank := 0
		if k >= g.by && t.name != "strategy" && t.name != "file" {
			rank = 9 // it tells more than most figures, and less than the telling ones
		}
		cols = append(cols, column{head: t.name, rank: rank, left: err != nil, text: func(l *line) string { return of[l.cell].keys[k] }})
	}
	for _, c := range worthwhile(cells) {
		if c.head != "strategy" && c.head != "× fastest" {
			cols = append(cols, c)
		}
	}
	gr := newGrid(cols, nil, lines)
	gr.rules = nil
	for i := 1; i < len(g.rows); i++ {
		if !slices.Equal(g.rows[i-1].keys[:g.by], g.rows[i].keys[:g.by]) {
			gr.rules = append(gr.rules, i)
		}
	}
	return gr
}

// notes say where each report comes from, and that it has more to say.
func (g *sideBySide) notes() (all []string) {
	for _, s := range g.sources {
		text := s.Name + ": " + strings.Join(footer(s.Report), " · ")
		if n := len(warnings(s.Report)); n > 0 {
			text += fmt.Sprintf(" · %s, which lockbench report %s tells", plural(n, "warning", "warnings"), s.Name)
		}
		all = append(all, text)
	}
	return all
}

func groupTable(w io.Writer, g *sideBySide, o Options) error {
	if len(g.rows) == 0 {
		return nothingToGroup()
	}
	gr := g.grid()
	dropped := gr.fit(o.Width)
	if err := gr.draw(w, o); err != nil {
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
	p.note("", gr.legend())
	p.gap()
	for _, n := range g.notes() {
		p.note("", n)
	}
	return p.err
}

func groupMarkdown(w io.Writer, g *sideBySide, _ Options) error {
	if len(g.rows) == 0 {
		return nothingToGroup()
	}
	if err := g.grid().markdown(w); err != nil {
		return err
	}
	for _, n := range g.notes() {
		if _, err := fmt.Fprintf(w, "\n<sub>%s</sub>\n", literal(n)); err != nil {
			return err
		}
	}
	return nil
}

// groupCSV writes one row a report, cell and trial.
func groupCSV(w io.Writer, g *sideBySide, _ Options) error {
	var all bench.Report
	for _, s := range g.sources {
		all.Cells = append(all.Cells, s.Cells...)
	}
	fields := csvFields(auditCounts(&all))
	head := []string{"file"}
	for _, f := range append(raceFields(&all), fields...) {
		head = append(head, f.name)
	}
	out := csv.NewWriter(w)
	if err := out.Write(head); err != nil {
		return err
	}
	for _, r := range g.rows {
		for j := range r.cell.Trials {
			row := []string{r.source.Name}
			for _, f := range append(raceFields(r.source.Report), fields...) {
				row = append(row, f.of(r.cell, &r.cell.Trials[j]))
			}
			if err := out.Write(row); err != nil {
				return err
			}
		}
	}
	out.Flush()
	return out.Error()
}

func nothingToGroup() error {
	return bench.Hintf("take reports of runs that were not stopped at once", "these reports hold no cells")
}
