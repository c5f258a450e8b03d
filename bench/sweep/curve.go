package sweep

import (
	"slices"
	"strings"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/bench/gate"
)

// Curve is what a strategy's points show together.
type Curve struct {
	Strategy string        `json:"strategy"`
	Verdict  bench.Verdict `json:"verdict"` // violated if any point was, else sound if any point was
	// Amplification is how attempts per confirmed operation grow; absent with fewer than four points.
	Amplification *Growth   `json:"amplification,omitempty"`
	Retrying      *Retrying `json:"retrying,omitempty"`
	Best          *Best     `json:"best,omitempty"`
	Scaling       *Scaling  `json:"scaling,omitempty"`
	NoScaling     string    `json:"no_scaling,omitempty"` // why there is no fit, where there could be one
	Usable        *Usable   `json:"usable,omitempty"`     // of a search
}

// Best is the point with the highest goodput.
type Best struct {
	Value   float64 `json:"value"`
	Goodput float64 `json:"goodput"` // per second
}

// Retrying compares retries with the volume of operations, from the first to the last point that had retries.
type Retrying struct {
	From Load `json:"from"`
	To   Load `json:"to"`
	// Growth is that of retries per operation; absent with fewer than four points with retries. A slow moment of the machine lowers
	// both alike, and leaves it as it is.
	Growth *Growth `json:"growth,omitempty"`
	// Superlinear says that retries grow faster than the volume of operations does, and that the interval of the growth says so.
	Superlinear bool `json:"superlinear"`
}

// Load is one point's volume and retries: a second in closed and open mode, a burst in burst mode.
type Load struct {
	Value        float64 `json:"value"`
	ConflictRate float64 `json:"conflict_rate"`
	Operations   float64 `json:"operations"`
	Retries      float64 `json:"retries"`
}

// Usable says how far a strategy kept to the limits of a search. Kept is absent where it did not at the first value, Failed where it did
// at every value.
type Usable struct {
	Kept   *Edge `json:"kept,omitempty"`
	Failed *Edge `json:"failed,omitempty"`
}

// Edge is a point beside the limit.
type Edge struct {
	Value   float64 `json:"value"`
	Figures string  `json:"figures"` // the limited figures there, as "p99 190ms"
}

// analyse draws every strategy's curve, from the figures that stand in its cells.
func (s *Sweep) analyse() ([]Curve, error) {
	limits, err := gate.ParseAll(s.Until)
	if err != nil {
		return nil, err
	}
	curves := []Curve{}
	for _, strategy := range s.Strategies() {
		points := s.Points(strategy)
		if len(points) == 0 {
			continue
		}
		c := Curve{Strategy: strategy}
		var ns, attempts, goodputs []float64
		for _, p := range points {
			c.Verdict = worse(c.Verdict, p.Cell.Verdict)
			if a := p.Cell.Amplification; a != nil {
				ns, attempts = append(ns, p.Value), append(attempts, *a)
			}
			var g float64
			if p.Cell.Goodput != nil {
				g = *p.Cell.Goodput
			}
			goodputs = append(goodputs, g)
			if g > 0 && (c.Best == nil || g > c.Best.Goodput) {
				c.Best = &Best{Value: p.Value, Goodput: g}
			}
		}
		if g, ok := powerLaw(ns, attempts); ok {
			c.Amplification = &g
		}
		c.Retrying = s.retrying(points)
		c.Scaling, c.NoScaling = s.scaling(&c, points, goodputs)
		if len(limits) > 0 {
			c.Usable = usable(limits, points)
		}
		curves = append(curves, c)
	}
	return curves, nil
}

// worse joins the verdicts of two points. One where nothing was put to the test does not spoil another.
func worse(a, b bench.Verdict) bench.Verdict { return max(a, b) }

func (s *Sweep) retrying(points []Point) *Retrying {
	var loads []Load
	var xs, ys []float64
	for _, p := range points {
		c := p.Cell
		if c.Retries == 0 || c.ConflictRate == nil {
			continue
		}
		per := 1.0
		if p.Plan.Mode != bench.Burst {
			per = c.DurationS
		}
		l := Load{Value: p.Value, ConflictRate: *c.ConflictRate, Operations: float64(c.Operations) / per, Retries: float64(c.Retries) / per}
		loads = append(loads, l)
		xs, ys = append(xs, l.Value), append(ys, l.Retries/l.Operations)
	}
	if len(loads) < 2 { // what never had to try again grows by nothing
		return nil
	}
	r := &Retrying{From: loads[0], To: loads[len(loads)-1]}
	if g, ok := powerLaw(xs, ys); ok {
		r.Growth = &g
		// Only users and arrivals are a volume: what grows faster than think time proves nothing.
		r.Superlinear = g.Low > 0 && slices.Contains([]string{"users", "rate"}, s.Parameter)
	}
	return r
}

// scaling fits the scalability law where it means something.
func (s *Sweep) scaling(c *Curve, points []Point, goodputs []float64) (*Scaling, string) {
	switch {
	case s.Parameter != "users" && s.Parameter != "connections", points[0].Plan.Mode != bench.Closed:
		return nil, "" // it is a law of users, or connections, that are at work all the time
	case c.Verdict == bench.Violated:
		return nil, "it is not sound, so its goodput is none"
	}
	var ns, xs []float64
	for i, p := range points {
		// Users in line for a connection are not at work, and connections that nobody uses are idle: neither is more of what scales.
		if s.Parameter == "users" && p.Plan.Users > p.Plan.Connections || s.Parameter == "connections" && p.Plan.Connections > p.Plan.Users {
			continue
		}
		ns, xs = append(ns, p.Value), append(xs, goodputs[i])
	}
	return scale(ns, xs)
}

// Passed reports whether a cell keeps to every limit.
func Passed(limits []gate.Limit, c *bench.Cell) bool {
	for _, l := range limits {
		if l.Concerns(c.Strategy, c.Name) && gate.Check([]gate.Limit{l}, []bench.Cell{*c})[0].Failed {
			return false
		}
	}
	return true
}

// Figures writes the limited figures of a cell, as "p99 190ms, conflict_rate 12%".
func Figures(limits []gate.Limit, c *bench.Cell) string {
	var all []string
	for _, l := range limits {
		if l.Concerns(c.Strategy, c.Name) {
			all = append(all, l.Figure+" "+l.Read(c))
		}
	}
	return strings.Join(all, ", ")
}

// usable finds the first point that failed, and the last before it.
func usable(limits []gate.Limit, points []Point) *Usable {
	u := &Usable{}
	for _, p := range points {
		edge := &Edge{Value: p.Value, Figures: Figures(limits, p.Cell)}
		if !Passed(limits, p.Cell) {
			u.Failed = edge
			return u
		}
		u.Kept = edge
	}
	return u
}
