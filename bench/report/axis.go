package report

import (
	"math"
	"strconv"
)

// scale maps values to a length from 0 to 1, with ticks at round values.
type scale struct {
	of    func(v float64) float64
	ticks []float64
}

// linear is a scale from 0 to a round value at or above high.
func linear(high float64, most int) scale {
	if high <= 0 {
		high = 1
	}
	step := math.Pow10(int(math.Floor(math.Log10(high / float64(most)))))
	for _, m := range []float64{1, 2, 5, 10} {
		if high/(step*m) <= float64(most) {
			step *= m
			break
		}
	}
	n := math.Ceil(high/step - 1e-9)
	s := scale{of: func(v float64) float64 { return v / (n * step) }}
	for i := 0.0; i <= n; i++ {
		s.ticks = append(s.ticks, i*step)
	}
	return s
}

// logarithmic is a scale between round values around low and high, both above 0.
func logarithmic(low, high float64) scale { return logarithmicBy(low, high, 1, 2, 5) }

// logarithmicBy takes these values of every decade for round ones.
func logarithmicBy(low, high float64, steps ...float64) scale {
	var all []float64
	first := math.Floor(math.Log10(low))
	for e := first; e <= math.Ceil(math.Log10(high))+1; e++ {
		for _, m := range steps {
			all = append(all, m*math.Pow(10, e))
		}
	}
	i, j := 0, len(all)-1
	for i+1 < len(all) && all[i+1] <= low*1.0000001 {
		i++
	}
	for j > i+1 && all[j-1] >= high*0.9999999 {
		j--
	}
	a, b := math.Log10(all[i]), math.Log10(all[j])
	s := scale{of: func(v float64) float64 { return (math.Log10(v) - a) / (b - a) }, ticks: all[i : j+1]}
	if len(s.ticks) > 10 { // many decades: their beginnings are enough
		var tens []float64
		for _, t := range s.ticks {
			if e := math.Log10(t); math.Abs(e-math.Round(e)) < 1e-9 {
				tens = append(tens, t)
			}
		}
		s.ticks = tens
	}
	return s
}

// nines is a scale of percentiles on which every further nine takes the same room; it reaches as far as n samples do.
func nines(n int64) scale {
	most := math.Log10(float64(max(n, 10)))
	s := scale{of: func(q float64) float64 { return -math.Log10(1-q/100) / most }}
	for _, q := range []float64{0, 50, 90, 99, 99.9, 99.99, 99.999, 99.9999} {
		if s.of(q) <= 1 {
			s.ticks = append(s.ticks, q)
		}
	}
	return s
}

// tickText writes a round value.
func tickText(v float64) string {
	text := strconv.FormatFloat(v, 'f', -1, 64)
	if v >= 10000 && v == math.Trunc(v) {
		return grouped(text)
	}
	if len(text) > 7 { // a step such as 0.1 added up
		text = strconv.FormatFloat(v, 'g', 3, 64)
	}
	return text
}
