package strategies_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/bench/postgres/pgtest"
)

// play stages a scene for each strategy on seats and stock, with and without pipelining: the outcome must be the same.
func play(t *testing.T, specs []string, scene func(t *testing.T, s *stage)) {
	dsn := pgtest.DSN(t)
	for _, scenario := range []string{"seats", "inventory"} {
		for _, spec := range specs {
			for _, pipeline := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/pipeline=%v", spec, scenario, pipeline), func(t *testing.T) {
					scene(t, newStage(t, dsn, scenario, spec, pipeline))
				})
			}
		}
	}
}

// Both read, then both write: the second write rests on a row that is no longer there.
//
//	A: begin  read                write  commit
//	B:               begin  read                write  commit
func bothReadFirst(s *stage) (a, b *actor, seenByB bench.Row) {
	s.t.Helper()
	a, b = s.enter(), s.enter()
	a.begin()
	seenByA := a.get()
	b.begin()
	seenByB = b.get()
	if s.taken(seenByA) != s.free() || s.taken(seenByB) != s.free() {
		s.t.Fatalf("the row is taken at the start: %v, %v", seenByA, seenByB)
	}
	a.book(seenByA)
	return a, b, seenByB
}

// TestNoneLosesAnUpdate: both are told yes, and the row holds one of them.
func TestNoneLosesAnUpdate(t *testing.T) {
	play(t, []string{"none", "mutex"}, func(t *testing.T, s *stage) {
		_, b, stale := bothReadFirst(s) // the mutex stands in front of the transaction: its SQL is none's
		b.book(stale)
		violated(t, s)
	})
}

// TestOptimisticBroken: both compare before either writes, which a third session brings about by holding the row until they have.
// The comparison sees no change, and the update of A is lost.
func TestOptimisticBroken(t *testing.T) {
	play(t, []string{"optimistic-broken"}, func(t *testing.T, s *stage) {
		holder := pgtest.Connect(t, s.dsn)
		pgtest.Must(t, holder, "BEGIN")
		pgtest.Must(t, holder, "SELECT 1 FROM lockbench."+s.table.Name+" WHERE id = $1 FOR UPDATE", item)
		a, b := s.enter(), s.enter()
		a.begin()
		b.begin()
		seenByA, seenByB := a.get(), b.get()
		writeA := a.start(func() error { return a.write(seenByA) })
		writeA.blocked() // A has compared
		writeB := b.start(func() error { return b.write(seenByB) })
		writeB.blocked() // and so has B
		pgtest.Must(t, holder, "ROLLBACK")
		s.must(writeA.end())
		a.confirm()
		s.must(writeB.end())
		b.confirm()
		violated(t, s)
	})
}

// TestOptimisticBrokenCatchesSome: a comparison that comes after the winner's COMMIT does see the change; that is why the bug looks right.
func TestOptimisticBrokenCatchesSome(t *testing.T) {
	play(t, []string{"optimistic-broken"}, func(t *testing.T, s *stage) {
		_, b, stale := bothReadFirst(s)
		s.lost(b.write(stale), bench.Version)
		s.must(b.sess.Rollback())
		sound(t, s)
	})
}

// staleWriter is how the strategies that let both read make the second writer lose.
var staleWriter = map[string]bench.Contention{
	"optimistic": bench.Version, "cas": bench.Version,
	"repeatable-read": bench.Serialization, "serializable": bench.Serialization,
}

// TestStaleWriterLoses: the strategies that let both read make the second writer lose, each in its way.
func TestStaleWriterLoses(t *testing.T) {
	play(t, slices.Sorted(maps.Keys(staleWriter)), func(t *testing.T, s *stage) {
		a, b, stale := bothReadFirst(s)
		s.lost(b.write(stale), staleWriter[s.entrant.Spec.Name])
		s.must(b.sess.Rollback())
		sound(t, s)
		b.begin() // the whole transaction again, read included
		fresh := b.get()
		if s.taken(fresh) != s.after(a) {
			t.Errorf("the retry reads %d, not %d", s.taken(fresh), s.after(a))
		}
		s.must(b.sess.Rollback())
	})
}

// TestStaleWriterWaitsThenLoses: a write meets a row that another transaction has changed but not committed. It waits for that to
// end, and only then knows that it lost.
func TestStaleWriterWaitsThenLoses(t *testing.T) {
	dsn := pgtest.DSN(t)
	for spec, kind := range staleWriter {
		t.Run(spec, func(t *testing.T) {
			s := newStage(t, dsn, "seats", spec, false)
			a, b := s.enter(), s.enter()
			a.begin()
			seenByA := a.get()
			b.begin()
			seenByB := b.get()
			s.must(a.sess.Put(s.table, seenByA, a.wanted(seenByA)))
			write := b.start(func() error { return b.write(seenByB) })
			write.blocked()
			s.must(a.sess.Commit())
			a.confirm()
			s.lost(write.end(), kind)
			s.must(b.sess.Rollback())
			sound(t, s)
		})
	}
}

