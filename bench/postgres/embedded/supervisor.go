package embedded

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/lockbench/lockbench/bench"
)

const (
	supervisorArg = "__pg-supervisor"
	keepWord      = "keep\n"
)

// Supervised reports whether this process was started as the supervisor; if so it has run as one and code is its exit code. Call it
// first thing in main, and in the TestMain of tests that start a server.
func Supervised() (code int, yes bool) {
	if len(os.Args) != 2 || os.Args[1] != supervisorArg || os.Getenv(guard) == "" {
		return 0, false
	}
	// The death signal of the children is bound to the thread that starts them, not to the process.
	runtime.LockOSThread()
	signal.Ignore(syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE)
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	return supervise(os.Stdin, os.Stdout, term), true
}

// supervisor runs one server.
type supervisor struct {
	order
	id   identity
	dir  string
	lock *os.File // held as long as the directory is somebody's
	stop <-chan struct{}
}

// supervise obeys one order and returns when the server and its directory are gone.
func supervise(in io.Reader, out io.WriteCloser, term <-chan os.Signal) int {
	r := bufio.NewReader(in)
	line, err := r.ReadBytes('\n')
	if err != nil {
		return 0 // the parent died before it gave an order
	}
	s := &supervisor{}
	if err := json.Unmarshal(line, &s.order); err != nil {
		return answer(out, nil, err)
	}
	stop := make(chan struct{})
	s.stop = stop
	lifeline := make(chan struct{})
	go func() {
		// The parent of a kept server lets go of it with a word, once others can find it. Until then it ends with its parent.
		if word, _ := r.ReadString('\n'); s.Detached && word == keepWord {
			return
		}
		_, _ = io.Copy(io.Discard, r)
		close(lifeline)
	}()
	go func() {
		select {
		case <-lifeline:
		case <-term:
		}
		close(stop)
	}()
	return s.run(out)
}

// answer writes a line that the parent waits for.
func answer(out io.Writer, f *Facts, err error) int {
	rep := reply{Facts: f}
	code := 0
	if err != nil {
		code = 1
		rep.Error = err.Error()
		if errors.Is(err, syscall.ENOSPC) {
			rep.Hint = needsSpace
		}
		var h interface{ Hint() string }
		if errors.As(err, &h) {
			rep.Hint = h.Hint()
		}
	}
	b, _ := json.Marshal(rep)
	_, _ = out.Write(append(b, '\n'))
	return code
}

func (s *supervisor) run(out io.WriteCloser) int {
	defer out.Close()
	defer s.clean()
	f, server, err := s.start()
	if code := answer(out, f, err); code != 0 {
		return code
	}
	select {
	case <-s.stop:
		s.end(server)
	case <-server.gone:
		_ = answer(out, nil, s.death(server)) // before its log goes with the directory
	}
	return 0
}

// needsSpace is the hint where the disk is full.
const needsSpace = "free some space, or set TMPDIR to a folder with more"

// death says why a server ended that nobody asked to.
func (s *supervisor) death(p *process) error {
	tail := s.logTail()
	text, hint := fmt.Sprintf("ended by itself (%s)", p.cmd.ProcessState), "look for who or what killed it"
	switch {
	case s.diskFull(tail):
		text, hint = "ended because its disk is full", needsSpace
	case strings.Contains(tail, killed+" 9"):
		text = "ended because a process of it was killed: its sessions share memory, so none may go on"
		hint = "was memory short? lower --connections, --rows or --users"
	case strings.Contains(tail, killed):
		text, hint = "ended because a process of it crashed", ""
	}
	return bench.Hintf(hint, "lockbench's own PostgreSQL %s; its log ends with: %s", text, tail)
}

// How PostgreSQL and its programs say, in the language they are started with, that a process was killed and that a file cannot grow.
const killed = "was terminated by signal"

var noSpace = regexp.MustCompile(`No space left on device|wrote only \d+ of \d+ bytes`)

