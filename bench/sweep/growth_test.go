package sweep

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestPowerLawOfExactData(t *testing.T) {
	xs := []float64{1, 2, 5, 10, 50, 200}
	for _, exponent := range []float64{-0.5, 0, 0.9, 2} {
		var ys []float64
		for _, x := range xs {
			ys = append(ys, 3*math.Pow(x, exponent))
		}
		g, ok := powerLaw(xs, ys)
		if !ok || math.Abs(g.Exponent-exponent) > 1e-9 || math.Abs(g.High-g.Low) > 1e-9 || g.Points != len(xs) || math.Abs(g.Scatter-1) > 1e-9 {
			t.Errorf("exponent %g: %+v", exponent, g)
		}
	}
}

// TestPowerLawIntervalHolds: of a hundred noisy sets, about 95 intervals hold the true exponent.
func TestPowerLawIntervalHolds(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 11))
	xs := []float64{1, 2, 4, 8, 16, 32}
	held, all := 0, 2000
	for range all {
		var ys []float64
		for _, x := range xs {
			ys = append(ys, math.Pow(x, 0.9)*math.Exp(0.2*rng.NormFloat64()))
		}
		if g, ok := powerLaw(xs, ys); ok && g.Low <= 0.9 && 0.9 <= g.High {
			held++
		}
	}
	if share := float64(held) / float64(all); share < 0.93 || share > 0.97 {
		t.Errorf("%.1f %% of the 95 %% intervals hold the exponent", 100*share)
	}
}

// TestBentCurveIsNoSureLaw: what is no power law has a wide interval, however exact its figures are.
func TestBentCurveIsNoSureLaw(t *testing.T) {
	var xs, ys []float64
	for _, x := range []float64{1, 2, 4, 8, 16, 32} {
		xs, ys = append(xs, x), append(ys, math.Exp(x/5))
	}
	if g, ok := powerLaw(xs, ys); !ok || g.High-g.Low < 1 || g.Scatter < 1.5 {
		t.Errorf("%+v", g)
	}
}

func TestNoPowerLaw(t *testing.T) {
	for name, tc := range map[string]struct{ xs, ys []float64 }{
		"nothing":        {nil, nil},
		"three points":   {[]float64{1, 2, 3}, []float64{1, 2, 3}},
		"zeros left out": {[]float64{1, 2, 3, 4}, []float64{0, 2, 3, 4}},
		"a think of 0":   {[]float64{0, 2, 3, 4}, []float64{1, 2, 3, 4}},
		"one value":      {[]float64{8, 8, 8, 8, 8}, []float64{1, 2, 3, 4, 5}},
	} {
		if g, ok := powerLaw(tc.xs, tc.ys); ok {
			t.Errorf("%s: %+v", name, g)
		}
	}
}
