// Package sweep runs no race itself: it says what the same race with several values of one parameter shows, as the growth of retries,
// the scalability of a strategy, and where a strategy stops being usable.
package sweep

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/lockbench/lockbench/bench"
)

// Schema names the version of the sweep's JSON form.
const Schema = "lockbench.sweep/v1"

// Sweep is a report of several races that differ in one parameter, with what they show together.
type Sweep struct {
	Schema    string   `json:"schema"`
	Parameter string   `json:"parameter"`       // a name that [Lookup] knows
	Until     []string `json:"until,omitempty"` // the limits of a search, as --until gave them
	Curves    []Curve  `json:"curves"`          // one a strategy
	// Report holds one race a point, in ascending order; its trials were interleaved over all points.
	Report *bench.Report `json:"report"`
}

// Point is one strategy with one value of the parameter.
type Point struct {
	Value float64
	Cell  *bench.Cell
	Plan  *bench.Settings
}

// Parameter is a setting that can be swept.
type Parameter struct {
	Name string
	Unit string // of its values; empty where the name says it
	of   func(s *bench.Settings) float64
	set  func(s *bench.Settings, v float64)
	// Whole says that its values are whole numbers.
	Whole bool
}

// Parameters lists what can be swept.
func Parameters() []Parameter {
	return []Parameter{
		{
			Name: "users", Whole: true,
			of:  func(s *bench.Settings) float64 { return float64(s.Users) },
			set: func(s *bench.Settings, v float64) { s.Users = int(v) },
		},
		{
			Name: "connections", Whole: true,
			of:  func(s *bench.Settings) float64 { return float64(s.Connections) },
			set: func(s *bench.Settings, v float64) { s.Connections = int(v) },
		},
		{
			Name: "rate", Unit: "/s",
			of:  func(s *bench.Settings) float64 { return s.Rate },
			set: func(s *bench.Settings, v float64) { s.Rate = v },
		},
		{
			Name: "think", Unit: "ms",
			of: func(s *bench.Settings) float64 { return float64(s.Think) / float64(time.Millisecond) },
			set: func(s *bench.Settings, v float64) {
				s.Think = bench.Duration(math.Round(v * float64(time.Millisecond)))
			},
		},
		{
			Name: "rows", Whole: true,
			of:  func(s *bench.Settings) float64 { return float64(s.Rows) },
			set: func(s *bench.Settings, v float64) { s.Rows = int64(v) },
		},
	}
}

// Lookup finds a parameter by name.
func Lookup(name string) (Parameter, error) {
	var names []string
	for _, p := range Parameters() {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	return Parameter{}, bench.Hintf(fmt.Sprintf("there are %v", names), "%q cannot be swept", name)
}

// Of returns the parameter's value in a plan, in its unit.
func (p Parameter) Of(s *bench.Settings) float64 { return p.of(s) }

// Set puts a value into a plan.
func (p Parameter) Set(s *bench.Settings, v float64) { p.set(s, v) }

// Text writes a value without its unit.
func (p Parameter) Text(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

// Race names the race of a value within the report, as "users=100".
func (p Parameter) Race(v float64) string { return p.Name + "=" + p.Text(v) + p.Unit }

// Of returns the sweep that the reports of its points make, in the order in which they were run. Reports of the same value but other
// strategies, as a search makes them, become one race.
func Of(p Parameter, until []string, reports []*bench.Report) (*Sweep, error) {
	var parts []bench.Part
	for _, r := range reports {
		name := p.Race(p.Of(&r.Plan))
		i := slices.IndexFunc(parts, func(have bench.Part) bool { return have.Name == name })
		if i < 0 {
			one := *r
			parts = append(parts, bench.Part{Name: name, Report: &one})
			continue
		}
		have := parts[i].Report
		have.Cells = append(slices.Clip(have.Cells), r.Cells...)
		have.Gate = append(slices.Clip(have.Gate), r.Gate...)
		have.Warnings = append(slices.Clip(have.Warnings), r.Warnings...)
		have.Plan.Strategies = append(slices.Clip(have.Plan.Strategies), r.Plan.Strategies...)
		have.Partial = have.Partial || r.Partial
	}
	slices.SortStableFunc(parts, func(a, b bench.Part) int { return cmp.Compare(p.Of(&a.Plan), p.Of(&b.Plan)) })
	s := &Sweep{Schema: Schema, Parameter: p.Name, Until: until, Report: bench.Join(parts)}
	i := 0
	for _, part := range parts { // Join takes its races for run one after the other
		for _, c := range part.Cells {
			for j, t := range c.Trials {
				s.Report.Cells[i].Trials[j].Order = t.Order
			}
			i++
		}
	}
	var err error
	s.Curves, err = s.analyse()
	return s, err
}

// Strategies lists the labels of the strategies, in the order of the plan.
func (s *Sweep) Strategies() []string {
	var all []string
	for i := range s.Report.Cells {
		if label := s.Report.Cells[i].Strategy; !slices.Contains(all, label) {
			all = append(all, label)
		}
	}
	return all
}

// Points returns a strategy's points that were measured, in ascending order.
func (s *Sweep) Points(strategy string) []Point {
	p, err := Lookup(s.Parameter)
	if err != nil {
		return nil
	}
	var all []Point
	for i := range s.Report.Cells {
		c := &s.Report.Cells[i]
		if c.Strategy == strategy && len(c.Trials) > 0 {
			plan := s.Report.PlanOf(c)
			all = append(all, Point{Value: p.Of(plan), Cell: c, Plan: plan})
		}
	}
	return all
}

// Curve returns what is known of a strategy; nil if nothing is.
func (s *Sweep) Curve(strategy string) *Curve {
	for i := range s.Curves {
		if s.Curves[i].Strategy == strategy {
			return &s.Curves[i]
		}
	}
	return nil
}

// saveOne is the hint for what is no sweep.
const saveOne = "lockbench sweep --output sweep.json saves one"

// Read reads a sweep in its JSON form.
func Read(rd io.Reader) (*Sweep, error) {
	var s Sweep
	dec := json.NewDecoder(rd)
	if err := dec.Decode(&s); err != nil {
		return nil, bench.Hintf(saveOne, "this is no sweep: %v", err)
	}
	if s.Schema != Schema {
		return nil, bench.Hintf("use the lockbench that wrote it", "this sweep is of schema %q, not %q", s.Schema, Schema)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, bench.Hintf("keep one sweep a file", "something follows the sweep")
	}
	if _, err := Lookup(s.Parameter); err != nil {
		return nil, err
	}
	if s.Report == nil || s.Report.Schema != bench.Schema {
		return nil, bench.Hintf(saveOne, "this sweep holds no report of schema %q", bench.Schema)
	}
	for _, c := range s.Curves {
		if len(s.Points(c.Strategy)) == 0 {
			return nil, bench.Hintf(saveOne, "this sweep holds a curve of %q, and no points", c.Strategy)
		}
	}
	return &s, nil
}
