package postgres_test

import (
	"context"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/bench/postgres/pgtest"
	"github.com/lockbench/lockbench/scenarios"
)

// TestServerCountsExactly: on a server that is idle otherwise, the counters are those of the operations and nothing else.
func TestServerCountsExactly(t *testing.T) {
	s := pgtest.Store(t, pgtest.DSN(t))
	for _, c := range []struct {
		strategy           string
		commits, rollbacks func(*bench.Trial) int64
	}{
		{"pessimistic", operations, none}, // a rejection commits as well
		{"unique", operations, func(f *bench.Trial) int64 { return f.Contention["unique"] }},
		{"optimistic", operations, func(f *bench.Trial) int64 { return f.Contention["version"] }},
		{"repeatable-read", operations, func(f *bench.Trial) int64 { return f.Contention["serialization"] }},
		{"atomic", func(f *bench.Trial) int64 { return f.Outcomes["confirmed"] + 2*f.Outcomes["rejected"] }, none}, // why not is asked for
	} {
		t.Run(c.strategy, func(t *testing.T) {
			rep := pgtest.Run(t, compile(t, func(s *bench.Settings) { s.Trials = 2 }, c.strategy), s)
			for _, trial := range rep.Cells[0].Trials {
				side := trial.Server
				if side.Commits == nil || side.Rollbacks == nil || side.Deadlocks == nil || side.WALBytes == nil {
					t.Fatalf("the server's side is %+v", side)
				}
				if *side.Commits != c.commits(&trial) || *side.Rollbacks != c.rollbacks(&trial) || *side.Deadlocks != 0 {
					t.Errorf("commits %d of %d, rollbacks %d of %d, deadlocks %d",
						*side.Commits, c.commits(&trial), *side.Rollbacks, c.rollbacks(&trial), *side.Deadlocks)
				}
				if *side.WALBytes <= 0 {
					t.Errorf("%d bytes of WAL for a booking", *side.WALBytes)
				}
			}
		})
	}
}

func operations(t *bench.Trial) int64 { return t.Operations }
func none(*bench.Trial) int64         { return 0 }

// interfering is a store in which somebody takes the seats' locks between the restoring and the race.
type interfering struct {
	bench.Store
	before func()
}

func (s interfering) Observe(ctx context.Context) (bench.Observation, error) {
	s.before()
	return s.Store.Observe(ctx)
}

// TestHardStop: users who wait for a lock that nobody gives back are cut off, and their backends go with them.
func TestHardStop(t *testing.T) {
	for _, strategy := range []string{"pessimistic", "atomic", "advisory:session"} {
		t.Run(strategy, func(t *testing.T) {
			dsn := pgtest.DSN(t)
			holder, watch := pgtest.Connect(t, dsn), pgtest.Connect(t, dsn)
			store := interfering{pgtest.Store(t, dsn), func() {
				pgtest.Must(t, holder, "BEGIN")
				pgtest.Must(t, holder, "SELECT 1 FROM lockbench.seats FOR UPDATE")
			}}
			race := compile(t, func(s *bench.Settings) { s.Deadline, s.Drain = 0, bench.Duration(time.Hour) }, strategy)
			stop := bench.NewStop()
			type result struct {
				rep *bench.Report
				err error
			}
			done := make(chan result, 1)
			go func() {
				rep, err := race.Execute(t.Context(), store, stop, pgtest.Quiet{})
				done <- result{rep, err}
			}()
			racing := "FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'lockbench-%'"
			pgtest.WaitFor(t, watch, nil, "users to wait for the lock",
				"SELECT count(*) > 0 "+racing+" AND cardinality(pg_blocking_pids(pid)) > 0")
			stop.Hard()
			var got result
			select {
			case got = <-done:
			case <-time.After(pgtest.Patience):
				t.Fatal("the run does not end")
			}
			if got.err != nil {
				t.Errorf("the run says %v", got.err)
			}
			if !got.rep.Partial {
				t.Error("the report is not marked partial")
			}
			cell := got.rep.Cells[0]
			if len(cell.Findings) > 0 || cell.Outcomes["failed"] > 0 || cell.Outcomes["confirmed"] > 0 {
				t.Errorf("users were told %v, findings %+v, errors %v", cell.Outcomes, cell.Findings, cell.Errors)
			}
			// The observer and the closed connections may take a moment to be noticed; those who wait for a lock never would.
			pgtest.WaitFor(t, watch, nil, "the backends to go", "SELECT count(*) = 0 "+racing)
		})
	}
}

// TestSoftStop: operations under way are finished, and no other begins.
func TestSoftStop(t *testing.T) {
	dsn, stop := pgtest.DSN(t), bench.NewStop()
	race := compile(t, func(s *bench.Settings) {
		s.Mode, s.Users, s.Rows, s.Duration, s.Trials = bench.Closed, 8, 100, bench.Duration(time.Hour), 3
	}, "pessimistic")
	w := &starter{then: func(live *bench.Live) {
		finished(live, 20)
		stop.Soft()
	}}
	rep, err := race.Execute(t.Context(), pgtest.Store(t, dsn), stop, w)
	w.busy.Wait()
	if err != nil {
		t.Fatal(err)
	}
	cell := rep.Cells[0]
	if !rep.Partial || len(cell.Trials) != 1 || cell.Operations < 20 {
		t.Errorf("partial %v, %d trials, %d operations", rep.Partial, len(cell.Trials), cell.Operations)
	}
	if len(cell.Findings) > 0 || cell.Outcomes["busy"]+cell.Outcomes["failed"]+cell.Outcomes["indeterminate"] > 0 {
		t.Errorf("users were told %v, findings %+v", cell.Outcomes, cell.Findings)
	}
}

