package conformance

import (
	"testing"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/bench/postgres/pgtest"
)

// TestShownBroken: what is there to be seen broken is, and breaks no claim; beside each stands what mends it, which holds.
func TestShownBroken(t *testing.T) {
	t.Parallel()
	store := pgtest.Store(t, pgtest.DSN(t))
	for _, c := range []struct {
		name       string
		scenario   string
		rows       int64
		options    bench.Options
		broken     string // the spec that is seen broken
		count      string // what its audit counts
		mended     string // the spec that is not; "" if there is none beside it
		mendedWith bench.Options
	}{
		{"a lock gone before the write", "seats", 3, nil, "pessimistic:split", "overbooked", "pessimistic", nil},
		{"a lock in the statement that reads", "seats", 3, nil, "advisory:inline", "overbooked", "advisory", nil},
		{"locks left to a pool", "seats", 3, nil, "advisory:session:leak", "leaked_locks", "advisory:session", nil},
		{"nothing to lock", "seats", 1, bench.Options{"count-capacity": "on"}, "pessimistic", "overbooked", "serializable", nil},
		{"a busy seat that looks gone", "seats", 3, bench.Options{"cancel": "20%"}, "pessimistic:wait=skip:force", "undersold", "pessimistic", nil},
		{"writers who overwrite", "mixed", 1, bench.Options{"rogue": "30%"}, "pessimistic", "lost_updates", "pessimistic", bench.Options{"rogue": "0%"}},
		{"writers whom no version shows", "mixed", 1, bench.Options{"rogue": "30%", "rogue-as": "atomic"}, "optimistic", "lost_updates", "optimistic", bench.Options{"rogue": "30%", "rogue-as": "atomic:bump"}},
		{"deliveries that each charge", "payment", 4, nil, "pessimistic", "double_charged", "pessimistic:idempotency=on", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			race := func(spec string, options bench.Options, seed uint64) bench.Cell {
				s := pgtest.Plan(c.scenario, spec)
				s.Rows, s.Options, s.Seed = c.rows, options, seed
				if spec == "advisory:session:leak" {
					s.LockTimeout, s.Retries = bench.Duration(20e6), 2
				}
				if c.scenario == "seats" && c.rows == 1 {
					s.Capacity = 20
				}
				return pgtest.Run(t, compile(t, s, bench.Connecting{}), store).Cells[0]
			}
			const tries = 10
			found := false
			for seed := range uint64(tries) {
				cell := race(c.broken, c.options, seed)
				if cell.Verdict == bench.Sound || cell.ClaimBroken {
					t.Fatalf("%s: verdict %s, claims %v, broken %v: %+v", c.broken, cell.Verdict, cell.Claim, cell.ClaimBroken, cell.Findings)
				}
				if found = cell.Audit[c.count] > 0; found {
					break
				}
			}
			if !found {
				t.Errorf("%s: no %s in %d runs", c.broken, c.count, tries)
			}
			with := c.mendedWith
			if with == nil {
				with = c.options
			}
			if cell := race(c.mended, with, 1); len(cell.Findings) > 0 || cell.Outcomes["confirmed"] == 0 {
				t.Errorf("%s: findings %+v, outcomes %v, errors %v", c.mended, cell.Findings, cell.Outcomes, cell.Errors)
			}
		})
	}
}

// TestPoolDeadlock: when everybody who holds a connection waits for a second one, it is said, and the run does not hang.
func TestPoolDeadlock(t *testing.T) {
	s := pgtest.Plan("bystanders", "pessimistic")
	s.Options = bench.Options{"nested": "on", "hold": "1ms"}
	rep := pgtest.Run(t, compile(t, s, bench.Connecting{}), pgtest.Store(t, pgtest.DSN(t)))
	cell := rep.Cells[0]
	if cell.Outcomes["failed"] == 0 || cell.Outcomes["confirmed"] == 0 || len(cell.Findings) > 0 {
		t.Errorf("users were told %v; findings %v", cell.Outcomes, cell.Findings)
	}
	said := false
	for _, w := range rep.Warnings {
		said = said || w.Code == "pool-deadlock"
	}
	if !said {
		t.Errorf("no warning: %+v", rep.Warnings)
	}
}

// TestCallerDeadline: a caller who has gone is told an error, and what the server still did for him is counted.
func TestCallerDeadline(t *testing.T) {
	s := pgtest.Plan("bystanders", "pessimistic:wait=500ms")
	s.Options = bench.Options{"hot": "100%", "hold": "5ms"}
	s.CallerDeadline = bench.Duration(20e6)
	cell := pgtest.Run(t, compile(t, s, bench.Connecting{}), pgtest.Store(t, pgtest.DSN(t))).Cells[0]
	if cell.Abandoned == nil || cell.Abandoned.Operations == 0 || cell.Abandoned.HeldS <= 0 {
		t.Fatalf("abandoned: %+v; outcomes %v", cell.Abandoned, cell.Outcomes)
	}
	if n := cell.Outcomes["indeterminate"] + cell.Outcomes["busy"]; n != cell.Abandoned.Operations {
		t.Errorf("%d were abandoned, and %d told an error", cell.Abandoned.Operations, n)
	}
	if p := cell.Latency["all"].Max; p == nil || *p > 25 {
		t.Errorf("a caller waited longer than he would: %v ms", p)
	}
	if len(cell.Findings) > 0 {
		t.Errorf("findings: %+v", cell.Findings)
	}
}
