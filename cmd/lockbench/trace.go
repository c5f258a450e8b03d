package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/bench/trace"
	"github.com/lockbench/lockbench/scenarios"
	"github.com/lockbench/lockbench/strategies"
)

// traceFlags are the flags of trace.
type traceFlags struct {
	settings bench.Settings
	options  map[string]*string // flags of single scenarios, by name
	services map[string]*string // addresses of lock services, by strategy
	where    source
	format   string
	quiet    bool
}

// traceFormats are the forms a trace is printed in.
func traceFormats() []string { return []string{"text", "mermaid", formatJSON} }

func (a *app) traceCommand() *cobra.Command {
	f := &traceFlags{}
	cmd := &cobra.Command{
		Use:   "trace",
		Short: "A few users in slow motion: who sent which SQL when, who waited for whom",
		Long: `Race a few users for the same row in slow motion, and print every statement in order: as the server shows it, with the values of its
parameters, the rows that came back, the SQLSTATE, and whom it waited for (pg_blocking_pids). The order is forced, so that the
interesting case shows every time: one statement a user in turn, all reads before any write, retries after the first attempts, and
no more than one user at a time waiting at a row, since whom PostgreSQL serves first there is luck. The time of a statement is the
server's; how long one waits says nothing, as the others take their turns in slow motion.

Exit codes: 0 ok, 1 trouble, 2 usage, 3 a strategy broke its claim, 129, 130 and 143 stopped by a signal.`,
		Example: `  lockbench trace
  lockbench trace --strategy none,pessimistic --users 3
  lockbench trace --strategy serializable --scenario on-call
  lockbench trace --strategy pessimistic --scenario transfer         a deadlock
  lockbench trace --strategy pessimistic:wait=nowait --format mermaid`,
		Args: a.words(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.trace(cmd.Context(), cmd.Flags(), f) },
	}
	f.add(flagSet{a: a, fs: cmd.Flags()})
	f.complete(cmd)
	return cmd
}

func (f *traceFlags) add(fs flagSet) {
	s := &f.settings
	fs.fs.SortFlags = false

	g := fs.in("What to trace")
	g.list(&s.Strategies, "strategy", "list", []string{"optimistic"}, false, "strategies, separated by commas, or all; options follow by colons, as pessimistic:wait=nowait")
	g.text(&s.Scenario, "scenario", "name", "seats", "what users race for")
	whole(g, &s.Users, "users", trace.LeastUsers, fmt.Sprintf("users, from %d to %d", trace.LeastUsers, trace.MostUsers))
	g.duration(&s.Think, "think", 0, "between read and write, inside the transaction (default none)")
	whole(g, &s.Retries, "retries", 10, "attempts after the first")
	whole(g, &s.Seed, "seed", 1, "of what scenarios draw")

	g = fs.in("Data")
	count(g, &s.Rows, "rows", 0, "rows there are (default the fewest that make sense: 1, or 2)")
	count(g, &s.Capacity, "capacity", 0, "units a row holds (default the scenario's)")

	g = fs.in("Of one scenario")
	f.options = g.ofScenarios()

	f.where.add(fs.in("Database"))
	f.services = fs.in("Lock services").lockServices()

	g = fs.in("Output")
	g.oneOf(&f.format, "format", "text", traceFormats(), "how to print it; text falls back to a line an event below 100 columns")
	g.onOff(&f.quiet, "quiet", true, "no notes on stderr, errors only")
}

func (f *traceFlags) complete(cmd *cobra.Command) {
	complete(cmd, "strategy", completeStrategies)
	complete(cmd, "scenario", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return scenarioWords(), cobra.ShellCompDirectiveNoFileComp
	})
	completeWords(cmd, "format", traceFormats()...)
	completeOfScenarios(cmd)
}

// trace checks everything, then races one strategy after the other.
func (a *app) trace(ctx context.Context, given *pflag.FlagSet, f *traceFlags) error {
	race := a.checkTrace(given, f)
	if err := a.usage(); err != nil {
		return err
	}
	say := a.say(f.quiet)
	sig := interruptible(ctx, say)
	defer sig.end()

	if err := race.Reach(sig.ctx); err != nil {
		return err
	}
	db, err := f.where.open(sig.ctx, race.Settings.Connections, say)
	if err != nil {
		if code := sig.code(); code != 0 {
			return &exitError{code}
		}
		return err
	}
	err = a.traceOn(db, f, race, sig)
	if stopping := db.close(); stopping != nil {
		a.complain(fmt.Errorf("stopping the server: %w", stopping))
	}
	return err
}

// checkTrace notes every problem of the command line and returns the race, which is good if there are none.
func (a *app) checkTrace(given *pflag.FlagSet, f *traceFlags) *bench.Race {
	s := f.settings
	if n := s.Users; n < trace.LeastUsers || n > trace.MostUsers {
		a.problem(bench.Hintf("lockbench run races hundreds", "--users of a trace is %d to %d, got %d", trace.LeastUsers, trace.MostUsers, n))
		s.Users = trace.LeastUsers
	}
	s.Options, s.Services = givenOptions(f.options, given), givenServices(f.services)
	if !given.Changed("rows") {
		for _, sc := range scenarios.All() {
			if sc.Info().Name == s.Scenario {
				s.Rows = trace.LeastRows(sc, s)
			}
		}
	}
	f.where.check(a, given)
	race, err := bench.Compile(trace.Plan(s), strategies.All(), scenarios.All(), bench.Connecting{})
	a.problem(err)
	return race
}

func (a *app) traceOn(db *database, f *traceFlags, race *bench.Race, sig *interruption) error {
	store, ok := db.store.(trace.Store)
	if !ok {
		return fmt.Errorf("this database cannot be watched")
	}
	t, err := trace.Run(sig.ctx, race, store, sig.stop)
	if sig.code() == 0 {
		err = db.blame(sig.ctx, err)
	}
	t.Lockbench, t.Command = build(), commandLine(a.args)
	if printed := a.printTrace(f.format, t); err == nil {
		err = printed
	}
	if code := sig.code(); code != 0 {
		return &exitError{code}
	}
	if err != nil {
		return err
	}
	broken := false
	for _, r := range t.Races {
		if r.ClaimBroken {
			broken = true
			fmt.Fprintf(a.stderr, "lockbench: error: %s broke its claim on %s\n", r.Strategy, t.Scenario)
		}
	}
	if broken {
		return &exitError{exitBroken}
	}
	return nil
}

// printTrace writes what was seen, also of a trace that was stopped; of one that never began there is nothing.
func (a *app) printTrace(format string, t *trace.Trace) error {
	events := 0
	for _, r := range t.Races {
		events += len(r.Events)
	}
	switch {
	case t.Partial && events == 0:
		return nil
	case format == formatJSON:
		return a.printJSON(t)
	case format == "mermaid":
		return trace.WriteMermaid(a.stdout, t)
	}
	return trace.WriteText(a.stdout, t, a.width())
}
