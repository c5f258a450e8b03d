package postgres_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/bench/postgres/pgtest"
)

// statements of the scenes; text without a name is parsed at each execution.
var (
	begin        = &bench.Stmt{SQL: "BEGIN"}
	repeatable   = &bench.Stmt{SQL: "BEGIN ISOLATION LEVEL REPEATABLE READ"}
	serializable = &bench.Stmt{SQL: "BEGIN ISOLATION LEVEL SERIALIZABLE"}
	limited      = &bench.Stmt{SQL: "BEGIN; SET LOCAL lock_timeout = 20"}
	readAll      = &bench.Stmt{SQL: "SELECT count(*) FROM lockbench.seats", Columns: 1}
	take         = &bench.Stmt{SQL: "UPDATE lockbench.seats SET holder = 1 WHERE id = $1"}
	lock         = &bench.Stmt{SQL: "SELECT id FROM lockbench.seats WHERE id = $1 FOR UPDATE", Columns: 1}
	lockNow      = &bench.Stmt{SQL: "SELECT id FROM lockbench.seats WHERE id = $1 FOR UPDATE NOWAIT", Columns: 1}
	lockTable    = &bench.Stmt{SQL: "LOCK TABLE lockbench.seats IN EXCLUSIVE MODE NOWAIT"}
	claim        = &bench.Stmt{SQL: "INSERT INTO lockbench.bookings (seat_id, user_id) VALUES ($1, 1)"}
	nonsense     = &bench.Stmt{SQL: "SELECT 1/0", Columns: 1}
	own          = &bench.Stmt{SQL: "SELECT pg_backend_pid()", Columns: 1}
	translate    = &bench.Stmt{SQL: "SET lc_messages = 'C.UTF-8'"}
)

// play is a scene's stage: two connections under test and a session of the test's own.
type play struct {
	t    *testing.T
	a, b bench.Conn
	side *pgx.Conn
	rows bench.Rows
}

func newPlay(t *testing.T, dsn string, pipeline bool, cfg bench.SessionConfig) *play {
	t.Helper()
	conns := open(t, ready(t, dsn), 2, pipeline, cfg)
	return &play{t: t, a: conns[0], b: conns[1], side: pgtest.Connect(t, dsn)}
}

func (p *play) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *play) exec(c bench.Conn, s *bench.Stmt, args ...int64) error {
	if s.Columns > 0 {
		return c.Query(s, args, &p.rows)
	}
	_, err := c.Exec(s, args)
	return err
}

func (p *play) pid(c bench.Conn) int64 {
	p.t.Helper()
	p.must(p.exec(c, own))
	return p.rows.Data[0]
}

// fault checks an error's class.
func (p *play) fault(err error, want bench.Fault) {
	p.t.Helper()
	var f *bench.Fault
	if !errors.As(err, &f) {
		p.t.Fatalf("got %v, which is no fault", err)
	}
	if f.Class != want.Class || f.Kind != want.Kind || f.SQLState != want.SQLState || f.Broken != want.Broken {
		p.t.Errorf("%v: class %d, kind %s, SQLSTATE %q, broken %v; want %d, %s, %q, %v",
			err, f.Class, f.Kind, f.SQLState, f.Broken, want.Class, want.Kind, want.SQLState, want.Broken)
	}
}

func contention(kind bench.Contention, state string) bench.Fault {
	return bench.Fault{Class: bench.ClassContention, Kind: kind, SQLState: state}
}

// usable checks that a connection is as good as new after a rollback.
func (p *play) usable(c bench.Conn) {
	p.t.Helper()
	p.must(c.Rollback())
	p.must(c.Begin(begin))
	p.must(p.exec(c, readAll))
	p.must(c.Commit())
}

