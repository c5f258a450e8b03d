package bench

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// threeCells adds two strategies to a rig's first.
func threeCells(g *rig) {
	b, c := plain(), plain()
	b.info.Name, c.info.Name = "bee", "sea"
	g.more = []Strategy{b, c}
	g.settings.Strategies = []string{"plain,bee,sea"}
}

func TestTrialsAreInterleaved(t *testing.T) {
	const trials = 6
	order := func(seed uint64) []string {
		var seen []string
		synctest.Test(t, func(t *testing.T) {
			g := newRig(t)
			threeCells(g)
			g.settings.Trials, g.settings.Seed = trials, seed
			rep, err := g.execute()
			if err != nil {
				t.Fatal(err)
			}
			seen = g.seen
			byOrder := map[int]string{}
			for _, c := range rep.Cells {
				for i, tr := range c.Trials {
					if tr.Number != i+1 {
						t.Errorf("trial %d of %s is numbered %d", i+1, c.Strategy, tr.Number)
					}
					byOrder[tr.Order] = fmt.Sprintf("%s %d", c.Strategy, tr.Number)
				}
			}
			for i, s := range seen {
				if byOrder[i+1] != s {
					t.Errorf("%s began as number %d, the report says %q", s, i+1, byOrder[i+1])
				}
			}
		})
		return seen
	}
	seen := order(1)
	orders := map[string]bool{}
	for n := range trials {
		round := slices.Clone(seen[3*n : 3*n+3])
		orders[strings.Map(onlyLetters, strings.Join(round, " "))] = true
		slices.Sort(round)
		if want := []string{fmt.Sprint("bee ", n+1), fmt.Sprint("plain ", n+1), fmt.Sprint("sea ", n+1)}; !slices.Equal(round, want) {
			t.Errorf("round %d ran %v", n+1, round)
		}
	}
	if len(orders) < 2 {
		t.Errorf("every round ran in the same order: %v", seen)
	}
	if again := order(1); !slices.Equal(again, seen) {
		t.Errorf("one seed ran\n%v\nand then\n%v", seen, again)
	}
	if slices.Equal(order(2), seen) {
		t.Errorf("two seeds ran the same order: %v", seen)
	}
}

func onlyLetters(r rune) rune {
	if r >= '0' && r <= '9' {
		return -1
	}
	return r
}

// TestWarmupBurstIsDiscarded: one user a connection before the first trial, on tables that are laid anew afterwards.
func TestWarmupBurstIsDiscarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.settings.Users, g.settings.Trials, g.settings.Warmup = 51, 3, Duration(time.Second)
		g.strategy.dress = func(d *fakeDiscipline) Discipline { return newGate(d) } // fifty find somebody at it, in every trial
		c := g.run()
		if n := g.store.commits.Load(); n != 1+3*51 {
			t.Errorf("%d commits, want 1 of the warm-up and 153 of the trials", n)
		}
		if g.store.restored != 1+3 {
			t.Errorf("tables were laid %d times, want 4", g.store.restored)
		}
		if len(c.Trials) != 3 || c.Operations != 51 || c.Latency["confirmed"].Count != 153 {
			t.Errorf("%d trials of %d operations, %d latencies", len(c.Trials), c.Operations, c.Latency["confirmed"].Count)
		}
		for _, tr := range c.Trials {
			if tr.Contended != 50 || tr.Verdict != Sound {
				t.Errorf("trial %d: %v, %d operations met another", tr.Number, tr.Verdict, tr.Contended)
			}
		}
		if c.Verdict != Sound {
			t.Errorf("%v: %v", c.Verdict, c.Findings)
		}
	})
}

