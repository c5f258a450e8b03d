package embedded

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// cacheVariable names the folder of the tests' templates, childVariable what a re-executed test binary does instead of testing.
const (
	cacheVariable = "LOCKBENCH_TEST_CACHE"
	childVariable = "LOCKBENCH_TEST_CHILD"
	// interruptVariable makes a child live through an interrupt and say that it came.
	interruptVariable = "LOCKBENCH_TEST_INTERRUPT"
)

func TestMain(m *testing.M) {
	if code, yes := Supervised(); yes {
		os.Exit(code)
	}
	if order := os.Getenv(childVariable); order != "" {
		os.Exit(beChild(order))
	}
	cache, err := os.MkdirTemp("", "lb-cache-")
	if err != nil {
		panic(err)
	}
	os.Setenv(cacheVariable, cache)
	// Under the race detector each supervisor and child would otherwise stay for another second at its end.
	os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	code := m.Run()
	os.RemoveAll(cache)
	os.Exit(code)
}

// childOrder is what a child process is to do; childReply what came of it.
type (
	childOrder struct {
		Mode                            string // start, keep, find, stop, resolve
		BinDir, Version, CacheDir, Repo string
		Durable, NoInstallations        bool
	}
	childReply struct {
		Facts       Facts
		Binary      Binary
		Yes         bool // already, found or stopped
		Error, Hint string
	}
)

func beChild(text string) int {
	var o childOrder
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		panic(err)
	}
	os.Unsetenv(childVariable)
	if os.Getenv(interruptVariable) != "" {
		interrupted := make(chan os.Signal, 1)
		signal.Notify(interrupted, syscall.SIGINT)
		go func() {
			<-interrupted
			fmt.Println("interrupted")
		}()
	}
	ctx := context.Background()
	cfg := Config{BinDir: o.BinDir, Version: o.Version, CacheDir: o.CacheDir, Repository: o.Repo, Durable: o.Durable, Connections: 10}
	if o.NoInstallations {
		cfg.places = []string{}
	}
	var r childReply
	var err error
	var s *Server
	var k Kept
	switch o.Mode {
	case "start":
		if s, err = Start(ctx, cfg); err == nil {
			r.Facts = s.Facts
		}
	case "keep":
		k, r.Yes, err = StartDetached(ctx, cfg)
		r.Facts = k.Facts
	case "find":
		k, r.Yes, err = FindDetached()
		r.Facts = k.Facts
	case "stop":
		r.Yes, err = StopDetached(ctx)
	case "resolve":
		r.Binary, err = resolve(ctx, &cfg)
	default:
		panic(o.Mode)
	}
	if err != nil {
		r.Error, r.Hint = err.Error(), hint(err)
	}
	_ = json.NewEncoder(os.Stdout).Encode(r)
	if s != nil {
		_, _ = io.Copy(io.Discard, os.Stdin) // until the test lets go, or kills
		_ = s.Stop()
	}
	return 0
}

// child is this test binary at work as another process, perhaps as another user.
type child struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.Closer
	reply *bufio.Reader
	dead  bool
}

// startChild starts a child in a process group of its own. The environment is small, so that it says all that matters.
func startChild(t *testing.T, o childOrder, cred *syscall.Credential, env ...string) *child {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	self, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	cmd := &exec.Cmd{
		Path: self, Args: os.Args[:1], Dir: "/tmp",
		Env:         append([]string{"PATH=" + os.Getenv("PATH"), "GORACE=" + os.Getenv("GORACE"), "GOCOVERDIR=" + os.Getenv("GOCOVERDIR"), childVariable + "=" + string(text)}, env...),
		SysProcAttr: &syscall.SysProcAttr{Credential: cred, Setpgid: true},
		Stderr:      os.Stderr,
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, cmd: cmd, stdin: in, reply: bufio.NewReader(out)}
	t.Cleanup(c.end)
	return c
}

// hear waits for what the child has to say.
func (c *child) hear() childReply {
	c.t.Helper()
	line, err := c.reply.ReadBytes('\n')
	if err != nil {
		c.t.Fatalf("the child said nothing: %v", err)
	}
	var r childReply
	if err := json.Unmarshal(line, &r); err != nil {
		c.t.Fatalf("the child said %q: %v", line, err)
	}
	return r
}

