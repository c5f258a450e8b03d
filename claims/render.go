package claims

import (
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/lockbench/lockbench/bench"
)

// Schema names the version of the JSON form.
const Schema = "lockbench.claims/v1"

// Document is what a run of claims showed.
type Document struct {
	Schema    string       `json:"schema"`
	Lockbench bench.Build  `json:"lockbench"`
	Server    bench.Server `json:"server"`
	Host      bench.Host   `json:"host"`
	Partial   bool         `json:"partial,omitempty"` // it was stopped, or broke off
	TookS     float64      `json:"took_s"`
	Claims    []Result     `json:"claims"`
}

// Count returns how many claims have a verdict.
func (d *Document) Count(v Verdict) (n int) {
	for _, c := range d.Claims {
		if c.Verdict == v {
			n++
		}
	}
	return n
}

// Formats lists what [Document.Write] knows.
func Formats() []string { return []string{"table", "markdown", "json"} }

// Write renders the document.
func (d *Document) Write(w io.Writer, format string) error {
	switch format {
	case "json":
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		return e.Encode(d)
	case "markdown":
		return d.writeMarkdown(w)
	}
	var b strings.Builder
	for _, c := range d.Claims {
		c.text(&b)
	}
	fmt.Fprintln(&b, d.sum())
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Result) text(b *strings.Builder) {
	fmt.Fprintf(b, "%s %s: %s\n", r.ID, strings.ToUpper(string(r.Verdict)), r.Text)
	if r.But != "" {
		fmt.Fprintf(b, "   but: %s\n", r.But)
	}
	for _, line := range r.Commands {
		fmt.Fprintf(b, "   $ %s\n", line)
	}
	if r.Why != "" {
		fmt.Fprintf(b, "   %s\n", r.Why)
	}
	for _, f := range r.Findings {
		fmt.Fprintf(b, "   %-3s %s: %s\n", mark(f.Verdict), f.Expect, f.Measured)
	}
	fmt.Fprintln(b)
}

// mark is a verdict in a list.
func mark(v Verdict) string {
	switch v {
	case Confirmed:
		return "yes"
	case Refuted:
		return "NO"
	}
	return "?"
}

// sum counts the verdicts.
func (d *Document) sum() string {
	text := fmt.Sprintf("%d claims: %d confirmed", len(d.Claims), d.Count(Confirmed))
	for _, v := range []Verdict{Refuted, Inconclusive, NotRun} {
		if n := d.Count(v); n > 0 {
			text += fmt.Sprintf(", %d %s", n, v)
		}
	}
	if d.Partial {
		text += "; stopped before the end"
	}
	return text
}

func (d *Document) writeMarkdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "| claim | verdict | |\n|---|---|---|\n")
	for _, c := range d.Claims {
		fmt.Fprintf(&b, "| [%s](#%s) | %s | %s |\n", c.ID, strings.ToLower(c.ID), c.Verdict, cell(c.Text))
	}
	for _, c := range d.Claims {
		fmt.Fprintf(&b, "\n## %s\n\n%s **%s**\n", c.ID, c.Text, title(c.Verdict))
		if c.But != "" {
			fmt.Fprintf(&b, "\nOnly half of it: %s\n", c.But)
		}
		fmt.Fprintln(&b)
		for _, line := range c.Commands {
			fmt.Fprintf(&b, "    %s\n", line)
		}
		if c.Why != "" {
			fmt.Fprintf(&b, "\nNot run: %s\n", c.Why)
		}
		if len(c.Findings) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n| expected | measured | |\n|---|---|---|\n")
		for _, f := range c.Findings {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", cell(f.Expect), cell(f.Measured), f.Verdict)
		}
	}
	fmt.Fprintf(&b, "\n%s. %s, %s/%s, %d CPUs.\n", d.sum(), "PostgreSQL "+d.Server.Version, d.Host.OS, d.Host.Arch, d.Host.CPUs)
	_, err := io.WriteString(w, b.String())
	return err
}

// title begins a sentence with a verdict.
func title(v Verdict) string { return strings.ToUpper(string(v[:1])) + string(v[1:]) + "." }

// cell makes a text fit into a table of Markdown.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ").Replace(text)
}

// Select returns the claims that patterns name: identifiers, or patterns as D*. None mean all. unknown are those that name none.
func Select(all []Claim, patterns []string) (some []Claim, unknown []string) {
	if len(patterns) == 0 {
		return all, nil
	}
	for _, p := range patterns {
		found := false
		for i := range all {
			found = found || matches(p, all[i].ID)
		}
		if !found {
			unknown = append(unknown, p)
		}
	}
	for _, c := range all {
		if slices.ContainsFunc(patterns, func(p string) bool { return matches(p, c.ID) }) {
			some = append(some, c)
		}
	}
	return some, unknown
}

func matches(pattern, id string) bool {
	ok, err := path.Match(strings.ToUpper(pattern), id)
	return ok && err == nil
}
