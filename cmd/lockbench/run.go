package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/bench/gate"
	"github.com/lockbench/lockbench/bench/report"
	"github.com/lockbench/lockbench/internal/reference"
	"github.com/lockbench/lockbench/scenarios"
	"github.com/lockbench/lockbench/scenarios/suites"
	"github.com/lockbench/lockbench/strategies"
)

// Defaults that flags name only in words.
const (
	defaultScenario = reference.DefaultScenario
	burstTrials     = 6                // the least that gives a 95 % interval
	loopTrials      = 3                // of closed and open mode, where each trial lasts for --duration
	mostConnections = 32               // on a hot row more connections are slower
	window          = 10 * time.Second // of closed and open mode without an end of their own
	drain           = 10 * time.Second // for operations under way when a run is stopped
)

// raceFlags are the parameters of a race: flags of run, and keys of a suite's races.
type raceFlags struct {
	settings bench.Settings
	mode     string
	options  map[string]*string // the scenarios' own flags, by name
	services map[string]*string // addresses of lock services, by strategy
}

// runFlags are the flags of run.
type runFlags struct {
	raceFlags
	fleetFlags
	suite   string
	where   source
	formats []string
	outputs []string
	failOn  []string
	strict  bool
	quiet   bool
	noColor bool
}

func (a *app) runCommand() *cobra.Command {
	f := &runFlags{}
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Race users under strategies, audit and report",
		Long: `Race users for the same rows under one or more strategies, audit what they were told against what the database holds, and print one
table. Results go to stdout, everything else to stderr. Without --dsn a PostgreSQL is started for the run and removed after it.

--fail-on takes a figure of the JSON report, a comparison and a value; it fails where the comparison holds: overbooked>0,
lost_updates>0, conflict_rate>20%, p99>50ms, goodput<500/s. Any figure goes by its path, as latency.rejected.p99_ms. With a strategy in
front it holds for that one: "optimistic: p99>50ms". A figure that was not measured fails.

--suite races what a file says, with its own limits and expectations (lockbench suite --help). Parameters given beside it hold for all
of its races.

In a step of GitHub Actions the report goes to the job's page as well, with annotations, unless --format says otherwise.

A run takes at most 1,000,000 users, 10,000 connections, 10,000,000 rows and 100,000,000 operations.

Exit codes: 0 ok, 1 trouble, 2 usage, 3 a strategy broke its claim, 4 a --fail-on threshold failed, 6 inconclusive (with --strict),
129, 130 and 143 stopped by a signal. The first Ctrl-C finishes what is under way and reports it, the second stops at once.`,
		Example: `  lockbench run
  lockbench run --strategy optimistic --users 500
  lockbench run --strategy none --rows 1 --think 5ms            the last seat, unprotected
  lockbench run --strategy pessimistic:wait=nowait,pessimistic:wait=50ms,optimistic:retries=3
  lockbench run --scenario inventory --mode closed --duration 10s --users 64
  lockbench run --mode open --rate 200 --fail-on 'p99>50ms'
  lockbench run --suite smoke --output report.json --output junit.xml
  lockbench run --dsn postgres://app@db.example.org/test --output race.json --output race.md`,
		Args: a.words(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.race(cmd.Context(), cmd.Flags(), f) },
	}
	f.add(flagSet{a: a, fs: cmd.Flags()})
	f.complete(cmd)
	completeSuites(cmd)
	return cmd
}

// add declares the flags, under the headings of --help.
func (f *runFlags) add(fs flagSet) {
	fs.fs.SortFlags = false
	f.raceFlags.add(fs)
	fs.in("What to race").text(&f.suite, "suite", "file", "", "run the races of this file, or of a built-in suite: "+strings.Join(suites.Names(), ", "))
	f.addRest(fs)
}

