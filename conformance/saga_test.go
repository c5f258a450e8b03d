package conformance

import (
	"testing"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/bench/postgres/pgtest"
)

// TestSagaRecovers: with calls that fail, processes that are killed between any two steps, and compensations that come twice, nothing is
// stuck and nothing is there twice once recovery has run; where compensations trust that they come once, there is.
func TestSagaRecovers(t *testing.T) {
	t.Parallel()
	store := pgtest.Store(t, pgtest.DSN(t))
	s := plan(raceOfName(t, "checkout"), "saga", "saga:compensation=naive", "pessimistic", "atomic")
	s.Options = bench.Options{"fail-call": "40%", "crash": "25%", "duplicate-compensation": "on", "call": "p50=1ms"}
	s.Trials = 2
	for _, cell := range pgtest.Run(t, compile(t, s, bench.Connecting{}), store).Cells {
		if cell.Outcomes["indeterminate"] == 0 || cell.Reasons["declined"] == 0 {
			t.Errorf("%s: nothing went wrong: %v, %v", cell.Strategy, cell.Outcomes, cell.Reasons)
		}
		if cell.Strategy == "saga:compensation=naive" {
			if cell.Verdict != bench.Violated || cell.Audit["overstocked"] == 0 || cell.ClaimBroken {
				t.Errorf("%s: verdict %s, audit %v", cell.Strategy, cell.Verdict, cell.Audit)
			}
			continue
		}
		if cell.Verdict != bench.Sound {
			t.Errorf("%s: verdict %s, audit %v, findings %+v", cell.Strategy, cell.Verdict, cell.Audit, cell.Findings)
		}
		if _, checked := cell.Audit["stuck_reservations"]; !checked {
			t.Errorf("%s: reservations were not looked at", cell.Strategy)
		}
	}
}

func raceOfName(t *testing.T, scenario string) int {
	t.Helper()
	for i := range races {
		if races[i].scenario == scenario {
			return i
		}
	}
	t.Fatalf("no race of %s", scenario)
	return -1
}
