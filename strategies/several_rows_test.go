package strategies_test

import (
	"fmt"
	"testing"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/bench/postgres/pgtest"
)

// Interleavings of operations that read or write several rows: the doctors of a shift, two accounts, a batch of jobs.

// each stages a scene for every strategy.
func each(t *testing.T, scenario string, specs []string, pipelines []bool, scene func(t *testing.T, s *stage)) {
	dsn := pgtest.DSN(t)
	for _, spec := range specs {
		for _, pipeline := range pipelines {
			t.Run(fmt.Sprintf("%s/pipeline=%v", spec, pipeline), func(t *testing.T) {
				scene(t, newStage(t, dsn, scenario, spec, pipeline))
			})
		}
	}
}

var both = []bool{false, true}

// ask begins the transaction of a request.
func (a *actor) ask(r bench.Request) {
	a.t.Helper()
	r.User = a.user
	a.must(a.sess.Begin(&r))
}

// yes notes that the user's request was confirmed.
func (a *actor) yes(r bench.Request, ans bench.Answer) {
	r.User = a.user
	a.told.Confirmed = append(a.told.Confirmed, bench.Told{Request: r, Answer: ans})
}

// counted checks what the audit counts; what is not named must be 0.
func (s *stage) counted(want map[string]int64) {
	s.t.Helper()
	for name, n := range s.audit().Counts {
		if n != want[name] {
			s.t.Errorf("%s is %d, not %d", name, n, want[name])
		}
	}
}

// --- on-call ---

// leaving is the request of the doctor at a place of the first shift.
func leaving(place int64) bench.Request { return bench.Request{Key: 1, Quantity: place} }

// team reads the shift and checks how many are on duty.
func (a *actor) team(onDuty int64) []bench.Row {
	a.t.Helper()
	rows, err := a.sess.List(a.table, 1)
	a.must(err)
	n := int64(0)
	for _, d := range rows {
		n += d.Values[1]
	}
	if len(rows) != 2 || n != onDuty {
		a.t.Fatalf("user %d sees %v, and %d should be on duty", a.user, rows, onDuty)
	}
	return append([]bench.Row(nil), rows...)
}

// leave takes the doctor at a place off duty and commits.
func (a *actor) leave(team []bench.Row, place int64) error {
	off := team[place]
	off.Values[1] = 0
	if err := a.sess.Put(a.table, team[place], off); err != nil {
		return err
	}
	return a.sess.Commit()
}

// bothSeeTwo: each doctor sees the other on duty, and the first has left.
func bothSeeTwo(s *stage) (b *actor, seen []bench.Row) {
	s.t.Helper()
	a, b := s.enter(), s.enter()
	a.ask(leaving(0))
	seenByA := a.team(2)
	b.ask(leaving(1))
	seen = b.team(2)
	s.must(a.leave(seenByA, 0))
	a.yes(leaving(0), bench.Yes())
	return b, seen
}

// TestWriteSkew: no row is written twice, so nothing that guards single rows, or one snapshot, notices.
func TestWriteSkew(t *testing.T) {
	each(t, "on-call", []string{"none", "optimistic", "cas", "repeatable-read"}, both, func(_ *testing.T, s *stage) {
		b, seen := bothSeeTwo(s)
		s.must(b.leave(seen, 1))
		b.yes(leaving(1), bench.Yes())
		s.counted(map[string]int64{"write_skew": 1})
	})
}

// TestSerializableRefusesWriteSkew: the second COMMIT would fit no serial order. Tried again it sees one on duty.
func TestSerializableRefusesWriteSkew(t *testing.T) {
	each(t, "on-call", []string{"serializable"}, both, func(_ *testing.T, s *stage) {
		b, seen := bothSeeTwo(s)
		s.lost(b.leave(seen, 1), bench.Serialization)
		s.must(b.sess.Rollback())
		b.ask(leaving(1))
		b.team(1)
		s.must(b.sess.Commit())
		s.counted(nil)
	})
}

// TestLockedTeamWaits: whoever locks all that he reads keeps the second reader waiting, who then sees one on duty.
func TestLockedTeamWaits(t *testing.T) {
	each(t, "on-call", []string{"pessimistic", "pessimistic:mode=no-key-update", "advisory", "advisory:session"}, both, func(t *testing.T, s *stage) {
		a, b := s.enter(), s.enter()
		a.ask(leaving(0))
		seen := a.team(2)
		var after []bench.Row
		read := b.start(func() error {
			r := leaving(1)
			if err := b.sess.Begin(&r); err != nil {
				return err
			}
			var err error
			after, err = b.sess.List(b.table, 1)
			return err
		})
		read.blocked()
		s.must(a.leave(seen, 0))
		a.yes(leaving(0), bench.Yes())
		s.must(read.end())
		if len(after) != 2 || after[0].Values[1]+after[1].Values[1] != 1 {
			t.Errorf("after the wait the shift reads %v", after)
		}
		s.must(b.sess.Commit())
		s.counted(nil)
		noLeaks(t, s)
	})
}

