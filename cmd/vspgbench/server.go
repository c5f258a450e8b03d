package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/bench/postgres"
	"github.com/lockbench/lockbench/bench/postgres/embedded"
)

// server is a PostgreSQL of this program's own, with both sides ready to run on it.
type server struct {
	dsn     string
	store   *postgres.Store // restores the table before pgbench's runs
	pgbench pgbench
	own     *embedded.Server
	dir     string
}

func start(ctx context.Context, o options, durable bool) (*server, error) {
	own, err := embedded.Start(ctx, embedded.Config{
		BinDir: o.bin, Durable: durable, Connections: 2 * clients, // one side's may linger while the other's open
		Log: func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) },
	})
	if err != nil {
		return nil, err
	}
	s := &server{dsn: own.DSN(), own: own}
	s.pgbench = pgbench{program: filepath.Join(own.Facts.BinDir, "pgbench"), dsn: s.dsn}
	if err := s.ready(ctx); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// ready lays out the schema and measures what pgbench costs without work.
func (s *server) ready(ctx context.Context) error {
	var err error
	if s.dir, err = os.MkdirTemp("", "vspgbench-"); err != nil {
		return err
	}
	s.pgbench.dir = s.dir
	first, err := postgres.Connect(ctx, s.dsn, postgres.Options{Embedded: true})
	if err != nil {
		return err
	}
	err = first.Prepare(ctx)
	first.Close() // gives up the lock that keeps two runs apart
	if err != nil {
		return err
	}
	if s.store, err = postgres.Connect(ctx, s.dsn, postgres.Options{Embedded: true}); err != nil {
		return err
	}
	idle, err := s.pgbench.run(ctx, "SELECT 1;\n", 0)
	s.pgbench.idle = idle.Cost * float64(idle.Attempts)
	return err
}

func (s *server) stop() {
	if s.store != nil {
		s.store.Close()
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
	if err := s.own.Stop(); err != nil {
		fmt.Fprintf(os.Stderr, "stopping the server: %v\n", err)
	}
}

// run compares the two sides in a cell. Which of them goes first alternates, so that a drift of the machine favours neither.
func (s *server) run(ctx context.Context, o options, c cell) (*result, error) {
	seconds := o.seconds
	if c.Rows == 1 {
		seconds = 1
	}
	window := time.Duration(seconds) * time.Second
	race, err := c.race(window)
	if err != nil {
		return nil, err
	}
	text, err := script(c, race.Cells[0].Discipline.Statements())
	if err != nil {
		return nil, err
	}
	r := &result{cell: c}
	for n := range o.pairs {
		var p pair
		sides := []func() error{
			func() (err error) {
				p.own, err = ownSide(ctx, job{DSN: s.dsn, Cell: c, Window: bench.Duration(window), Profile: o.profile})
				return err
			},
			func() (err error) {
				if err := s.store.Restore(ctx, race.Scenario.Fill(race.Params)); err != nil {
					return err
				}
				p.pgbench, err = s.pgbench.run(ctx, text, seconds)
				return err
			},
		}
		for i := range sides {
			if err := sides[(i+n)%2](); err != nil {
				return nil, err
			}
		}
		r.pairs = append(r.pairs, p)
	}
	return r, nil
}
