package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// firstTries makes a script that loses every operation's first n writes.
func firstTries(n int, err error) func(step, *Request, int) error {
	return func(s step, _ *Request, try int) error {
		if s == atPut && try <= n {
			return err
		}
		return nil
	}
}

func TestRetriesRunOutAsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.settings.Users, g.settings.Retries = 1, 3
		g.strategy.script = firstTries(math.MaxInt, Lost(Version))
		c := g.run()
		if c.Outcomes["busy"] != 1 || c.Attempts != 4 || c.Retries != 3 || c.Contention["version"] != 4 {
			t.Errorf("outcomes %v after %d attempts and %d retries, contention %v", c.Outcomes, c.Attempts, c.Retries, c.Contention)
		}
		if n := g.store.rollbacks.Load(); n != 4 {
			t.Errorf("%d of 4 lost attempts were rolled back", n)
		}
	})
}

func TestRetryConfirms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.settings.Users, g.settings.Retries = 1, 3
		g.strategy.script = firstTries(3, Lost(Serialization))
		c := g.run()
		if c.Outcomes["confirmed"] != 1 || c.Attempts != 4 || c.Contention["serialization"] != 3 || *c.Amplification != 4 {
			t.Errorf("outcomes %v after %d attempts, contention %v", c.Outcomes, c.Attempts, c.Contention)
		}
	})
}

// TestBackoffHoldsNoConnection: of two users on one connection, the second works while the first sleeps.
func TestBackoffHoldsNoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.settings.Retries, g.settings.Backoff = 1, "fixed=1s"
		g.strategy.takes = 10 * time.Millisecond
		var first atomic.Bool
		g.strategy.script = func(s step, _ *Request, _ int) error {
			if s == atPut && first.CompareAndSwap(false, true) {
				return Lost(Version)
			}
			return nil
		}
		c := g.run()
		if c.Outcomes["confirmed"] != 2 {
			t.Fatal(c.Outcomes)
		}
		about(t, "backoff", c.Waits["backoff"].Total, 1)
		about(t, "wait for the connection", c.Waits["pool"].Total, 0.010)
		if end := g.scenario.told.Confirmed[0].End; end != 20*time.Millisecond {
			t.Errorf("the second user was done at %v, want 20ms", end)
		}
		about(t, "whole trial", &c.DurationS, 1.020)
	})
}

func TestDeadlineEndsInBusy(t *testing.T) {
	for _, tc := range []struct {
		name     string
		backoff  string
		attempts int64
		ends     float64
	}{
		{"after an attempt", "none", 10, 0.100},
		{"before a pause that would end beyond it", "fixed=40ms", 2, 0.060},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t)
				g.settings.Users, g.settings.Retries, g.settings.Backoff = 1, 1000, tc.backoff
				g.settings.Deadline = Duration(95 * time.Millisecond)
				g.strategy.takes = 10 * time.Millisecond
				g.strategy.script = firstTries(math.MaxInt, Lost(Version))
				c := g.run()
				if c.Outcomes["busy"] != 1 || c.Attempts != tc.attempts {
					t.Errorf("outcomes %v after %d attempts, want %d", c.Outcomes, c.Attempts, tc.attempts)
				}
				about(t, "end", &c.DurationS, tc.ends)
				if g.store.session.Deadline != 95*time.Millisecond {
					t.Errorf("the sessions' deadline is %v", g.store.session.Deadline)
				}
			})
		})
	}
}

func TestDeadlinePassesInLineForAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.settings.Deadline = Duration(300 * time.Millisecond)
		g.strategy.takes = time.Second
		c := g.run()
		if c.Outcomes["confirmed"] != 1 || c.Outcomes["busy"] != 1 || c.Attempts != 1 || c.Retries != 0 {
			t.Errorf("outcomes %v after %d attempts and %d retries", c.Outcomes, c.Attempts, c.Retries)
		}
		about(t, "busy", c.Latency["busy"].Max, 300)
		about(t, "wait for the connection", c.Waits["pool"].Total, 0.3)
	})
}