// TestWaitingWriterWins: the holder rolls back, so nothing was lost and the waiting write goes through.
func TestWaitingWriterWins(t *testing.T) {
	dsn := pgtest.DSN(t)
	for spec := range staleWriter {
		t.Run(spec, func(t *testing.T) {
			s := newStage(t, dsn, "inventory", spec, false)
			a, b := s.enter(), s.enter()
			a.begin()
			seenByA := a.get()
			b.begin()
			seenByB := b.get()
			s.must(a.sess.Put(s.table, seenByA, a.wanted(seenByA)))
			write := b.start(func() error { return b.write(seenByB) })
			write.blocked()
			s.must(a.sess.Rollback())
			s.must(write.end())
			b.confirm()
			sound(t, s)
		})
	}
}

// TestReaderWaits: the strategies that lock before they read keep the second reader waiting until the first has committed, and then
// show him the fresh row.
func TestReaderWaits(t *testing.T) {
	play(t, []string{"pessimistic", "pessimistic:mode=no-key-update", "advisory", "advisory:session"}, func(t *testing.T, s *stage) {
		a, b := s.enter(), s.enter()
		a.begin()
		seenByA := a.get()
		var row bench.Row
		read := b.start(func() error { // the lock of advisory:session is taken before BEGIN
			if err := b.sess.Begin(&bench.Request{User: b.user, Key: item}); err != nil {
				return err
			}
			var err error
			row, _, err = b.sess.Get(s.table, item)
			return err
		})
		read.blocked()
		a.book(seenByA)
		s.must(read.end())
		if s.taken(row) != s.after(a) {
			t.Fatalf("after the wait the row says %d, not %d", s.taken(row), s.after(a))
		}
		s.must(b.sess.Commit()) // of a rejection
		sound(t, s)
		noLeaks(t, s)
	})
}

// TestReaderOfAnotherRowDoesNotWait: a lock on one row is none on the next.
func TestReaderOfAnotherRowDoesNotWait(t *testing.T) {
	play(t, []string{"pessimistic", "advisory", "advisory:session"}, func(t *testing.T, s *stage) {
		a, b := s.enter(), s.enter()
		a.begin()
		seenByA := a.get()
		s.must(b.sess.Begin(&bench.Request{User: b.user, Key: item + 1}))
		if _, found, err := b.sess.Get(s.table, item+1); err != nil || !found {
			t.Fatalf("found %v, %v", found, err)
		}
		a.book(seenByA)
		s.must(b.sess.Commit())
		noLeaks(t, s)
	})
}

// TestWaitingPolicies: what a locked row means to who does not want to wait without end.
func TestWaitingPolicies(t *testing.T) {
	policies := map[string]bench.Contention{
		"pessimistic:wait=nowait":                    bench.Nowait,
		"pessimistic:mode=no-key-update:wait=nowait": bench.Nowait,
		"pessimistic:wait=50ms":                      bench.LockTimeout,
	}
	play(t, slices.Sorted(maps.Keys(policies)), func(t *testing.T, s *stage) {
		a, b := s.enter(), s.enter()
		a.begin()
		seenByA := a.get()
		b.begin()
		_, _, err := b.sess.Get(s.table, item)
		s.lost(err, policies[s.entrant.Spec.Label])
		s.must(b.sess.Rollback())
		a.book(seenByA)
		b.begin()
		if fresh := b.get(); s.taken(fresh) != s.after(a) {
			t.Errorf("the retry reads %d, not %d", s.taken(fresh), s.after(a))
		}
		s.must(b.sess.Rollback())
		sound(t, s)
	})
}

// TestLockTimeoutEndsWithItsTransaction: the limit of wait= does not stay behind for the next user of the connection.
func TestLockTimeoutEndsWithItsTransaction(t *testing.T) {
	dsn := pgtest.DSN(t)
	s := newStage(t, dsn, "seats", "pessimistic:wait=50ms", false)
	c := s.pool.Conns()[0]
	a := s.enter()
	limit := func() int64 {
		var rows bench.Rows
		s.must(c.Query(&bench.Stmt{SQL: "SELECT setting::bigint FROM pg_settings WHERE name = 'lock_timeout'", Columns: 1}, nil, &rows))
		return rows.Data[0]
	}
	a.begin()
	a.get()
	if limit() != 50 {
		t.Errorf("lock_timeout is %d inside the transaction", limit())
	}
	s.must(a.sess.Rollback())
	if limit() != 0 {
		t.Errorf("lock_timeout is %d after the transaction", limit())
	}
}

