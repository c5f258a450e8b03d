package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/bench/sweep"
)

// child is lockbench in a process of its own, whose progress a test waits for.
type child struct {
	*exec.Cmd
	stdout bytes.Buffer
	stderr *bufio.Reader
	said   strings.Builder
}

// start runs lockbench with the environment as it is and some variables set.
func start(t *testing.T, env []string, args ...string) *child {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{Cmd: exec.CommandContext(t.Context(), self, args...)}
	c.Args[0] = "lockbench" // what testscript.Main looks at
	c.Env = append(os.Environ(), append([]string{"DATABASE_URL=", "LOCKBENCH_DSN="}, env...)...)
	c.Cmd.Stdout = &c.stdout
	pipe, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.stderr = bufio.NewReader(pipe)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c
}

// await reads stderr until a line matches.
func (c *child) await(t *testing.T, pattern string) {
	t.Helper()
	want := regexp.MustCompile(pattern)
	for {
		line, err := c.stderr.ReadString('\n')
		c.said.WriteString(line)
		if want.MatchString(strings.TrimSuffix(line, "\n")) {
			return
		}
		if err != nil {
			t.Fatalf("%v before a line matched %q:\n%s", err, pattern, c.said.String())
		}
	}
}

// end waits for the process and returns its exit code.
func (c *child) end(t *testing.T) int {
	t.Helper()
	rest, _ := io.ReadAll(c.stderr)
	c.said.Write(rest)
	err := c.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return c.ProcessState.ExitCode()
}

// endless is a run that only a signal ends: each trial prints a line, which is the event that the tests wait for.
func endless(more ...string) []string {
	return append([]string{"run", "--strategy", "atomic", "--users", "20", "--rows", "4", "--trials", "100000", "--warmup", "0s"}, more...)
}

// The first signal ends the run in order, with what was measured so far printed and saved.
func TestSignalsEndARunInOrder(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		signal syscall.Signal
		code   int
	}{{syscall.SIGINT, 130}, {syscall.SIGTERM, 143}, {syscall.SIGHUP, 129}} {
		t.Run(tc.signal.String(), func(t *testing.T) {
			t.Parallel()
			dsn, err := freshDatabase(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "partial.json")
			c := start(t, []string{"LOCKBENCH_DSN=" + dsn}, endless("--format", "json", "--output", file)...)
			c.await(t, `^\[ +1/100000\]`)
			if err := c.Process.Signal(tc.signal); err != nil {
				t.Fatal(err)
			}
			if code := c.end(t); code != tc.code {
				t.Errorf("exit code %d, want %d\n%s", code, tc.code, c.said.String())
			}
			if want := "stopping: finishing operations under way; press Ctrl-C again to stop at once\n"; !strings.Contains(c.said.String(), want) {
				t.Errorf("stderr does not say %q:\n%s", want, c.said.String())
			}
			saved, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for where, data := range map[string][]byte{"stdout": c.stdout.Bytes(), "the file": saved} {
				var rep bench.Report
				if err := json.Unmarshal(data, &rep); err != nil {
					t.Fatalf("%s: %v", where, err)
				}
				if !rep.Partial || len(rep.Cells) != 1 || len(rep.Cells[0].Trials) < 1 {
					t.Errorf("%s holds no partial report: partial %v, %d cells", where, rep.Partial, len(rep.Cells))
				}
			}
		})
	}
}

// A sweep that is stopped keeps the points that it has.
func TestSignalEndsASweepInOrder(t *testing.T) {
	t.Parallel()
	dsn, err := freshDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "partial.json")
	c := start(t, []string{"LOCKBENCH_DSN=" + dsn}, "sweep", "--strategy", "atomic", "--users", "1,2", "--operations", "10", "--trials", "100000", "--output", file)
	c.await(t, `^\[ +1/200000\]`)
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := c.end(t); code != 130 {
		t.Errorf("exit code %d\n%s", code, c.said.String())
	}
	if out := c.stdout.String(); !strings.HasPrefix(out, "PARTIAL: the sweep was stopped") || !strings.Contains(out, "\n atomic ") {
		t.Errorf("stdout:\n%s", out)
	}
	saved, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s, err := sweep.Read(bytes.NewReader(saved))
	if err != nil {
		t.Fatal(err)
	}
	if !s.Report.Partial || len(s.Points("atomic")) == 0 { // points without a trial are left out
		t.Errorf("partial %v, %d points", s.Report.Partial, len(s.Points("atomic")))
	}
}