// addRest declares where to race, and what becomes of the report.
func (f *runFlags) addRest(fs flagSet) {
	f.where.add(fs.in("Database"))

	g := fs.in("Other machines")
	count(g, &f.settings.Workers, "workers", 0, "wait for so many workers, which share the users (see lockbench worker --help)")
	f.fleetFlags.add(g, "name of the run, which its workers must know (default a random one)")

	g = fs.in("Output")
	g.list(&f.formats, "format", "list", []string{"table"}, true, "formats on stdout: "+strings.Join(report.Formats(), ", "))
	g.list(&f.outputs, "output", "file", nil, false, "save the report to a file too, in the format of its extension")
	g.list(&f.failOn, "fail-on", "limit", nil, false, "exit 4 where this holds, as 'overbooked>0'")
	g.onOff(&f.strict, "strict", true, "exit 6 if anything stayed undetermined or n/a")
	g.onOff(&f.quiet, "quiet", true, "no progress, errors only")
	g.onOff(&f.noColor, "no-color", true, "no colours (as with NO_COLOR)")
}

// add declares the parameters of a race.
func (f *raceFlags) add(fs flagSet) {
	s := &f.settings
	s.Drain = bench.Duration(drain)

	g := fs.in("What to race")
	g.list(&s.Strategies, "strategy", "list", []string{bench.All}, false, "strategies, separated by commas; options follow by colons, as optimistic:retries=3")
	g.text(&s.Scenario, "scenario", "name", defaultScenario, "what users race for")

	g = fs.in("Load")
	whole(g, &s.Users, "users", 500, "users, each one goroutine")
	count(g, &s.Connections, "connections", 0, "database connections they share (default the lesser of users and 32)")
	count(g, &s.Instances, "instances", 0, "processes that share the users and connections (default 1)")
	g.oneOf(&f.mode, "mode", string(bench.Burst), []string{string(bench.Burst), string(bench.Closed), string(bench.Open)}, "all at once, in loops, or on a schedule")
	g.duration(&s.Duration, "duration", 0, "measured window of closed and open mode (default 10s)")
	count(g, &s.Operations, "operations", 0, "end closed or open mode after so many operations")
	g.real(&s.Rate, "rate", "arrivals a second in open mode")
	whole(g, &s.Trials, "trials", burstTrials, "repetitions of every cell, interleaved (closed and open: 3)")
	g.duration(&s.Warmup, "warmup", time.Second, "not measured: a discarded burst, or the first part of closed and open mode; 0s for none")
	whole(g, &s.Seed, "seed", 1, "of everything random")
	g.duration(&s.Think, "think", 2*time.Millisecond, "between read and write, inside the transaction")
	g.duration(&s.Pause, "pause", 0, "between a user's operations")
	g.onOff(&s.Pipeline, "pipeline-begin", true, "send BEGIN with the first statement and COMMIT with the last")

	g = fs.in("Data")
	count(g, &s.Rows, "rows", 0, "seats, stock items, accounts, shifts or jobs (default the scenario's)")
	count(g, &s.Capacity, "capacity", 0, "units a row holds (default the scenario's)")
	g.text(&s.Skew, "skew", "skew", "uniform", "which rows users want: uniform, zipf:0.99, hot:3")

	g = fs.in("Of one scenario")
	f.options = g.ofScenarios()

	g = fs.in("Retrying")
	whole(g, &s.Retries, "retries", 100, "attempts after the first")
	g.text(&s.Backoff, "backoff", "backoff", "exp=1ms..50ms", "between attempts, with full jitter: none, fixed=10ms, exp=1ms..50ms")
	g.duration(&s.Deadline, "deadline", 30*time.Second, "no attempt of an operation begins after it, and no statement lasts longer; 0s for none")
	g.duration(&s.LockTimeout, "lock-timeout", 0, "of a wait for a lock (default none)")

	g = fs.in("Lock services")
	f.services = g.lockServices()
	g.duration(&s.TTL, "ttl", 0, fmt.Sprintf("of a lease that nothing renews (default %v)", bench.DefaultTTL))
	g.text(&s.Stall, "stall", "stall", "", "stop this share of the operations between read and write, as 800ms@2%: a garbage collection, a suspended machine")
	g.duration(&s.CallerDeadline, "caller-deadline", 0, "after which a caller has gone, though the server works on for him (default none)")
}

