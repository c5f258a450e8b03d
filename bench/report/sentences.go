package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/lockbench/lockbench/bench"
)

// maxViolations is how many broken cells get a sentence of their own.
const maxViolations = 3

// sentences are the two or three that a reader wants after the table.
func sentences(r *bench.Report) []string {
	sound, others := ranked(r)
	var all []string
	told := 0
	for _, l := range others {
		if l.cell.Verdict != bench.Violated || len(l.cell.Findings) == 0 {
			continue
		}
		if told++; told <= maxViolations {
			all = append(all, violation(l.cell))
		}
	}
	if told > maxViolations {
		all = append(all, plural(told-maxViolations, "more strategy", "more strategies")+" let an anomaly through.")
	}
	if s := comparison(r, sound); s != "" {
		all = append(all, s)
	}
	if s := costliest(sound); s != "" {
		all = append(all, s)
	}
	all = append(all, byClass(r)...)
	all = append(all, scoped(sound)...)
	for _, l := range others {
		if l.cell.NA != "" {
			all = append(all, fmt.Sprintf("%s is n/a on %s: %s.", l.cell.Strategy, l.cell.Scenario, l.cell.NA))
		}
	}
	return all
}

// violation tells one case that a person can check: one that breaks the claim, if any does.
func violation(c *bench.Cell) string {
	for i := range c.Findings {
		if f := &c.Findings[i]; c.ClaimBroken && (f.Anomaly == bench.Leak || slices.Contains(c.Claim, f.Anomaly)) {
			return c.Strategy + ": " + findingText(f) + ". It claims to prevent this."
		}
	}
	return c.Strategy + ": " + findingText(&c.Findings[0]) + "."
}

// findingText tells a finding with its worst case.
func findingText(f *bench.Finding) string {
	w := f.Worst
	if w == nil {
		w = f.First
	}
	if w == nil {
		return f.Message
	}
	return f.Message + "; " + witnessText(w)
}

func witnessText(w *bench.Witness) string {
	if w.User > 0 && w.Told != "nothing" {
		return fmt.Sprintf("user %d was told %q after %.1f ms, and %s", w.User, w.Told, w.EndMS-w.StartMS, w.Holds)
	}
	return fmt.Sprintf("%s, and %s", w.Told, w.Holds)
}

// comparison says how far apart the fastest and the slowest sound strategy are, as far as that can be defended.
func comparison(r *bench.Report, sound []line) string {
	if len(sound) < 2 {
		return ""
	}
	first, last := sound[0].cell, sound[len(sound)-1].cell
	if goodput(last) <= 0 {
		return ""
	}
	if overlap(first, last) {
		return fmt.Sprintf("Whether %s is faster than %s is not settled: their 95 %% intervals overlap.", first.Strategy, last.Strategy)
	}
	s := fmt.Sprintf("Of the sound strategies %s is fastest, %.1f × as fast as %s, the slowest", first.Strategy, goodput(first)/goodput(last), last.Strategy)
	switch n := min(len(first.Trials), len(last.Trials)); {
	case n < 2:
		s += " (one trial: do not quote the ratio)"
	case n < 6:
		s += fmt.Sprintf(" (medians of %d trials; six or more give an interval)", n)
	}
	var near []string
	for _, l := range sound[1:] {
		if overlap(first, l.cell) {
			near = append(near, l.cell.Strategy)
		}
	}
	if len(near) > 0 {
		s += fmt.Sprintf("; its 95 %% interval overlaps that of %s, so which of them is faster is not settled", strings.Join(near, ", "))
	}
	return s + "."
}

// overlap reports whether the goodput of two cells has 95 % intervals that overlap.
func overlap(a, b *bench.Cell) bool {
	x, xok := a.Intervals["goodput"]
	y, yok := b.Intervals["goodput"]
	return xok && yok && x.Low <= y.High && y.Low <= x.High
}

// byClass sets the kinds of users of a cell side by side, where there are several.
func byClass(r *bench.Report) (all []string) {
	for i := range r.Cells {
		c := &r.Cells[i]
		var parts []string
		for _, kind := range slices.Sorted(maps.Keys(c.Classes)) {
			p := c.Classes[kind].Latency[bench.Confirmed.String()]
			if p.P50 != nil && p.P99 != nil {
				parts = append(parts, fmt.Sprintf("%s p50 %s ms, p99 %s ms", kind, number(*p.P50), number(*p.P99)))
			}
		}
		if len(parts) > 0 {
			all = append(all, c.Strategy+", by kind of user: "+strings.Join(parts, "; ")+".")
		}
		if a := c.Abandoned; a != nil && a.Operations > 0 {
			all = append(all, fmt.Sprintf("%s went on for %s whose caller had gone, for %.1f s in all.", c.Strategy, plural(a.Operations, "operation", "operations"), a.HeldS))
		}
	}
	return all
}

// scoped says where the claims of sound strategies end.
func scoped(sound []line) (all []string) {
	for _, l := range sound {
		if l.cell.Scope != "" {
			all = append(all, fmt.Sprintf("%s is sound %s only.", l.cell.Strategy, l.cell.Scope))
		}
	}
	return all
}