// TestFaults is the table of what an attempt's error becomes.
func TestFaults(t *testing.T) {
	type row struct {
		name     string
		at       step
		err      error
		uniquer  bool
		outcome  string // after one retry
		lost     string // the contention counted
		attempts int64
	}
	rows := []row{
		{"unique where nobody expects it", atPut, Lost(Unique), false, "failed", "", 1},
		{"deadline", atPut, &Fault{Class: ClassTimeout, Err: errors.New("57014")}, false, "busy", "", 1},
		{"lost answer", atCommit, &Fault{Class: ClassIndeterminate, Err: errors.New("reset")}, false, "indeterminate", "", 1},
		{"ended by lockbench", atPut, &Fault{Class: ClassAborted, Err: errors.New("closed")}, false, "busy", "", 1},
		{"failure", atPut, &Fault{Class: ClassFailed, Err: errors.New("disk full")}, false, "failed", "", 1},
		{"unclassified", atGet, errors.New("who knows"), false, "failed", "", 1},
		{"wrapped", atBegin, fmt.Errorf("begin: %w", Lost(Deadlock)), false, "confirmed", "deadlock", 2},
		{"at commit", atCommit, Lost(Serialization), false, "confirmed", "serialization", 2},
	}
	for _, k := range Contentions() {
		rows = append(rows, row{k.String(), atPut, Lost(k), true, "confirmed", k.String(), 2})
	}
	for _, tc := range rows {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t)
				g.settings.Users, g.settings.Retries = 1, 5
				if tc.uniquer {
					g.strategy.dress = func(d *fakeDiscipline) Discipline { return uniquer{d} }
				}
				g.strategy.script = func(s step, _ *Request, try int) error {
					if s == tc.at && try == 1 {
						return tc.err
					}
					return nil
				}
				c := g.run()
				want := map[string]int64{}
				for _, o := range Outcomes() {
					want[o.String()] = 0
				}
				want[tc.outcome] = 1
				same(t, c.Outcomes, want)
				if c.Attempts != tc.attempts {
					t.Errorf("%d attempts, want %d", c.Attempts, tc.attempts)
				}
				for k, n := range c.Contention {
					if (k == tc.lost) != (n == 1) {
						t.Errorf("contention %s: %d", k, n)
					}
				}
				if kept := c.Errors[tc.err.Error()]; (tc.outcome == "failed" || tc.outcome == "indeterminate") != (kept == 1) {
					t.Errorf("texts %v", c.Errors)
				}
				if told := len(g.scenario.told.Indeterminate); (tc.outcome == "indeterminate") != (told == 1) {
					t.Errorf("%d lost answers reached the audit", told)
				}
				if g.store.commits.Load()+g.store.rollbacks.Load() != tc.attempts {
					t.Errorf("%d commits and %d rollbacks of %d attempts", g.store.commits.Load(), g.store.rollbacks.Load(), tc.attempts)
				}
			})
		})
	}
}

func TestBrokenConnectionIsReplaced(t *testing.T) {
	gone := &Fault{Class: ClassFailed, Broken: true, Err: errors.New("connection reset")}
	for _, tc := range []struct {
		name    string
		script  func(step, *Request, int) error
		outcome map[string]int64
	}{
		{"by its statement", func(s step, r *Request, _ int) error {
			if s == atPut && r.Op == 0 {
				return gone
			}
			return nil
		}, map[string]int64{"confirmed": 1, "failed": 1}},
		{"by its rollback, and the race it lost stays a lost race", func(s step, r *Request, try int) error {
			switch {
			case r.Op == 0 && try == 1 && s == atPut:
				return Lost(Version)
			case r.Op == 0 && try == 1 && s == atRollback:
				return gone
			}
			return nil
		}, map[string]int64{"confirmed": 2}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t)
				g.settings.Retries = 1
				g.strategy.script = tc.script
				c := g.run()
				if c.Outcomes["confirmed"] != tc.outcome["confirmed"] || c.Outcomes["failed"] != tc.outcome["failed"] {
					t.Errorf("outcomes %v, want %v", c.Outcomes, tc.outcome)
				}
				if n := g.store.pool.replaced.Load(); n != 1 {
					t.Errorf("%d connections replaced, want 1", n)
				}
			})
		})
	}
}

func TestConnectionThatCannotBeReplacedEndsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.settings.Users, g.settings.Trials = 50, 3
		g.store.cannotReplace = errors.New("the server is gone")
		g.strategy.script = func(s step, _ *Request, _ int) error {
			if s == atPut {
				return &Fault{Class: ClassFailed, Broken: true, Err: errors.New("connection reset")}
			}
			return nil
		}
		rep, err := g.execute()
		if want := "plain, trial 1: a connection was lost and could not be replaced: the server is gone"; err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %v", err, want)
		}
		if !rep.Partial || len(rep.Cells) != 1 || len(rep.Cells[0].Trials) != 1 {
			t.Fatalf("partial %v, cells %+v", rep.Partial, rep.Cells)
		}
		if c := rep.Cells[0]; c.Operations != 1 || c.Outcomes["failed"] != 1 {
			t.Errorf("users who never got a connection are counted: %v", c.Outcomes)
		}
	})
}

// TestBurstWaitsForEverybody: the first attempt finds a goroutine for each of many users.
func TestBurstWaitsForEverybody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const users = 3000
		g := newRig(t)
		g.settings.Users, g.settings.Capacity = users, 999
		var once sync.Once
		alive := 0
		g.scenario.body = func(tx Tx, r *Request) (Answer, error) {
			once.Do(func() { alive = runtime.NumGoroutine() })
			return sell(tx, r)
		}
		c := g.run()
		if alive < users {
			t.Errorf("the first of %d users began when there were %d goroutines", users, alive)
		}
		if c.Outcomes["confirmed"] != 999 || c.Outcomes["rejected"] != users-999 || c.Reasons["sold out"] != users-999 {
			t.Errorf("%v: %v, %v", c.Verdict, c.Outcomes, c.Reasons)
		}
		if c.Contended != 0 {
			t.Errorf("%d of %d users met another on their row, though there is one connection", c.Contended, users)
		}
	})
}