func TestSoundViolatedUndetermined(t *testing.T) {
	for _, tc := range []struct {
		name   string
		bend   func(*rig)
		want   Verdict
		broken bool
	}{
		{"one after the other", func(*rig) {}, Undetermined, false}, // on one connection nobody ever meets
		{"behind a gate", func(g *rig) {
			g.settings.Users, g.settings.Connections = 51, 2
			g.strategy.dress = func(d *fakeDiscipline) Discipline { return newGate(d) }
		}, Sound, false},
		{"behind a gate, but not against this", func(g *rig) {
			g.settings.Users, g.settings.Connections, g.strategy.info.Prevents = 51, 2, []Anomaly{Overbooking}
			g.strategy.dress = func(d *fakeDiscipline) Discipline { return newGate(d) }
		}, Undetermined, false},
		{"behind a gate, with little to show", func(g *rig) {
			g.settings.Users, g.settings.Connections = 50, 2
			g.strategy.dress = func(d *fakeDiscipline) Discipline { return newGate(d) }
		}, Undetermined, false},
		{"overlapping", func(g *rig) { g.settings.Connections = 2 }, Violated, true},
		{"overlapping without a claim", func(g *rig) { g.settings.Connections, g.strategy.info.Prevents = 2, nil }, Violated, false},
		{"alone", func(g *rig) { g.settings.Users = 1 }, Undetermined, false},
		{"without a claim", func(g *rig) { g.strategy.info.Prevents = nil }, Undetermined, false},
		{"leaking", func(g *rig) { g.store.leaks = 2 }, Violated, true},
		{"leaking without a claim", func(g *rig) { g.store.leaks, g.strategy.info.Prevents = 2, nil }, Violated, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t)
				tc.bend(g)
				c := g.run()
				if c.Verdict != tc.want || c.ClaimBroken != tc.broken {
					t.Errorf("%v, claim broken: %v; want %v, %v (%v)", c.Verdict, c.ClaimBroken, tc.want, tc.broken, c.Findings)
				}
				if c.Audit["leaked_locks"] != g.store.leaks {
					t.Errorf("audit %v", c.Audit)
				}
				for _, f := range c.Findings {
					if f.Trial != 1 {
						t.Errorf("finding of trial %d", f.Trial)
					}
				}
			})
		})
	}
}

func TestServerFailsBeforeAnythingRan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.store.cannotDescribe = errors.New("connection refused")
		rep, err := g.execute()
		if err == nil || err.Error() != "connection refused" || !rep.Partial || len(rep.Cells) != 1 || len(rep.Cells[0].Trials) != 0 {
			t.Errorf("%v, %+v", err, rep)
		}
	})
}

// TestTrialThatCannotBeAuditedIsLost: nothing can be said of it, and what was measured before it stays.
func TestTrialThatCannotBeAuditedIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.settings.Trials, g.settings.Connections = 3, 1
		g.store.onObserve = func() {
			if len(g.seen) == 2 {
				g.store.cannotSnapshot = errors.New("disk gone")
			}
		}
		rep, err := g.execute()
		if want := "plain, trial 2: reading the final state: disk gone"; err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %v", err, want)
		}
		c := rep.Cells[0]
		if !rep.Partial || len(c.Trials) != 1 || c.Outcomes["confirmed"] != 2 {
			t.Errorf("partial %v, %d trials, %v", rep.Partial, len(c.Trials), c.Outcomes)
		}
		if n := c.Latency["confirmed"].Count; n != 2 {
			t.Errorf("the cell has latencies of %d operations, want 2", n)
		}
	})
}

// TestSampledLockWait: of row locks the server knows the total; a gate's own measurement is not overwritten.
func TestSampledLockWait(t *testing.T) {
	for _, gate := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			g := newRig(t)
			g.store.side.LockWaitTotal = ptr(4.5)
			want := 4.5
			if gate {
				want = 0.001 // the second waits for the first
				g.strategy.dress = func(d *fakeDiscipline) Discipline { return newGate(d) }
			}
			c := g.run()
			about(t, "lock wait of the cell", c.Waits["lock"].Total, want)
			about(t, "lock wait of the trial", c.Trials[0].Waits["lock"].Total, want)
			if (c.Waits["lock"].P50 != nil) != gate {
				t.Errorf("median %v", c.Waits["lock"].P50)
			}
		})
	}
}

// trialOf makes a trial by its goodput.
func trialOf(n int, goodput float64) Trial {
	return Trial{Number: n, Figures: Figures{
		Goodput: &goodput, Operations: int64(goodput), Audit: map[string]int64{}, Latency: map[string]Percentiles{}, Waits: map[string]Wait{},
	}}
}

func TestMedianTrial(t *testing.T) {
	for _, tc := range []struct {
		goodput []float64
		want    int
	}{
		{[]float64{5}, 1},
		{[]float64{5, 3}, 2}, // the lower one of two
		{[]float64{9, 1, 5}, 3},
		{[]float64{4, 4, 4}, 2},
		{[]float64{40, 10, 30, 20}, 4},
	} {
		var trials []Trial
		for i, g := range tc.goodput {
			trials = append(trials, trialOf(i+1, g))
		}
		if got := medianTrial(trials); got.Number != tc.want {
			t.Errorf("of %v: trial %d, want %d", tc.goodput, got.Number, tc.want)
		}
		if trials[0].Number != 1 {
			t.Error("the trials were reordered")
		}
	}
	none := trialOf(1, 0)
	none.Goodput = nil // nothing was measured
	if got := medianTrial([]Trial{none, trialOf(2, 8), trialOf(3, 7)}); got.Number != 3 {
		t.Errorf("trial %d, want 3", got.Number)
	}
}

