package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"

	"github.com/lockbench/lockbench/bench"
)

// writeMarkdown writes the report for a post: every column, and the footer that makes it reproducible.
func writeMarkdown(w io.Writer, r *bench.Report, _ Options) error {
	if r.Partial {
		if _, err := fmt.Fprint(w, "**Partial:** the run was stopped; this is what was measured until then.\n\n"); err != nil {
			return err
		}
	}
	for _, part := range r.Parts() {
		if part.Name != "" {
			if _, err := fmt.Fprintf(w, "### %s\n\n", literal(part.Name)); err != nil {
				return err
			}
		}
		if err := markdownOf(w, part); err != nil {
			return err
		}
	}
	var b strings.Builder
	for _, f := range footer(r) {
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

// markdownOf writes what is to be said of one race.
func markdownOf(w io.Writer, part bench.Part) error {
	r := part.Report
	sound, others := ranked(r)
	if err := newGrid(worthwhile(r.Cells), sound, others).markdown(w); err != nil {
		return err
	}
	var b strings.Builder
	if c := counting(r); c != "" {
		fmt.Fprintf(&b, "\n*%s*\n", c)
	}
	for _, s := range sentences(r) {
		fmt.Fprintf(&b, "\n%s\n", literal(s))
	}
	notes(&b, r)
	if part.Name != "" {
		fmt.Fprintf(&b, "<sub>%s</sub>\n\n", literal(load(r)))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// notes writes what failed and what a reader must know before believing the figures.
func notes(b *strings.Builder, r *bench.Report) {
	fs, ws := failures(r), warnings(r)
	if len(fs)+len(ws) > 0 {
		b.WriteString("\n")
	}
	for _, f := range fs {
		fmt.Fprintf(b, "- **failed:** %s\n", literal(f))
	}
	for _, wg := range ws {
		fmt.Fprintf(b, "- **warning:** %s", literal(wg.message))
		if wg.fix != "" {
			fmt.Fprintf(b, " — fix: %s", literal(wg.fix))
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
}

func (g *grid) markdown(w io.Writer) error {
	aligns := make(tw.Alignment, len(g.cols))
	heads := make([]string, len(g.cols))
	for j, c := range g.cols {
		heads[j], aligns[j] = c.head, tw.AlignRight
		if c.left {
			aligns[j] = tw.AlignLeft
		}
	}
	t := tablewriter.NewTable(w, tablewriter.WithRenderer(renderer.NewMarkdown()),
		tablewriter.WithHeaderAutoFormat(tw.Off), tablewriter.WithHeaderAutoWrap(tw.WrapNone), tablewriter.WithRowAutoWrap(tw.WrapNone),
		tablewriter.WithAlignment(aligns))
	t.Header(heads)
	for _, row := range g.rows {
		safe := make([]string, len(row))
		for j, text := range row {
			safe[j] = strings.ReplaceAll(literal(text), "|", `\|`) // the table library does not
		}
		if err := t.Append(safe); err != nil {
			return err
		}
	}
	return t.Render()
}

// literal keeps text from being read as markup, and on one line; GitHub's log takes a line that begins with :: for a command.
func literal(text string) string {
	if strings.HasPrefix(strings.TrimSpace(text), "::") {
		text = "\u200b" + text
	}
	return strings.NewReplacer(`\`, `\\`, "`", "\\`", "*", `\*`, "[", `\[`, "<", "&lt;", "&", "&amp;").Replace(printable(text))
}

// code sets text as code; more backticks around it than in it keep it whole.
func code(text string) string {
	text = printable(text)
	fence := "`"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	if len(fence) > 1 {
		text = " " + text + " "
	}
	return fence + text + fence
}