// costliest names the sound strategy that tried most often for a confirmation, where that is worth a word.
func costliest(sound []line) string {
	var worst *bench.Cell
	retries := func(c *bench.Cell) float64 {
		if c.Operations == 0 {
			return 0
		}
		return float64(c.Attempts) / float64(c.Operations)
	}
	for _, l := range sound {
		if worst == nil || retries(l.cell) > retries(worst) {
			worst = l.cell
		}
	}
	if worst == nil || retries(worst) < 1.5 {
		return ""
	}
	s := fmt.Sprintf("%s needed %s attempts an operation", worst.Strategy, number(retries(worst)))
	if worst.ConflictRate != nil {
		s += fmt.Sprintf("; %s of its attempts lost a race", scaled(worst.ConflictRate, 100, " %"))
	}
	return s + "."
}

// plural writes a count with its noun.
func plural[T int | int64](n T, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return grouped(fmt.Sprint(n)) + " " + many
}

// failures are the limits and expectations that were not kept.
func failures(r *bench.Report) (all []string) {
	for _, a := range r.Gate {
		if !a.Failed {
			continue
		}
		text := a.Message
		if a.Strategy != "" {
			text = a.Strategy + ": " + text
		}
		all = append(all, text)
	}
	return all
}

// warningGroup is one warning about one or several strategies.
type warningGroup struct {
	message, fix string
	gist         string // the message without its strategy and figures
	first        string // the strategy that the message names
	likewise     []string
}

// warnings groups warnings that differ in the strategy and in figures only: a dozen strategies would bury the rest. One that says
// something of its own, as the text of an error, stands alone.
func warnings(r *bench.Report) []warningGroup {
	var groups []warningGroup
	for _, w := range r.Warnings {
		key := gist(w)
		i := slices.IndexFunc(groups, func(g warningGroup) bool { return g.gist == key })
		if i < 0 {
			groups = append(groups, warningGroup{message: w.Message, fix: w.Fix, gist: key, first: w.Strategy})
			continue
		}
		if g := &groups[i]; w.Strategy != g.first && !slices.Contains(g.likewise, w.Strategy) {
			g.likewise = append(g.likewise, w.Strategy)
		}
	}
	for i := range groups {
		if g := &groups[i]; len(g.likewise) > 0 {
			g.message += fmt.Sprintf(" (likewise %s)", strings.Join(g.likewise, ", "))
		}
	}
	return groups
}

// gist is what two warnings about different strategies have in common when they say the same.
func gist(w bench.Warning) string {
	text := w.Message
	if w.Strategy != "" {
		text = strings.ReplaceAll(text, w.Strategy, "\x00")
	}
	digits := func(r rune) rune {
		if unicode.IsDigit(r) || r == '.' {
			return -1
		}
		return r
	}
	return w.Code + "\x00" + strings.Map(digits, text)
}

// load is what a race was raced with.
func load(r *bench.Report) string {
	p := &r.Plan
	text := fmt.Sprintf("%s, %s: %s on %s, think %s, %s, capacity %d, skew %s, retries %d, backoff %s, seed %d, trials %d",
		p.Scenario, p.Mode, plural(p.Users, "user", "users"), plural(p.Connections, "connection", "connections"), p.Think,
		plural(p.Rows, "row", "rows"), p.Capacity, p.Skew, p.Retries, p.Backoff, p.Seed, p.Trials)
	switch p.Mode {
	case bench.Closed:
		text += ", " + p.Duration.String()
	case bench.Open:
		text += fmt.Sprintf(", %g arrivals/s for %s", p.Rate, p.Duration)
	case bench.Burst:
	}
	if p.Pipeline {
		text += ", BEGIN and COMMIT pipelined"
	}
	for _, name := range slices.Sorted(maps.Keys(p.Options)) {
		text += fmt.Sprintf(", %s %s", name, p.Options[name])
	}
	return text
}

// again begins the line of a footer that holds a command.
const again = "again: "

// footer is what makes the figures reproducible. Of several races each has its own load.
func footer(r *bench.Report) []string {
	srv := &r.Environment.Server
	var lines []string
	if srv.Version != "" {
		server := "PostgreSQL " + srv.Version
		if srv.Embedded {
			server += ", embedded"
		} else {
			server += " at " + srv.Address
		}
		if srv.Durable {
			server += ", durable"
		} else {
			server += ", NOT durable"
		}
		if srv.Pooler {
			server += ", through a pooler"
		}
		server += ", " + srv.ExecMode + " statements"
		host := &r.Environment.Host
		lines = append(lines, server+fmt.Sprintf(" · %s/%s, %s", host.OS, host.Arch, plural(host.CPUs, "CPU", "CPUs")))
	}
	if len(r.Races) == 0 {
		lines = append(lines, load(r))
	}
	build := "lockbench " + r.Lockbench.Version
	if r.Lockbench.Commit != "" {
		build += " (" + r.Lockbench.Commit + ")"
	}
	if r.Lockbench.Go != "" {
		build += ", " + r.Lockbench.Go
	}
	if !r.Started.IsZero() {
		build += ", " + r.Started.UTC().Format("2006-01-02 15:04 MST")
	}
	lines = append(lines, build)
	if r.Command != "" {
		lines = append(lines, again+r.Command)
	}
	return lines
}
