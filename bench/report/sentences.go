package report

import (
	"fmt"
	"runtime"
	"slices"
	"strings"

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
		all = append(all, fmt.Sprintf("%d more strategies let an anomaly through.", told-maxViolations))
	}
	if s := comparison(r, sound); s != "" {
		all = append(all, s)
	}
	if s := costliest(sound); s != "" {
		all = append(all, s)
	}
	for _, l := range others {
		if l.cell.NA != "" {
			all = append(all, fmt.Sprintf("%s is n/a on %s: %s.", l.cell.Strategy, l.cell.Scenario, l.cell.NA))
		}
	}
	return all
}

// violation tells one case that a person can check.
func violation(c *bench.Cell) string {
	f := c.Findings[0]
	s := fmt.Sprintf("%s: %s", c.Strategy, f.Message)
	w := f.Worst
	if w == nil {
		w = f.First
	}
	switch {
	case w == nil:
	case w.User > 0 && w.Told != "nothing":
		s += fmt.Sprintf("; user %d was told %q after %.1f ms, and %s", w.User, w.Told, w.EndMS-w.StartMS, w.Holds)
	default:
		s += fmt.Sprintf("; %s, and %s", w.Told, w.Holds)
	}
	if c.ClaimBroken {
		return s + ". It claims to prevent this."
	}
	return s + "."
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
	x := goodput(first) / goodput(last)
	a, aok := first.Intervals["goodput"]
	b, bok := last.Intervals["goodput"]
	if aok && bok && a.Low <= b.High {
		return fmt.Sprintf("No sound strategy is clearly faster than another: the 95 %% intervals of %s and %s overlap.", first.Strategy, last.Strategy)
	}
	s := fmt.Sprintf("Of the sound strategies %s is fastest, %.1f × as fast as %s, the slowest", first.Strategy, x, last.Strategy)
	switch n := len(first.Trials); {
	case n < 2:
		s += " (one trial: do not quote the ratio)"
	case n < 6:
		s += fmt.Sprintf(" (medians of %d trials; six or more give an interval)", n)
	}
	return s + "."
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
	return fmt.Sprintf("%s needed %s attempts an operation; %s %% of its attempts lost a race.", worst.Strategy, number(retries(worst)), scaled(worst.ConflictRate, 100, ""))
}

// warningGroup is one warning about one or several strategies.
type warningGroup struct{ message, fix string }

// warnings groups warnings that say the same of several strategies.
func warnings(r *bench.Report) []warningGroup {
	var groups []warningGroup
	var names [][]string
	var codes []string
	for _, w := range r.Warnings {
		if i := slices.Index(codes, w.Code); i >= 0 {
			names[i] = append(names[i], w.Strategy)
			continue
		}
		groups = append(groups, warningGroup{w.Message, w.Fix})
		names = append(names, nil)
		codes = append(codes, w.Code)
	}
	for i := range groups {
		if len(names[i]) > 0 {
			groups[i].message += fmt.Sprintf(" (the same goes for %s)", strings.Join(names[i], ", "))
		}
	}
	return groups
}

// footer is what makes the figures reproducible.
func footer(r *bench.Report) []string {
	srv, p := &r.Environment.Server, &r.Plan
	var server string
	if srv.Version != "" {
		server = "PostgreSQL " + srv.Version
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
		server += fmt.Sprintf(" · %s/%s, %d CPUs", r.Environment.Host.OS, r.Environment.Host.Arch, r.Environment.Host.CPUs)
	}
	load := fmt.Sprintf("%s, %s: %d users on %d connections, think %s, %d rows, capacity %d, skew %s, retries %d, backoff %s, seed %d, trials %d",
		p.Scenario, p.Mode, p.Users, p.Connections, p.Think, p.Rows, p.Capacity, p.Skew, p.Retries, p.Backoff, p.Seed, p.Trials)
	switch p.Mode {
	case bench.Closed:
		load += ", " + p.Duration.String()
	case bench.Open:
		load += fmt.Sprintf(", %g arrivals/s for %s", p.Rate, p.Duration)
	case bench.Burst:
	}
	if p.Pipeline {
		load += ", BEGIN and COMMIT pipelined"
	}
	build := "lockbench " + r.Lockbench.Version
	if r.Lockbench.Commit != "" {
		build += " (" + r.Lockbench.Commit + ")"
	}
	if r.Lockbench.Go == "" {
		build += ", " + runtime.Version()
	} else {
		build += ", " + r.Lockbench.Go
	}
	lines := []string{load, build}
	if server != "" {
		lines = append([]string{server}, lines...)
	}
	if r.Command != "" {
		lines = append(lines, "again: "+r.Command)
	}
	return lines
}
