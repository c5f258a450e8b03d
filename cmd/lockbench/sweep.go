package main

import (
	"bytes"
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
	"github.com/lockbench/lockbench/bench/sweep"
)

// What a sweep does unless told otherwise: a minute that shows a curve. Users that loop give the scalability law its steady state, and
// twenty rows take them from hardly any conflict to many.
func sweepDefaults() [][2]string {
	return [][2]string{
		{"strategy", "optimistic,pessimistic,atomic"}, {"scenario", sweptScenario}, {"mode", string(bench.Closed)}, {"rows", "20"},
		{"duration", "700ms"}, {"warmup", "100ms"},
	}
}

const (
	sweptScenario = "inventory"
	sweptUsers    = "1,2,4,8,16,32"
	sweepUsers    = "32"   // where something else is swept
	searchFactor  = 1024   // how far beyond its first value a search goes
	searchMost    = 1 << 8 // connections, each of which is a process of the server
)

// several lets a flag of run take several values, separated by commas.
type several struct {
	pflag.Value
	texts []string
}

// Set reads every value; the flag's own reading notes what is wrong with one.
func (v *several) Set(s string) error {
	v.texts = nil
	for _, text := range strings.Split(s, ",") {
		text = strings.TrimSpace(text)
		v.texts = append(v.texts, text)
		if err := v.Value.Set(text); err != nil {
			return err
		}
	}
	return nil
}

func (v *several) String() string {
	if len(v.texts) == 0 {
		return v.Value.String()
	}
	return strings.Join(v.texts, ",")
}

// Type names the kind of value in --help.
func (v *several) Type() string { return v.Value.Type() + ",..." }

// sweepFlags are those of run, some of which take several values.
type sweepFlags struct {
	runFlags
	until []string
	swept map[string]*several
}

func (a *app) sweepCommand() *cobra.Command {
	f := &sweepFlags{swept: map[string]*several{}}
	cmd := &cobra.Command{
		Use:   "sweep",
		Short: "Race with several values of one flag: how retries grow, and where goodput peaks",
		Long: `Run the same race with several values of --users, --connections, --rate, --think or --rows, on one server, and print the curve: per
strategy how attempts per confirmed operation and retries grow, with 95 % intervals, and where goodput is best, by a fit of the
Universal Scalability Law. Trials of all points and strategies are interleaved in an order drawn from the seed, so that a machine which
slows down for a while does not look like a curve. All other flags are those of run, with defaults that take about a minute.

--until takes a limit as --fail-on of run does, and searches: the first value is doubled until the limit holds for a strategy, then the
interval is halved until it is narrow. --users 10 says where to begin, --users 10,2000 where to end as well; in open mode --rate does.

Exit codes: those of run. Ctrl-C keeps what was measured.`,
		Example: `  lockbench sweep                                                      three strategies, 1 to 32 users
  lockbench sweep --strategy optimistic,atomic --mode burst --users 2,10,50,100 --connections 100 --rows 1 --capacity 1000
  lockbench sweep --connections 1,4,16,64 --users 64
  lockbench sweep --mode open --rate 50,100,200,400 --strategy pessimistic
  lockbench sweep --until 'p99>200ms' --strategy optimistic,pessimistic
  lockbench sweep --until 'p99>200ms' --mode open --rate 100
  lockbench sweep --output sweep.json --output sweep.png`,
		Args: a.words(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.sweep(cmd.Context(), cmd.Flags(), f) },
	}
	g := flagSet{a: a, fs: cmd.Flags()}
	cmd.Flags().SortFlags = false
	f.raceFlags.add(g)
	f.addRest(g)
	f.complete(cmd)
	for _, d := range sweepDefaults() {
		redefault(cmd.Flags().Lookup(d[0]), d[1])
	}
	for _, p := range sweep.Parameters() {
		flag := cmd.Flags().Lookup(p.Name)
		f.swept[p.Name] = &several{Value: flag.Value}
		flag.Value = f.swept[p.Name]
	}
	redefault(cmd.Flags().Lookup("users"), sweptUsers)
	cmd.Flags().Lookup("rows").Usage += "; of other scenarios their own"
	cmd.Flags().Lookup("users").Usage += ", if nothing else is swept, else " + sweepUsers
	g.in("Load").list(&f.until, "until", "limit", nil, false, "search where this begins to hold, as 'p99>200ms'")
	complete(cmd, "until", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return gate.Names(), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	})
	return cmd
}