func TestClosed(t *testing.T) {
	for _, tc := range []struct {
		name    string
		set     func(*Settings)
		done    int64
		window  float64
		audited int
	}{
		{"duration", func(s *Settings) { s.Duration = Duration(100 * time.Millisecond) }, 20, 0.1, 20},
		{"operations", func(s *Settings) { s.Operations = 7 }, 7, 0.04, 7},
		{"whichever comes first", func(s *Settings) { s.Operations, s.Duration = 1000, Duration(50*time.Millisecond) }, 10, 0.05, 10},
		{"pause", func(s *Settings) { s.Duration, s.Pause = Duration(time.Second), Duration(90*time.Millisecond) }, 20, 1, 20},
		{"warm-up", func(s *Settings) {
			s.Duration, s.Warmup = Duration(100*time.Millisecond), Duration(50*time.Millisecond)
		}, 20, 0.1, 30},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t)
				g.settings.Mode, g.settings.Connections = Closed, 2
				g.strategy.takes = 10 * time.Millisecond
				tc.set(&g.settings)
				c := g.run()
				if c.Operations != tc.done || len(g.scenario.told.Confirmed) != tc.audited {
					t.Errorf("%d operations measured, %d audited; want %d and %d", c.Operations, len(g.scenario.told.Confirmed), tc.done, tc.audited)
				}
				about(t, "window", &c.DurationS, tc.window)
				about(t, "throughput", c.Throughput, float64(tc.done)/tc.window)
				about(t, "service time", c.Latency["confirmed"].P50, 10)
			})
		})
	}
}

func TestPauseDoesNotOutlastTheWindow(t *testing.T) {
	for name, set := range map[string]func(*Settings){
		"duration":   func(s *Settings) { s.Duration = Duration(time.Second) },
		"operations": func(s *Settings) { s.Operations = 2 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t)
				g.settings.Mode, g.settings.Pause = Closed, Duration(time.Hour)
				set(&g.settings)
				began := time.Now()
				g.run()
				if took := time.Since(began); took > time.Second {
					t.Errorf("the run took %v", took)
				}
			})
		})
	}
}

func TestThinkIsSpentBetweenReadAndWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.settings.Connections, g.settings.Think = 2, Duration(20*time.Millisecond)
		c := g.run()
		about(t, "service time", c.Latency["confirmed"].P50, 21)
		if c.Verdict != Violated || c.Audit["lost_updates"] != 1 || !c.ClaimBroken {
			t.Errorf("two users who read before either wrote: %v, %v", c.Verdict, c.Audit)
		}
	})
}

// TestThinkFirstHoldsNoConnection: where read and write are one statement, two users on one connection think at the same time.
func TestThinkFirstHoldsNoConnection(t *testing.T) {
	for name, tc := range map[string]struct {
		form func(Body) Operation
		took float64
	}{"inside": {Single, 2.002}, "before": {ThinkFirst, 1.002}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t)
				g.settings.Think = Duration(time.Second)
				g.scenario.operation = tc.form(func(tx Tx, _ *Request) (Answer, error) {
					if name == "inside" {
						tx.Think()
					}
					time.Sleep(time.Millisecond)
					return Yes(), nil
				})
				c := g.run()
				if c.DurationS != tc.took {
					t.Errorf("two users took %g s, want %g s", c.DurationS, tc.took)
				}
			})
		})
	}
}

// TestOpenStartsWhenDue: with users to spare nobody is late, and what ran is what the schedule says.
func TestOpenStartsWhenDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.settings.Mode, g.settings.Rate, g.settings.Duration = Open, 100, Duration(time.Second)
		g.settings.Users, g.settings.Connections, g.settings.Capacity = 50, 50, 999
		c := g.run()
		due := drawn(100, time.Second, 0, g.settings.Seed*1_000_003+1)
		var began []time.Duration
		for i := range g.scenario.told.Confirmed {
			began = append(began, g.scenario.told.Confirmed[i].Start)
		}
		slices.Sort(began)
		if !slices.Equal(began, due) {
			t.Errorf("%d operations began at %v\n%d were due at %v", len(began), began, len(due), due)
		}
		about(t, "lag", c.Waits["lag"].Total, 0)
		about(t, "response time", c.Latency["confirmed"].P99, 1)
	})
}

// TestStallShowsInOpenMode: one operation that hangs for 100 ms delays those due behind it; the corrected latency says so, the
// uncorrected one hides it.
func TestStallShowsInOpenMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.settings.Mode, g.settings.Rate, g.settings.Duration = Open, 100, Duration(time.Second)
		g.settings.Users, g.settings.Capacity = 1, 999
		g.strategy.script = func(s step, r *Request, _ int) error {
			if s == atPut && r.Op == 20 {
				time.Sleep(100 * time.Millisecond)
			}
			return nil
		}
		c := g.run()
		if p95 := *c.Latency["confirmed"].P95; p95 < 20 {
			t.Errorf("corrected p95 is %g ms: the stall does not show", p95)
		}
		about(t, "uncorrected p95", c.Uncorrected["confirmed"].P95, 1)
		about(t, "longest service", c.Uncorrected["confirmed"].Max, 101)
		if lag := *c.Waits["lag"].Total; lag < 0.3 {
			t.Errorf("schedule lag sums up to %g s", lag)
		}
	})
}