func (f *runFlags) complete(cmd *cobra.Command) {
	complete(cmd, "strategy", completeStrategies)
	complete(cmd, "scenario", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return scenarioWords(), cobra.ShellCompDirectiveNoFileComp
	})
	completeWords(cmd, "mode", string(bench.Burst), string(bench.Closed), string(bench.Open))
	completeList(cmd, "format", report.Formats()...)
	completeOfScenarios(cmd)
	completeWords(cmd, "skew", "uniform", "zipf:0.99", "hot:3")
	completeWords(cmd, "backoff", "none", "fixed=10ms", "exp=1ms..50ms")
	complete(cmd, "fail-on", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return gate.Names(), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	})
}

// plan is a run whose command line has been checked.
type plan struct {
	races []planned
	suite bool // the races are those of a suite, and have names
	plain bool // no format was asked for
	files []outputFile
}

// planned is one race of a run, with what its report is held to.
type planned struct {
	name   string
	race   *bench.Race
	limits []gate.Limit
	expect []gate.Expectation
}

// race checks everything, then runs.
func (a *app) race(ctx context.Context, given *pflag.FlagSet, f *runFlags) error {
	p := a.check(given, f)
	if err := a.usage(); err != nil {
		return err
	}
	say := a.say(f.quiet)
	sig := interruptible(ctx, say)
	defer sig.end()

	for _, r := range p.races {
		if err := r.race.Reach(sig.ctx); err != nil {
			return err
		}
	}
	connections := 0
	for _, r := range p.races {
		connections = max(connections, sessions(&r.race.Settings))
	}
	db, err := f.where.open(sig.ctx, connections, say)
	if err != nil {
		if code := sig.code(); code != 0 {
			return &exitError{code}
		}
		return err
	}
	a.share(ctx, db, &f.fleetFlags, say)
	err = a.raceOn(ctx, db, f, p, sig)
	if stopping := db.close(); stopping != nil {
		a.complain(fmt.Errorf("stopping the server: %w", stopping))
	}
	return err
}

// raceOn runs the plan on a database and reports.
func (a *app) raceOn(ctx context.Context, db *database, f *runFlags, p plan, sig *interruption) error {
	if db.pooled { // some strategies cannot work there, and say so
		var errs []error
		for i := range p.races {
			r := &p.races[i]
			race, err := compile(r.race.Settings, true)
			for _, e := range flatten(err) {
				if p.suite {
					e = fmt.Errorf("race %s: %w", r.name, e)
				}
				errs = append(errs, e)
			}
			r.race = race
		}
		if err := errors.Join(errs...); err != nil {
			return usageError{err}
		}
	}
	say := a.say(f.quiet)
	var parts []bench.Part
	var broke error
	for i, r := range p.races {
		if p.suite && !sig.stop.Softly() {
			say("race %d of %d: %s", i+1, len(p.races), r.name)
		}
		show := newProgress(a.stderr, f.quiet, r.race.Settings.Users)
		sig.racing(show.Say)
		rep, err := r.race.Execute(ctx, db.store, sig.stop, show)
		sig.over(say)
		show.Close()
		rep.Gate = append(gate.Check(r.limits, rep.Cells), gate.Judge(r.expect, rep.Cells)...)
		parts = append(parts, bench.Part{Name: r.name, Report: rep})
		if broke = db.blame(ctx, err); broke != nil {
			break
		}
	}
	rep := parts[0].Report
	if p.suite {
		rep = bench.Join(parts)
		rep.Partial = rep.Partial || len(parts) < len(p.races)
	}
	a.label(rep)
	if sig.code() != 0 {
		rep.Gate = nil // what is missing from a stopped run has not failed
	}
	return a.finish(f, p, rep, broke, sig)
}