// redefault gives a flag of run another default.
func redefault(flag *pflag.Flag, text string) {
	if l, ok := flag.Value.(*list); ok {
		*l.to = []string{text}
	} else if err := flag.Value.Set(text); err != nil {
		panic(err) // the program would not pass its first test
	}
	flag.DefValue = flag.Value.String()
	flag.Usage, _, _ = strings.Cut(flag.Usage, " (default ") // which run's own words say
}

// sweepPlan is a sweep whose command line has been checked.
type sweepPlan struct {
	parameter sweep.Parameter
	values    []float64 // ascending; of a search the first and the last
	labels    []string  // of the strategies that race
	at        func(v float64) bench.Settings
	limits    []gate.Limit // of --fail-on
	until     []gate.Limit
	files     []outputFile
}

// sweep checks everything, then runs.
func (a *app) sweep(ctx context.Context, given *pflag.FlagSet, f *sweepFlags) error {
	p := a.checkSweep(given, f)
	if err := a.usage(); err != nil {
		return err
	}
	say := a.say(f.quiet)
	sig := interruptible(ctx, say)
	defer sig.end()

	connections := 0
	for _, v := range p.values {
		s := p.at(v)
		connections = max(connections, sessions(&s))
	}
	db, err := f.where.open(sig.ctx, connections, say)
	if err != nil {
		if code := sig.code(); code != 0 {
			return &exitError{code}
		}
		return err
	}
	a.share(ctx, db, &f.fleetFlags, say)
	err = a.sweepOn(ctx, db, f, p, sig)
	if stopping := db.close(); stopping != nil {
		a.complain(fmt.Errorf("stopping the server: %w", stopping))
	}
	return err
}

// checkSweep notes every problem of the command line and returns the plan, which is good if there are none.
func (a *app) checkSweep(given *pflag.FlagSet, f *sweepFlags) sweepPlan {
	p := sweepPlan{parameter: a.sweptParameter(given, f)}
	p.values = a.sweptValues(p.parameter, given, f)
	p.at = func(v float64) bench.Settings {
		raw := f.runFlags
		p.parameter.Set(&raw.settings, v)
		if !given.Changed("duration") && (raw.mode == string(bench.Burst) || raw.settings.Operations > 0) {
			raw.settings.Duration = 0 // a default of this command alone
		}
		if !given.Changed("rows") && raw.settings.Scenario != sweptScenario {
			raw.settings.Rows = 0 // another scenario knows better
		}
		if !given.Changed("warmup") && raw.mode == string(bench.Burst) {
			raw.settings.Warmup = bench.Duration(time.Second)
		}
		return raw.settle(given)
	}
	f.where.check(a, given)
	f.fleetFlags.check(a)
	f.where.run = f.run
	var cells []*bench.Entrant
	for _, v := range p.values {
		race, err := compile(p.at(v), false)
		a.problem(err)
		cells = race.Cells
	}
	for _, c := range cells {
		if c.NA == "" {
			p.labels = append(p.labels, c.Spec.Label)
		}
	}
	p.limits = a.limits("fail-on", f.failOn, cells)
	p.until = a.limits("until", f.until, cells)
	for _, name := range f.formats {
		a.problem(knownFormat(name))
	}
	p.files = a.outputFiles(f.outputs)
	return p
}

// limits reads the limits that a flag was given, and notes what is wrong with them.
func (a *app) limits(flag string, texts []string, cells []*bench.Entrant) []gate.Limit {
	limits, err := gate.ParseAll(texts)
	for _, e := range flatten(err) {
		a.problem(fmt.Errorf("--%s: %w", flag, e))
	}
	for _, l := range limits {
		a.problem(concernedBy(flag, l, cells))
	}
	return limits
}