// TestSkippedRowLooksGone: why wait=skip needs force on a certain row.
func TestSkippedRowLooksGone(t *testing.T) {
	play(t, []string{"pessimistic:wait=skip:force"}, func(t *testing.T, s *stage) {
		a, b := s.enter(), s.enter()
		a.begin()
		a.get()
		b.begin()
		if row, found, err := b.sess.Get(s.table, item); err != nil || found {
			t.Errorf("the locked row reads as %v, found %v, %v", row, found, err)
		}
		s.must(b.sess.Rollback())
		s.must(a.sess.Rollback())
		b.begin()
		b.get()
		s.must(b.sess.Rollback())
	})
}

// TestAtomicWaitsAndThenRefuses: the guard is judged again on the row as the winner left it.
func TestAtomicWaitsAndThenRefuses(t *testing.T) {
	play(t, []string{"atomic"}, func(t *testing.T, s *stage) {
		winner := pgtest.Connect(t, s.dsn)
		b := s.enter()
		pgtest.Must(t, winner, "BEGIN")
		operand := int64(qty)
		if s.table.Name == "seats" {
			operand = b.user
			pgtest.Must(t, winner, "UPDATE lockbench.seats SET holder = 99 WHERE id = $1", item)
		} else {
			pgtest.Must(t, winner, "UPDATE lockbench.stock SET available = available - 9, reserved = reserved + 9 WHERE id = $1", item)
		}
		b.begin()
		var done bool
		apply := b.start(func() (err error) {
			done, err = b.sess.Apply(s.scenario.Changes()[0], item, operand)
			return err
		})
		apply.blocked()
		pgtest.Must(t, winner, "COMMIT")
		s.must(apply.end())
		if done || b.sess.Wrote() {
			t.Error("the guard held on a row that the winner had taken")
		}
		row, found, err := b.sess.Peek(s.table, item)
		if want := map[string]int64{"seats": 99, "stock": 9}[s.table.Name]; err != nil || !found || s.taken(row) != want {
			t.Errorf("Peek reads %d (found %v, %v), not %d", s.taken(row), found, err, want)
		}
	})
}

// TestAtomicWaitsAndThenGoesOn: units that are left after the winner's COMMIT are still to be had.
func TestAtomicWaitsAndThenGoesOn(t *testing.T) {
	dsn := pgtest.DSN(t)
	s := newStage(t, dsn, "inventory", "atomic", false)
	winner := pgtest.Connect(t, s.dsn)
	pgtest.Must(t, winner, "BEGIN")
	pgtest.Must(t, winner, "UPDATE lockbench.stock SET available = available - 6, reserved = reserved + 6 WHERE id = $1", item)
	b := s.enter()
	b.begin()
	var done bool
	apply := b.start(func() (err error) {
		done, err = b.sess.Apply(s.scenario.Changes()[0], item, qty)
		return err
	})
	apply.blocked()
	pgtest.Must(t, winner, "COMMIT")
	s.must(apply.end())
	if !done || !b.sess.Wrote() {
		t.Error("four units were left, and were refused")
	}
	if n := pgtest.Number(t, s.watch, "SELECT available * 100 + reserved FROM lockbench.stock WHERE id = $1", item); n != 10 {
		t.Errorf("available × 100 + reserved = %d, not 10", n)
	}
}

// TestUniqueMakesTheSecondInsertLose: both find the seat free, the second insert waits and then violates the constraint.
func TestUniqueMakesTheSecondInsertLose(t *testing.T) {
	dsn := pgtest.DSN(t)
	for _, pipeline := range []bool{false, true} {
		t.Run(fmt.Sprintf("pipeline=%v", pipeline), func(t *testing.T) {
			s := newStage(t, dsn, "seats", "unique", pipeline)
			a, b := s.enter(), s.enter()
			a.begin()
			b.begin()
			seenByA, seenByB := a.get(), b.get()
			if !pipeline { // else the insert of A commits with itself, and leaves nothing to wait for
				s.must(a.sess.Put(s.table, seenByA, a.wanted(seenByA)))
				write := b.start(func() error { return b.write(seenByB) })
				write.blocked()
				s.must(a.sess.Commit())
				a.confirm()
				s.lost(write.end(), bench.Unique)
			} else {
				a.book(seenByA)
				s.lost(b.write(seenByB), bench.Unique)
			}
			s.must(b.sess.Rollback())
			if u, ok := s.entrant.Discipline.(bench.Uniquer); !ok || !u.UniqueIsContention() {
				t.Error("the violation counts as a failure")
			}
			b.begin()
			if fresh := b.get(); fresh.Values[0] != a.user {
				t.Errorf("the retry reads holder %d, not %d", fresh.Values[0], a.user)
			}
			s.must(b.sess.Rollback())
			sound(t, s)
		})
	}
}

