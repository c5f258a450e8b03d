package strategies_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/bench/postgres/pgtest"
)

// The forms in which a batch is claimed where finding a job and claiming it are one statement.

// grab claims the batch that a request asks for.
func (a *actor) grab(r bench.Request) []int64 {
	a.t.Helper()
	keys, err := a.sess.Grab(a.table, r.Quantity, a.user)
	a.must(err)
	keys = slices.Clone(keys)
	slices.Sort(keys)
	return keys
}

// plan is how the server would carry out the claim of a batch.
func (s *stage) plan() string {
	s.t.Helper()
	stmt, args := s.entrant.Discipline.(bench.Explained).Explain(&bench.Request{User: 1, Quantity: batchOf.Quantity})
	lines, err := s.store.Plan(s.t.Context(), s.entrant.Discipline.Statements()[0], stmt, args)
	s.must(err)
	return bench.PlanLine(lines)
}

// TestGrabbedJobsAreOthers: whatever the plan, a claim by = or by a CTE gets a batch and no more, the next worker gets the next jobs, and
// the third none, without anybody waiting.
func TestGrabbedJobsAreOthers(t *testing.T) {
	forms := []string{"skip-locked:claim=equals", "skip-locked:claim=cte"}
	for _, form := range slices.Clone(forms) {
		forms = append(forms, form+":plan=nested-loop")
	}
	each(t, "queue", append(forms, "skip-locked:claim=in"), both, func(t *testing.T, s *stage) {
		a, b, c := s.enter(), s.enter(), s.enter()
		for _, next := range []struct {
			*actor
			want []int64
		}{{a, []int64{1, 2}}, {b, []int64{3}}, {c, nil}} {
			next.ask(batchOf)
			got := next.grab(batchOf)
			if !slices.Equal(got, next.want) {
				t.Fatalf("user %d claims %v, not %v", next.user, got, next.want)
			}
			if next.sess.Wrote() != (len(got) > 0) {
				t.Errorf("user %d claimed %v, and has written: %v", next.user, got, next.sess.Wrote())
			}
		}
		s.must(c.sess.Commit())
		for _, next := range []struct {
			*actor
			keys []int64
		}{{b, []int64{3}}, {a, []int64{1, 2}}} {
			s.must(next.sess.Commit())
			next.yes(batchOf, bench.Answer{Outcome: bench.Confirmed, Key: next.keys[0], Batch: next.keys})
		}
		s.counted(nil)
	})
}

const trap = "Nested Loop Semi Join > Seq Scan on jobs > Subquery Scan"

// TestInClaimsMoreThanItsLimit: with the subquery on the inner side of a nested loop it is carried out again for each row, skips what was
// claimed already, and finds more.
func TestInClaimsMoreThanItsLimit(t *testing.T) {
	each(t, "queue", []string{"skip-locked:claim=in:plan=nested-loop"}, both, func(t *testing.T, s *stage) {
		if got := s.plan(); !strings.Contains(got, trap) {
			t.Fatalf("the plan is %s", got)
		}
		a := s.enter()
		a.ask(batchOf)
		keys := a.grab(batchOf)
		if !slices.Equal(keys, []int64{1, 2, 3}) {
			t.Fatalf("a claim for %d got %v, not all three", batchOf.Quantity, keys)
		}
		s.must(a.sess.Commit())
		a.yes(batchOf, bench.Answer{Outcome: bench.Confirmed, Key: keys[0], Batch: keys})
		s.counted(map[string]int64{bench.CheckOverLimit: 1})
		audit := s.audit()
		if w := audit.Findings[0].First; w == nil || w.User != a.user || w.Told != "3 jobs are yours" || w.Holds != "the claim was for 2" {
			t.Errorf("the witness is %+v", w)
		}
	})
}

// TestServerChoosesTheTrap: nobody need force that plan. The server takes it for a queue that held one job when it was last analysed.
func TestServerChoosesTheTrap(t *testing.T) {
	each(t, "queue", []string{"skip-locked:claim=in"}, both, func(t *testing.T, s *stage) {
		if got := s.plan(); strings.Contains(got, trap) {
			t.Fatalf("with statistics of what is there the plan is %s", got)
		}
		pgtest.Must(t, s.watch, "DELETE FROM lockbench.jobs WHERE id > 1")
		pgtest.Must(t, s.watch, "VACUUM (FULL, ANALYZE) lockbench.jobs")
		pgtest.Must(t, s.watch, "INSERT INTO lockbench.jobs (id) SELECT generate_series(2, 9)")
		if got := s.plan(); !strings.Contains(got, trap) {
			t.Fatalf("with statistics of one job the plan is %s", got)
		}
		a := s.enter()
		a.ask(batchOf)
		if keys := a.grab(batchOf); len(keys) != 9 {
			t.Errorf("a claim for %d got %v, not all nine", batchOf.Quantity, keys)
		}
		s.must(a.sess.Rollback())
	})
}
