package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/bench/postgres"
)

// source is where the database comes from: a DSN, a server kept by "lockbench server", or one that lives as long as the run.
type source struct {
	dsn     string
	dsnFrom string // the flag or variable that gave it
	bin     string
	version string
	durable bool
	own     bool   // not the kept one
	run     string // names the run, where other processes must know it
}

func (s *source) add(g flagSet) {
	s.durable = true
	g.text(&s.dsn, "dsn", "dsn", "", "the server to use, as postgres://user@host/db (default LOCKBENCH_DSN, then DATABASE_URL, then one of its own)")
	g.onOff(&s.own, "own-server", true, "start a server for this run, also where one is kept")
	s.addServer(g)
}

// addServer adds the flags of a server of lockbench's own.
func (s *source) addServer(g flagSet) {
	s.durable = true
	g.text(&s.bin, "pg-bin", "dir", "", "directory with postgres and initdb (default the newest found)")
	g.text(&s.version, "pg-version", "major", "", "major version of PostgreSQL, as 16")
	g.onOff(&s.durable, "durable", true, "flush every commit to disk (default)")
	g.onOff(&s.durable, "no-durable", false, "turn fsync and synchronous_commit off; the report says so")
}

// check notes what is wrong with the flags, and settles which DSN is used.
func (s *source) check(a *app, given *pflag.FlagSet) {
	s.dsnFrom = "--dsn"
	for _, name := range []string{"LOCKBENCH_DSN", "DATABASE_URL"} {
		if v := a.env(name); v != "" && !given.Changed("dsn") {
			s.dsn, s.dsnFrom = v, name
			break
		}
	}
	if given.Changed("dsn") && s.dsn == "" {
		a.problem(bench.Hintf("leave --dsn out to let lockbench start a server", "--dsn: the value is empty"))
	}
	if s.dsn != "" {
		if _, err := postgres.ParseDSN(s.dsn); err != nil {
			a.problem(fmt.Errorf("%s: %w", s.dsnFrom, err))
		}
		hint := "leave it out, or leave --dsn out to let lockbench start a server"
		if s.dsnFrom != "--dsn" {
			hint = "leave it out, or unset " + s.dsnFrom + " to let lockbench start a server"
		}
		for _, name := range []string{"own-server", "pg-bin", "pg-version", "no-durable"} {
			if given.Changed(name) {
				a.problem(bench.Hintf(hint, "--%s is for a server that lockbench starts, and %s names another", name, s.dsnFrom))
			}
		}
	}
	s.checkServer(a, given)
}

func (s *source) checkServer(a *app, given *pflag.FlagSet) {
	if given.Changed("durable") && given.Changed("no-durable") {
		a.problem(bench.Hintf("give one of them", "--durable and --no-durable contradict each other"))
	}
	if n, err := strconv.Atoi(s.version); s.version != "" && (err != nil || n < 10 || n > 99) {
		a.problem(bench.Hintf("write the major version, as 16", "--pg-version: %q is not a major version", s.version))
	}
	if s.bin == "" {
		return
	}
	for _, program := range []string{"postgres", "initdb"} {
		if _, err := os.Stat(filepath.Join(s.bin, program)); err != nil {
			a.problem(bench.Hintf("name the directory that holds postgres and initdb, as pg_config --bindir prints it", "--pg-bin: no %s in %q", program, s.bin))
			return
		}
	}
}

// majorOf is the major version of one written as "15.18".
func majorOf(version string) string {
	major, _, _ := strings.Cut(version, ".")
	return major
}

// database is a store with what must be ended after the run.
type database struct {
	store  bench.Store
	dsn    string
	pooled bool
	close  func() error
	// died says why a server of lockbench's own is no more, nil if it is still there when ctx ends.
	died func(ctx context.Context) error
}

// dyingWithin is how long a server takes to end that has lost a process.
const dyingWithin = 3 * time.Second

// blame puts the end of the server, where it has ended, before what broke off because of it.
func (d *database) blame(ctx context.Context, err error) error {
	if err == nil || d.died == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, dyingWithin)
	defer cancel()
	why := d.died(ctx)
	if why != nil { // stopping it would only say so again
		stop := d.close
		d.close = func() error { _ = stop(); return nil }
	}
	return errors.Join(why, err)
}

func (s *source) open(ctx context.Context, connections int, say func(string, ...any)) (*database, error) {
	if s.dsn == "" {
		return s.openOwn(ctx, connections, say)
	}
	if s.dsnFrom != "--dsn" {
		say("using the server that %s names", s.dsnFrom)
	}
	store, err := postgres.Connect(ctx, s.dsn, postgres.Options{Run: s.run})
	if err != nil {
		return nil, err
	}
	return &database{store: store, dsn: s.dsn, pooled: store.Pooled(), close: func() error { store.Close(); return nil }}, nil
}

// plainWord needs no quotes in a shell.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// commandLine is the command as it could be typed again, for the report; passwords stay out of it, and so does what only says where the
// report went: who repeats a run does not mean to overwrite its files.
func commandLine(args []string) string {
	out := []string{"lockbench"}
	for i := 0; i < len(args); i++ {
		arg := args[i]
		name, _, hasValue := strings.Cut(arg, "=")
		switch {
		case name == "--output" || name == "--format":
			if !hasValue {
				i++
			}
			continue
		case name == "--quiet" || name == "--no-color":
			continue
		case strings.HasPrefix(arg, "--dsn="):
			arg = "--dsn=" + withoutPassword(strings.TrimPrefix(arg, "--dsn="))
		case i > 0 && args[i-1] == "--dsn":
			arg = withoutPassword(arg)
		}
		if !plainWord.MatchString(arg) {
			arg = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
		out = append(out, arg)
	}
	return strings.Join(out, " ")
}

// password finds a password in a DSN of keywords and values, quoted or not.
var password = regexp.MustCompile(`(?i)\b(password|sslpassword)\s*=\s*('(?:[^'\\]|\\.)*'|\S+)`)

// withoutPassword returns a DSN that may be printed.
func withoutPassword(dsn string) string {
	if strings.Contains(dsn, "://") {
		u, err := url.Parse(dsn)
		if err != nil {
			return "…" // what cannot be parsed may hold a password anywhere
		}
		if u.User != nil {
			u.User = url.User(u.User.Username())
		}
		if q := u.Query(); q.Has("password") || q.Has("sslpassword") {
			q.Del("password")
			q.Del("sslpassword")
			u.RawQuery = q.Encode()
		}
		return u.String()
	}
	return strings.TrimSpace(password.ReplaceAllString(dsn, ""))
}