// sweptParameter is the one flag that was given several values. If none was, a search is one of users, or of the rate where that decides.
func (a *app) sweptParameter(given *pflag.FlagSet, f *sweepFlags) sweep.Parameter {
	var all []string
	for _, p := range sweep.Parameters() {
		if given.Changed(p.Name) && len(f.swept[p.Name].texts) > 1 {
			all = append(all, p.Name)
		}
	}
	name := "users"
	switch {
	case len(all) > 1:
		a.problem(bench.Hintf("give all but one of them a single value", "--%s have several values each, and one flag can be swept", strings.Join(all, " and --")))
	case len(all) == 1:
		name = all[0]
	case len(f.until) > 0 && f.mode == string(bench.Open) && given.Changed("rate"):
		name = "rate"
	case given.Changed("users") && len(f.until) == 0:
		a.problem(bench.Hintf("give one of --users, --connections, --rate, --think or --rows several values, as --users 1,10,100", "nothing is swept: every flag has one value"))
	}
	p, err := sweep.Lookup(name)
	a.problem(err)
	if name != "users" && !given.Changed("users") {
		a.problem(f.swept["users"].Set(sweepUsers))
	}
	return p
}

// sweptValues are those of the swept flag, ascending. A search has two, its first and its last.
func (a *app) sweptValues(p sweep.Parameter, given *pflag.FlagSet, f *sweepFlags) []float64 {
	if p.Name == "" {
		return nil
	}
	flag := f.swept[p.Name]
	var values []float64
	for _, text := range slices.Clone(flag.texts) {
		before := len(a.problems)
		a.problem(flag.Value.Set(text))
		if len(a.problems) > before { // noted when the line was read, too
			a.problems = a.problems[:before]
			return nil
		}
		v := p.Of(&f.settings)
		if slices.Contains(values, v) {
			a.problem(bench.Hintf("give it once", "--%s: %q stands twice", p.Name, text))
		}
		values = append(values, v)
	}
	slices.Sort(values)
	if len(f.until) == 0 {
		return values
	}
	if !given.Changed(p.Name) {
		values = values[:1]
	}
	switch {
	case p.Name == "rows":
		a.problem(bench.Hintf("search over --users or --rate", "--until doubles what makes a race harder, and more --rows make it easier"))
	case len(values) > 2:
		a.problem(bench.Hintf(fmt.Sprintf("give the first and the last one, as --%s 10,2000", p.Name), "--until finds the values between by itself, and --%s has %d", p.Name, len(values)))
	case !(values[0] > 0):
		a.problem(bench.Hintf("begin above 0", "--until doubles the first value, and --%s begins at %s", p.Name, p.Text(values[0])))
	}
	if len(values) == 1 {
		last := values[0] * searchFactor
		if p.Name == "connections" {
			last = max(values[0], searchMost)
		}
		values = append(values, last)
	}
	return values
}

// sweepOn runs the plan on a database and reports.
func (a *app) sweepOn(ctx context.Context, db *database, f *sweepFlags, p sweepPlan, sig *interruption) error {
	run := func(probes []sweep.Probe) ([]*bench.Report, error) {
		races := make([]*bench.Race, len(probes))
		for i, probe := range probes {
			s := p.at(probe.Value)
			if probe.Strategies != nil {
				s.Strategies = probe.Strategies
			}
			var err error
			if races[i], err = compile(s, db.pooled); err != nil { // some strategies cannot work through a pooler, and say so
				return nil, usageError{err}
			}
			races[i].Name = p.parameter.Race(probe.Value)
		}
		show := newProgress(a.stderr, f.quiet, 0)
		sig.racing(show.Say)
		reps, err := bench.Interleave(ctx, db.store, sig.stop, show, races)
		sig.over(a.say(f.quiet))
		show.Close()
		return reps, err
	}
	reports, broke := a.points(f, p, sig, run)
	var usage usageError
	if errors.As(broke, &usage) {
		return broke
	}
	return a.finishSweep(f, p, reports, broke, sig)
}