// TestSkipLockedHandsOutAnotherRow: nobody waits, and nobody gets what another holds.
func TestSkipLockedHandsOutAnotherRow(t *testing.T) {
	dsn := pgtest.DSN(t)
	s := newStage(t, dsn, "seats", "skip-locked", false)
	users := []*actor{s.enter(), s.enter(), s.enter()}
	for i, a := range users {
		a.begin()
		row, found, err := a.sess.Take(s.table)
		if err != nil || !found || row.Key != int64(i)+1 {
			t.Fatalf("user %d takes row %d (found %v, %v)", a.user, row.Key, found, err)
		}
		s.must(a.sess.Put(s.table, row, a.wanted(row)))
		if i > 0 {
			continue
		}
		s.must(a.sess.Commit())
	}
	a := users[0]
	a.begin()
	if row, found, err := a.sess.Take(s.table); err != nil || found {
		t.Errorf("one row is sold and two are held, yet row %d is handed out (found %v, %v)", row.Key, found, err)
	}
	s.must(a.sess.Rollback())
	s.must(users[1].sess.Rollback())
	a.begin()
	if row, found, err := a.sess.Take(s.table); err != nil || !found || row.Key != 2 {
		t.Errorf("row 2 was given back; handed out is row %d (found %v, %v)", row.Key, found, err)
	}
	s.must(a.sess.Rollback())
	s.must(users[2].sess.Rollback())
}

// TestMutexKeepsTheSecondOut: before a connection is asked for, and only for as long as its user is patient.
func TestMutexKeepsTheSecondOut(t *testing.T) {
	dsn := pgtest.DSN(t)
	for _, mutex := range []struct {
		spec      string
		otherToo  bool
		otherName string
	}{{"mutex", true, "one mutex of the process"}, {"mutex:per=row", false, "one mutex a row"}} {
		t.Run(mutex.spec, func(t *testing.T) {
			s := newStage(t, dsn, "seats", mutex.spec, false)
			gate, ok := s.entrant.Discipline.(bench.Gate)
			if !ok {
				t.Fatal("the strategy has no gate")
			}
			impatient, cancel := context.WithCancel(t.Context())
			cancel()
			hold, err := gate.Enter(t.Context(), &bench.Request{Key: item})
			s.must(err)
			if _, err := gate.Enter(impatient, &bench.Request{Key: item}); !errors.Is(err, context.Canceled) {
				t.Errorf("the second is let in: %v", err)
			}
			if mutex.otherToo {
				if _, err := gate.Enter(impatient, &bench.Request{Key: item + 1}); !errors.Is(err, context.Canceled) {
					t.Errorf("%s lets another row's user in: %v", mutex.otherName, err)
				}
			} else {
				other, err := gate.Enter(t.Context(), &bench.Request{Key: item + 1})
				s.must(err)
				other.Leave()
			}
			hold.Leave()
			hold, err = gate.Enter(t.Context(), &bench.Request{Key: item})
			s.must(err)
			hold.Leave()
		})
	}
}

// violated checks that the audit sees both sides of the anomaly: one row, two who were told yes.
func violated(t *testing.T, s *stage) {
	t.Helper()
	a := s.audit()
	switch s.table.Name {
	case "seats":
		if a.Counts["overbooked"] != 1 || a.Counts["lost_updates"] != 1 {
			t.Errorf("two were told yes for one seat, and the audit counts %v", a.Counts)
		}
	case "stock":
		if a.Counts["lost_updates"] != qty {
			t.Errorf("eight units were confirmed, four are gone, and the audit counts %v", a.Counts)
		}
	}
}

// sound checks that the audit finds nothing.
func sound(t *testing.T, s *stage) {
	t.Helper()
	if a := s.audit(); len(a.Findings) > 0 {
		t.Errorf("the audit finds %+v", a.Findings)
	}
}

// noLeaks checks that no lock and no transaction stays behind.
func noLeaks(t *testing.T, s *stage) {
	t.Helper()
	if n, err := s.store.Leaks(t.Context()); err != nil || n != 0 {
		t.Errorf("%d locks or transactions stay behind (%v)", n, err)
	}
}
