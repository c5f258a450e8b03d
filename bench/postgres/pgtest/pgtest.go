// Package pgtest gives tests a PostgreSQL: one server for each test binary, started by the first test that asks, and a database for
// each test. LOCKBENCH_TEST_DSN names a running server to use instead; its role must be allowed to create databases.
package pgtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/bench/postgres"
	"github.com/lockbench/lockbench/bench/postgres/embedded"
)

// Patience bounds every wait for an event that must come; it is long because machines that run tests are busy.
const Patience = 30 * time.Second

// shared is the server of this test binary. It is state of the package because a test binary has no other place that all tests reach.
var shared struct {
	once   sync.Once
	server *embedded.Server
	dsn    string
	err    error

	mu        sync.Mutex
	databases int
}

// Main runs a package's tests, checks that they leave no goroutine behind, and ends the server. It is all of a TestMain.
func Main(m *testing.M) {
	if code, yes := embedded.Supervised(); yes {
		os.Exit(code)
	}
	goleak.VerifyTestMain(stopping{m})
}

// stopping ends the server after the tests, and before anybody looks for goroutines left behind: one listens to its supervisor.
type stopping struct{ m *testing.M }

func (s stopping) Run() int {
	code := s.m.Run()
	if shared.server != nil {
		_ = shared.server.Stop()
	}
	return code
}

// Lack skips a test for which the machine lacks something, with a word on what that leaves untested. Where
// LOCKBENCH_REQUIRE_SERVICES is set the test fails instead, so that a skip cannot hide a failure.
func Lack(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("LOCKBENCH_REQUIRE_SERVICES") != "" {
		t.Fatalf("LOCKBENCH_REQUIRE_SERVICES is set, and %s", what)
	}
	t.Skip(what)
}

// settings of the test server. Autovacuum would commit behind the back of tests that count commits; a deadlock is to be found soon;
// prepared transactions are one of the things that the audit must see.
func settings() map[string]string {
	return map[string]string{"autovacuum": "off", "deadlock_timeout": "50ms", "max_prepared_transactions": "4"}
}

func server(t testing.TB) string {
	t.Helper()
	shared.once.Do(func() {
		if shared.dsn = os.Getenv("LOCKBENCH_TEST_DSN"); shared.dsn != "" {
			return
		}
		// The server translates its messages for sessions that ask for it; see the tests of classification.
		if os.Getenv("LANGUAGE") == "" {
			_ = os.Setenv("LANGUAGE", "de")
		}
		shared.server, shared.err = embedded.Start(context.Background(), embedded.Config{Connections: 100, Settings: settings()})
		if shared.err == nil {
			shared.dsn = shared.server.DSN()
		}
	})
	if shared.err != nil {
		t.Fatalf("no PostgreSQL to test with: %v", shared.err)
	}
	return shared.dsn
}

// Start starts a server for one test alone, with further settings.
func Start(t testing.TB, more map[string]string) *embedded.Server {
	t.Helper()
	all := settings()
	for k, v := range more {
		all[k] = v
	}
	s, err := embedded.Start(t.Context(), embedded.Config{Connections: 50, Settings: all})
	if err != nil {
		t.Fatalf("starting a server: %v", err)
	}
	t.Cleanup(func() { _ = s.Stop() })
	return s
}

// DSN makes a database for the test and returns how to reach it. It goes with the test, or with the server where that is the tests' own:
// dropping one costs a checkpoint.
func DSN(t testing.TB) string {
	t.Helper()
	base := server(t)
	shared.mu.Lock()
	shared.databases++
	name := fmt.Sprintf("lockbench_test_%d_%d", os.Getpid(), shared.databases)
	shared.mu.Unlock()
	Exec(t, base, "CREATE DATABASE "+name)
	if shared.server == nil {
		t.Cleanup(func() { Exec(t, base, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)") })
	}
	return With(base, "dbname", name)
}

// Exec runs a statement on a connection of its own; it may be used while the test is being cleaned up.
func Exec(t testing.TB, dsn, sql string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), Patience)
	defer cancel()
	c, err := pgx.Connect(ctx, dsn)
	if err == nil {
		_, err = c.Exec(ctx, sql)
		_ = c.Close(ctx)
	}
	if err != nil {
		t.Errorf("%s: %v", sql, err)
	}
}