func TestOpenWarmup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.settings.Mode, g.settings.Rate = Open, 100
		g.settings.Duration, g.settings.Warmup = Duration(time.Second), Duration(500*time.Millisecond)
		g.settings.Users, g.settings.Connections, g.settings.Capacity = 20, 20, 999
		c := g.run()
		warm := int64(0)
		for i := range g.scenario.told.Confirmed {
			if g.scenario.told.Confirmed[i].Start < 500*time.Millisecond {
				warm++
			}
		}
		if all := int64(len(g.scenario.told.Confirmed)); warm == 0 || c.Operations != all-warm {
			t.Errorf("%d operations measured of %d, %d of them in the warm-up", c.Operations, all, warm)
		}
		about(t, "window", &c.DurationS, 1)
	})
}

func TestSoftStopFinishesWhatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.settings.Mode, g.settings.Connections, g.settings.Duration = Closed, 2, Duration(time.Hour)
		g.settings.Trials = 3
		g.strategy.takes = 10 * time.Millisecond
		began := time.Now()
		time.AfterFunc(55*time.Millisecond, g.stop.Soft)
		rep, err := g.execute()
		if err != nil {
			t.Fatal(err)
		}
		c := rep.Cells[0]
		if took := time.Since(began); took != 60*time.Millisecond {
			t.Errorf("the run took %v, want 60ms", took)
		}
		if !rep.Partial || len(c.Trials) != 1 || c.Operations != 12 || c.Outcomes["confirmed"] != 12 {
			t.Errorf("partial %v, %d trials, %v", rep.Partial, len(c.Trials), c.Outcomes)
		}
		about(t, "window", &c.DurationS, 0.060) // not the hour that was planned
	})
}

func TestUsersNotStartedAreNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.settings.Users = 10
		g.store.onObserve = g.stop.Soft // after the tables are laid, before the barrier
		rep, err := g.execute()
		if err != nil || !rep.Partial {
			t.Errorf("partial %v, %v", rep.Partial, err)
		}
		if c := rep.Cells[0]; c.Operations != 0 || c.DurationS != 0 || c.Throughput != nil {
			t.Errorf("%d operations in %g s", c.Operations, c.DurationS)
		}
	})
}

// TestStopWhileTablesAreLaid: a trial in which nobody could start would count as one with a goodput of nothing.
func TestStopWhileTablesAreLaid(t *testing.T) {
	for restores, trials := range map[int]int{1: 0, 2: 1, 3: 2} {
		synctest.Test(t, func(t *testing.T) {
			g := newRig(t)
			g.settings.Trials = 3
			g.store.onRestore = func() {
				if g.store.restored == restores-1 {
					g.stop.Soft()
				}
			}
			rep, err := g.execute()
			if err != nil || !rep.Partial || len(rep.Cells) != 1 {
				t.Fatalf("partial %v, cells %+v, %v", rep.Partial, rep.Cells, err)
			}
			if got := len(rep.Cells[0].Trials); got != trials {
				t.Errorf("stopped before trial %d: %d trials in the report, want %d", restores, got, trials)
			}
		})
	}
}

// TestNothingMeasuredTakesNoTime: a run that ends in its warm-up has an empty window, not a negative one.
func TestNothingMeasuredTakesNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.settings.Mode, g.settings.Operations, g.settings.Warmup = Closed, 5, Duration(time.Second)
		if c := g.run(); c.Operations != 0 || c.DurationS != 0 || c.Throughput != nil {
			t.Errorf("%d operations in %g s", c.Operations, c.DurationS)
		}
	})
}

func TestHardStop(t *testing.T) {
	for _, tc := range []struct {
		name string
		pull func(*Stop)
		ends time.Duration
	}{
		{"at once", (*Stop).Hard, time.Second},
		{"when a soft stop does not drain", (*Stop).Soft, 6 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t)
				g.settings.Users, g.settings.Drain = 20, Duration(5*time.Second)
				g.strategy.takes = time.Hour
				began := time.Now()
				time.AfterFunc(time.Second, func() { tc.pull(g.stop) })
				rep, err := g.execute()
				if err != nil || !rep.Partial {
					t.Errorf("partial %v, %v", rep.Partial, err)
				}
				if took := time.Since(began); took != tc.ends {
					t.Errorf("the run took %v, want %v", took, tc.ends)
				}
				// One user was at work. The others stood in line and were never served.
				if c := rep.Cells[0]; c.Operations != 1 || c.Outcomes["busy"] != 1 {
					t.Errorf("outcomes %v", c.Outcomes)
				}
			})
		})
	}
}

// TestHardStopSaysWhatItCouldNotEnd: a session that the server does not let go of may still write, so the audit cannot be believed.
func TestHardStopSaysWhatItCouldNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.settings.Think = Duration(time.Hour)
		g.store.cannotAbort = errors.New("3 sessions do not end")
		time.AfterFunc(time.Second, g.stop.Hard)
		rep, err := g.execute()
		if err == nil || err.Error() != "plain, trial 1: ending the sessions: 3 sessions do not end" || !rep.Partial {
			t.Errorf("partial %v, %v", rep.Partial, err)
		}
	})
}