// impatience is what a locked row means to who does not want to wait without end.
var impatience = map[string]bench.Contention{"pessimistic:wait=nowait": bench.Nowait, "pessimistic:wait=50ms": bench.LockTimeout}

func TestLockedTeamRefusesTheImpatient(t *testing.T) {
	each(t, "on-call", []string{"pessimistic:wait=nowait", "pessimistic:wait=50ms"}, both, func(_ *testing.T, s *stage) {
		a, b := s.enter(), s.enter()
		a.ask(leaving(0))
		seen := a.team(2)
		b.ask(leaving(1))
		_, err := b.sess.List(b.table, 1)
		s.lost(err, impatience[s.entrant.Spec.Label])
		s.must(b.sess.Rollback())
		s.must(a.leave(seen, 0))
		a.yes(leaving(0), bench.Yes())
		s.counted(nil)
	})
}

// --- transfer ---

// moving is a transfer; both accounts begin with a hundred times its amount.
func moving(from, to int64) bench.Request { return bench.Request{Key: from, To: to, Quantity: 10} }

// account reads one account.
func (a *actor) account(key int64) bench.Row {
	a.t.Helper()
	row, found, err := a.sess.Get(a.table, key)
	a.must(err)
	if !found {
		a.t.Fatalf("user %d does not find account %d", a.user, key)
	}
	return row
}

// pay writes both accounts as they were read and commits.
func (a *actor) pay(from, to bench.Row) error {
	less, more := from, to
	less.Values[0] -= 10
	more.Values[0] += 10
	if err := a.sess.Put(a.table, from, less); err != nil {
		return err
	}
	if err := a.sess.Put(a.table, to, more); err != nil {
		return err
	}
	return a.sess.Commit()
}

// bothReadBalances: two transfers from account 1 to 2 rest on the same reads, and the first is through.
func bothReadBalances(s *stage) (b *actor, from, to bench.Row) {
	s.t.Helper()
	a, b := s.enter(), s.enter()
	a.ask(moving(1, 2))
	fromA, toA := a.account(1), a.account(2)
	b.ask(moving(1, 2))
	from, to = b.account(1), b.account(2)
	s.must(a.pay(fromA, toA))
	a.yes(moving(1, 2), bench.Yes())
	return b, from, to
}

// TestNoneLosesATransfer: both are told yes, and both accounts hold one transfer. The sum does not show it.
func TestNoneLosesATransfer(t *testing.T) {
	each(t, "transfer", []string{"none", "mutex"}, both, func(_ *testing.T, s *stage) {
		b, from, to := bothReadBalances(s)
		s.must(b.pay(from, to))
		b.yes(moving(1, 2), bench.Yes())
		s.counted(map[string]int64{"lost_updates": 2})
	})
}

// TestStaleTransferLoses: the second write rests on a balance that is no longer there.
func TestStaleTransferLoses(t *testing.T) {
	each(t, "transfer", []string{"optimistic", "cas", "repeatable-read", "serializable"}, both, func(_ *testing.T, s *stage) {
		b, from, to := bothReadBalances(s)
		s.lost(b.pay(from, to), staleWriter[s.entrant.Spec.Name])
		s.must(b.sess.Rollback())
		s.counted(nil)
	})
}

// TestTransferWaits: whoever locks before he reads keeps the second waiting, who then reads what the first left.
func TestTransferWaits(t *testing.T) {
	each(t, "transfer", []string{"pessimistic", "pessimistic:mode=no-key-update", "advisory", "advisory:session"}, both, func(t *testing.T, s *stage) {
		a, b := s.enter(), s.enter()
		a.ask(moving(1, 2))
		fromA, toA := a.account(1), a.account(2)
		var from bench.Row
		read := b.start(func() error {
			r := moving(1, 2)
			if err := b.sess.Begin(&r); err != nil {
				return err
			}
			var err error
			from, _, err = b.sess.Get(b.table, 1)
			return err
		})
		read.blocked()
		s.must(a.pay(fromA, toA))
		a.yes(moving(1, 2), bench.Yes())
		s.must(read.end())
		if from.Values[0] != fromA.Values[0]-10 {
			t.Errorf("after the wait account 1 holds %d", from.Values[0])
		}
		s.must(b.pay(from, b.account(2)))
		b.yes(moving(1, 2), bench.Yes())
		s.counted(nil)
		noLeaks(t, s)
	})
}

