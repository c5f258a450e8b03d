package sweep

import (
	"math"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Growth is a power law: the figure grows like the parameter to the exponent.
type Growth struct {
	Exponent float64 `json:"exponent"`
	Low      float64 `json:"low"` // of the 95 % interval
	High     float64 `json:"high"`
	Points   int     `json:"points"`
	Scatter  float64 `json:"scatter"` // by which factor points typically lie off the law; 1: not at all
}

// minLaw is the least of points that says anything about a power law: the line has two parameters, and one point more would leave an
// interval of twelve standard errors on either side.
const minLaw = 4

// powerLaw fits a straight line to the logarithms of figures above 0. The interval is Student's t of the regression, over one figure a
// point: what the points lie off the line counts against it, whether the machine scattered them or the law is not quite a power.
// A bootstrap over the trials of each point would see the scatter alone, and call a bent curve a sure line; and trials of one point
// taken for points of their own would be evidence counted thrice.
func powerLaw(xs, ys []float64) (Growth, bool) {
	var lx, ly []float64
	for i := range xs {
		if xs[i] > 0 && ys[i] > 0 {
			lx, ly = append(lx, math.Log(xs[i])), append(ly, math.Log(ys[i]))
		}
	}
	n := float64(len(lx))
	if len(lx) < minLaw {
		return Growth{}, false
	}
	mean, spread := stat.MeanVariance(lx, nil)
	if !(spread > 1e-12*max(1, mean*mean)) {
		return Growth{}, false // all at one value
	}
	from, slope := stat.LinearRegression(lx, ly, nil, false)
	var off float64
	for i := range lx {
		e := ly[i] - from - slope*lx[i]
		off += e * e
	}
	off = math.Sqrt(off / (n - 2))
	reach := distuv.StudentsT{Sigma: 1, Nu: n - 2}.Quantile(0.975) * off / math.Sqrt(spread*(n-1))
	return Growth{Exponent: slope, Low: slope - reach, High: slope + reach, Points: len(lx), Scatter: math.Exp(off)}, true
}
