package main

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/bench/fleet"
	"github.com/lockbench/lockbench/bench/postgres"
)

// workerFlags are the flags of worker.
type workerFlags struct {
	fleetFlags
	where    source
	name     string
	lifeline bool
	quiet    bool
}

func (a *app) workerCommand() *cobra.Command {
	f := &workerFlags{}
	cmd := &cobra.Command{
		Use:   "worker",
		Short: "Race a part of the users of a run that waits for workers",
		Long: `Join a run that "lockbench run --workers" waits for, on this machine or another, and race a part of its users. The run says what to race;
a worker needs its name and the same database. They meet in that database and nowhere else, so nothing has to be opened between machines.
The report is the run's; a worker prints none.

A worker waits for its run to be announced, and ends with it. It must be the same lockbench, and reach PostgreSQL itself: through a pooler
in transaction mode nobody can listen.

Exit codes: 0 the run is over, 1 trouble, 2 usage, 129, 130 and 143 stopped by a signal.`,
		Example: `  lockbench run --workers 4 --run nightly --dsn postgres://app@db.example.org/test      on one machine
  lockbench worker --run nightly --dsn postgres://app@db.example.org/test               on each of four`,
		Args: a.words(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.work(cmd.Context(), cmd.Flags(), f) },
	}
	g := flagSet{a: a, fs: cmd.Flags()}
	cmd.Flags().SortFlags = false
	f.fleetFlags.add(g, "of the run, as it prints it or as its --run says")
	g.text(&f.name, "name", "name", "", "what the run calls this worker (default the machine's name)")
	g.text(&f.where.dsn, "dsn", "dsn", "", "the run's database (default LOCKBENCH_DSN, then DATABASE_URL)")
	g.onOff(&f.quiet, "quiet", true, "errors only")
	g.onOff(&f.lifeline, "lifeline", true, "end when standard input does")
	cmd.Flags().Lookup("lifeline").Hidden = true
	return cmd
}

// work checks everything, then joins the run.
func (a *app) work(ctx context.Context, given *pflag.FlagSet, f *workerFlags) error {
	f.where.check(a, given)
	f.fleetFlags.check(a)
	if f.run == "" {
		a.problem(bench.Hintf("lockbench run --workers 2 prints it, or takes one with --run", "--run is missing: which run?"))
	}
	if f.where.dsn == "" && !given.Changed("dsn") {
		a.problem(bench.Hintf("name the run's database with --dsn or LOCKBENCH_DSN", "--dsn is missing: workers meet in the run's database"))
	}
	if err := a.usage(); err != nil {
		return err
	}
	say := a.say(f.quiet)
	sig := interruptible(ctx, say)
	defer sig.end()
	working, cancel := context.WithCancel(sig.ctx)
	defer cancel()
	if f.lifeline {
		go func() {
			_, _ = io.Copy(io.Discard, a.stdin)
			cancel()
		}()
	}
	err := a.join(working, f, sig.stop, say)
	if code := sig.code(); code != 0 {
		return &exitError{code}
	}
	return err
}

func (a *app) join(ctx context.Context, f *workerFlags, stop *bench.Stop, say func(string, ...any)) error {
	store, err := postgres.Connect(ctx, f.where.dsn, postgres.Options{Run: f.run, Worker: true})
	if err != nil {
		return err
	}
	defer store.Close()
	guest, err := store.Guest(ctx)
	if err != nil {
		return err
	}
	defer guest.Close()
	machine, err := os.Hostname()
	if err != nil {
		machine = "unknown"
	}
	name := f.name
	if name == "" {
		name = machine
	}
	w := &fleet.Worker{
		Guest: guest, Store: store, Name: name, Host: machine, Lockbench: release(build()), Wait: time.Duration(f.wait),
		Compile: func(s bench.Settings) (*bench.Race, error) { return compile(s, false) },
		Joined:  func(number, of int) { say("joined run %s as worker %d of %d", f.run, number, of) },
	}
	err = w.Work(ctx, stop)
	if errors.Is(err, fleet.ErrNoRun) {
		return bench.Hintf("start it with lockbench run --workers --run "+f.run+", in the same database", "no run %q was announced within %v", f.run, f.wait)
	}
	return err
}