// TestAtomicTransfersAddUp: the second debit waits for the first to commit, and is taken from what that left.
func TestAtomicTransfersAddUp(t *testing.T) {
	each(t, "transfer", []string{"atomic"}, both, func(_ *testing.T, s *stage) {
		debit, credit := s.scenario.Changes()[0], s.scenario.Changes()[1]
		move := func(a *actor) error {
			if done, err := a.sess.Apply(debit, 1, 10); err != nil || !done {
				return fmt.Errorf("debited: %v, %w", done, err)
			}
			if done, err := a.sess.Apply(credit, 2, 10); err != nil || !done {
				return fmt.Errorf("credited: %v, %w", done, err)
			}
			a.yes(moving(1, 2), bench.Yes())
			return nil
		}
		a, b := s.enter(), s.enter()
		a.ask(moving(1, 2))
		s.must(move(a))
		b.ask(moving(1, 2))
		second := b.start(func() error { return move(b) })
		second.blocked()
		s.must(a.sess.Commit())
		s.must(second.end())
		s.must(b.sess.Commit())
		s.counted(nil)
	})
}

// touch takes what a strategy locks of an account: at the read where it locks there, else at the write.
func (a *actor) touch(key int64, seen map[int64]bench.Row) error {
	switch a.entrant.Spec.Name {
	case "pessimistic", "advisory":
		_, _, err := a.sess.Get(a.table, key)
		return err
	case "atomic":
		_, err := a.sess.Apply(a.scenario.Changes()[1], key, 10)
		return err
	}
	return a.sess.Put(a.table, seen[key], seen[key])
}

// lockers all take locks that last until COMMIT, sooner or later.
var lockers = []string{"none", "pessimistic", "pessimistic:mode=no-key-update", "optimistic", "cas", "atomic", "advisory", "repeatable-read"}

// opposite brings two users on stage whose transfers go opposite ways, with what they read.
func opposite(s *stage) (users [2]*actor, seen [2]map[int64]bench.Row) {
	s.t.Helper()
	for i := range users {
		users[i] = s.enter()
		users[i].ask(moving(int64(i)+1, int64(2-i)))
		seen[i] = map[int64]bench.Row{}
		if name := s.entrant.Spec.Name; name != "atomic" && name != "pessimistic" && name != "advisory" {
			seen[i][1], seen[i][2] = users[i].account(1), users[i].account(2)
		}
	}
	return users, seen
}

// TestOppositeOrderDeadlocks: each holds what the other wants. The server ends one of them, and the other gets through.
func TestOppositeOrderDeadlocks(t *testing.T) {
	each(t, "transfer", lockers, []bool{false}, func(t *testing.T, s *stage) {
		u, seen := opposite(s)
		s.must(u[0].touch(1, seen[0]))
		s.must(u[1].touch(2, seen[1]))
		first := u[0].start(func() error { return u[0].touch(2, seen[0]) })
		first.blocked()
		second := u[1].start(func() error { return u[1].touch(1, seen[1]) })
		victim, survivor := first, second // whose check comes first is the server's affair
		if first.end() == nil {
			victim, survivor = second, first
		}
		s.lost(victim.end(), bench.Deadlock)
		s.must(victim.a.sess.Rollback())
		s.must(survivor.end())
		s.must(survivor.a.sess.Commit())
		noLeaks(t, s)
	})
}

// TestOneOrderDoesNotDeadlock: the same transfers, each touching the lower account first. The second waits, nobody is ended.
func TestOneOrderDoesNotDeadlock(t *testing.T) {
	each(t, "transfer", lockers, []bool{false}, func(t *testing.T, s *stage) {
		u, seen := opposite(s)
		s.must(u[0].touch(1, seen[0]))
		second := u[1].start(func() error { return u[1].touch(1, seen[1]) })
		second.blocked()
		s.must(u[0].touch(2, seen[0]))
		s.must(u[0].sess.Commit())
		err := second.end()
		switch s.entrant.Spec.Name {
		case "optimistic", "repeatable-read": // a stale write, and no deadlock
			s.lost(err, staleWriter[s.entrant.Spec.Name])
			s.must(u[1].sess.Rollback())
			return
		}
		s.must(err)
		s.must(u[1].touch(2, seen[1]))
		s.must(u[1].sess.Commit())
		noLeaks(t, s)
	})
}

// --- queue ---

// batchOf is the request for two of the three jobs.
var batchOf = bench.Request{Quantity: 2}

// claim reads free jobs and checks which they are.
func (a *actor) claim(want ...int64) []bench.Row {
	a.t.Helper()
	rows, err := a.sess.Claim(a.table, batchOf.Quantity)
	a.must(err)
	rows = append([]bench.Row(nil), rows...)
	if got := keysOf(rows); fmt.Sprint(got) != fmt.Sprint(want) {
		a.t.Fatalf("user %d claims %v, not %v", a.user, got, want)
	}
	return rows
}