// check notes every problem of the command line and returns the plan, which is good if there are none.
func (a *app) check(given *pflag.FlagSet, f *runFlags) plan {
	f.where.check(a, given)
	f.fleetFlags.check(a)
	f.where.run = f.run
	p := plan{suite: given.Changed("suite"), plain: !given.Changed("format")}
	if p.suite {
		p.races = a.suiteRaces(f.suite, given)
	} else {
		race, err := compile(f.settle(given), false)
		a.problem(err)
		p.races = []planned{{race: race}}
	}
	limits, err := gate.ParseAll(f.failOn)
	for _, e := range flatten(err) {
		a.problem(fmt.Errorf("--fail-on: %w", e))
	}
	for _, l := range limits {
		a.problem(p.limit(l))
	}
	for _, name := range f.formats {
		a.problem(knownFormat(name))
	}
	p.files = a.outputFiles(f.outputs)
	return p
}

// limit adds a limit of the command line to the races in which it concerns anybody, and refuses one that concerns nobody.
func (p *plan) limit(l gate.Limit) error {
	var all []*bench.Entrant
	met := false
	for i := range p.races {
		r := &p.races[i]
		all = append(all, r.race.Cells...)
		if concerned(l, r.race.Cells) == nil {
			r.limits = append(r.limits, l)
			met = true
		}
	}
	if met {
		return nil
	}
	return concerned(l, all)
}

// settle fills in defaults that depend on others. given says which flags were.
func (f *raceFlags) settle(given *pflag.FlagSet) bench.Settings {
	s := f.settings
	s.Mode = bench.Mode(f.mode)
	if s.Connections == 0 {
		s.Connections = min(max(s.Users, 1), mostConnections)
	}
	if s.Mode != bench.Burst && !given.Changed("trials") {
		s.Trials = loopTrials
	}
	s.Options = givenOptions(f.options, given)
	s.Services = givenServices(f.services)
	settleEnd(&s, given)
	return s
}

func compile(s bench.Settings, pooled bool) (*bench.Race, error) {
	return bench.Compile(s, strategies.All(), scenarios.All(), bench.Connecting{Pooled: pooled})
}

// settleEnd settles when a run ends; a burst ends by itself.
func settleEnd(s *bench.Settings, given *pflag.FlagSet) {
	if s.Mode == bench.Burst {
		return
	}
	if s.Duration == 0 && s.Operations == 0 && !given.Changed("duration") {
		s.Duration = bench.Duration(window)
	}
	if s.Operations > 0 && !given.Changed("warmup") {
		s.Warmup = 0 // a warm-up would eat the operations
	}
}

// absentError is about a strategy that does not race.
type absentError struct{ error }

func (e *absentError) Unwrap() error { return e.error }

// concerned refuses a limit for a strategy that does not race.
func concerned(l gate.Limit, cells []*bench.Entrant) error {
	return concernedBy("fail-on", l, cells)
}

func concernedBy(flag string, l gate.Limit, cells []*bench.Entrant) error {
	if l.Strategy == "" {
		return nil
	}
	return racing(l.Concerns, l.Strategy, cells, fmt.Sprintf("--"+flag+": strategy %q of threshold %q does not race", l.Strategy, l.Text))
}

// racing refuses what concerns none of the cells.
func racing(concerns func(label, name string) bool, strategy string, cells []*bench.Entrant, refusal string) error {
	var labels []string
	for _, c := range cells {
		if concerns(c.Spec.Label, c.Spec.Name) {
			return nil
		}
		labels = append(labels, c.Spec.Label)
	}
	if len(labels) == 0 {
		return nil // what is wrong is something else
	}
	return &absentError{bench.Hintf(strings.Replace(didYouMean("", strategy, labels), "  ", " ", 1), "%s", refusal)}
}

