package sweep

import (
	"math"
	"math/rand/v2"
	"testing"
)

func parameter(t *testing.T, name string) Parameter {
	t.Helper()
	p, err := Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestSearchFindsEveryLimit: whatever the limits are, each strategy's ends between two values close together.
func TestSearchFindsEveryLimit(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 2))
	for _, name := range []string{"users", "rate", "think"} {
		p := parameter(t, name)
		for range 200 {
			limits := map[string]float64{}
			strategies := []string{"a", "b", "c"}
			for _, s := range strategies {
				limits[s] = math.Exp(rng.Float64() * 8)
			}
			first, last := 1+float64(rng.IntN(4)), 1000.0
			search := NewSearch(p, strategies, first, last)
			rounds := 0
			for probes := search.Next(); len(probes) > 0; probes = search.Next() {
				if rounds++; rounds > 20 {
					t.Fatalf("%v: not found after 20 rounds", limits)
				}
				for i, probe := range probes {
					if probe.Value < first || probe.Value > last || p.Whole && probe.Value != math.Trunc(probe.Value) || i > 0 && probe.Value <= probes[i-1].Value {
						t.Fatalf("probes %v", probes)
					}
					for _, s := range probe.Strategies {
						search.Saw(s, probe.Value, probe.Value <= limits[s])
					}
				}
			}
			for s, limit := range limits {
				low, kept := search.low[s]
				high, failed := search.high[s]
				if kept != (limit >= first) || failed != (limit < last) {
					t.Fatalf("%s with limit %g from %g: kept %v, failed %v", s, limit, first, kept, failed)
				}
				if kept && failed && (low > limit || high <= limit || high > low*fine && !(p.Whole && high-low <= 1)) {
					t.Errorf("%s with limit %g: between %g and %g", s, limit, low, high)
				}
			}
		}
	}
}

func TestSearchValuesCanBeQuoted(t *testing.T) {
	s := NewSearch(parameter(t, "users"), []string{"a"}, 10, 10000)
	var tried []float64
	for probes := s.Next(); len(probes) > 0; probes = s.Next() {
		tried = append(tried, probes[0].Value)
		s.Saw("a", probes[0].Value, probes[0].Value <= 130)
	}
	want := []float64{10, 20, 40, 80, 160, 120, 140, 130}
	if len(tried) != len(want) {
		t.Fatalf("tried %v, want %v", tried, want)
	}
	for i := range want {
		if tried[i] != want[i] {
			t.Fatalf("tried %v, want %v", tried, want)
		}
	}
}