func keysOf(rows []bench.Row) (keys []int64) {
	for _, r := range rows {
		keys = append(keys, r.Key)
	}
	return keys
}

// sign writes the user's name into jobs and commits.
func (a *actor) sign(jobs []bench.Row) error {
	for _, j := range jobs {
		mine := j
		mine.Values[0] = a.user
		if err := a.sess.Put(a.table, j, mine); err != nil {
			return err
		}
	}
	return a.sess.Commit()
}

// got notes that the user was told to have the jobs.
func (a *actor) got(jobs []bench.Row) {
	keys := keysOf(jobs)
	a.yes(batchOf, bench.Answer{Outcome: bench.Confirmed, Key: keys[0], Batch: keys})
}

// bothClaimTheSame: two workers read the same free jobs, and the first has taken them.
func bothClaimTheSame(s *stage) (b *actor, jobs []bench.Row) {
	s.t.Helper()
	a, b := s.enter(), s.enter()
	a.ask(batchOf)
	byA := a.claim(1, 2)
	b.ask(batchOf)
	jobs = b.claim(1, 2)
	s.must(a.sign(byA))
	a.got(byA)
	return b, jobs
}

func TestNoneClaimsTwice(t *testing.T) {
	each(t, "queue", []string{"none", "mutex"}, both, func(_ *testing.T, s *stage) {
		b, jobs := bothClaimTheSame(s)
		s.must(b.sign(jobs))
		b.got(jobs)
		s.counted(map[string]int64{"overbooked": 2, "lost_updates": 2})
	})
}

func TestStaleClaimLoses(t *testing.T) {
	each(t, "queue", []string{"optimistic", "cas", "repeatable-read", "serializable"}, both, func(_ *testing.T, s *stage) {
		b, jobs := bothClaimTheSame(s)
		s.lost(b.sign(jobs), staleWriter[s.entrant.Spec.Name])
		s.must(b.sess.Rollback())
		b.ask(batchOf)
		rest := b.claim(3)
		s.must(b.sign(rest))
		b.got(rest)
		s.counted(nil)
	})
}

// TestClaimWaits: with a lock that waits, the second worker stands in line for the first one's jobs and then gets the next.
func TestClaimWaits(t *testing.T) {
	each(t, "queue", []string{"pessimistic", "pessimistic:mode=no-key-update", "advisory", "advisory:session"}, both, func(t *testing.T, s *stage) {
		a, b := s.enter(), s.enter()
		a.ask(batchOf)
		byA := a.claim(1, 2)
		var rest []bench.Row
		read := b.start(func() error {
			r := batchOf
			if err := b.sess.Begin(&r); err != nil {
				return err
			}
			rows, err := b.sess.Claim(b.table, r.Quantity)
			rest = append(rest, rows...)
			return err
		})
		read.blocked()
		s.must(a.sign(byA))
		a.got(byA)
		s.must(read.end())
		if got := keysOf(rest); fmt.Sprint(got) != "[3]" {
			t.Fatalf("after the wait jobs %v are claimed", got)
		}
		s.must(b.sign(rest))
		b.got(rest)
		s.counted(nil)
		noLeaks(t, s)
	})
}

func TestClaimRefusesTheImpatient(t *testing.T) {
	each(t, "queue", []string{"pessimistic:wait=nowait", "pessimistic:wait=50ms"}, both, func(_ *testing.T, s *stage) {
		a, b := s.enter(), s.enter()
		a.ask(batchOf)
		byA := a.claim(1, 2)
		b.ask(batchOf)
		_, err := b.sess.Claim(b.table, batchOf.Quantity)
		s.lost(err, impatience[s.entrant.Spec.Label])
		s.must(b.sess.Rollback())
		s.must(a.sign(byA))
		a.got(byA)
		s.counted(nil)
	})
}

// TestSkippedJobsAreOthers: nobody waits; the second worker gets the jobs that the first does not hold, the third none.
func TestSkippedJobsAreOthers(t *testing.T) {
	each(t, "queue", []string{"skip-locked", "pessimistic:wait=skip"}, both, func(_ *testing.T, s *stage) {
		a, b, c := s.enter(), s.enter(), s.enter()
		a.ask(batchOf)
		byA := a.claim(1, 2)
		b.ask(batchOf)
		byB := b.claim(3)
		c.ask(batchOf)
		c.claim()
		s.must(c.sess.Commit())
		s.must(b.sign(byB))
		b.got(byB)
		s.must(a.sign(byA))
		a.got(byA)
		s.counted(nil)
	})
}