func knownFormat(name string) error {
	all := report.Formats()
	if slices.Contains(all, name) {
		return nil
	}
	hint := "one of " + strings.Join(all, ", ")
	if n := bench.Nearest(name, all); n != "" {
		hint = "did you mean --format " + n + "? (" + hint + ")"
	}
	return bench.Hintf(hint, "--format: unknown format %q", name)
}

// say prints notes on stderr; with --quiet it prints nothing.
func (a *app) say(quiet bool) func(format string, args ...any) {
	if quiet {
		return func(string, ...any) {}
	}
	return func(format string, args ...any) { fmt.Fprintf(a.stderr, format+"\n", args...) }
}

// label says which program made the report, and with which command.
func (a *app) label(rep *bench.Report) {
	rep.Lockbench = build()
	rep.Command = commandLine(a.args)
}

// finish prints and saves the report, and decides the exit code. A report is worth having as soon as anything was measured, also when
// the run broke off.
func (a *app) finish(f *runFlags, p plan, rep *bench.Report, broke error, sig *interruption) error {
	var errs []error
	if measured(rep) || sig.code() != 0 {
		// Saved first: whoever reads standard output may be gone.
		one := []document{{race: rep}}
		errs = append(errs, a.save(p.files, asDocuments(one), []*bench.Report{rep}), a.print(f.formats, one, f.noColor), a.tellGitHub(p, rep))
	}
	if broke != nil {
		errs = append(errs, broke)
	}
	failed := errors.Join(errs...)
	if failed != nil {
		a.complain(failed)
	}
	broken := brokenClaims(rep)
	for _, b := range broken {
		fmt.Fprintf(a.stderr, "lockbench: error: %s\n", b)
	}
	if sig.code() != 0 {
		return &exitError{sig.code()}
	}
	failures := a.tellFailures(rep.Gate, p.suite)
	switch {
	case failed != nil:
		return &exitError{exitTrouble}
	case len(broken) > 0:
		return &exitError{exitBroken}
	case failures > 0:
		return &exitError{exitThreshold}
	case f.strict:
		return a.conclusive(rep)
	}
	return nil
}

func measured(rep *bench.Report) bool {
	return slices.ContainsFunc(rep.Cells, func(c bench.Cell) bool { return len(c.Trials) > 0 })
}

// tellFailures prints every limit and expectation that was not kept, and returns how many there are.
func (a *app) tellFailures(all []bench.Assertion, suite bool) (n int) {
	prefix := "--fail-on: "
	if suite {
		prefix = ""
	}
	for _, t := range all {
		if t.Failed {
			n++
			fmt.Fprintf(a.stderr, "lockbench: error: %s%s\n", prefix, gate.Say(t))
		}
	}
	return n
}

// brokenClaims says which strategies did not keep what they claim. Who expects that has not been surprised.
func brokenClaims(rep *bench.Report) []string {
	var all []string
	for i := range rep.Cells {
		c := &rep.Cells[i]
		if !c.ClaimBroken || rep.Expected(c) {
			continue
		}
		text := fmt.Sprintf("%s broke its claim on %s", c.Strategy, c.Scenario)
		if c.Race != "" {
			text = c.Race + ": " + text
		}
		for _, f := range c.Findings {
			text += ": " + f.Message
			break
		}
		all = append(all, text)
	}
	return all
}

// conclusive is what --strict asks: every claim was put to the test, or was expected not to be.
func (a *app) conclusive(rep *bench.Report) error {
	var errs []error
	for i := range rep.Cells {
		switch c := &rep.Cells[i]; {
		case c.NA != "":
			errs = append(errs, bench.Hintf("name the strategies that make sense, or leave --strict out", "--strict: %s makes no sense on %s", c.Strategy, c.Scenario))
		case c.Verdict == bench.Undetermined && len(c.Claim) > 0 && !rep.Expected(c):
			errs = append(errs, bench.Hintf("raise --users or --think, or lower --rows", "--strict: the claim of %s was not put to the test", c.Strategy))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	a.complain(errors.Join(errs...))
	return &exitError{exitInconclusive}
}