// diskFull reports whether a program ended for want of space. Its log is on the same disk and may not say so.
func (s *supervisor) diskFull(tail string) bool {
	const walSegment = 16 << 20
	var disk syscall.Statfs_t
	return noSpace.MatchString(tail) || syscall.Statfs(s.dir, &disk) == nil && disk.Bavail*uint64(disk.Bsize) < walSegment
}

// logPrefix is what stands before the server's messages: when, and which process.
var logPrefix = regexp.MustCompile(`(?m)^\d{4}-\d\d-\d\d [0-9:.]+ \w+ \[\d+\] `)

// logTail is the end of what the server and its programs said, from where the trouble began if that can be told; many sessions say the same.
func (s *supervisor) logTail() string {
	text, _ := os.ReadFile(s.logFile())
	lines := slices.Compact(strings.Split(strings.TrimSpace(logPrefix.ReplaceAllString(string(text), "")), "\n"))
	const few = 5
	from := slices.IndexFunc(lines, func(l string) bool { return noSpace.MatchString(l) || strings.Contains(l, killed) })
	if from < 0 {
		from = max(0, len(lines)-few)
	}
	return strings.Join(lines[from:min(len(lines), from+few)], " | ")
}

// start lays out the directory and starts the server in it. Where the server cannot be given to another user, a user namespace in
// which this one looks like nobody is tried.
func (s *supervisor) start() (*Facts, *process, error) {
	var tried []string
	for _, id := range identities() {
		s.id = id
		f, p, err := s.startAs()
		if err == nil {
			_ = os.Chdir("/") // a kept server keeps no folder busy in which somebody happened to be
			return f, p, nil
		}
		s.clean()
		if s.stopped() || !errors.Is(err, errIdentity) {
			return nil, nil, err
		}
		tried = append(tried, err.Error())
	}
	return nil, nil, bench.Hintf("run lockbench as a user with an entry in /etc/passwd, or name a running server with --dsn",
		"there is no user that PostgreSQL would run as: %s", strings.Join(tried, "; "))
}

// errIdentity marks failures of changing the user, after which another way may be tried.
var errIdentity = errors.New("cannot start programs as another user")

func (s *supervisor) stopped() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}

func (s *supervisor) startAs() (*Facts, *process, error) {
	if err := s.makeDir(); err != nil {
		return nil, nil, err
	}
	t := templateFor(s.Cache, s.BinDir, s.Version)
	copied, err := s.makeData(t)
	if err != nil {
		return nil, nil, err
	}
	port := 20000 + rand.IntN(40000) // names the socket; nothing listens on it
	if err := s.configure(port); err != nil {
		return nil, nil, err
	}
	server, err := s.boot()
	if err != nil && copied && !s.stopped() {
		// The template may be at fault: nobody flushed it before the machine lost its power, or somebody was at it.
		if err = s.initData(); err == nil {
			server, err = s.boot()
		}
		if err == nil {
			copied = false
			t.discard()
		}
	}
	if err != nil {
		return nil, nil, err
	}
	return &Facts{
		Version: s.Version, BinDir: s.BinDir, Dir: s.dir, PID: server.cmd.Process.Pid, Supervisor: os.Getpid(),
		DSN:     fmt.Sprintf("host=%s port=%d user=postgres dbname=postgres sslmode=disable", s.socketDir(), port),
		Durable: s.Durable, Slots: s.Connections, RunsAs: s.id.name, Template: copied, Started: time.Now().UTC(),
	}, server, nil
}

func (s *supervisor) data() string       { return filepath.Join(s.dir, "data") }
func (s *supervisor) socketDir() string  { return filepath.Join(s.dir, "s") }
func (s *supervisor) logFile() string    { return filepath.Join(s.dir, "log") }
func (s *supervisor) configFile() string { return filepath.Join(s.dir, "postgresql.conf") }

