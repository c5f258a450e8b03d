package trace

import (
	"testing"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/scenarios"
)

// TestHeld: a wait that leads to somebody who stands still lasts; one that leads only to other waits is for the server to end, and nobody
// else may move meanwhile.
func TestHeld(t *testing.T) {
	for name, c := range map[string]struct {
		waits map[int64][]int64
		want  bool
	}{
		"for one who stands still":   {map[int64][]int64{2: {1}}, true},
		"behind one who waits":       {map[int64][]int64{2: {1}, 3: {2}}, true},
		"for each other":             {map[int64][]int64{1: {2}, 2: {1}}, false},
		"behind a deadlock":          {map[int64][]int64{1: {2}, 2: {1}, 3: {2}}, false},
		"for one in and one without": {map[int64][]int64{1: {2}, 2: {1, 4}}, true},
	} {
		now := map[int64]Backend{}
		for pid, blockers := range c.waits {
			now[pid] = Backend{Blockers: blockers, On: "transactionid"}
		}
		if got := held(now); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestCast: whatever the seed, neighbours want what makes them meet.
func TestCast(t *testing.T) {
	for _, sc := range scenarios.All() {
		for seed := range uint64(20) {
			race := &bench.Race{Scenario: sc, Settings: bench.Settings{Users: 4, Seed: seed}, Params: bench.Params{Rows: 3}}
			all := cast(race)
			for i := 1; i < len(all); i++ {
				a, b := all[i-1], all[i]
				switch {
				case !meet(&a, &b):
					t.Errorf("%s, seed %d: %+v and %+v do not meet", sc.Info().Name, seed, a, b)
				case a.To > 0 && (a.Key != b.To || a.To != b.Key):
					t.Errorf("%s, seed %d: %+v and %+v do not go in opposite directions", sc.Info().Name, seed, a, b)
				case sc.Info().Name == "on-call" && a.Quantity == b.Quantity:
					t.Errorf("seed %d: %+v and %+v are the same doctor", seed, a, b)
				}
			}
		}
	}
}
