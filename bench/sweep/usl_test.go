package sweep

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

var doubled = []float64{1, 2, 4, 8, 16, 32}

func goodputs(s Scaling, ns []float64, noise func() float64) []float64 {
	var xs []float64
	for _, n := range ns {
		xs = append(xs, s.At(n)*noise())
	}
	return xs
}

func exactly() float64 { return 1 }

func TestUSLFindsItsParameters(t *testing.T) {
	for name, tc := range map[string]struct {
		law   Scaling
		shape Shape
		peak  float64
	}{
		"a peak within":         {Scaling{Lambda: 300, Sigma: 0.05, Kappa: 0.005}, Peaks, math.Sqrt(0.95 / 0.005)},
		"a peak beyond":         {Scaling{Lambda: 300, Sigma: 0.05, Kappa: 0.0001}, Rises, 0},
		"linear":                {Scaling{Lambda: 40}, Rises, 0},
		"Amdahl":                {Scaling{Lambda: 40, Sigma: 0.2}, Rises, 0},
		"a wall":                {Scaling{Lambda: 40, Sigma: 1}, Level, 0},
		"worse with every user": {Scaling{Lambda: 40, Sigma: 1, Kappa: 0.05}, Falls, 0},
		"coherency alone":       {Scaling{Lambda: 1e6, Kappa: 0.02}, Peaks, math.Sqrt(1 / 0.02)},
	} {
		got, refused := scale(doubled, goodputs(tc.law, doubled, exactly))
		if refused != "" {
			t.Errorf("%s: refused: %s", name, refused)
			continue
		}
		near := func(a, b float64) bool { return math.Abs(a-b) <= 1e-6*(1+math.Abs(b)) }
		if !near(got.Lambda, tc.law.Lambda) || !near(got.Sigma, tc.law.Sigma) || !near(got.Kappa, tc.law.Kappa) || got.Off > 1e-6 || got.Shape != tc.shape {
			t.Errorf("%s: %+v", name, got)
		}
		if (got.Peak != nil) != (tc.shape == Peaks) || got.Peak != nil && !near(got.Peak.At, tc.peak) {
			t.Errorf("%s: peak %+v, want %g", name, got.Peak, tc.peak)
		}
	}
}

// TestUSLOfNoisyData: parameters are never negative, and the interval of the peak holds the true one nearly always.
func TestUSLOfNoisyData(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 5))
	law := Scaling{Lambda: 300, Sigma: 0.05, Kappa: 0.01}
	held, peaks, all := 0, 0, 400
	for range all {
		got, refused := scale(doubled, goodputs(law, doubled, func() float64 { return math.Exp(0.05 * rng.NormFloat64()) }))
		if refused != "" {
			t.Fatal(refused)
		}
		if got.Sigma < 0 || got.Kappa < 0 || !(got.Lambda > 0) {
			t.Fatalf("%+v", got)
		}
		if k := got.Peak; k != nil {
			peaks++
			if (k.Low == nil || *k.Low <= law.summit()) && (k.High == nil || law.summit() <= *k.High) {
				held++
			}
		}
	}
	if peaks < all*95/100 || held < peaks*92/100 {
		t.Errorf("of %d sets %d have a peak, and %d intervals hold it", all, peaks, held)
	}
}

// TestUSLOnTheBorder: noise around a law without one of the costs never makes that cost negative.
func TestUSLOnTheBorder(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 9))
	for _, law := range []Scaling{{Lambda: 300, Kappa: 0.01}, {Lambda: 300, Sigma: 0.2}, {Lambda: 300}} {
		none := 0
		for range 200 {
			s := fit(doubled, goodputs(law, doubled, func() float64 { return math.Exp(0.05 * rng.NormFloat64()) }))
			if s == nil || s.Sigma < 0 || s.Kappa < 0 || !(s.Lambda > 0) {
				t.Fatalf("%+v is fitted with %+v", law, s)
			}
			if s.Sigma == 0 || s.Kappa == 0 {
				none++
			}
		}
		if none < 50 { // half of the noise pulls beyond the border
			t.Errorf("%+v: only %d of 200 fits lie on the border", law, none)
		}
	}
}

// TestUSLIsTheBest: no law nearby is closer to the points.
func TestUSLIsTheBest(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	off := func(s Scaling, ns, xs []float64) (sum float64) {
		for i := range ns {
			e := xs[i]/s.At(ns[i]) - 1
			sum += e * e / (1 + e) / (1 + e) // relative to what was measured: N/X, not X, is what the fit takes for scattered
		}
		return sum
	}
	for range 100 {
		law := Scaling{Lambda: 100, Sigma: rng.Float64(), Kappa: rng.Float64() * 0.02}
		xs := goodputs(law, doubled, func() float64 { return math.Exp(0.1 * rng.NormFloat64()) })
		got := fit(doubled, xs)
		least := off(*got, doubled, xs)
		for range 50 {
			other := Scaling{
				Lambda: got.Lambda * (1 + 0.5*(rng.Float64()-0.5)),
				Sigma:  max(0, got.Sigma+0.2*(rng.Float64()-0.5)),
				Kappa:  max(0, got.Kappa+0.004*(rng.Float64()-0.5)),
			}
			if v := off(other, doubled, xs); v < least*0.97 {
				t.Fatalf("%+v is %g off, %+v only %g", got, least, other, v)
			}
		}
	}
}

func TestUSLRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		ns, xs []float64
		want   string
	}{
		"too few":           {[]float64{1, 2, 4, 8}, []float64{1, 2, 3, 4}, "needs 5 points with a connection a user, there are 4"},
		"too few values":    {[]float64{1, 2, 4, 8, 8, 8}, []float64{1, 2, 3, 4, 4, 4}, "needs 5 points with a connection a user, there are 4"},
		"nothing confirmed": {doubled, []float64{1, 2, 3, 0, 4, 5}, "nobody was confirmed"},
		"no law":            {doubled, []float64{100, 10, 300, 20, 500, 40}, "does not fit"},
		"superlinear":       {doubled, []float64{1, 4, 16, 64, 256, 1024}, "does not fit"},
	} {
		s, refused := scale(tc.ns, tc.xs)
		if s != nil || !strings.Contains(refused, tc.want) {
			t.Errorf("%s: %+v, %q", name, s, refused)
		}
	}
}