// TestClassification brings each error about on a real server, on connections that pipeline and on such that do not.
func TestClassification(t *testing.T) {
	scenes := []struct {
		name  string
		cfg   bench.SessionConfig
		scene func(p *play)
	}{
		{"40001 at a statement", bench.SessionConfig{}, func(p *play) {
			p.must(p.a.Begin(repeatable))
			p.must(p.exec(p.a, readAll))
			pgtest.Must(p.t, p.side, "UPDATE lockbench.seats SET holder = 9 WHERE id = 1")
			p.fault(p.exec(p.a, take, 1), contention(bench.Serialization, "40001"))
			p.usable(p.a)
		}},
		{"40001 at COMMIT", bench.SessionConfig{}, func(p *play) { // write skew: each reads what the other writes
			for _, c := range []bench.Conn{p.a, p.b} {
				p.must(c.Begin(serializable))
				p.must(p.exec(c, readAll))
			}
			p.must(p.exec(p.a, take, 1))
			p.must(p.exec(p.b, take, 2))
			p.must(p.a.Commit())
			p.fault(p.b.Commit(), contention(bench.Serialization, "40001"))
			p.usable(p.b)
		}},
		{"40P01", bench.SessionConfig{}, func(p *play) {
			for c, row := range map[bench.Conn]int64{p.a: 1, p.b: 2} {
				p.must(c.Begin(begin))
				p.must(p.exec(c, take, row))
			}
			crossed := make(chan error)
			go func() {
				_, err := p.b.Exec(take, []int64{1})
				if err != nil {
					err = errors.Join(err, p.b.Rollback())
				}
				crossed <- err
			}()
			err := p.exec(p.a, take, 2)
			if err != nil {
				p.must(p.a.Rollback())
			}
			other := <-crossed
			if (err == nil) == (other == nil) { // whose timer goes off first is the victim
				p.t.Fatalf("one of two should be the victim: %v, %v", err, other)
			}
			p.fault(errors.Join(err, other), contention(bench.Deadlock, "40P01"))
			p.usable(p.a)
			p.usable(p.b)
		}},
		{"55P03 at once", bench.SessionConfig{}, func(p *play) {
			p.must(p.a.Begin(begin))
			p.must(p.exec(p.a, lock, 1))
			p.must(p.b.Begin(begin))
			p.fault(p.exec(p.b, lockNow, 1), contention(bench.Nowait, "55P03"))
			p.usable(p.b)
			p.must(p.b.Begin(begin))
			p.fault(p.exec(p.b, lockTable), contention(bench.Nowait, "55P03"))
			p.usable(p.b)
		}},
		{"55P03 after lock_timeout of the transaction", bench.SessionConfig{}, func(p *play) {
			p.must(p.a.Begin(begin))
			p.must(p.exec(p.a, lock, 1))
			p.must(p.b.Begin(limited))
			p.fault(p.exec(p.b, lock, 1), contention(bench.LockTimeout, "55P03"))
			p.usable(p.b)
		}},
		{"55P03 after lock_timeout of the run", bench.SessionConfig{LockTimeout: 20e6}, func(p *play) {
			p.must(p.a.Begin(begin))
			p.must(p.exec(p.a, lock, 1))
			p.fault(p.exec(p.b, take, 1), contention(bench.LockTimeout, "55P03")) // in a statement of its own as well
			p.usable(p.b)
		}},
		{"23505", bench.SessionConfig{}, func(p *play) {
			p.must(p.exec(p.a, claim, 1))
			p.must(p.b.Begin(begin))
			p.fault(p.exec(p.b, claim, 1), contention(bench.Unique, "23505"))
			p.usable(p.b)
		}},
		{"57014", bench.SessionConfig{Deadline: 20e6}, func(p *play) {
			pgtest.Must(p.t, p.side, "BEGIN")
			pgtest.Must(p.t, p.side, "UPDATE lockbench.seats SET holder = 9 WHERE id = 1")
			p.must(p.a.Begin(begin))
			p.fault(p.exec(p.a, lock, 1), bench.Fault{Class: bench.ClassTimeout, SQLState: "57014"})
			pgtest.Must(p.t, p.side, "ROLLBACK")
			p.usable(p.a)
		}},
		{"57P01 at a statement", bench.SessionConfig{}, func(p *play) {
			p.must(p.a.Begin(begin))
			p.must(p.exec(p.a, lock, 1))
			p.must(p.b.Begin(begin))
			waiting, pidB := make(chan error), p.pid(p.b)
			go func() { waiting <- p.b.Query(lock, []int64{1}, &bench.Rows{}) }()
			pgtest.WaitBlocked(p.t, p.side, pidB, nil)
			pgtest.Must(p.t, p.side, "SELECT pg_terminate_backend($1)", pidB)
			p.fault(<-waiting, bench.Fault{Class: bench.ClassFailed, SQLState: "57P01", Broken: true})
		}},
		{"57P01 at COMMIT", bench.SessionConfig{}, func(p *play) { // once COMMIT is sent nobody knows, so nobody is told yes or no
			pid := p.pid(p.a)
			p.must(p.a.Begin(begin))
			p.must(p.exec(p.a, take, 1))
			pgtest.Must(p.t, p.side, "SELECT pg_terminate_backend($1)", pid)
			pgtest.WaitFor(p.t, p.side, nil, "the backend to go", "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $1", pid)
			err := p.a.Commit()
			var f *bench.Fault
			if !errors.As(err, &f) || !f.Broken {
				p.t.Fatalf("COMMIT says %v (%+v)", err, f)
			}
			want := bench.ClassIndeterminate
			if pgconn.SafeToRetry(f.Err) { // it could not even be sent
				want = bench.ClassFailed
			}
			if f.Class != want {
				p.t.Errorf("COMMIT says %v, of class %d, not %d", err, f.Class, want)
			}
		}},
		{"COMMIT of a failed transaction", bench.SessionConfig{}, func(p *play) {
			p.must(p.a.Begin(begin))
			p.must(p.exec(p.a, take, 1))
			p.fault(p.exec(p.a, nonsense), bench.Fault{Class: bench.ClassFailed, SQLState: "22012"})
			err := p.a.Commit()
			p.fault(err, bench.Fault{Class: bench.ClassFailed})
			if want := "the server answered COMMIT with ROLLBACK"; err.Error() != want {
				p.t.Errorf("the error is %q, not %q", err, want)
			}
			if n := pgtest.Number(p.t, p.side, "SELECT count(*) FROM lockbench.seats WHERE holder IS NOT NULL"); n != 0 {
				p.t.Errorf("%d seats are taken", n)
			}
			p.usable(p.a)
		}},
		{"an ordinary error", bench.SessionConfig{}, func(p *play) {
			p.fault(p.exec(p.a, &bench.Stmt{SQL: "SELECT nothing"}), bench.Fault{Class: bench.ClassFailed, SQLState: "42703"})
			p.usable(p.a)
		}},
		{"a write that rides with COMMIT", bench.SessionConfig{}, func(p *play) {
			p.must(p.exec(p.a, claim, 1))
			p.must(p.b.Begin(begin))
			p.must(p.exec(p.b, readAll))
			_, err := p.b.Last(claim, []int64{1})
			p.fault(err, contention(bench.Unique, "23505"))
			p.usable(p.b)
		}},
	}
	dsn := pgtest.DSN(t)
	for _, scene := range scenes {
		for name, pipeline := range map[string]bool{"": false, ", pipelined": true} {
			t.Run(scene.name+name, func(t *testing.T) { scene.scene(newPlay(t, dsn, pipeline, scene.cfg)) })
		}
	}
}

// TestClassificationIgnoresTheLanguage: the two meanings of 55P03 are told apart when the server speaks another language.
func TestClassificationIgnoresTheLanguage(t *testing.T) {
	p := newPlay(t, pgtest.DSN(t), false, bench.SessionConfig{})
	p.must(p.exec(p.b, translate))
	err := p.exec(p.b, nonsense)
	p.must(p.b.Rollback())
	if err.Error() == "ERROR: division by zero (SQLSTATE 22012)" {
		pgtest.Lack(t, "this server has no messages in another language")
	}
	p.must(p.a.Begin(begin))
	p.must(p.exec(p.a, lock, 1))
	p.must(p.b.Begin(begin))
	p.fault(p.exec(p.b, lockNow, 1), contention(bench.Nowait, "55P03"))
	p.must(p.b.Rollback())
	p.must(p.b.Begin(limited))
	p.fault(p.exec(p.b, lock, 1), contention(bench.LockTimeout, "55P03"))
}
