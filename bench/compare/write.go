package compare

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/lockbench/lockbench/bench"
)

// Formats lists the formats of [Comparison.Write].
func Formats() []string { return []string{"table", "markdown", "json"} }

// Write renders the comparison.
func (c *Comparison) Write(w io.Writer, format string) error {
	var b strings.Builder
	switch format {
	case "table":
		c.table(&b)
	case "markdown":
		c.markdown(&b)
	case "json":
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return e.Encode(c)
	default:
		return bench.Hintf("formats are "+strings.Join(Formats(), ", "), "%q is not a format", format)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

var heads = []string{"strategy", "figure", "old", "new", "change", "p", "judgement"}

func (c *Comparison) table(b *strings.Builder) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	// Writes to a strings.Builder do not fail.
	fmt.Fprintln(t, strings.Join(heads, "\t"))
	for _, r := range c.Rows {
		fmt.Fprintln(t, strings.Join(r.words(), "\t"))
	}
	_ = t.Flush()
	b.WriteByte('\n')
	for _, line := range c.sentences() {
		fmt.Fprintln(b, line)
	}
}

func (c *Comparison) markdown(b *strings.Builder) {
	line := func(words []string) {
		for i, w := range words {
			words[i] = strings.ReplaceAll(w, "|", `\|`)
		}
		fmt.Fprintf(b, "| %s |\n", strings.Join(words, " | "))
	}
	line(append([]string{}, heads...))
	b.WriteString("|---|---|--:|--:|--:|--:|---|\n")
	for _, r := range c.Rows {
		line(r.words())
	}
	b.WriteByte('\n')
	for _, s := range c.sentences() {
		fmt.Fprintf(b, "- %s\n", s)
	}
}

func (r *Row) words() []string {
	name := r.Strategy
	if r.Race != "" {
		name = r.Race + ": " + name
	}
	said := string(r.Judgement)
	if r.Needed > 0 {
		said += fmt.Sprintf(" (%d trials)", r.Needed)
	}
	return []string{name, r.Figure, number(r.Old.Median), number(r.New.Median), r.change(), strconv.FormatFloat(r.Adjusted, 'f', 3, 64), said}
}

func (r *Row) change() string {
	switch {
	case r.Change == nil:
		return "new"
	case r.Figure == "conflict_rate":
		return fmt.Sprintf("%+.1f pts", *r.Change*100)
	}
	return fmt.Sprintf("%+.1f%%", *r.Change*100)
}

// number prints about three digits, and no fewer than the whole part has.
func number(v float64) string {
	digits := 0
	for a := math.Abs(v); a > 0 && a < 100 && digits < 3; a *= 10 {
		digits++
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}

// sentences say what the table does not, the worst first.
func (c *Comparison) sentences() (all []string) {
	say := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	for _, b := range c.Broken {
		name := b.Strategy
		if b.Race != "" {
			name = b.Race + ": " + name
		}
		say("regression: %s on %s: %s", name, b.Scenario, b.Message)
	}
	for _, d := range c.Difference {
		say("not the same: %s", d)
	}
	for _, n := range c.Notes {
		say("note: %s", n)
	}
	say("%d regressions, %d better, %d inconclusive, of %d figures (p: Holm over cells)",
		c.count(Worse)+len(c.Broken), c.count(Better), c.count(Inconclusive), len(c.Rows))
	return all
}
