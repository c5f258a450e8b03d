package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/lockbench/lockbench/bench"
)

// writeGitHub writes what a step of GitHub Actions prints: annotations, then the summary, folded in the log.
func writeGitHub(w io.Writer, r *bench.Report, o Options) error {
	if err := Annotations(w, r); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(w, "::group::lockbench"); err != nil {
		return err
	}
	if err := Summary(w, r, o); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, "::endgroup::")
	return err
}

// Annotations writes GitHub's workflow commands: an error a broken claim, limit or expectation, and the warnings. Source:
// https://docs.github.com/actions/reference/workflow-commands-for-github-actions
func Annotations(w io.Writer, r *bench.Report) error {
	var b strings.Builder
	for _, part := range r.Parts() {
		of := ""
		if part.Name != "" {
			of = part.Name + ": "
		}
		for i := range part.Cells {
			if c := &part.Cells[i]; c.ClaimBroken && !part.Expected(c) {
				annotate(&b, "error", fmt.Sprintf("%s%s broke its claim on %s", of, c.Strategy, c.Scenario), strings.Join(evidence(c), "\n"))
			}
		}
		for _, f := range failures(part.Report) {
			annotate(&b, "error", of+"limit or expectation not kept", f)
		}
		for _, wg := range warnings(part.Report) {
			text := wg.message
			if wg.fix != "" {
				text += "\nfix: " + wg.fix
			}
			annotate(&b, "warning", of+"lockbench", text)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// annotate writes one workflow command. What would end it, or its title, is written as GitHub reads it back.
func annotate(b *strings.Builder, level, title, text string) {
	data := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	property := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
	var lines []string
	for l := range strings.Lines(text) {
		lines = append(lines, printable(strings.TrimSuffix(l, "\n")))
	}
	fmt.Fprintf(b, "::%s title=%s::%s\n", level, property.Replace(printable(title)), data.Replace(strings.Join(lines, "\n")))
}

// Summary writes the Markdown of a job's summary page.
func Summary(w io.Writer, r *bench.Report, o Options) error {
	verdict, text := headline(r)
	mark := map[bench.Verdict]string{bench.Sound: "✅", bench.Violated: "❌", bench.Undetermined: "⚠️"}[verdict]
	if _, err := fmt.Fprintf(w, "## %s lockbench: %s\n\n", mark, literal(text)); err != nil {
		return err
	}
	return writeMarkdown(w, r, o)
}

// headline says in a line how the claims fared, and what was asked of the figures.
func headline(r *bench.Report) (verdict bench.Verdict, text string) {
	var broken []string
	sound, open, free, expected := 0, 0, 0, 0
	for i := range r.Cells {
		c := &r.Cells[i]
		switch {
		case c.ClaimBroken && !r.Expected(c):
			name := c.Strategy
			if c.Race != "" {
				name += " (" + c.Race + ")"
			}
			broken = append(broken, name)
		case c.ClaimBroken:
			expected++
		case c.Verdict == bench.Violated:
			free++
		case len(c.Trials) == 0 || len(c.Claim) == 0:
		case c.Verdict == bench.Sound:
			sound++
		default:
			open++
		}
	}
	var parts []string
	if sound > 0 {
		parts = append(parts, plural(sound, "claim held", "claims held"))
	}
	if open > 0 {
		parts = append(parts, fmt.Sprintf("%d not settled", open))
	}
	if free > 0 {
		they := "they do"
		if free == 1 {
			they = "it does"
		}
		parts = append(parts, fmt.Sprintf("%d let through what %s not claim to prevent", free, they))
	}
	if expected > 0 {
		parts = append(parts, fmt.Sprintf("%d broken as expected", expected))
	}
	failed := 0
	for _, a := range r.Gate {
		if a.Failed {
			failed++
		}
	}
	switch gated := plural(len(r.Gate), "limit or expectation", "limits and expectations"); {
	case failed > 0:
		parts = append(parts, fmt.Sprintf("%d of %s not kept", failed, gated))
	case len(r.Gate) > 0:
		parts = append(parts, gated+" kept")
	}
	verdict = bench.Sound
	switch {
	case len(broken) > 0:
		verdict = bench.Violated
		parts = append([]string{strings.Join(broken, ", ") + " broke " + map[bool]string{true: "its claim", false: "their claims"}[len(broken) == 1]}, parts...)
	case failed > 0:
		verdict = bench.Violated
	case open > 0 || r.Partial || sound == 0:
		verdict = bench.Undetermined
	}
	if len(parts) == 0 {
		parts = []string{"no claim was put to the test"}
	}
	return verdict, strings.Join(parts, ", ")
}