// starter does something beside the trial of a given place.
type starter struct {
	order int // 0: the first
	then  func(*bench.Live)
	busy  sync.WaitGroup
}

func (s *starter) TrialStarts(_ string, _, order, _ int, live *bench.Live) {
	if order == max(1, s.order) {
		s.busy.Go(func() { s.then(live) })
	}
}

func (s *starter) TrialEnds(string, *bench.Trial) {}

// finished waits until operations have finished.
func finished(live *bench.Live, n int64) {
	limit, tick := time.NewTimer(pgtest.Patience), time.NewTicker(time.Millisecond)
	defer limit.Stop()
	defer tick.Stop()
	for live.Finished.Load() < n {
		select {
		case <-tick.C:
		case <-limit.C:
			return
		}
	}
}

// TestServerDies: the run ends with an error, and the report keeps what was measured before.
func TestServerDies(t *testing.T) {
	server := pgtest.Start(t, nil)
	race := compile(t, func(s *bench.Settings) {
		s.Mode, s.Users, s.Rows, s.Operations, s.Trials = bench.Closed, 8, 100, 1000, 2
	}, "pessimistic")
	w := &starter{order: 2, then: func(live *bench.Live) {
		finished(live, 5)
		_ = syscall.Kill(server.Facts.PID, syscall.SIGQUIT) // as a crash: no session is asked to finish
	}}
	rep, err := race.Execute(t.Context(), pgtest.Store(t, server.DSN()), bench.NewStop(), w)
	w.busy.Wait()
	if err == nil || !strings.Contains(err.Error(), "pessimistic, trial 2: ") {
		t.Errorf("the run says %v", err)
	}
	if rep == nil || !rep.Partial {
		t.Fatalf("the report is %+v", rep)
	}
	cell := rep.Cells[0]
	if len(cell.Trials) == 0 || cell.Trials[0].Outcomes["confirmed"] == 0 || cell.Trials[0].Verdict == bench.Violated {
		t.Errorf("the first trial is lost: %+v", cell.Trials)
	}
	if cell.Verdict == bench.Violated || cell.ClaimBroken {
		t.Errorf("a dead server is taken for a broken claim: %+v", cell.Findings)
	}
}

// TestLostConnectionIsReplaced: one that the server ends is one failed operation, not the end of the run.
func TestLostConnectionIsReplaced(t *testing.T) {
	dsn := pgtest.DSN(t)
	side := pgtest.Connect(t, dsn)
	race := compile(t, func(s *bench.Settings) {
		s.Mode, s.Users, s.Connections, s.Rows, s.Operations = bench.Closed, 4, 2, 100, 400
	}, "pessimistic")
	w := &starter{then: func(live *bench.Live) {
		finished(live, 20)
		pgtest.WaitFor(t, side, nil, "a backend to end", `SELECT coalesce(bool_or(pg_terminate_backend(pid)), false) FROM
			(SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'lockbench-%' AND state = 'idle in transaction' LIMIT 1) a`)
	}}
	rep, err := race.Execute(t.Context(), pgtest.Store(t, dsn), bench.NewStop(), w)
	w.busy.Wait()
	if err != nil {
		t.Fatal(err)
	}
	cell := rep.Cells[0]
	told := cell.Outcomes
	if told["failed"]+told["indeterminate"] != 1 || cell.Operations != 400 {
		t.Errorf("users were told %v; errors %v", told, cell.Errors)
	}
	if cell.Verdict == bench.Violated {
		t.Errorf("findings %+v", cell.Findings)
	}
}

// TestPoolReplace: connections are replaced in their place, with the statements of the cell.
func TestPoolReplace(t *testing.T) {
	dsn := pgtest.DSN(t)
	s, side := ready(t, dsn), pgtest.Connect(t, dsn)
	e := compile(t, nil, "pessimistic").Cells[0]
	p, err := s.Open(t.Context(), bench.PoolConfig{Connections: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Prepare(t.Context(), bench.SessionConfig{Statements: e.Discipline.Statements(), LockTimeout: 5 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	broken := p.Conns()[1]
	fresh, err := p.Replace(t.Context(), broken)
	if err != nil {
		t.Fatal(err)
	}
	if p.Conns()[1] != fresh || p.Conns()[0] == fresh {
		t.Error("the new connection does not stand in the place of the old one")
	}
	sess := e.Discipline.Open(fresh, func() {})
	if err := sess.Begin(&bench.Request{User: 1, Key: 1}); err != nil {
		t.Fatal(err)
	}
	if _, found, err := sess.Get(scenarios.Seats{}.Tables()[0], 1); err != nil || !found {
		t.Errorf("found %v, %v", found, err)
	}
	if err := sess.Rollback(); err != nil {
		t.Error(err)
	}
	pgtest.Must(t, side, "BEGIN")
	pgtest.Must(t, side, "UPDATE lockbench.seats SET holder = 9")
	x := &play{t: t}
	x.fault(x.exec(fresh, take, 1), contention(bench.LockTimeout, "55P03"))
}
