package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/lockbench/lockbench/bench/postgres"
)

// finding is one line of doctor.
type finding struct {
	State string `json:"state"` // ok, warn or fail
	What  string `json:"what"`
	Text  string `json:"text"`
	Hint  string `json:"hint,omitempty"`
}

// The states. Fail means that run cannot work; warn, that its figures will be distorted.
const (
	stateOK   = "ok"
	stateWarn = "warn"
	stateFail = "fail"
)

// examination gathers findings.
type examination struct {
	Findings []finding `json:"findings"`
}

func (e *examination) add(state, what, hint, format string, args ...any) {
	e.Findings = append(e.Findings, finding{State: state, What: what, Text: fmt.Sprintf(format, args...), Hint: hint})
}

func (e *examination) failed() bool {
	return slices.ContainsFunc(e.Findings, func(f finding) bool { return f.State == stateFail })
}

type doctorFlags struct {
	where       source
	connections int
	format      string
}

func (a *app) doctorCommand() *cobra.Command {
	f := &doctorFlags{}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Can this machine, or a server, run it, and what will distort the figures",
		Long: `Find out whether lockbench can run here: which PostgreSQL binaries there are, whether a server of its own starts, and with --dsn whether
that server can be reached, holds what lockbench needs, and how far away it is. Then say what distorts figures on this machine.

Exit code 1 if run would not work.`,
		Example: `  lockbench doctor
  lockbench doctor --pg-version 16
  lockbench doctor --dsn postgres://app@db.example.org/test --connections 64`,
		Args: a.words(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.where.check(a, cmd.Flags())
			if err := a.usage(); err != nil {
				return err
			}
			sig := interruptible(cmd.Context(), a.say(false))
			defer sig.end()
			e := f.examine(sig.ctx)
			if code := sig.code(); code != 0 {
				return &exitError{code}
			}
			return a.diagnose(e, f.format)
		},
	}
	fs := flagSet{a: a, fs: cmd.Flags()}
	fs.fs.SortFlags = false
	f.where.add(fs)
	count(fs, &f.connections, "connections", mostConnections, "connections a run would open")
	fs.oneOf(&f.format, "format", "text", []string{"text", formatJSON}, "how to print it")
	completeWords(cmd, "format", "text", formatJSON)
	return cmd
}

func (f *doctorFlags) examine(ctx context.Context) *examination {
	e := &examination{Findings: []finding{}}
	e.machine()
	if f.where.dsn != "" {
		e.add(stateOK, "database", "", "%s names %s", f.where.dsnFrom, withoutPassword(f.where.dsn))
		e.server(ctx, f.where.dsn, f.connections, false)
		return e
	}
	e.own(ctx, &f.where, f.connections)
	return e
}

func (a *app) diagnose(e *examination, format string) error {
	if format == formatJSON {
		if err := a.printJSON(e); err != nil {
			return err
		}
	} else {
		for _, f := range e.Findings {
			const indent = 20
			width := a.within(indent+90) - indent
			fmt.Fprintf(a.stdout, "%-4s  %-12s  %s\n", f.State, f.What, strings.Join(wrap(f.Text, width), "\n"+strings.Repeat(" ", indent)))
			if f.Hint != "" {
				fmt.Fprintf(a.stdout, "%*s%s\n", indent, "", strings.Join(wrap("hint: "+f.Hint, width), "\n"+strings.Repeat(" ", indent)))
			}
		}
	}
	if e.failed() {
		return &exitError{exitTrouble}
	}
	return nil
}

