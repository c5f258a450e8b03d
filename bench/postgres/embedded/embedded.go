// Package embedded runs a PostgreSQL server without set-up: it finds or fetches the binaries, and a supervisor process of its own
// starts the server in a directory of its own, reachable only through a unix socket, and takes everything away again however
// its parent ends.
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
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/lockbench/lockbench/bench"
)

// Config says which server to start and how.
type Config struct {
	BinDir      string            // holds postgres and initdb; empty: the newest found, else fetched
	Version     string            // major version, as "16"; empty: the newest
	Durable     bool              // false turns fsync, synchronous_commit and full_page_writes off
	Connections int               // that the run will open; the server has some to spare
	Settings    map[string]string // further server settings
	CacheDir    string            // of templates and fetched binaries; empty: the usual place
	Repository  string            // where binaries are fetched from; empty: the fetching library's own
	Log         func(format string, args ...any)

	places []string // where installations are looked for, as patterns; nil: the usual folders
}

func (c *Config) log(format string, args ...any) {
	if c.Log != nil {
		c.Log(format, args...)
	}
}

// order is what the supervisor is told on its standard input, in one line.
type order struct {
	BinDir      string
	Version     string // of the programs in it
	Durable     bool
	Connections int
	Settings    map[string]string
	Cache       string
	Detached    bool // the parent will let go of it; then it ends with SIGTERM to the supervisor
}

// Facts are what a running server is.
type Facts struct {
	Version    string    `json:"version"` // of the binaries, as "15.18"
	BinDir     string    `json:"bin_dir"`
	Dir        string    `json:"dir"` // everything the server has
	DSN        string    `json:"dsn"`
	PID        int       `json:"pid"` // of the postmaster
	Supervisor int       `json:"supervisor"`
	Durable    bool      `json:"durable"`
	Slots      int       `json:"slots"`    // connections it was sized for
	RunsAs     string    `json:"runs_as"`  // how it was kept from running as root
	Template   bool      `json:"template"` // its data directory was copied, not made
	Started    time.Time `json:"started"`
}

// reply is what the supervisor says on its standard output: a line when the server runs or has not started, and one more if the server
// ends by itself.
type reply struct {
	Facts *Facts
	Error string
	Hint  string
}

// Server is a running server that ends with this process.
type Server struct {
	Facts Facts

	lifeline io.WriteCloser
	out      io.Closer
	cmd      *exec.Cmd
	stop     sync.Once
	err      error

	ended chan struct{} // closed when the supervisor says nothing more
	why   error         // its last word, once ended is closed; nil if it was asked to end
}

// Start starts a server. It needs [Supervised] to be called first thing in main.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	bin, err := resolve(ctx, &cfg)
	if err != nil {
		return nil, err
	}
	return launch(ctx, &cfg, bin, false)
}

// guard marks a supervisor's environment: a program that forgot to call Supervised would start itself again and again.
const guard = "LOCKBENCH_PG_SUPERVISOR"

// launch re-executes this program as the supervisor and waits for its reply.
func launch(ctx context.Context, cfg *Config, bin Binary, detached bool) (*Server, error) {
	if os.Getenv(guard) != "" {
		return nil, errors.New("the supervisor started itself: embedded.Supervised must be called first in main")
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	self, err := Self()
	if err != nil {
		return nil, fmt.Errorf("finding this program to start the supervisor: %w", err)
	}
	cmd := &exec.Cmd{
		Path: self, Args: []string{os.Args[0], supervisorArg}, // testscript dispatches on argv[0]
		Env:         append(os.Environ(), guard+"=1"),
		SysProcAttr: &syscall.SysProcAttr{Setsid: true}, // Ctrl-C is for lockbench alone: postgres would kill its sessions
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the supervisor: %w", err)
	}
	s := &Server{lifeline: in, out: out, cmd: cmd}
	o := order{
		BinDir: bin.Dir, Version: bin.Version, Durable: cfg.Durable, Connections: cfg.Connections, Settings: cfg.Settings,
		Cache: cacheDir(cfg.CacheDir), Detached: detached,
	}
	line, err := json.Marshal(o)
	if err == nil {
		_, err = in.Write(append(line, '\n'))
	}
	if err != nil {
		s.abandon()
		return nil, fmt.Errorf("talking to the supervisor: %w", err)
	}
	lines := bufio.NewReader(out)
	rep, err := await(ctx, lines)
	switch {
	case err != nil:
	case rep.Error != "":
		err = rep.err()
	case rep.Facts == nil:
		err = errors.New("the supervisor of the embedded server said nothing of it")
	}
	if err != nil {
		s.abandon()
		return nil, err
	}
	s.Facts = *rep.Facts
	s.ended = make(chan struct{})
	go func() {
		defer close(s.ended)
		if rep, err := await(context.WithoutCancel(ctx), lines); err == nil {
			s.why = rep.err()
		}
	}()
	return s, nil
}

func (r *reply) err() error { return bench.Hintf(r.Hint, "%s", r.Error) }

// Died returns why the server ended by itself, with the end of its log. A server that is about to end says so only when it has, so this
// waits for it as long as ctx lasts; nil if it is still there then.
func (s *Server) Died(ctx context.Context) error {
	select {
	case <-s.ended:
	case <-ctx.Done():
		return nil
	}
	if s.why == nil {
		return errors.New("the supervisor of lockbench's own PostgreSQL was killed, and the server with it")
	}
	return s.why
}

// await reads the supervisor's reply, unless ctx ends first.
func await(ctx context.Context, out *bufio.Reader) (reply, error) {
	type result struct {
		rep reply
		err error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		line, err := out.ReadBytes('\n')
		if err != nil {
			r.err = fmt.Errorf("the supervisor of the embedded server ended without a word: %w", err)
		} else if err := json.Unmarshal(line, &r.rep); err != nil {
			r.err = fmt.Errorf("the supervisor of the embedded server said %q: %w", line, err)
		}
		done <- r
	}()
	select {
	case r := <-done:
		return r.rep, r.err
	case <-ctx.Done():
		return reply{}, ctx.Err()
	}
}

// DSN returns where the server is reached.
func (s *Server) DSN() string { return s.Facts.DSN }

// Stop ends the server and waits until everything of it is gone. It may be called more than once.
func (s *Server) Stop() error {
	s.stop.Do(func() {
		_ = s.lifeline.Close()
		if s.ended != nil {
			<-s.ended
		}
		s.err = s.cmd.Wait()
		if s.err != nil && s.Facts.Dir != "" {
			sweepOne(s.Facts.Dir) // somebody killed the supervisor
		}
	})
	return s.err
}

// abandon ends a supervisor that did not start its server; a detached one heeds the signal only.
func (s *Server) abandon() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	_ = s.Stop()
}

// keep lets the server live on without this process.
func (s *Server) keep() error {
	_, err := io.WriteString(s.lifeline, keepWord)
	if err != nil {
		return fmt.Errorf("letting go of the server: %w", err)
	}
	_ = s.lifeline.Close()
	_ = s.out.Close()
	return s.cmd.Process.Release()
}

// Self returns the path of this program, to start it again, even when its file was replaced or lies where another user may not look.
func Self() (string, error) {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe", nil
	}
	return os.Executable()
}
