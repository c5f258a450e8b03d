package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/bench/fleet"
	"github.com/lockbench/lockbench/bench/postgres"
	"github.com/lockbench/lockbench/bench/postgres/embedded"
)

// fleetFlags say how the processes of a run find each other.
type fleetFlags struct {
	run  string
	wait bench.Duration
}

func (f *fleetFlags) add(g flagSet, run string) {
	g.text(&f.run, "run", "name", "", run)
	g.duration(&f.wait, "wait", time.Minute, "how long to wait for the others")
}

func (f *fleetFlags) check(a *app) {
	if f.run != "" {
		if err := postgres.CheckRun(f.run); err != nil {
			a.problem(fmt.Errorf("--run: %w", err))
		}
	}
	if f.wait <= 0 {
		a.problem(bench.Hintf("leave --wait out for a minute", "--wait must be above 0"))
	}
}

// sessions is how many a race has in the server: its connections, and those in which processes meet.
func sessions(s *bench.Settings) int {
	if n := s.Processes(); n > 1 {
		return s.Connections + 4*(n+1)
	}
	return s.Connections
}

// release names a program such that two that differ in what they do have different names, as far as the Go tool recorded it.
func release(b bench.Build) string {
	if b.Commit == "" {
		return b.Version
	}
	return b.Version + " (" + b.Commit + ")"
}

// sharing is a database at which several processes can share a race's users: instances that this one starts, or workers that come from
// elsewhere. Nothing of it begins before a race needs it.
type sharing struct {
	*postgres.Store
	dsn  string
	wait time.Duration
	say  func(string, ...any)

	host        *postgres.Host
	coordinator *fleet.Coordinator
	instances   []*instance
}

// Muster returns the fleet, whose processes gather when it takes a race.
func (s *sharing) Muster(ctx context.Context) (bench.Fleet, error) {
	if s.coordinator == nil {
		host, err := s.Host(ctx)
		if err != nil {
			return nil, err
		}
		s.host = host
		s.coordinator = fleet.New(fleet.Config{Host: host, Lockbench: release(build()), Wait: s.wait, Summon: s.summon})
	}
	return s.coordinator, nil
}

// end dismisses whoever shared the users.
func (s *sharing) end(ctx context.Context) error {
	if s.coordinator == nil {
		return nil
	}
	err := s.coordinator.Dismiss(ctx)
	for _, i := range s.instances {
		i.end()
	}
	s.host.Close()
	return err
}

// summon starts the instances, or says how workers join.
func (s *sharing) summon(_ context.Context, plan *bench.Settings) (<-chan error, error) {
	if plan.Workers > 0 {
		s.say("waiting for %d workers: lockbench worker --run %s --dsn …", plan.Workers, s.Run())
		return nil, nil
	}
	gone := make(chan error, plan.Instances)
	for n := 1; n <= plan.Instances; n++ {
		i, err := startInstance(fmt.Sprintf("instance %d", n), s.Run(), s.dsn, gone)
		if err != nil {
			return nil, fmt.Errorf("starting instance %d: %w", n, err)
		}
		s.instances = append(s.instances, i)
	}
	return gone, nil
}

// instance is a worker that this process has started. It ends when its standard input does, so that it does not outlive this process
// however that ends.
type instance struct {
	cmd      *exec.Cmd
	lifeline io.Closer
	words    tail
	over     chan struct{}
}

func startInstance(name, run, dsn string, gone chan<- error) (*instance, error) {
	self, err := embedded.Self()
	if err != nil {
		return nil, err
	}
	i := &instance{over: make(chan struct{})}
	i.cmd = &exec.Cmd{
		Path: self, Args: []string{os.Args[0], "worker", "--run", run, "--name", name, "--lifeline", "--quiet"}, // testscript dispatches on argv[0]
		Env:         append(os.Environ(), "LOCKBENCH_DSN="+dsn), // not an argument: everybody may read those
		Stderr:      &i.words,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true}, // Ctrl-C is for the coordinator, which tells them
	}
	if i.lifeline, err = i.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := i.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(i.over)
		_ = i.cmd.Wait()
		gone <- &fleet.Lost{Name: name, Why: i.why()}
	}()
	return i, nil
}

// why says how it ended, and what it said last.
func (i *instance) why() string {
	text := fmt.Sprintf("process %d ended with %s", i.cmd.ProcessState.Pid(), i.cmd.ProcessState)
	if last := i.words.last(); last != "" {
		text += ", saying " + last
	}
	return text
}

// end lets it finish for a moment, and then no longer.
func (i *instance) end() {
	_ = i.lifeline.Close()
	select {
	case <-i.over:
	case <-time.After(5 * time.Second):
		_ = i.cmd.Process.Kill()
		<-i.over
	}
}

// tail keeps the end of what a process says.
type tail struct {
	mu   sync.Mutex
	text string
}

// Write adds to it.
func (t *tail) Write(b []byte) (int, error) {
	const most = 4 << 10
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text += string(b)
	t.text = t.text[max(0, len(t.text)-most):]
	return len(b), nil
}

// last is the last error it complained of.
func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	const complaint = "lockbench: error: "
	if i := strings.LastIndex(t.text, complaint); i >= 0 {
		line, _, _ := strings.Cut(t.text[i+len(complaint):], "\n")
		return fmt.Sprintf("%q", line)
	}
	return ""
}

// share lets several processes meet at the database. They are dismissed when it is closed.
func (a *app) share(ctx context.Context, db *database, f *fleetFlags, say func(string, ...any)) {
	store, ok := db.store.(*postgres.Store)
	if !ok {
		return
	}
	s := &sharing{Store: store, dsn: db.dsn, wait: time.Duration(f.wait), say: say}
	stop := db.close
	db.store = s
	db.close = func() error { return errors.Join(s.end(ctx), stop()) }
}
