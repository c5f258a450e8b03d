package bench

import (
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Skew is how requests spread over the rows.
type Skew struct {
	Theta float64 // zipf exponent between 0 and 1; 0: uniform
	Hot   int64   // > 0: only the first Hot rows, uniformly
}

// ParseSkew reads uniform, zipf:0.99 or hot:3.
func ParseSkew(s string) (Skew, error) {
	kind, rest, _ := strings.Cut(s, ":")
	switch kind {
	case "uniform":
		if rest == "" {
			return Skew{}, nil
		}
	case "zipf":
		theta, err := strconv.ParseFloat(rest, 64)
		if err == nil && theta > 0 && theta < 1 {
			return Skew{Theta: theta}, nil
		}
		return Skew{}, Hintf("zipf takes an exponent above 0 and below 1, as zipf:0.99", "%q is not a skew", s)
	case "hot":
		n, err := strconv.ParseInt(rest, 10, 64)
		if err == nil && n > 0 {
			return Skew{Hot: n}, nil
		}
		return Skew{}, Hintf("hot takes a number of rows, as hot:3", "%q is not a skew", s)
	}
	return Skew{}, Hintf("skew is uniform, zipf:0.99 or hot:3", "%q is not a skew", s)
}

func (s Skew) String() string {
	switch {
	case s.Hot > 0:
		return "hot:" + strconv.FormatInt(s.Hot, 10)
	case s.Theta > 0:
		return "zipf:" + strconv.FormatFloat(s.Theta, 'g', -1, 64)
	}
	return "uniform"
}

// picker draws keys from 1 to n. It is safe for concurrent use: randomness is the caller's.
type picker struct {
	n                      int64
	theta                  float64
	alpha, zeta, eta, half float64
}

// newPicker prepares the draw. The zipf generator is that of J. Gray et al., "Quickly Generating Billion-Record Synthetic
// Databases", SIGMOD 1994, which the YCSB made usual: it takes exponents below 1, which math/rand's Zipf does not.
func newPicker(s Skew, n int64) *picker {
	p := &picker{n: n, theta: s.Theta}
	if s.Hot > 0 {
		p.n = min(s.Hot, n)
	}
	if p.theta == 0 || p.n < 2 {
		p.theta = 0
		return p
	}
	for i := int64(1); i <= p.n; i++ {
		p.zeta += 1 / math.Pow(float64(i), p.theta)
	}
	zeta2 := 1 + math.Pow(0.5, p.theta)
	p.alpha = 1 / (1 - p.theta)
	p.half = zeta2
	p.eta = (1 - math.Pow(2/float64(p.n), 1-p.theta)) / (1 - zeta2/p.zeta)
	return p
}

func (p *picker) pick(rng *rand.Rand) int64 {
	if p.theta == 0 {
		return 1 + rng.Int64N(p.n)
	}
	u := rng.Float64()
	switch uz := u * p.zeta; {
	case uz < 1:
		return 1
	case uz < p.half:
		return 2
	}
	return min(p.n, 1+int64(float64(p.n)*math.Pow(p.eta*u-p.eta+1, p.alpha)))
}