// makeDir makes the server's directory in a folder that its user can reach and whose path is short enough for a socket.
func (s *supervisor) makeDir() error {
	list := bases(s.Durable, inMemory)
	for _, base := range list {
		sweep(base)
	}
	var tried []string
	for _, base := range list {
		why := s.id.unfit(base)
		if why == "" {
			dir, lock, err := claim(base)
			if err == nil {
				s.dir, s.lock = dir, lock
				return s.layOut()
			}
			why = "cannot be used: " + err.Error()
		}
		tried = append(tried, base+" "+why)
	}
	return bench.Hintf("set TMPDIR to a short path that everybody may enter", "no place for the server's directory: %s", strings.Join(tried, "; "))
}

func (s *supervisor) layOut() error {
	if s.id.credential != nil {
		if err := os.Chmod(s.dir, 0o711); err != nil { // its user passes through to what is given to him
			return err
		}
	}
	for _, d := range []string{s.data(), s.socketDir()} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return err
		}
		if err := s.give(d); err != nil {
			return err
		}
	}
	return nil
}

// give hands a file to the user that the server runs as.
func (s *supervisor) give(path string) error {
	if s.id.credential == nil {
		return nil
	}
	if err := os.Lchown(path, int(s.id.credential.Uid), int(s.id.credential.Gid)); err != nil {
		return fmt.Errorf("%w: %w", errIdentity, err)
	}
	return nil
}

// clean takes the directory away.
func (s *supervisor) clean() {
	if s.dir == "" {
		return
	}
	remove(s.dir)
	if s.lock != nil {
		_ = s.lock.Close()
	}
	s.dir, s.lock = "", nil
}

// process is a child that somebody waits for.
type process struct {
	cmd  *exec.Cmd
	gone chan struct{}
}

// spawn starts a program as the server's user. It must run on the supervisor's first thread.
func (s *supervisor) spawn(out *os.File, name string, args ...string) (*process, error) {
	cmd := exec.Command(filepath.Join(s.BinDir, name), args...)
	cmd.Dir = "/" // the demoted user may not enter where lockbench was started
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "PG") || strings.HasPrefix(kv, guard) })
	cmd.Env = append(cmd.Env, "LC_ALL=C", "TZ=UTC")
	cmd.SysProcAttr = s.id.attributes()
	switch err := cmd.Start(); {
	case err == nil:
	case s.id.namespace || errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EINVAL):
		return nil, fmt.Errorf("%w (%s): %w", errIdentity, s.id.name, err)
	case s.id.credential != nil && errors.Is(err, syscall.EACCES):
		return nil, bench.Hintf("put the programs where everybody may enter, or name others with --pg-bin", "the server runs as %s, which may not run %s",
			s.id.name, filepath.Join(s.BinDir, name))
	default:
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	p := &process{cmd: cmd, gone: make(chan struct{})}
	go func() { _ = cmd.Wait(); close(p.gone) }()
	return p, nil
}

// finish runs a program to its end; its output goes to the log.
func (s *supervisor) finish(name string, args ...string) error {
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	p, err := s.spawn(log, name, args...)
	if err != nil {
		return err
	}
	select {
	case <-p.gone:
	case <-s.stop:
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // the group: initdb's children write too
		<-p.gone
		return context.Canceled
	}
	if !p.cmd.ProcessState.Success() {
		return s.failure(name+" failed", p)
	}
	return nil
}

// failure is the error of a program that ended, with the end of what it said.
func (s *supervisor) failure(what string, p *process) error {
	tail := s.logTail()
	if s.id.credential == nil && strings.Contains(tail, "could not look up effective user ID") {
		return fmt.Errorf("%w: %s", errIdentity, tail)
	}
	hint := "name another installation with --pg-bin, or a running server with --dsn"
	if s.diskFull(tail) {
		hint = needsSpace
	}
	return bench.Hintf(hint,
		"%s (%s) when starting PostgreSQL from %s: %s", what, p.cmd.ProcessState, s.BinDir, tail)
}

// makeData fills the data directory, from a template where there is one.
func (s *supervisor) makeData(t template) (copied bool, err error) {
	if t.usable() && t.copyTo(s.data(), s.id.credential, s.stop) == nil {
		return true, nil
	}
	if s.stopped() {
		return false, context.Canceled
	}
	if err := s.initData(); err != nil {
		return false, err
	}
	t.make(s.data(), s.stop)
	return false, nil
}

