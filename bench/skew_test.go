package bench

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestParseSkew(t *testing.T) {
	for _, tc := range []struct {
		in, err, hint string
		want          Skew
	}{
		{in: "uniform"},
		{in: "zipf:0.99", want: Skew{Theta: 0.99}},
		{in: "hot:3", want: Skew{Hot: 3}},
		{in: "uniform:1", err: `"uniform:1" is not a skew`, hint: "uniform, zipf:0.99 or hot:3"},
		{in: "zipf", err: `"zipf" is not a skew`, hint: "above 0 and below 1"},
		{in: "zipf:0", err: `"zipf:0" is not a skew`, hint: "above 0 and below 1"},
		{in: "zipf:1", err: `"zipf:1" is not a skew`, hint: "above 0 and below 1"},
		{in: "zipf:NaN", err: `"zipf:NaN" is not a skew`, hint: "above 0 and below 1"},
		{in: "hot:0", err: `"hot:0" is not a skew`, hint: "number of rows"},
		{in: "hot:many", err: `"hot:many" is not a skew`, hint: "number of rows"},
		{in: "pareto:1", err: `"pareto:1" is not a skew`, hint: "uniform, zipf:0.99 or hot:3"},
		{in: "", err: `"" is not a skew`, hint: "uniform"},
	} {
		t.Run(tc.in, func(t *testing.T) {
			s, err := ParseSkew(tc.in)
			if tc.err != "" {
				wantHinted(t, err, tc.err, tc.hint)
				return
			}
			if err != nil || s != tc.want || s.String() != tc.in {
				t.Errorf("%+v (%s), %v; want %+v", s, s, err, tc.want)
			}
		})
	}
}

// draw counts how often each of n keys comes in some draws; index 0 counts what lies outside 1 to n.
func draw(s Skew, n int64, draws int) []float64 {
	rng := rand.New(rand.NewPCG(3, 4))
	p := newPicker(s, n)
	count := make([]float64, n+1)
	for range draws {
		k := p.pick(rng)
		if k < 1 || k > n {
			k = 0
		}
		count[k]++
	}
	return count
}

func TestPickStaysInRange(t *testing.T) {
	for _, s := range []Skew{{}, {Theta: 0.01}, {Theta: 0.5}, {Theta: 0.99}, {Theta: 0.9999}, {Hot: 1}, {Hot: 7}} {
		for _, n := range []int64{1, 2, 3, 4, 10, 1000} {
			if out := draw(s, n, 5000)[0]; out > 0 {
				t.Errorf("%v over %d rows: %.0f draws out of range", s, n, out)
			}
		}
	}
}

// chiSquare compares counts with what is expected of them, in standard deviations of the statistic above its mean.
func chiSquare(count, expected []float64) float64 {
	var x float64
	for i := range count {
		x += (count[i] - expected[i]) * (count[i] - expected[i]) / expected[i]
	}
	freedom := float64(len(count) - 1)
	return (x - freedom) / math.Sqrt(2*freedom)
}

func TestPickUniform(t *testing.T) {
	const n, draws = 100, 100_000
	expected := make([]float64, n)
	for i := range expected {
		expected[i] = draws / n
	}
	if z := chiSquare(draw(Skew{}, n, draws)[1:], expected); z > 4 {
		t.Errorf("far from uniform: χ² is %.1f deviations above its mean", z)
	}
}

// TestPickZipf holds the frequencies against 1/rank^θ. The generator is exact for the two first ranks and an approximation for the
// rest, so those get 15 %.
func TestPickZipf(t *testing.T) {
	const n, draws = 100, 150_000
	for _, theta := range []float64{0.3, 0.5, 0.8, 0.99} {
		count := draw(Skew{Theta: theta}, n, draws)
		var zeta float64
		for i := 1; i <= n; i++ {
			zeta += math.Pow(float64(i), -theta)
		}
		for rank := 1; rank <= n; rank++ {
			want := draws * math.Pow(float64(rank), -theta) / zeta
			slack := 4 * math.Sqrt(want)
			if rank > 2 {
				slack += 0.15 * want
			}
			if math.Abs(count[rank]-want) > slack {
				t.Errorf("θ %g: rank %d came %.0f times, theory says %.0f", theta, rank, count[rank], want)
			}
		}
		for decade := 0; decade < n-10; decade += 10 {
			if here, next := sum(count[decade+1:decade+11]), sum(count[decade+11:decade+21]); here < next {
				t.Errorf("θ %g: ranks %d to %d come %.0f times, the ten after them %.0f times", theta, decade+1, decade+10, here, next)
			}
		}
	}
}

func sum(xs []float64) (total float64) {
	for _, x := range xs {
		total += x
	}
	return total
}

func TestPickHot(t *testing.T) {
	count := draw(Skew{Hot: 3}, 10, 3000)
	if beyond := sum(count[4:]); beyond > 0 {
		t.Errorf("hot:3 drew %.0f times beyond row 3", beyond)
	}
	for k := 1; k <= 3; k++ {
		if count[k] < 800 || count[k] > 1200 {
			t.Errorf("hot:3 drew row %d %.0f times of 3000", k, count[k])
		}
	}
}

func TestPickIsReproducible(t *testing.T) {
	keys := func(seed uint64) (all [100]int64) {
		rng := rand.New(rand.NewPCG(seed, 0))
		p := newPicker(Skew{Theta: 0.8}, 1000)
		for i := range all {
			all[i] = p.pick(rng)
		}
		return all
	}
	if first, again := keys(1), keys(1); first != again {
		t.Error("the same seed drew other rows")
	}
	if keys(1) == keys(2) {
		t.Error("another seed drew the same rows")
	}
}
