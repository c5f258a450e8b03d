package strategies_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/bench/postgres"
	"github.com/lockbench/lockbench/bench/postgres/pgtest"
	"github.com/lockbench/lockbench/scenarios"
	"github.com/lockbench/lockbench/strategies"
)

// stage holds a scenario's tables, freshly filled, and sessions of one strategy, which a test moves step by step. The test decides the
// order; nothing is left to luck.
type stage struct {
	t        *testing.T
	scenario bench.Scenario
	params   bench.Params
	table    *bench.Table
	entrant  *bench.Entrant
	store    *postgres.Store
	pool     bench.Pool
	watch    *pgx.Conn // asks who waits
	dsn      string
	actors   int
	told     bench.Ledger
}

// item is the row that everybody wants.
const item = 1

// capacity is what is in stock, qty what each user takes: as in the story of the lost update, 10 are there and both take 4.
const (
	capacity = 10
	qty      = 4
)

func newStage(t *testing.T, dsn, scenario, spec string, pipeline bool) *stage {
	t.Helper()
	plan := pgtest.Plan(scenario, spec)
	plan.Rows, plan.Pipeline, plan.Backoff = 3, pipeline, "none"
	if scenario == "inventory" {
		plan.Capacity = capacity
	}
	r := pgtest.Compile(t, plan, strategies.All(), scenarios.All(), bench.Connecting{})
	s := &stage{
		t: t, scenario: r.Scenario, params: r.Params, table: r.Scenario.Tables()[0], entrant: r.Cells[0],
		dsn: dsn, told: bench.Ledger{Refused: map[int64]bench.Refusals{}},
	}
	s.store, s.watch = pgtest.Store(t, s.dsn), pgtest.Connect(t, s.dsn)
	s.must(s.store.Prepare(t.Context()))
	s.must(s.store.Restore(t.Context(), r.Scenario.Fill(r.Params)))
	pool, err := s.store.Open(t.Context(), bench.PoolConfig{Connections: 3, Pipeline: pipeline})
	s.must(err)
	t.Cleanup(pool.Close)
	s.pool = pool
	s.must(pool.Prepare(t.Context(), bench.SessionConfig{Statements: s.entrant.Discipline.Statements(), Deadline: pgtest.Patience}))
	return s
}

func (s *stage) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// actor is a user on a connection of his own.
type actor struct {
	*stage
	user int64
	pid  int64
	sess bench.Session
}

// enter brings the next user on stage.
func (s *stage) enter() *actor {
	s.t.Helper()
	c := s.pool.Conns()[s.actors]
	s.actors++
	a := &actor{stage: s, user: int64(s.actors), sess: s.entrant.Discipline.Open(c, func() {})}
	var rows bench.Rows
	s.must(c.Query(&bench.Stmt{SQL: "SELECT pg_backend_pid()", Columns: 1}, nil, &rows))
	a.pid = rows.Data[0]
	return a
}

func (a *actor) begin() {
	a.t.Helper()
	a.must(a.sess.Begin(&bench.Request{User: a.user, Key: item}))
}

// get reads the row, which must be there.
func (a *actor) get() bench.Row {
	a.t.Helper()
	row, found, err := a.sess.Get(a.table, item)
	a.must(err)
	if !found {
		a.t.Fatalf("user %d does not find the row", a.user)
	}
	return row
}

// wanted is the row with the user's change: what the operation would write.
func (a *actor) wanted(old bench.Row) bench.Row {
	if a.table.Name == "seats" {
		old.Values[0] = a.user
	} else {
		old.Values[0] -= qty
		old.Values[1] += qty
	}
	return old
}

// write puts the user's change and commits it. When BEGIN and COMMIT ride along the loss shows at COMMIT, else at the write.
func (a *actor) write(old bench.Row) error {
	if err := a.sess.Put(a.table, old, a.wanted(old)); err != nil {
		return err
	}
	return a.sess.Commit()
}

// book writes, which must go well, and notes that the user was told yes.
func (a *actor) book(old bench.Row) {
	a.t.Helper()
	if err := a.write(old); err != nil {
		a.t.Fatalf("user %d: %v", a.user, err)
	}
	a.confirm()
}

func (a *actor) confirm() {
	a.told.Confirmed = append(a.told.Confirmed, bench.Told{
		Request: bench.Request{User: a.user, Key: item, Quantity: qty}, Answer: bench.Yes(),
	})
}

// step is something under way on another goroutine, since it may have to wait.
type step struct {
	a    *actor
	done chan struct{}
	err  error
}

// start begins a step.
func (a *actor) start(f func() error) *step {
	s := &step{a: a, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		s.err = f()
	}()
	return s
}

// blocked waits until the step really waits for a lock.
func (s *step) blocked() {
	s.a.t.Helper()
	pgtest.WaitBlocked(s.a.t, s.a.watch, s.a.pid, s.done)
}

// end waits for the step and returns its error.
func (s *step) end() error {
	<-s.done
	return s.err
}

// audit compares what users were told with what the table holds.
func (s *stage) audit() bench.Audit {
	s.t.Helper()
	snap, err := s.store.Snapshot(s.t.Context(), s.scenario.Tables())
	s.must(err)
	return s.scenario.Audit(s.params, &s.told, snap)
}

// taken reports how the row changed since the beginning: the holder of the seat, or the units that are gone.
func (s *stage) taken(row bench.Row) int64 {
	if s.table.Name == "seats" {
		return row.Values[0]
	}
	return capacity - row.Values[0]
}

// free is what taken says of a row that nobody has changed, after what it says once a user was there.
func (s *stage) free() int64 {
	if s.table.Name == "seats" {
		return bench.Null
	}
	return 0
}

func (s *stage) after(a *actor) int64 {
	if s.table.Name == "seats" {
		return a.user
	}
	return qty
}

// lost checks that an error is a lost race of the kind.
func (s *stage) lost(err error, kind bench.Contention) {
	s.t.Helper()
	var f *bench.Fault
	if !errors.As(err, &f) || f.Class != bench.ClassContention || f.Kind != kind {
		s.t.Fatalf("got %v (%+v), not a race lost by %s", err, f, kind)
	}
	if f.Broken {
		s.t.Errorf("the connection is given up after %v", err)
	}
}