// points runs all values together, or those that a search asks for.
func (a *app) points(f *sweepFlags, p sweepPlan, sig *interruption, run func([]sweep.Probe) ([]*bench.Report, error)) ([]*bench.Report, error) {
	if len(p.until) == 0 {
		var probes []sweep.Probe
		for _, v := range p.values {
			probes = append(probes, sweep.Probe{Value: v})
		}
		return run(probes)
	}
	search := sweep.NewSearch(p.parameter, p.labels, p.values[0], p.values[1])
	var all []*bench.Report
	before := 0
	for probes := search.Next(); len(probes) > 0; probes = search.Next() {
		reports, err := run(probes)
		trials := 0
		for _, r := range reports {
			for i := range r.Cells {
				c := &r.Cells[i]
				trials += len(c.Trials)
				for j := range c.Trials {
					c.Trials[j].Order += before
				}
				kept := sweep.Passed(p.until, c)
				v := p.parameter.Of(&r.Plan)
				search.Saw(c.Strategy, v, kept)
				word := "usable"
				if !kept {
					word = "not usable"
				}
				a.say(f.quiet)("%s is %s at %s: %s", c.Strategy, word, p.parameter.Race(v), sweep.Figures(p.until, c))
			}
		}
		before += trials
		all = append(all, reports...)
		if err != nil || sig.stop.Softly() {
			return all, err
		}
	}
	return all, nil
}

// finishSweep prints and saves what was measured, and decides the exit code as run does.
func (a *app) finishSweep(f *sweepFlags, p sweepPlan, reports []*bench.Report, broke error, sig *interruption) error {
	reports = slices.DeleteFunc(reports, func(r *bench.Report) bool { return !measured(r) })
	var errs []error
	all := &bench.Report{}
	if len(reports) > 0 {
		a.label(reports[0])
		for _, r := range reports {
			r.Lockbench, r.Command = reports[0].Lockbench, reports[0].Command
			r.Gate = gate.Check(p.limits, r.Cells)
		}
		s, err := sweep.Of(p.parameter, f.until, reports)
		if err != nil {
			return err
		}
		s.Report.Partial = s.Report.Partial || broke != nil
		all = s.Report
		errs = append(errs, a.saveSweep(p.files, s), a.printSweep(f, s))
	}
	errs = append(errs, broke)
	failed := errors.Join(errs...)
	if failed != nil {
		a.complain(failed)
	}
	broken := brokenClaims(all)
	for _, b := range broken {
		fmt.Fprintf(a.stderr, "lockbench: error: %s\n", b)
	}
	if sig.code() != 0 {
		return &exitError{sig.code()}
	}
	failures := a.tellFailures(all.Gate, false)
	switch {
	case failed != nil:
		return &exitError{exitTrouble}
	case len(broken) > 0:
		return &exitError{exitBroken}
	case failures > 0:
		return &exitError{exitThreshold}
	case f.strict:
		tested := *all
		tested.Cells = bestTested(all.Cells)
		return a.conclusive(&tested)
	}
	return nil
}

// bestTested keeps one cell a strategy: one where its claim was put to the test, if there is any.
func bestTested(cells []bench.Cell) []bench.Cell {
	var all []bench.Cell
	for _, c := range cells {
		i := slices.IndexFunc(all, func(have bench.Cell) bool { return have.Strategy == c.Strategy })
		switch {
		case i < 0:
			all = append(all, c)
		case all[i].Verdict == bench.Undetermined:
			all[i] = c
		}
	}
	return all
}

func (a *app) saveSweep(files []outputFile, s *sweep.Sweep) error {
	var errs []error
	for _, o := range files {
		var buf bytes.Buffer
		err := report.WriteSweep(&buf, o.format, s, report.Options{})
		if err == nil {
			err = o.write(buf.Bytes())
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("saving %q: %w", o.path, reason(err)))
		}
	}
	return errors.Join(errs...)
}

func (a *app) printSweep(f *sweepFlags, s *sweep.Sweep) error {
	o := report.Options{Width: a.width(), Color: a.color(f.noColor)}
	for i, format := range f.formats {
		if i > 0 {
			fmt.Fprintln(a.stdout)
		}
		if err := report.WriteSweep(a.stdout, format, s, o); err != nil {
			return fmt.Errorf("printing the sweep: %w", err)
		}
	}
	return nil
}