// TestCellFolds: counts of the median trial, the audit of the worst, a verdict that any violation decides.
func TestCellFolds(t *testing.T) {
	a, b, c := trialOf(1, 10), trialOf(2, 30), trialOf(3, 20)
	a.Audit = map[string]int64{"overbooked": 4, "lost_updates": 0}
	b.Audit = map[string]int64{"overbooked": 1, "lost_updates": 2}
	c.Audit = map[string]int64{"overbooked": 0, "lost_updates": 0}
	a.Findings = []Finding{{Anomaly: Overbooking, Count: 4, Trial: 1}}
	b.Findings = []Finding{{Anomaly: Overbooking, Count: 1, Trial: 2}, {Anomaly: LostUpdate, Count: 2, Trial: 2}}
	a.Verdict, b.Verdict, c.Verdict = Violated, Violated, Sound
	a.Outcomes, c.Outcomes = map[string]int64{"failed": 7}, map[string]int64{"failed": 0, "indeterminate": 1}
	run := cellRun{
		entrant: &Entrant{Spec: Spec{Name: "plain", Label: "plain:retries=1"}, Claims: []Anomaly{LostUpdate}},
		trials:  []Trial{a, b, c}, sum: newTally(),
	}
	cell := run.cell(&fakeScenario{})
	if cell.Trial != 1 || cell.Operations != 10 {
		t.Errorf("counts of trial %d, %d operations", cell.Trial, cell.Operations)
	}
	same(t, cell.Outcomes, map[string]int64{"failed": 7, "indeterminate": 1})
	same(t, cell.Audit, map[string]int64{"overbooked": 4, "lost_updates": 2})
	if len(c.Audit) != 2 || c.Audit["overbooked"] != 0 {
		t.Errorf("the median trial's own audit was changed: %v", c.Audit)
	}
	want := []Finding{{Anomaly: Overbooking, Count: 4, Trial: 1}, {Anomaly: LostUpdate, Count: 2, Trial: 2}}
	if !reflect.DeepEqual(cell.Findings, want) {
		t.Errorf("findings %v, want %v", cell.Findings, want)
	}
	if cell.Verdict != Violated || !cell.ClaimBroken || cell.Strategy != "plain:retries=1" || cell.Name != "plain" || cell.Scenario != "stock" {
		t.Errorf("%+v", cell)
	}
}

func TestCellVerdict(t *testing.T) {
	for _, tc := range []struct {
		trials  []Verdict
		met     int64 // contended operations of each trial
		audited bool
		want    Verdict
	}{
		{[]Verdict{Undetermined, Undetermined}, 20, true, Undetermined},
		{[]Verdict{Undetermined, Undetermined, Undetermined}, 20, true, Sound}, // little evidence adds up
		{[]Verdict{Undetermined, Undetermined, Undetermined}, 20, false, Undetermined},
		{[]Verdict{Sound}, 50, true, Sound},
		{[]Verdict{Violated, Sound, Sound}, 50, true, Violated},
		{[]Verdict{Sound, Sound, Violated}, 50, true, Violated},
		{[]Verdict{Sound, Violated, Undetermined}, 50, true, Violated},
	} {
		run := cellRun{entrant: &Entrant{Claims: []Anomaly{LostUpdate}, pivot: LostUpdate}, sum: newTally()}
		for i, v := range tc.trials {
			tr := trialOf(i+1, 1)
			tr.Verdict, tr.Contended, tr.Outcomes = v, tc.met, map[string]int64{"confirmed": 1}
			if tc.audited {
				tr.Audit = map[string]int64{"lost_updates": 0}
			}
			run.trials = append(run.trials, tr)
		}
		if got := run.cell(&fakeScenario{}).Verdict; got != tc.want {
			t.Errorf("%v folds to %v, want %v", tc, got, tc.want)
		}
	}
}