// initData makes the data directory, whatever stands in it.
func (s *supervisor) initData() error {
	if err := emptyDir(s.data()); err != nil {
		return err
	}
	return s.finish("initdb", "-D", s.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
}

// configure writes the settings. Durable means PostgreSQL's own defaults: a row's lock is held through the flush of its commit, so
// durability is part of what is measured.
func (s *supervisor) configure(port int) error {
	settings := map[string]string{
		"max_connections": fmt.Sprint(max(s.Connections, 0) + spare), "superuser_reserved_connections": "3",
		"shared_buffers": "128MB", "random_page_cost": "1.1",
		// No checkpoint by time or by volume falls into a measured window; lockbench makes one before each.
		"checkpoint_timeout": "30min", "max_wal_size": "4GB", "min_wal_size": "256MB",
		"max_pred_locks_per_transaction": "256", "restart_after_crash": "off",
		"log_lock_waits": "on", "log_min_messages": "warning", "lc_messages": "C", "timezone": "UTC", "log_timezone": "UTC",
		"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on",
	}
	if !s.Durable {
		settings["fsync"], settings["synchronous_commit"], settings["full_page_writes"] = "off", "off", "off"
	}
	if v := versionKey(s.Version); len(v) > 0 && v[0] >= 11 {
		settings["jit"] = "off"
	}
	for k, v := range s.Settings {
		settings[strings.ToLower(k)] = v
	}
	// What keeps others out and what the DSN says is nobody's to choose.
	settings["listen_addresses"], settings["port"] = "", fmt.Sprint(port)
	settings["unix_socket_directories"], settings["unix_socket_permissions"] = s.socketDir(), "0700"
	var b strings.Builder
	b.WriteString("include 'data/postgresql.conf'\n") // what initdb found out about this machine, such as its kind of shared memory
	for _, k := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&b, "%s = '%s'\n", k, settingQuoter.Replace(settings[k]))
	}
	// Not in the data directory: root would write wherever its owner had put a link.
	if err := os.WriteFile(s.configFile(), []byte(b.String()), 0o600); err != nil {
		return err
	}
	return s.give(s.configFile())
}

// spare is how many connections the server takes beyond the run's: three that are kept for superusers, lockbench's own for preparing,
// observing and auditing, and a person's psql.
const spare = 20

// settingQuoter writes a value between quotes, where a backslash introduces an escape.
var settingQuoter = strings.NewReplacer(`'`, `''`, `\`, `\\`, "\n", `\n`)

// readyWithin bounds a start; a slow disk takes a few seconds, a broken installation for ever.
const readyWithin = 60 * time.Second

// boot starts the server and waits until it takes connections.
func (s *supervisor) boot() (*process, error) {
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p, err := s.spawn(log, "postgres", "-D", s.data(), "-c", "config_file="+s.configFile())
	if err != nil {
		return nil, err
	}
	deadline := time.After(readyWithin)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-p.gone:
			return nil, s.failure("postgres ended", p)
		case <-s.stop:
			s.end(p)
			return nil, context.Canceled
		case <-deadline:
			s.end(p)
			return nil, s.failure(fmt.Sprintf("postgres was not ready within %s", readyWithin), p)
		case <-tick.C:
			// The eighth line is the postmaster's state: what pg_ctl looks at.
			if lines := pidFile(s.data()); len(lines) >= 8 && strings.TrimSpace(lines[7]) == "ready" {
				return p, nil
			}
		}
	}
}

// end stops a server. What it holds is thrown away, so it need not write it down first; the second attempt is for one that hangs.
func (s *supervisor) end(p *process) {
	for _, sig := range []syscall.Signal{syscall.SIGQUIT, syscall.SIGKILL} {
		_ = p.cmd.Process.Signal(sig)
		select {
		case <-p.gone:
			return
		case <-time.After(patience):
		}
	}
	<-p.gone
}