// TestEndlessScheduleIsNotDrawnBeforehand: a rate that nobody can serve neither holds a stop up nor fills the memory.
func TestEndlessScheduleIsNotDrawnBeforehand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.settings.Mode, g.settings.Rate, g.settings.Operations, g.settings.Drain = Open, 1e9, MostOperations, Duration(time.Second)
		g.strategy.script = func(s step, _ *Request, _ int) error {
			if s == atBegin {
				time.Sleep(time.Millisecond)
			}
			return nil
		}
		time.AfterFunc(time.Second, g.stop.Soft)
		rep, err := g.execute()
		if err != nil || !rep.Partial || len(rep.Cells[0].Trials) != 1 || rep.Cells[0].Operations > 5000 {
			t.Errorf("partial %v, %d operations, %v", rep.Partial, rep.Cells[0].Operations, err)
		}
	})
}

// TestStopWhileConnecting: there is nothing to finish yet, so the first wish to stop ends it.
func TestStopWhileConnecting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.store.onOpen = func(ctx context.Context) error { <-ctx.Done(); return errors.New("some words about a cancelled dial") }
		time.AfterFunc(time.Second, g.stop.Soft)
		began := time.Now()
		rep, err := g.execute()
		if err != nil || !rep.Partial || len(rep.Cells[0].Trials) != 0 {
			t.Errorf("partial %v, %v", rep.Partial, err)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("it ended after %v", took)
		}
	})
}

func TestHardStopWakesWhoeverWaits(t *testing.T) {
	for name, bend := range map[string]func(*rig){
		"backoff": func(g *rig) {
			g.settings.Retries, g.settings.Backoff = 1, "fixed=1h"
			g.strategy.script = firstTries(1, Lost(Version))
		},
		"thinking": func(g *rig) { g.settings.Think = Duration(time.Hour) },
		"gate": func(g *rig) {
			g.strategy.dress = func(d *fakeDiscipline) Discipline { return newGate(d) }
			g.strategy.takes = time.Hour
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t)
				bend(g)
				began := time.Now()
				time.AfterFunc(time.Second, g.stop.Hard)
				if rep, err := g.execute(); err != nil || !rep.Partial {
					t.Errorf("partial %v, %v", rep.Partial, err)
				}
				if took := time.Since(began); took != time.Second {
					t.Errorf("the run took %v, want 1s", took)
				}
			})
		})
	}
}

// TestWhoCommits: a rejection after a write is rolled back; one without a write commits, since only then its reads may be believed.
func TestWhoCommits(t *testing.T) {
	write := func(tx Tx, r *Request, ans Answer) (Answer, error) {
		row, _, _ := tx.Get(&stock, r.Key)
		less := row
		less.Values[0]--
		return ans, tx.Put(&stock, row, less)
	}
	for _, tc := range []struct {
		name               string
		body               Body
		commits, rollbacks int64
		left               int64
	}{
		{"confirmed", sell, 1, 0, 99},
		{"rejected without a write", func(Tx, *Request) (Answer, error) { return No(SoldOut), nil }, 1, 0, 100},
		{"rejected after a write", func(tx Tx, r *Request) (Answer, error) { return write(tx, r, No(SoldOut)) }, 0, 1, 100},
		{"not found", func(tx Tx, r *Request) (Answer, error) { return sell(tx, &Request{Key: 99}) }, 1, 0, 100},
		{"error", func(Tx, *Request) (Answer, error) { return Yes(), errors.New("x") }, 0, 1, 100},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t)
				g.settings.Users, g.scenario.body = 1, tc.body
				g.run()
				if c, r := g.store.commits.Load(), g.store.rollbacks.Load(); c != tc.commits || r != tc.rollbacks {
					t.Errorf("%d commits and %d rollbacks, want %d and %d", c, r, tc.commits, tc.rollbacks)
				}
				if left := g.store.rows[0].Values[0]; left != tc.left {
					t.Errorf("%d left in stock, want %d", left, tc.left)
				}
			})
		})
	}
}

// TestNoIsBelievedOnlyOnceCommitted: what serializable reads may turn out false at COMMIT.
func TestNoIsBelievedOnlyOnceCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.settings.Users, g.settings.Retries = 1, 1
		g.scenario.body = func(Tx, *Request) (Answer, error) { return No(SoldOut), nil }
		g.strategy.script = func(s step, _ *Request, try int) error {
			if s == atCommit && try == 1 {
				return Lost(Serialization)
			}
			return nil
		}
		if c := g.run(); c.Outcomes["rejected"] != 1 || c.Attempts != 2 || c.Contention["serialization"] != 1 {
			t.Errorf("outcomes %v after %d attempts", c.Outcomes, c.Attempts)
		}
	})
}

// TestNothingWrittenIsNothingUnknown: a COMMIT whose answer is lost leaves in doubt what was written. Where nothing was, there is no
// doubt: nobody has anything to look for, and the audit nothing to allow for.
func TestNothingWrittenIsNothingUnknown(t *testing.T) {
	for _, tc := range []struct {
		name    string
		body    Body
		aborted bool
		want    string
	}{
		{"written", sell, false, "indeterminate"},
		{"written, ended by lockbench", sell, true, "indeterminate"},
		{"only read", func(Tx, *Request) (Answer, error) { return No(SoldOut), nil }, false, "failed"},
		{"only read, ended by lockbench", func(Tx, *Request) (Answer, error) { return No(SoldOut), nil }, true, "busy"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t)
				g.settings.Users, g.scenario.body = 1, tc.body
				g.strategy.script = func(s step, _ *Request, _ int) error {
					if s == atCommit {
						return &Fault{Class: ClassIndeterminate, Aborted: tc.aborted, Err: errors.New("reset")}
					}
					return nil
				}
				c := g.run()
				if c.Outcomes[tc.want] != 1 || c.Operations != 1 {
					t.Errorf("outcomes %v, want one %s", c.Outcomes, tc.want)
				}
				if n := len(g.scenario.told.Indeterminate); (n == 1) != (tc.want == "indeterminate") {
					t.Errorf("%d lost answers reached the audit", n)
				}
			})
		})
	}
}