// With returns a DSN with one of its parts changed: dbname, user, password, host or port.
func With(dsn, key, value string) string {
	u, err := url.Parse(dsn)
	if err != nil || !strings.HasPrefix(u.Scheme, "postgres") {
		return dsn + " " + key + "='" + value + "'" // the last one counts
	}
	if key == "dbname" {
		u.Path = "/" + value
		return u.String()
	}
	q := u.Query()
	q.Set(key, value)
	u.RawQuery = q.Encode()
	return u.String()
}

// Connect opens a session of the test's own.
func Connect(t testing.TB, dsn string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatalf("connecting: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), Patience)
		defer cancel()
		_ = c.Close(ctx)
	})
	return c
}

// Must runs a statement on a session of the test's own.
func Must(t testing.TB, c *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := c.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// Number reads one number.
func Number(t testing.TB, c *pgx.Conn, sql string, args ...any) (n int64) {
	t.Helper()
	if err := c.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// Store connects a store, closed when the test ends.
func Store(t testing.TB, dsn string) *postgres.Store {
	t.Helper()
	s, err := postgres.Connect(t.Context(), dsn, postgres.Options{})
	if err != nil {
		t.Fatalf("connecting the store: %v", err)
	}
	t.Cleanup(s.Close)
	return s
}

// WaitBlocked waits until the session with the process number waits for a lock that another holds. It asks through c, which must be
// free; ended, when not nil, reports early that the session will never be blocked.
func WaitBlocked(t testing.TB, c *pgx.Conn, pid int64, ended <-chan struct{}) {
	t.Helper()
	WaitFor(t, c, ended, "the session to wait for a lock", "SELECT cardinality(pg_blocking_pids($1)) > 0", pid)
}

// WaitFor asks the server again and again until it says yes.
func WaitFor(t testing.TB, c *pgx.Conn, ended <-chan struct{}, what, sql string, args ...any) {
	t.Helper()
	limit := time.NewTimer(Patience)
	defer limit.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		var yes bool
		if err := c.QueryRow(t.Context(), sql, args...).Scan(&yes); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		if yes {
			return
		}
		select {
		case <-ended:
			t.Fatalf("waited for %s, which ended without", what)
		case <-limit.C:
			t.Fatalf("waited for %s in vain", what)
		case <-tick.C:
		}
	}
}

// Plan is a run that contends hard and in which everybody gets a final answer: users meet on a row, and retries do not run out.
func Plan(scenario string, strategies ...string) bench.Settings {
	return bench.Settings{
		Strategies: strategies, Scenario: scenario, Mode: bench.Burst, Users: 60, Connections: 8, Trials: 1, Seed: 1,
		Skew: "uniform", Think: bench.Duration(2 * time.Millisecond), Retries: 100_000, Backoff: "exp=1ms..20ms",
		Deadline: bench.Duration(time.Minute), Drain: bench.Duration(5 * time.Second),
	}
}

// Compile checks a plan that must be good.
func Compile(t testing.TB, s bench.Settings, sts []bench.Strategy, scs []bench.Scenario, via bench.Connecting) *bench.Race {
	t.Helper()
	r, err := bench.Compile(s, sts, scs, via)
	if err != nil {
		t.Fatalf("compiling %v on %s: %v", s.Strategies, s.Scenario, err)
	}
	return r
}

// Run executes a race that must not break off.
func Run(t testing.TB, r *bench.Race, store bench.Store) *bench.Report {
	t.Helper()
	rep, err := r.Execute(t.Context(), store, bench.NewStop(), Quiet{})
	if err != nil {
		t.Fatalf("the run broke off: %v", err)
	}
	return rep
}

// Quiet watches a run and says nothing.
type Quiet struct{}

// TrialStarts does nothing.
func (Quiet) TrialStarts(string, int, int, int, *bench.Live) {}

// TrialEnds does nothing.
func (Quiet) TrialEnds(string, *bench.Trial) {}