func TestMergeFindings(t *testing.T) {
	found := func(check string, a Anomaly, n int64, trial int) Finding {
		return Finding{Check: check, Anomaly: a, Count: n, Trial: trial}
	}
	all := mergeFindings(nil, []Finding{found("lost_updates", LostUpdate, 2, 1)})
	all = mergeFindings(all, []Finding{found("lost_updates", LostUpdate, 2, 2), found("leaked_locks", Leak, 1, 2)})
	all = mergeFindings(all, []Finding{found("lost_updates", LostUpdate, 7, 3), found("unexplained", LostUpdate, 3, 3)})
	want := []Finding{found("lost_updates", LostUpdate, 7, 3), found("leaked_locks", Leak, 1, 2), found("unexplained", LostUpdate, 3, 3)}
	if !reflect.DeepEqual(all, want) {
		t.Errorf("%v, want %v", all, want)
	}
}

// TestMedianInterval holds the ranks against tables of the binomial distribution.
func TestMedianInterval(t *testing.T) {
	for _, tc := range []struct{ n, low, high int }{
		{6, 1, 6}, {7, 1, 7}, {8, 1, 8}, {9, 2, 8}, {10, 2, 9}, {15, 4, 12}, {20, 6, 15}, {30, 10, 21}, {100, 40, 61},
	} {
		iv, ok := medianInterval(shuffledRanks(tc.n))
		if !ok || iv.Low != float64(tc.low) || iv.High != float64(tc.high) || iv.Trials != tc.n {
			t.Errorf("of %d: %+v, %v; want the %d. to the %d.", tc.n, iv, ok, tc.low, tc.high)
		}
	}
	for n := range 6 {
		if iv, ok := medianInterval(shuffledRanks(n)); ok {
			t.Errorf("of %d: %+v, want none", n, iv)
		}
	}
}

// TestMedianIntervalCovers: at least 95 % of fair coins fall inside, and a narrower interval would not do.
func TestMedianIntervalCovers(t *testing.T) {
	for n := 6; n <= 60; n++ {
		iv, _ := medianInterval(shuffledRanks(n))
		low := int(iv.Low)
		// The interval misses the median when fewer than low, or more than n − low, values lie below it.
		if miss := 2 * binomial(n, low-1); miss > 0.05 {
			t.Errorf("of %d: covers only %.1f %%", n, 100*(1-miss))
		}
		if miss := 2 * binomial(n, low); miss <= 0.05 {
			t.Errorf("of %d: the interval [%g, %g] is wider than it need be", n, iv.Low, iv.High)
		}
	}
}

// TestMedianIntervalOfMany: 0.5^n is nothing a float64 can hold from n = 1075 on. The normal approximation is exact enough there.
func TestMedianIntervalOfMany(t *testing.T) {
	for _, n := range []int{1000, 1075, 2000, 10_000} {
		iv, ok := medianInterval(shuffledRanks(n))
		want := float64(n)/2 - 0.98*math.Sqrt(float64(n))
		if !ok || math.Abs(iv.Low-want) > 2 || iv.Low+iv.High != float64(n+1) {
			t.Errorf("of %d: %+v, %v; want about the %.0f. from either end", n, iv, ok, want)
		}
	}
}

// binomial returns the probability of at most k heads of n fair coins.
func binomial(n, k int) (p float64) {
	c := 1.0
	for i := 0; i <= k; i++ {
		p += c
		c = c * float64(n-i) / float64(i+1)
	}
	return p / math.Pow(2, float64(n))
}

// shuffledRanks returns 1 to n out of order.
func shuffledRanks(n int) []float64 {
	xs := make([]float64, n)
	for i := range xs {
		xs[(i*7919)%n] = float64(i + 1) // 7919 is prime to every n used
	}
	return xs
}

func TestIntervals(t *testing.T) {
	var trials []Trial
	for i := range 6 {
		tr := trialOf(i+1, float64(10+i))
		tr.Latency["confirmed"] = Percentiles{P50: ptr(float64(i))}
		if i > 0 {
			tr.Amplification = ptr(1.0)
		}
		trials = append(trials, tr)
	}
	m := intervals(trials)
	if m["goodput"] != (Interval{Low: 10, High: 15, Trials: 6}) || m["p50_ms"] != (Interval{Low: 0, High: 5, Trials: 6}) {
		t.Errorf("%v", m)
	}
	if iv, ok := m["amplification"]; ok {
		t.Errorf("five values give an interval: %v", iv)
	}
	if len(m) != 2 {
		t.Errorf("intervals of what was not measured: %v", m)
	}
}