// machine looks at what distorts figures on this host.
func (e *examination) machine() {
	n := runtime.NumCPU()
	e.add(stateOK, "machine", "", "%s/%s, %s", runtime.GOOS, runtime.GOARCH, counted(n, "processor"))
	if n < 4 {
		e.add(stateWarn, "processors", "compare strategies with each other, not with other machines",
			"a server on this host shares %s with lockbench: figures are lower and wider than on a larger machine", counted(n, "processor"))
	}
	switch g := governor(); g {
	case "", "performance":
	default:
		e.add(stateWarn, "governor", "set it to performance while measuring",
			"the CPU frequency governor is %q: the first figures of a run are slower than the last", g)
	}
	if step := clockStep(); step > 2*time.Microsecond {
		e.add(stateWarn, "clock", "", "the clock advances in steps of %v: shorter times cannot be told apart", step)
	}
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// governor reads how Linux picks the processor's frequency; "" where that cannot be read.
func governor() string {
	b, err := os.ReadFile("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// clockStep is the smallest step seen between two readings of the clock.
func clockStep() time.Duration {
	smallest := time.Hour
	for range 200 {
		begin := time.Now()
		for {
			if d := time.Since(begin); d > 0 {
				smallest = min(smallest, d)
				break
			}
		}
	}
	return smallest
}

// server looks at a server through connections of its own; nothing is left behind there.
func (e *examination) server(ctx context.Context, dsn string, connections int, own bool) {
	store, err := postgres.Connect(ctx, dsn, postgres.Options{Embedded: own})
	if err != nil {
		e.add(stateFail, "connect", hintOf(err), "%v", err)
		return
	}
	defer store.Close()
	srv, err := store.Describe(ctx)
	if err != nil {
		e.add(stateFail, "server", hintOf(err), "%v", err)
		return
	}
	e.add(stateOK, "server", "", "PostgreSQL %s at %s", srv.Version, srv.Address)
	if srv.Major < 12 {
		e.add(stateWarn, "version", "", "PostgreSQL %d is older than what lockbench is tried with", srv.Major)
	}
	if !srv.Durable && !own {
		e.add(stateWarn, "durability", "turn fsync and synchronous_commit on for figures that mean something in production",
			"fsync is %s, synchronous_commit is %s: locks are held for a shorter time than in production", srv.Settings["fsync"], srv.Settings["synchronous_commit"])
	}
	if srv.Pooler {
		e.add(stateWarn, "pooler", "connect to PostgreSQL itself to measure prepared execution",
			"a transaction pooler stands in front: statements are parsed at every execution, and what needs a session is refused")
	}
	e.inside(ctx, dsn, connections, own, srv.Pooler)
	if !own {
		e.rehearsal(ctx, store)
	}
}

// slots asks how many connections this role may still open: some are kept for superusers, some are taken, and the role and the database
// may have limits of their own. The connection that asks is one of those taken.
const slots = `SELECT current_setting('max_connections')::int, least(
	current_setting('max_connections')::int
		- CASE WHEN r.rolsuper THEN 0 ELSE current_setting('superuser_reserved_connections')::int
			+ coalesce(current_setting('reserved_connections', true)::int, 0) END
		- (SELECT coalesce(sum(numbackends), 0) FROM pg_stat_database),
	CASE WHEN r.rolconnlimit >= 0 AND NOT r.rolsuper
		THEN r.rolconnlimit - (SELECT count(*) FROM pg_stat_activity WHERE usename = current_user) END,
	CASE WHEN d.datconnlimit >= 0 AND NOT r.rolsuper THEN d.datconnlimit - (SELECT numbackends FROM pg_stat_database WHERE datname = d.datname) END)
FROM pg_roles r, pg_database d WHERE r.rolname = current_user AND d.datname = current_database()`

// room compares the connections that are free with what a run would open: one more for seeding and auditing, which doctor has open as
// well, and one for sampling, for which doctor's other one makes room.
func (e *examination) room(ctx context.Context, conn *pgx.Conn, connections int) {
	var limit, free int
	if err := conn.QueryRow(ctx, slots).Scan(&limit, &free); err != nil {
		e.add(stateFail, "connections", "", "asking how many are free: %v", err)
		return
	}
	if connections > free {
		e.add(stateFail, "connections", fmt.Sprintf("use --connections %d, or raise max_connections", max(1, free)),
			"a run with %d connections needs %d; %d are free to this role, and max_connections is %d", connections, connections+2, max(0, free)+2, limit)
		return
	}
	e.add(stateOK, "connections", "", "%d of at most %d, of which %d are free to this role", connections, limit, free+2)
}

// rehearsal tries what a run does before it races.
func (e *examination) rehearsal(ctx context.Context, store *postgres.Store) {
	switch err := store.Rehearse(ctx); {
	case errors.Is(err, postgres.ErrBusy):
		e.add(stateWarn, "rehearsal", hintOf(err), "%v: a run would be refused now", err)
	case err != nil:
		e.add(stateFail, "rehearsal", hintOf(err), "%v", err)
	default:
		e.add(stateOK, "rehearsal", "", "the tables can be made, filled and emptied; nothing was left behind")
	}
}

// inside asks what only a connection can tell: the schema's state, the distance, and whether the server is on this host.
func (e *examination) inside(ctx context.Context, dsn string, connections int, own, pooled bool) {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		e.add(stateFail, "connect", "", "the DSN cannot be read")
		return
	}
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec // works through a pooler
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		e.add(stateFail, "connect", "", "%v", err)
		return
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if !pooled { // a pooler has limits of its own
		e.room(ctx, conn, connections)
	}
	if !own {
		e.schema(ctx, conn)
		e.distance(cfg.Host)
	}
	e.latency(ctx, conn)
}

const schemaState = `SELECT n.oid IS NOT NULL, coalesce(obj_description(n.oid, 'pg_namespace'), '')
FROM (SELECT 1) AS one LEFT JOIN pg_namespace n ON n.nspname = 'lockbench'`

func (e *examination) schema(ctx context.Context, conn *pgx.Conn) {
	var there bool
	var mark string
	if err := conn.QueryRow(ctx, schemaState).Scan(&there, &mark); err != nil {
		e.add(stateFail, "schema", "", "%v", err)
		return
	}
	switch {
	case there && strings.HasPrefix(mark, "lockbench:"):
		e.add(stateOK, "schema", "", "schema lockbench is there, and lockbench's own")
	case there: // the rehearsal refuses it
	default:
		e.add(stateOK, "schema", "", "schema lockbench is not there yet")
	}
}

// distance says where the server is, as far as its address tells.
func (e *examination) distance(host string) {
	here := filepath.IsAbs(host) || host == "localhost" || strings.HasPrefix(host, "127.") || host == "::1"
	if name, err := os.Hostname(); err == nil && host == name {
		here = true
	}
	if here {
		e.add(stateWarn, "place", "measure from another machine for figures without lockbench's own share",
			"the server is on this host and shares its processors with lockbench")
		return
	}
	e.add(stateOK, "place", "", "the server is on another host: a transaction of three statements pays three to five round trips")
}

// trips is how many round trips latency measures.
const trips = 50

func (e *examination) latency(ctx context.Context, conn *pgx.Conn) {
	var times []time.Duration
	for range trips {
		begin := time.Now()
		if _, err := conn.Exec(ctx, "SELECT 1"); err != nil {
			e.add(stateFail, "latency", "", "%v", err)
			return
		}
		times = append(times, time.Since(begin))
	}
	slices.Sort(times)
	e.add(stateOK, "latency", "", "a round trip takes %v (median of %d, at most %v)",
		times[trips/2].Round(time.Microsecond), trips, times[trips-1].Round(time.Microsecond))
}
