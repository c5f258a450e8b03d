package sweep

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Scaling is the Universal Scalability Law fitted to goodput: X(N) = λN / (1 + σ(N−1) + κN(N−1)).
// Source: N. J. Gunther, "Guerrilla Capacity Planning", 2007, chapters 4 and 6.
type Scaling struct {
	Lambda float64 `json:"lambda"` // goodput of one, per second
	Sigma  float64 `json:"sigma"`  // the share that waits in line
	Kappa  float64 `json:"kappa"`  // what each pays for every other one
	Points int     `json:"points"`
	From   float64 `json:"from"` // the points that were fitted
	To     float64 `json:"to"`
	Off    float64 `json:"off"` // typical distance of the points from the law, as a share
	// Peak is where the law is highest, sqrt((1−σ)/κ); absent where that lies outside of what was measured, which Shape tells.
	Peak  *Peak `json:"peak,omitempty"`
	Shape Shape `json:"shape"`
}

// Peak is a value of the parameter with its 95 % interval; an end outside of what was measured is absent.
type Peak struct {
	At   float64  `json:"at"`
	Low  *float64 `json:"low,omitempty"`
	High *float64 `json:"high,omitempty"`
}

// Shape is how goodput changes over what was measured.
type Shape string

// The shapes.
const (
	Peaks   Shape = "peaks" // it has its peak within
	Rises   Shape = "rises" // its peak, if it has one, lies beyond the largest value
	Falls   Shape = "falls" // its peak lies before the smallest value
	Level   Shape = "level" // the law is flat: no value is better than another
	minUSL        = 5       // three parameters, and two points to be wrong about
	maxOff        = 0.15    // a law that points typically miss by more is none
	flat          = 0.05    // by less than this share the law must not differ to be called level
	steps         = 200     // in which a range is searched
	rounds        = 20      // of reweighting; it settles within five
	settled       = 1e-9    // relative change of the parameters that ends the reweighting
)

// At returns the law's goodput at N.
func (s *Scaling) At(n float64) float64 {
	return s.Lambda * n / (1 + s.Sigma*(n-1) + s.Kappa*n*(n-1))
}

// summit is where the law is highest: +Inf if it never falls, 1 if it falls from the start.
func (s *Scaling) summit() float64 {
	switch {
	case s.Sigma >= 1:
		return 1
	case s.Kappa == 0:
		return math.Inf(1)
	}
	return max(1, math.Sqrt((1-s.Sigma)/s.Kappa))
}

// scale fits the law to goodputs, one a point. It refuses, with the reason, where there are too few points or the law does not fit.
func scale(ns, xs []float64) (*Scaling, string) {
	distinct := slices.Compact(slices.Sorted(slices.Values(ns)))
	if len(distinct) < minUSL {
		return nil, fmt.Sprintf("the scalability law needs %d points with a connection a user, there are %d", minUSL, len(distinct))
	}
	for i := range xs {
		if !(xs[i] > 0) || ns[i] < 1 {
			return nil, "nobody was confirmed at some points, so the scalability law cannot be fitted"
		}
	}
	s := fit(ns, xs)
	if s == nil {
		return nil, "the scalability law does not fit"
	}
	s.Points, s.From, s.To = len(ns), distinct[0], distinct[len(distinct)-1]
	free := len(ns) - s.parameters()
	var off float64
	for i := range ns {
		e := xs[i]/s.At(ns[i]) - 1
		off += e * e
	}
	s.Off = math.Sqrt(off / float64(free))
	if s.Off > maxOff {
		return nil, fmt.Sprintf("the scalability law does not fit: points typically lie %.0f %% off it", 100*s.Off)
	}
	s.peak(ns, xs)
	return s, ""
}

func (s *Scaling) parameters() int {
	n := 1
	if s.Sigma > 0 {
		n++
	}
	if s.Kappa > 0 {
		n++
	}
	return n
}

// peak says where goodput is best, as far as that was measured.
func (s *Scaling) peak(ns, xs []float64) {
	low, high := s.From, s.To
	least, most := math.Inf(1), 0.0
	for k := range steps + 1 {
		v := s.At(low * math.Pow(high/low, float64(k)/steps))
		least, most = min(least, v), max(most, v)
	}
	at := s.summit()
	switch {
	case most <= least*(1+flat):
		s.Shape = Level
	case at >= high:
		s.Shape = Rises
	case at <= low:
		s.Shape = Falls
	default:
		s.Shape, s.Peak = Peaks, &Peak{At: at, Low: s.end(ns, xs, at, low), High: s.end(ns, xs, at, high)}
	}
}