// TestSoftStopEndsTheFilling: while tables are laid there is nothing to finish, and a large one may take minutes.
func TestSoftStopEndsTheFilling(t *testing.T) {
	for name, warmup := range map[string]Duration{"of a trial": 0, "of the warm-up": Duration(time.Second)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t)
				g.settings.Warmup, g.store.filling = warmup, time.Hour
				began := time.Now()
				time.AfterFunc(time.Second, g.stop.Soft)
				rep, err := g.execute()
				if err != nil || !rep.Partial || len(rep.Cells) != 1 || len(rep.Cells[0].Trials) != 0 {
					t.Errorf("%v; partial %v, cells %+v", err, rep.Partial, rep.Cells)
				}
				if took := time.Since(began); took != time.Second {
					t.Errorf("the run took %v, want 1s", took)
				}
			})
		})
	}
}

// TestUndersoldIsNotJudgedAfterAHardStop: it undoes operations for which others had been refused, which is no strategy's fault. What
// else was found stays.
func TestUndersoldIsNotJudgedAfterAHardStop(t *testing.T) {
	for name, tc := range map[string]struct {
		pull   func(*Stop)
		judged bool
	}{"soft": {(*Stop).Soft, true}, "hard": {(*Stop).Hard, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t)
				g.settings.Drain, g.strategy.takes = Duration(time.Hour), time.Minute
				g.strategy.info.Prevents = append(g.strategy.info.Prevents, FalseSoldOut)
				g.scenario.undersold, g.store.leaks = 3, 1
				time.AfterFunc(time.Second, func() { tc.pull(g.stop) })
				rep, err := g.execute()
				if err != nil {
					t.Fatal(err)
				}
				c := rep.Cells[0]
				n, counted := c.Audit["undersold"]
				found := slices.ContainsFunc(c.Findings, func(f Finding) bool { return f.Anomaly == FalseSoldOut })
				if counted != tc.judged || found != tc.judged || tc.judged && n != 3 {
					t.Errorf("undersold: counted %v (%d), found %v; want %v", counted, n, found, tc.judged)
				}
				if c.Audit["leaked_locks"] != 1 || c.Verdict != Violated {
					t.Errorf("%v, %v", c.Verdict, c.Audit)
				}
			})
		})
	}
}

func newGate(d *fakeDiscipline) gated {
	return gated{fakeDiscipline: d, door: make(chan struct{}, 1), entered: &atomic.Int64{}, left: &atomic.Int64{}}
}

func TestGateIsAlwaysLeft(t *testing.T) {
	for _, tc := range []struct {
		name    string
		bend    func(*rig)
		entered int64
		outcome map[string]int64
	}{
		{"confirmed", func(*rig) {}, 2, map[string]int64{"confirmed": 2}},
		{"between attempts", func(g *rig) {
			g.settings.Retries, g.strategy.script = 1, firstTries(1, Lost(Version))
		}, 4, map[string]int64{"confirmed": 2}},
		{"failed", func(g *rig) {
			g.strategy.script = firstTries(1, errors.New("x"))
		}, 2, map[string]int64{"failed": 2}},
		{"broken", func(g *rig) {
			g.strategy.script = firstTries(1, &Fault{Broken: true, Err: errors.New("x")})
		}, 2, map[string]int64{"failed": 2}},
		{"deadline at the gate", func(g *rig) {
			g.strategy.takes, g.settings.Deadline = time.Second, Duration(300*time.Millisecond)
		}, 1, map[string]int64{"confirmed": 1, "busy": 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t)
				var gate gated
				g.strategy.dress = func(d *fakeDiscipline) Discipline { gate = newGate(d); return gate }
				tc.bend(g)
				c := g.run()
				if in, out := gate.entered.Load(), gate.left.Load(); in != tc.entered || out != in || len(gate.door) != 0 {
					t.Errorf("entered %d times, want %d; left %d times", in, tc.entered, out)
				}
				for o, n := range tc.outcome {
					if c.Outcomes[o] != n {
						t.Errorf("outcomes %v, want %v", c.Outcomes, tc.outcome)
					}
				}
			})
		})
	}
}

// TestGateIsLeftByWhoGetsNoConnection lets one through the gate while the only connection is taken.
func TestGateIsLeftByWhoGetsNoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		var gate gated
		g.strategy.dress = func(d *fakeDiscipline) Discipline {
			gate = newGate(d)
			gate.door = make(chan struct{}, 2)
			return gate
		}
		g.strategy.takes, g.settings.Deadline = time.Second, Duration(300*time.Millisecond)
		c := g.run()
		if c.Outcomes["busy"] != 1 || gate.entered.Load() != 2 || gate.left.Load() != 2 {
			t.Errorf("outcomes %v, entered %d, left %d", c.Outcomes, gate.entered.Load(), gate.left.Load())
		}
	})
}

