package bench

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
)

// points are two races that differ in connections.
func points(t *testing.T, g *rig) []*Race {
	t.Helper()
	var races []*Race
	for _, name := range []string{"connections=1", "connections=2"} {
		s := g.settings
		s.Connections = len(races) + 1
		r, err := Compile(s, append([]Strategy{g.strategy}, g.more...), []Scenario{g.scenario}, Connecting{})
		if err != nil {
			t.Fatal(err)
		}
		r.Name = name
		races = append(races, r)
	}
	return races
}

// TestInterleave: every repetition takes every race, in an order that the seed decides, and every trial knows its place among all.
func TestInterleave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		orders := map[string]bool{}
		for seed := range uint64(8) {
			g := newRig(t)
			g.settings.Trials, g.settings.Seed = 4, seed
			reps, err := Interleave(t.Context(), g.store, g.stop, sized{g}, points(t, g))
			if err != nil || len(reps) != 2 {
				t.Fatalf("%d reports, %v", len(reps), err)
			}
			if !g.store.pool.closed {
				t.Error("the last pool was left open")
			}
			places := map[int]bool{}
			for i, rep := range reps {
				if rep.Partial || rep.Plan.Connections != i+1 || len(rep.Cells[0].Trials) != 4 {
					t.Errorf("report %d: partial %v, %d connections, %d trials", i, rep.Partial, rep.Plan.Connections, len(rep.Cells[0].Trials))
				}
				for _, trial := range rep.Cells[0].Trials {
					places[trial.Order] = true
					if want := (trial.Order + 1) / 2; trial.Number != want {
						t.Errorf("trial %d was run as number %d, which belongs to repetition %d", trial.Number, trial.Order, want)
					}
				}
			}
			if len(places) != 8 {
				t.Errorf("8 trials have %d places", len(places))
			}
			orders[strings.Join(g.seen, ", ")] = true
			again := newRig(t)
			again.settings = g.settings
			if _, err := Interleave(t.Context(), again.store, again.stop, again, points(t, again)); err != nil || !slices.Equal(again.seen, g.seen) {
				t.Errorf("the same seed: %v and %v, %v", g.seen, again.seen, err)
			}
		}
		if len(orders) < 4 {
			t.Errorf("8 seeds have %d orders", len(orders))
		}
		for o := range orders {
			if strings.Count(o, "plain connections=1 ") != 4 || strings.Count(o, "plain connections=2 ") != 4 {
				t.Errorf("progress names %s", o)
			}
		}
	})
}

// sized looks at how many connections a trial had.
type sized struct{ *rig }

func (s sized) TrialEnds(cell string, _ *Trial) {
	if want := "plain connections=" + strconv.Itoa(len(s.store.pool.conns)); cell != want {
		s.t.Errorf("%s was raced like %s", cell, want)
	}
}

// TestInterleaveStopped: what was measured until then is kept, in every report.
func TestInterleaveStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.settings.Trials = 4
		reps, err := Interleave(t.Context(), g.store, g.stop, stopAfter{g, 3}, points(t, g))
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, rep := range reps {
			if !rep.Partial {
				t.Error("a report of a stopped run is not partial")
			}
			n += len(rep.Cells[0].Trials)
		}
		if n != 3 {
			t.Errorf("%d trials were kept, want 3", n)
		}
	})
}

// stopAfter asks for an end after so many trials.
type stopAfter struct {
	*rig
	trials int
}

func (s stopAfter) TrialEnds(string, *Trial) {
	if len(s.seen) == s.trials {
		s.stop.Soft()
	}
}
