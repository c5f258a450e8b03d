package sweep

import (
	"math"
	"slices"
)

// Search finds for each strategy the value of the parameter at which it stops keeping to a limit: it doubles the value until the limit
// is passed, then halves the interval between.
type Search struct {
	p           Parameter
	first, last float64
	strategies  []string
	low, high   map[string]float64 // the largest value that was kept to, the smallest that was not; absent: none yet
}

// Probe is a value to run next, with the strategies that need it.
type Probe struct {
	Value      float64
	Strategies []string
}

// fine is the ratio of the smallest value that failed to the largest that did not, from which on a search ends.
const fine = 1.15

// NewSearch returns a search from first on, which must be above 0, that goes no further than last.
func NewSearch(p Parameter, strategies []string, first, last float64) *Search {
	return &Search{p: p, first: first, last: last, strategies: strategies, low: map[string]float64{}, high: map[string]float64{}}
}

// Next returns what to run next, by ascending value; nothing once every strategy's limit is known.
func (s *Search) Next() []Probe {
	var all []Probe
	for _, strategy := range s.strategies {
		v, more := s.next(strategy)
		if !more {
			continue
		}
		i := slices.IndexFunc(all, func(p Probe) bool { return p.Value == v })
		if i < 0 {
			i, all = len(all), append(all, Probe{Value: v})
		}
		all[i].Strategies = append(all[i].Strategies, strategy)
	}
	slices.SortFunc(all, func(a, b Probe) int {
		if a.Value < b.Value {
			return -1
		}
		return 1
	})
	return all
}

// Saw notes how a probe went.
func (s *Search) Saw(strategy string, v float64, kept bool) {
	if kept {
		s.low[strategy] = v
	} else {
		s.high[strategy] = v
	}
}

func (s *Search) next(strategy string) (v float64, more bool) {
	low, kept := s.low[strategy]
	high, failed := s.high[strategy]
	switch {
	case !kept && !failed:
		return s.first, true
	case !failed:
		return min(2*low, s.last), low < s.last
	case !kept || high <= low*fine:
		return 0, false
	}
	mid := (low + high) / 2
	if s.p.Whole {
		mid = math.Floor(mid)
	}
	// Two digits are enough to quote.
	step := math.Pow10(int(math.Floor(math.Log10(mid))) - 1)
	if r := math.Round(mid/step) * step; r > low && r < high && (!s.p.Whole || r == math.Trunc(r)) {
		mid = r
	}
	return mid, mid > low && mid < high
}