// kill sends the child a deadly signal and waits for its end.
func (c *child) kill(sig syscall.Signal) {
	_ = syscall.Kill(c.cmd.Process.Pid, sig)
	_ = c.cmd.Wait()
	c.dead = true
}

// end lets the child end by itself.
func (c *child) end() {
	if !c.dead {
		c.dead = true
		_ = c.stdin.Close()
		_ = c.cmd.Wait()
	}
}

// do runs a child to its end.
func do(t *testing.T, o childOrder, cred *syscall.Credential, env ...string) childReply {
	t.Helper()
	c := startChild(t, o, cred, env...)
	r := c.hear()
	c.end()
	return r
}

// eventually polls for an event.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for until := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

func hint(err error) string {
	var h interface{ Hint() string }
	if errors.As(err, &h) {
		return h.Hint()
	}
	return ""
}

// wantError checks an error's whole text and hint.
func wantError(t *testing.T, err error, text, advice string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %q", text)
	}
	if err.Error() != text || hint(err) != advice {
		t.Errorf("error %q\n hint %q\n want %q\n hint %q", err, hint(err), text, advice)
	}
}

// publicDir makes a short folder that its owner writes and everybody enters; the tests' own temporary folders are closed.
func publicDir(t *testing.T, uid int) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "lbt-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { remove(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, uid, -1); err != nil {
		t.Fatal(err)
	}
	return dir
}

// home makes this process's temporary files go to a folder of the test's own, which must be empty in the end.
func home(t *testing.T) string {
	t.Helper()
	dir := publicDir(t, os.Geteuid())
	t.Setenv("TMPDIR", dir)
	t.Setenv("XDG_RUNTIME_DIR", "")
	return dir
}

// testCache is the folder of this user's templates for all tests, so that initdb runs once.
func testCache() string { return os.Getenv(cacheVariable) }

// wantEmpty checks that nothing stands in a folder, but what is named.
func wantEmpty(t *testing.T, dir string, but ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
next:
	for _, e := range entries {
		for _, b := range but {
			if e.Name() == b {
				continue next
			}
		}
		t.Errorf("left: %s", filepath.Join(dir, e.Name()))
	}
}

// survivors lists the processes that have to do with a folder: their command, their environment or where they are says so.
func survivors(dir string) []string {
	var list []string
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range procs {
		if p == fmt.Sprintf("/proc/%d", os.Getpid()) {
			continue
		}
		cmd, _ := os.ReadFile(p + "/cmdline")
		env, _ := os.ReadFile(p + "/environ")
		cwd, _ := os.Readlink(p + "/cwd")
		if strings.Contains(string(cmd)+string(env)+cwd, dir) {
			if st, _ := os.ReadFile(p + "/stat"); !strings.Contains(string(st), ") Z ") {
				list = append(list, p+" "+strings.ReplaceAll(string(cmd), "\x00", " "))
			}
		}
	}
	return list
}

func needLinux(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("/proc/self/cmdline"); err != nil {
		t.Skip("processes are looked up in /proc")
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root becomes another user")
	}
}

// start starts a server for the test.
func start(t *testing.T, cfg Config) *Server {
	t.Helper()
	if cfg.CacheDir == "" {
		cfg.CacheDir = testCache()
	}
	s, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatalf("%v (hint: %s)", err, hint(err))
	}
	t.Cleanup(func() { _ = s.Stop() })
	return s
}

// ask returns one value from a server.
func ask(t *testing.T, dsn, query string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var v string
	if err := conn.QueryRow(t.Context(), query).Scan(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// fakeInstallation makes a folder with programs that are shell scripts. The bodies follow the answer to --version.
func fakeInstallation(t *testing.T, version, postgres, initdb string) string {
	t.Helper()
	dir := publicDir(t, os.Geteuid())
	writeProgram(t, dir, "postgres", "if [ \"$1\" = --version ]; then echo '"+version+"'; exit 0; fi\n"+postgres)
	writeProgram(t, dir, "initdb", initdb)
	return dir
}

func writeProgram(t *testing.T, dir, name, body string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}
