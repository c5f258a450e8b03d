package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"github.com/lockbench/lockbench/bench/postgres/embedded"
)

// shared is the DSN of the one server that the tests race on; it is set before any test runs.
var shared string

// program runs the command line as main does, in a process of its own that a script starts.
func program() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv))
}

func TestMain(m *testing.M) {
	if code, yes := embedded.Supervised(); yes { // a server's supervisor is this test binary under another argument
		os.Exit(code)
	}
	testscript.Main(&served{m}, map[string]func(){"lockbench": program})
}

// served starts the shared server around the tests. testscript.Main calls it only where tests are run, not for a script's command.
type served struct{ m *testing.M }

func (s *served) Run() int {
	dsn, stop, err := startShared(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, "starting a server for the tests:", err)
		return 1
	}
	shared = dsn
	code := s.m.Run()
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stopping the server of the tests:", err)
		return 1
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// databases numbers those made for scripts, so that scripts can run at the same time.
var databases atomic.Int64

// freshDatabase makes an empty database on the shared server and returns its DSN.
func freshDatabase(ctx context.Context) (string, error) {
	conn, err := pgx.Connect(ctx, shared)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	name := fmt.Sprintf("script_%d", databases.Add(1))
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		return "", err
	}
	return withDatabase(conn.Config(), name), nil
}

// withDatabase is the DSN of another database on the same server.
func withDatabase(c *pgx.ConnConfig, name string) string {
	return fmt.Sprintf("postgres://%s@/%s?host=%s&port=%d", c.User, name, c.Host, c.Port)
}

func TestScripts(t *testing.T) {
	if _, err := exec.LookPath("psql"); err != nil && os.Getenv("LOCKBENCH_REQUIRE_SERVICES") != "" {
		t.Fatal("LOCKBENCH_REQUIRE_SERVICES is set, and the scripts would leave out what needs psql")
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Setup: func(e *testscript.Env) error {
			dsn, err := freshDatabase(context.Background())
			if err != nil {
				return err
			}
			for _, v := range e.Vars { // what the tester's own shell says must not decide
				name, _, _ := strings.Cut(v, "=")
				if strings.HasPrefix(name, "PG") || name == "NO_COLOR" || name == "COLUMNS" || name == "DATABASE_URL" {
					e.Setenv(name, "")
				}
			}
			e.Setenv("LOCKBENCH_DSN", dsn)
			// A server started by root runs as somebody else, who must be able to reach its directory.
			for dir := e.WorkDir; dir != filepath.Dir(dir) && dir != filepath.Clean(os.TempDir()); dir = filepath.Dir(dir) {
				if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // see above
					return err
				}
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": status, "sql": sql, "nothing": nothing},
	})
}

// status runs a command and expects an exit code: status 3 lockbench run …
func status(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(args[0])
	if neg || err != nil || len(args) < 2 {
		ts.Fatalf("usage: status CODE COMMAND ...")
	}
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if err != nil {
		var exit interface{ ExitCode() int }
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// sql runs one statement in the script's database.
func sql(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: sql STATEMENT")
	}
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, ts.Getenv("LOCKBENCH_DSN"))
	ts.Check(err)
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, args[0])
	ts.Check(err)
}

// nothing expects that a pattern matches no file.
func nothing(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: nothing PATTERN")
	}
	left, err := filepath.Glob(ts.MkAbs(args[0]))
	ts.Check(err)
	if len(left) > 0 {
		ts.Fatalf("left behind: %s", strings.Join(left, " "))
	}
}