// end is where the 95 % interval of a peak ends on the way to the edge of what was measured; nil if it does not. A place belongs to the
// interval if the best of all laws with their peak there leaves an error that is larger than the least by no more than Student's t
// allows. That holds for few points, too, where a bootstrap over them is too sure (it held the true peak in 84 of 100 trials of six points).
// Source: D. M. Bates, D. G. Watts, "Nonlinear Regression Analysis and Its Applications", 1988, section 6.1 (profile t).
func (s *Scaling) end(ns, xs []float64, at, edge float64) *float64 {
	weight := make([]float64, len(ns))
	for i, n := range ns {
		weight[i] = s.At(n) / n
	}
	free := float64(len(ns) - 3)
	t := distuv.StudentsT{Sigma: 1, Nu: free}.Quantile(0.975)
	most := s.error(ns, xs, weight) * (1 + t*t/free)
	inside := at
	for k := range steps {
		p := at * math.Pow(edge/at, float64(k+1)/steps)
		if peaked(ns, xs, weight, p) > most {
			return &inside
		}
		inside = p
	}
	return nil
}

// error is the sum of squared relative errors of N/X.
func (s *Scaling) error(ns, xs, weight []float64) (sum float64) {
	for i, n := range ns {
		e := weight[i] * (n/xs[i] - n/s.At(n))
		sum += e * e
	}
	return sum
}

// peaked is the least error of a law whose peak lies at p. With σ = 1 − κp² the law is N/X = aN + c(N−1)(N−p²) with a = 1/λ and c = κ/λ,
// linear in both; σ and κ are not negative where 0 ≤ cp² ≤ a.
func peaked(ns, xs, weight []float64, p float64) float64 {
	var uu, uv, vv, uy, vy, yy float64
	for i, n := range ns {
		u, v, y := weight[i]*n, weight[i]*(n-1)*(n-p*p), weight[i]*n/xs[i]
		uu, uv, vv, uy, vy, yy = uu+u*u, uv+u*v, vv+v*v, uy+u*y, vy+v*y, yy+y*y
	}
	border := func(k float64) float64 { // the least error where c = ka
		dy := uy + k*vy
		return yy - dy*dy/(uu+2*k*uv+k*k*vv)
	}
	least := min(border(0), border(1/(p*p)))
	if det := uu*vv - uv*uv; det > 0 {
		a, c := (uy*vv-vy*uv)/det, (vy*uu-uy*uv)/det
		if c >= 0 && c*p*p <= a {
			least = min(least, yy-a*uy-c*vy)
		}
	}
	return max(0, least)
}

// fit finds λ, σ, κ ≥ 0 that leave the least relative error. N/X(N) is linear in 1/λ, σ/λ and κ/λ, so that no start value is guessed
// and no local minimum can be taken for the best: each choice of the parameters that are above 0 is a linear problem, and of those
// whose solution is not negative the best is the answer. Weights of one over the fitted N/X, renewed until they settle, make the errors
// relative ones: goodput scatters by a share, at any height.
func fit(ns, xs []float64) *Scaling {
	y := make([]float64, len(ns))
	weight := make([]float64, len(ns))
	for i := range ns {
		y[i] = ns[i] / xs[i]
		weight[i] = 1 / y[i]
	}
	var best []float64
	for range rounds {
		next := solve(ns, y, weight)
		if next == nil {
			break
		}
		done := best != nil
		for k := range next {
			done = done && math.Abs(next[k]-best[k]) <= settled*(math.Abs(next[k])+math.Abs(best[k]))
		}
		best = next
		if done {
			break
		}
		for i, n := range ns {
			weight[i] = 1 / (best[0] + best[1]*(n-1) + best[2]*n*(n-1))
		}
	}
	if best == nil {
		return nil
	}
	return &Scaling{Lambda: 1 / best[0], Sigma: best[1] / best[0], Kappa: best[2] / best[0]}
}

// solve is one weighted least squares with parameters that are not negative.
func solve(ns, y, weight []float64) []float64 {
	terms := []func(n float64) float64{
		func(float64) float64 { return 1 },
		func(n float64) float64 { return n - 1 },
		func(n float64) float64 { return n * (n - 1) },
	}
	var best []float64
	least := math.Inf(1)
	for _, used := range [][]int{{0}, {0, 1}, {0, 2}, {0, 1, 2}} {
		a := mat.NewDense(len(ns), len(used), nil)
		b := mat.NewVecDense(len(ns), nil)
		for i, n := range ns {
			for j, k := range used {
				a.Set(i, j, weight[i]*terms[k](n))
			}
			b.SetVec(i, weight[i]*y[i])
		}
		var x mat.VecDense
		if err := x.SolveVec(a, b); err != nil {
			continue // hardly told apart by these points: a choice of fewer says as much
		}
		got := make([]float64, len(terms))
		negative := false
		for j, k := range used {
			got[k] = x.AtVec(j)
			negative = negative || got[k] < 0
		}
		if negative || !(got[0] > 0) {
			continue
		}
		var off mat.VecDense
		off.MulVec(a, &x)
		off.SubVec(&off, b)
		// A parameter more must earn its place by more than rounding.
		if e := mat.Dot(&off, &off); e < least*(1-1e-9)-1e-24 {
			best, least = got, e
		}
	}
	return best
}