// TestGateRunsOneAtATime and the time at it is lock wait, not wait for a connection.
func TestGateRunsOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.settings.Users, g.settings.Connections = 51, 51
		g.strategy.dress = func(d *fakeDiscipline) Discipline { return newGate(d) }
		c := g.run()
		if c.Verdict != Sound || c.Audit["lost_updates"] != 0 {
			t.Errorf("%v: %v", c.Verdict, c.Audit)
		}
		about(t, "lock wait", c.Waits["lock"].Total, 0.001*50*51/2)
		about(t, "pool wait", c.Waits["pool"].Total, 0)
	})
}

func TestGateThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.strategy.dress = func(d *fakeDiscipline) Discipline {
			gate := newGate(d)
			gate.refuse = errors.New("the lock service is down")
			return gate
		}
		c := g.run()
		if c.Outcomes["failed"] != 2 || c.Errors["the lock service is down"] != 2 || c.Attempts != 0 {
			t.Errorf("outcomes %v, texts %v, %d attempts", c.Outcomes, c.Errors, c.Attempts)
		}
	})
}

// TestWhoTakesAnyRowMeetsEverybody: contention is counted by row, but for a strategy that takes any row there is only one. Five users
// are at rows of their own at one time: nobody leaves before the clock moves, and it moves when all are there.
func TestWhoTakesAnyRowMeetsEverybody(t *testing.T) {
	for lends, want := range map[Lends]int64{LendsRow: 0, LendsRow | LendsAny: 4} {
		synctest.Test(t, func(t *testing.T) {
			g := newRig(t)
			g.settings.Users, g.settings.Connections, g.settings.Rows = 5, 5, 5
			g.draw = func(r *Request) { r.Key = r.User }
			g.strategy.lends = lends
			if c := g.run(); c.Contended != want || c.Outcomes["confirmed"] != 5 {
				t.Errorf("lending %b: %d operations met another, want %d; %v", lends, c.Contended, want, c.Outcomes)
			}
		})
	}
}

// TestRetriesAreCountedWhereTheyHappen: an operation of two transactions has two first attempts.
func TestRetriesAreCountedWhereTheyHappen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.settings.Users, g.settings.Retries = 1, 5
		g.scenario.operation = func(u *User, r *Request) Answer {
			u.Transact(sell, r)
			return u.Transact(sell, r)
		}
		g.strategy.script = func(s step, _ *Request, try int) error {
			if s == atPut && (try == 1 || try == 3 || try == 4) { // the first transaction has tries 1 and 2, the second 3 to 5
				return Lost(Version)
			}
			return nil
		}
		if c := g.run(); c.Attempts != 5 || c.Retries != 3 || c.Outcomes["confirmed"] != 1 {
			t.Errorf("%d attempts, %d retries, %v", c.Attempts, c.Retries, c.Outcomes)
		}
	})
}

func TestOperationsOnTwoRowsMeetOnEither(t *testing.T) {
	for _, tc := range []struct {
		name string
		draw func(*Request)
		want int64 // of two users, how many met the other
	}{
		{"on the first", func(r *Request) { r.Key, r.To = 1, 1+r.User }, 1},
		{"on the second", func(r *Request) { r.Key, r.To = r.User, 9 }, 1},
		{"on one's first and the other's second", func(r *Request) { r.Key, r.To = r.User, 3-r.User }, 1},
		{"nowhere", func(r *Request) { r.Key, r.To = r.User, 4+r.User }, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t)
				g.settings.Connections, g.settings.Rows, g.draw = 2, 10, tc.draw
				c := g.run()
				if c.Contended != tc.want {
					t.Errorf("%d operations met another, want %d", c.Contended, tc.want)
				}
				for i := range g.scenario.told.Confirmed {
					got := g.scenario.told.Confirmed[i].Request
					want := got
					if tc.draw(&want); got != want {
						t.Errorf("%+v was asked for, %+v was drawn", got, want)
					}
				}
			})
		})
	}
}

// TestContentionEndsWithTheOperation: a user alone meets nobody, however often he comes back.
func TestContentionEndsWithTheOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.settings.Mode, g.settings.Operations, g.settings.Users, g.settings.Rows = Closed, 5, 1, 2
		g.draw = func(r *Request) { r.Key, r.To = 1, 2 }
		if c := g.run(); c.Operations != 5 || c.Contended != 0 {
			t.Errorf("%d of %d operations met another", c.Contended, c.Operations)
		}
	})
}

// TestManyUsers: a hundred thousand goroutines in line for eight connections, each served once. The race detector allows no more than
// 8128 goroutines.
func TestManyUsers(t *testing.T) {
	users := 100_000
	if raceDetector {
		users = 5_000
	}
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.settings.Users, g.settings.Connections = users, 8
		g.scenario.body = func(tx Tx, _ *Request) (Answer, error) {
			time.Sleep(8 * time.Millisecond)
			return Yes(), nil
		}
		c := g.run()
		if c.Outcomes["confirmed"] != int64(users) || c.Attempts != int64(users) {
			t.Errorf("outcomes %v of %d users", c.Outcomes, users)
		}
		about(t, "goodput", c.Goodput, 1000)
	})
}

