package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/bench/postgres"
	"github.com/lockbench/lockbench/bench/postgres/embedded"
)

// config is what the flags ask of a server of lockbench's own.
func (s *source) config(connections int, say func(string, ...any)) embedded.Config {
	return embedded.Config{BinDir: s.bin, Version: s.version, Durable: s.durable, Connections: connections, Log: say}
}

// openOwn uses the kept server where it is what was asked for, else starts one that ends with this process.
func (s *source) openOwn(ctx context.Context, connections int, say func(string, ...any)) (*database, error) {
	if db, err := s.openKept(ctx, connections, say); db != nil || err != nil {
		return db, err
	}
	server, err := embedded.Start(ctx, s.config(connections, say))
	if err != nil {
		return nil, err
	}
	f := server.Facts
	say("started PostgreSQL %s for this run, %s", f.Version, durability(f.Durable))
	store, err := postgres.Connect(ctx, server.DSN(), postgres.Options{Embedded: true, Description: describe(f), Run: s.run})
	if err != nil {
		return nil, errors.Join(err, server.Stop())
	}
	return &database{store: store, dsn: server.DSN(), close: func() error { store.Close(); return server.Stop() }, died: server.Died}, nil
}

// openKept uses the kept server; nil where there is none, or not one for this run.
func (s *source) openKept(ctx context.Context, connections int, say func(string, ...any)) (*database, error) {
	kept, found, err := embedded.FindDetached()
	if err != nil || !found || s.own {
		return nil, nil //nolint:nilerr // a note that cannot be read is the business of lockbench server
	}
	if misfit := s.misfit(kept.Facts, connections); misfit != "" {
		say("not using the kept server: %s", misfit)
		return nil, nil
	}
	store, err := postgres.Connect(ctx, kept.DSN, postgres.Options{Embedded: true, Description: describe(kept.Facts), Run: s.run})
	if err != nil {
		return nil, err
	}
	if err := store.Alone(ctx); err != nil {
		store.Close()
		if errors.Is(err, postgres.ErrBusy) {
			say("not using the kept server: another lockbench is at work there")
			return nil, nil
		}
		return nil, err
	}
	say("using the kept server: PostgreSQL %s, %s", kept.Version, durability(kept.Durable))
	return &database{store: store, dsn: kept.DSN, close: func() error { store.Close(); return nil }, died: kept.Died}, nil
}

// misfit says why a kept server is not what was asked for; "" if it is.
func (s *source) misfit(f embedded.Facts, connections int) string {
	switch {
	case f.Durable != s.durable:
		return fmt.Sprintf("it is %s, and %s was asked for", durability(f.Durable), durability(s.durable))
	case s.version != "" && majorOf(f.Version) != s.version:
		return fmt.Sprintf("it is PostgreSQL %s, and %s was asked for", f.Version, s.version)
	case s.bin != "" && s.bin != f.BinDir:
		return fmt.Sprintf("it runs from %s, and %s was asked for", f.BinDir, s.bin)
	case f.Slots < connections:
		return fmt.Sprintf("it was started for %d connections, and %d were asked for", f.Slots, connections)
	}
	return ""
}

func durability(durable bool) string {
	if durable {
		return "durable"
	}
	return "not durable"
}

// describe says for the report how a server was had.
func describe(f embedded.Facts) string { return "from " + f.BinDir + ", running as " + f.RunsAs }

// own looks at the PostgreSQL binaries and tries a server out.
func (e *examination) own(ctx context.Context, s *source, connections int) {
	found := embedded.Binaries(ctx)
	for _, b := range found {
		e.add(stateOK, "binaries", "", "PostgreSQL %s in %s, found through %s", b.Version, b.Dir, b.From)
	}
	if len(found) == 0 && s.bin == "" {
		e.add(stateWarn, "binaries", "install PostgreSQL, name its programs with --pg-bin, or a running server with --dsn",
			"no PostgreSQL is installed: it would be downloaded once")
	}
	kept, running, err := embedded.FindDetached()
	switch {
	case err != nil:
		e.add(stateWarn, "kept server", hintOf(err), "%v", err)
	case running:
		misfit := s.misfit(kept.Facts, connections)
		if misfit == "" {
			misfit = "run uses it"
		}
		e.add(stateOK, "kept server", "lockbench server stop", "PostgreSQL %s, %s: %s", kept.Version, durability(kept.Durable), misfit)
	}
	begin := time.Now()
	server, err := embedded.Start(ctx, s.config(connections, nil))
	if err != nil {
		e.add(stateFail, "own server", hintOf(err), "%v", err)
		return
	}
	e.add(stateOK, "own server", "", "started in %v, running as %s", time.Since(begin).Round(time.Millisecond), server.Facts.RunsAs)
	e.server(ctx, server.DSN(), connections, true)
	begin = time.Now()
	if err := server.Stop(); err != nil {
		e.add(stateFail, "own server", "", "stopping it: %v", err)
		return
	}
	e.add(stateOK, "own server", "", "stopped in %v", time.Since(begin).Round(time.Millisecond))
}

// noServer is the error of commands that need the kept server.
func noServer() error {
	return bench.Hintf("lockbench server start", "no server is kept running")
}