// The second signal does not wait for operations: here they wait for a lock that nobody gives back.
func TestSecondSignalStopsAtOnce(t *testing.T) {
	t.Parallel()
	dsn, err := freshDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := start(t, []string{"LOCKBENCH_DSN=" + dsn}, endless("--deadline", "0s")...)
	c.await(t, `^\[ +1/100000\]`)
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	// The lock keeps writers out, and lets the audit read what there is.
	if _, err := conn.Exec(t.Context(), "BEGIN; LOCK TABLE lockbench.seats IN SHARE ROW EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "somebody who waits for the lock", func() bool {
		var n int
		if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE NOT granted").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n > 0
	})
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	c.await(t, "^stopping: ")
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	c.await(t, "^stopping at once$")
	if code := c.end(t); code != 130 {
		t.Errorf("exit code %d\n%s", code, c.said.String())
	}
}

// While a large table is being filled there is nothing to finish: the first signal ends it.
func TestSignalWhileATableIsFilled(t *testing.T) {
	t.Parallel()
	dsn, err := freshDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := start(t, []string{"LOCKBENCH_DSN=" + dsn}, "run", "--strategy", "atomic", "--rows", "10000000")
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	filling := func() (yes bool) {
		if err := conn.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_progress_copy WHERE datname = current_database())").Scan(&yes); err != nil {
			t.Fatal(err)
		}
		return yes
	}
	waitFor(t, "the filling of the table", filling)
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := c.end(t); code != 130 {
		t.Errorf("exit code %d\n%s", code, c.said.String())
	}
	var rows int
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM lockbench.seats").Scan(&rows); err != nil || rows != 0 {
		t.Errorf("%d rows, %v: the table was filled to the end", rows, err)
	}
}

// However lockbench ends, its server ends with it: here by a signal that leaves it no time to tidy up.
func TestKilledRunLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	tmp := shortDir(t)
	c := start(t, []string{"TMPDIR=" + tmp, "XDG_RUNTIME_DIR=" + tmp}, endless("--no-durable")...)
	c.await(t, `^\[ +1/100000\]`)
	dirs, err := filepath.Glob(filepath.Join(tmp, "lockbench-pg-*"))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("the server's directory is not found: %v %v", dirs, err)
	}
	postmaster := firstNumber(t, filepath.Join(dirs[0], "data", "postmaster.pid"))
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.end(t)
	waitFor(t, "the server's end", func() bool { return errors.Is(syscall.Kill(postmaster, 0), syscall.ESRCH) })
	waitFor(t, "the directory's end", func() bool {
		_, err := os.Stat(dirs[0])
		return errors.Is(err, os.ErrNotExist)
	})
}