// drawn is a whole schedule.
func drawn(rate float64, until time.Duration, operations int64, seed uint64) (all []time.Duration) {
	s := newSchedule(rate, until, operations, seed)
	for {
		n, due, ok := s.next(part{0, 1})
		if !ok {
			return all
		}
		if n != int64(len(all)) {
			panic("operations are not numbered in order")
		}
		all = append(all, due)
	}
}

func TestSchedule(t *testing.T) {
	const rate, window = 2000.0, 10 * time.Second
	due := drawn(rate, window, 0, 7)
	// A Poisson process: n is normal with deviation √n, the gaps are exponential, so their deviation is their mean.
	if n, want := float64(len(due)), rate*window.Seconds(); math.Abs(n-want) > 4*math.Sqrt(want) {
		t.Errorf("%g arrivals, want about %g", n, want)
	}
	var last time.Duration
	var squares float64
	for i, d := range due {
		if d <= last || d >= window {
			t.Fatalf("arrival %d is due at %v, the one before it at %v", i, d, last)
		}
		gap := (d - last).Seconds() * rate
		squares += gap * gap
		last = d
	}
	if s := squares / float64(len(due)); math.Abs(s-2) > 0.2 { // E[gap²] of an exponential of mean 1
		t.Errorf("mean square of gaps is %.2f, want 2", s)
	}
	if !slices.Equal(due, drawn(rate, window, 0, 7)) {
		t.Error("the same seed gives another schedule")
	}
	if slices.Equal(due, drawn(rate, window, 0, 8)) {
		t.Error("another seed gives the same schedule")
	}
	if few := drawn(rate, window, 12, 7); !slices.Equal(few, due[:12]) {
		t.Errorf("bounded by operations: %v, want %v", few, due[:12])
	}
	if few := drawn(rate, 0, 12, 7); !slices.Equal(few, due[:12]) {
		t.Errorf("without duration: %v, want %v", few, due[:12])
	}
}

// TestScheduleOfHardlyAnything has gaps longer than a duration can hold.
func TestScheduleOfHardlyAnything(t *testing.T) {
	if due := drawn(1e-12, time.Hour, 0, 1); len(due) != 0 {
		t.Errorf("%d arrivals", len(due))
	}
	due := drawn(1e-12, 0, 3, 1)
	if len(due) != 3 || due[0] < time.Hour || !slices.IsSorted(due) {
		t.Errorf("due at %v", due)
	}
}

// TestRequestsAreReproducible: two runs of one seed ask for the same rows, another seed for others, and trials differ.
func TestRequestsAreReproducible(t *testing.T) {
	keys := func(seed uint64) string {
		var text string
		synctest.Test(t, func(t *testing.T) {
			g := newRig(t)
			g.settings.Users, g.settings.Connections, g.settings.Rows, g.settings.Seed, g.settings.Trials = 10, 10, 1000, seed, 2
			var mu sync.Mutex
			asked := make([]string, 11)
			g.scenario.body = func(tx Tx, r *Request) (Answer, error) {
				mu.Lock()
				asked[r.Op+1] += fmt.Sprint(r.Key, " ")
				mu.Unlock()
				return sell(tx, r)
			}
			g.run()
			text = strings.Join(asked, "; ")
		})
		return text
	}
	if a, b := keys(1), keys(1); a != b {
		t.Errorf("one seed asked for\n%s\nand then for\n%s", a, b)
	}
	if keys(1) == keys(2) {
		t.Error("two seeds ask for the same rows")
	}
	same := 0
	for _, user := range strings.Split(keys(1), "; ")[1:] {
		if f := strings.Fields(user); f[0] == f[1] {
			same++
		}
	}
	if same > 2 {
		t.Errorf("%d of 10 users asked for the same row in both trials", same)
	}
}

func TestStopMayBePulledTwice(t *testing.T) {
	s := NewStop()
	if s.Softly() {
		t.Error("nobody has pulled it")
	}
	s.Soft()
	s.Soft()
	s.Hard()
	s.Hard()
	if !s.Softly() {
		t.Error("pulled, and not stopped")
	}
}

// TestGiveUp tells a deadline and a stop from a fault.
func TestGiveUp(t *testing.T) {
	for _, tc := range []struct {
		err     error
		stopped bool
		tried   int32
		want    Outcome
	}{
		{nil, false, 0, Busy},
		{context.DeadlineExceeded, false, 0, Busy},
		{fmt.Errorf("gate: %w", context.Canceled), false, 1, Busy},
		{errors.New("down"), false, 0, Failed},
		{nil, true, 0, Pending}, // never began: not counted
		{nil, true, 1, Busy},
	} {
		u := &User{t: &trial{stop: NewStop()}}
		u.d.told.Attempts = tc.tried
		if tc.stopped {
			u.t.stop.Hard()
		}
		if got := u.giveUp(tc.err); got.Outcome != tc.want {
			t.Errorf("%v, stopped %v, %d attempts: %v, want %v", tc.err, tc.stopped, tc.tried, got.Outcome, tc.want)
		}
	}
}