// A killed session takes the server of a run with it. What was measured stays, and the reason is said.
func TestKilledSessionEndsTheServer(t *testing.T) {
	t.Parallel()
	tmp := shortDir(t)
	c := start(t, []string{"TMPDIR=" + tmp, "XDG_RUNTIME_DIR=" + tmp}, endless("--no-durable", "--format", "json")...)
	c.await(t, `^\[ +1/100000\]`)
	notes, err := filepath.Glob(filepath.Join(tmp, "lockbench-pg-*", "data", "postmaster.pid"))
	if err != nil || len(notes) != 1 {
		t.Fatalf("the server is not found: %v %v", notes, err)
	}
	note, err := os.ReadFile(notes[0])
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(note), "\n") // the fourth is the port, the fifth the folder of the socket
	conn, err := pgx.Connect(t.Context(), fmt.Sprintf("host=%s port=%s user=postgres dbname=postgres", lines[4], lines[3]))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var pid int
	if err := conn.QueryRow(t.Context(), "SELECT min(pid) FROM pg_stat_activity WHERE application_name LIKE 'lockbench-%'").Scan(&pid); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if code := c.end(t); code != 1 {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{
		"lockbench: error: lockbench's own PostgreSQL ended because a process of it was killed: its sessions share memory, so none may go on; its log ends with: ",
		"was terminated by signal 9", "\nhint: was memory short? ",
	} {
		if !strings.Contains(c.said.String(), want) {
			t.Errorf("stderr does not say %q:\n%s", want, c.said.String())
		}
	}
	for _, not := range []string{"--dsn", "stopping the server"} {
		if strings.Contains(c.said.String(), not) {
			t.Errorf("stderr says %q:\n%s", not, c.said.String())
		}
	}
	var rep bench.Report
	if err := json.Unmarshal(c.stdout.Bytes(), &rep); err != nil {
		t.Fatal(err)
	}
	if !rep.Partial || len(rep.Cells) != 1 || len(rep.Cells[0].Trials) < 1 || rep.Cells[0].Outcomes["confirmed"] != 4 {
		t.Errorf("partial %v, cells %+v", rep.Partial, rep.Cells)
	}
}

// A kept server that another lockbench uses is left to it.
func TestBusyKeptServer(t *testing.T) {
	t.Parallel()
	tmp := shortDir(t)
	env := []string{"TMPDIR=" + tmp, "XDG_RUNTIME_DIR=" + tmp}
	lockbench := func(args ...string) *child {
		t.Helper()
		c := start(t, env, args...)
		if code := c.end(t); code != 0 {
			t.Fatalf("%v: exit code %d\n%s", args, code, c.said.String())
		}
		return c
	}
	lockbench("server", "start", "--no-durable")
	t.Cleanup(func() {
		c := exec.Command(os.Args[0], "server", "stop")
		c.Args[0], c.Env = "lockbench", append(os.Environ(), env...)
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	race := []string{"run", "--strategy", "atomic", "--users", "8", "--rows", "2", "--trials", "1", "--no-durable"}
	if c := lockbench(append(race, "--own-server")...); !strings.HasPrefix(c.said.String(), "started PostgreSQL") {
		t.Errorf("--own-server: %s", c.said.String())
	}
	var kept struct {
		DSN string `json:"dsn"`
	}
	if err := json.Unmarshal(lockbench("server", "status", "--format", "json").stdout.Bytes(), &kept); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), kept.DSN)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), "SELECT pg_advisory_lock(x'6c6f636b62'::bigint)"); err != nil { // as a run does
		t.Fatal(err)
	}
	if c := lockbench(race...); !strings.HasPrefix(c.said.String(), "not using the kept server: another lockbench is at work there\nstarted PostgreSQL") {
		t.Errorf("a busy server: %s", c.said.String())
	}
}

// shortDir makes a folder that the server of a root, which runs as somebody else, may enter, and with a path short enough for a socket.
func shortDir(t *testing.T) string {
	t.Helper()
	tmp, err := os.MkdirTemp("", "lockbench-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(tmp) })
	if err := os.Chmod(tmp, 0o711); err != nil { //nolint:gosec // that user must get in
		t.Fatal(err)
	}
	return tmp
}

// Ctrl-C while the server starts ends that as well.
func TestSignalWhileTheServerStarts(t *testing.T) {
	t.Parallel()
	tmp := shortDir(t)
	c := start(t, []string{"TMPDIR=" + tmp, "XDG_RUNTIME_DIR=" + tmp}, endless()...)
	waitFor(t, "the server's directory", func() bool {
		dirs, _ := filepath.Glob(filepath.Join(tmp, "lockbench-pg-*", "data"))
		return len(dirs) > 0
	})
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := c.end(t); code != 130 {
		t.Errorf("exit code %d\n%s", code, c.said.String())
	}
	if left, _ := filepath.Glob(filepath.Join(tmp, "lockbench-pg-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// waitFor looks again and again until something is the case; it is for what tells nobody when it happens.
func waitFor(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("%s did not come", what)
		}
	}
}

func firstNumber(t *testing.T, file string) int {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(b), "\n")
	n, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
