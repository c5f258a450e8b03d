// Package gate decides whether a report's figures keep to limits such as "overbooked>0" or "optimistic: p99>50ms", and its verdicts to
// what was expected. A limit says what must not be: it fails where the comparison holds, and where the figure was not measured.
package gate

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockbench/lockbench/bench"
)

// Limit is one parsed expression: [strategy:] figure comparison value.
type Limit struct {
	Strategy string // label or name; "" for every strategy
	Figure   string
	Op       string
	Value    float64 // in the figure's own unit
	Text     string  // as the user wrote it
	figure   figure
}

// operators, longest first, so that >= is not read as > and "=…".
var operators = []string{">=", "<=", "==", "!=", ">", "<"}

const form = "thresholds look like overbooked>0, conflict_rate>20%, optimistic: p99>50ms"

// Parse reads an expression.
func Parse(text string) (Limit, error) {
	l := Limit{Text: text}
	left, right, ok := "", "", false
	for i := range text {
		if op := operatorAt(text[i:]); op != "" {
			left, l.Op, right, ok = text[:i], op, text[i+len(op):], true
			break
		}
	}
	if !ok {
		return l, bench.Hintf(form, "threshold %q has no comparison", text)
	}
	// The figure follows the last colon: a strategy's label has colons of its own.
	if i := strings.LastIndex(left, ":"); i >= 0 {
		l.Strategy, left = strings.TrimSpace(left[:i]), left[i+1:]
		if l.Strategy == "" {
			return l, bench.Hintf(form, "threshold %q names no strategy before its colon", text)
		}
		if specs, err := bench.ParseSpecs(l.Strategy); err == nil && len(specs) == 1 {
			l.Strategy = specs[0].Label // as the cell is named, however the options were written
		}
	}
	l.Figure = strings.TrimSpace(left)
	f, known := find(l.Figure)
	if !known {
		return l, unknown(l)
	}
	l.figure = f
	v, err := f.unit.parse(strings.TrimSpace(right))
	if err != nil {
		return l, fmt.Errorf("threshold %q: %w", text, err)
	}
	l.Value = v
	return l, nil
}

func operatorAt(s string) string {
	for _, op := range operators {
		if strings.HasPrefix(s, op) {
			return op
		}
	}
	return ""
}

func unknown(l Limit) error {
	if l.Figure == "" {
		return bench.Hintf(form, "threshold %q names no figure", l.Text)
	}
	plain := slices.DeleteFunc(Names(), func(name string) bool { return strings.Contains(name, ".") })
	hint := "figures are " + strings.Join(plain, ", ") + ", and those of the JSON report by their path, as latency.rejected.p99_ms"
	if n := bench.Nearest(l.Figure, slices.Sorted(maps.Keys(figures()))); n != "" {
		hint = "did you mean " + n + "?"
	}
	return bench.Hintf(hint, "unknown figure %q in threshold %q", l.Figure, l.Text)
}

// ParseAll reads every expression and reports every problem.
func ParseAll(texts []string) ([]Limit, error) {
	var limits []Limit
	var errs []error
	for _, t := range texts {
		l, err := Parse(t)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		limits = append(limits, l)
	}
	return limits, errors.Join(errs...)
}

// Concerns reports whether the limit holds for a strategy of this label and name. A bare name stands for all of its variants.
func (l Limit) Concerns(label, name string) bool {
	return l.Strategy == "" || l.Strategy == label || l.Strategy == name
}

// Check holds every limit against every cell that it concerns, in the order of the limits and then of the cells. Cells that were not
// run because the combination makes no sense are passed over; a limit that met no cell at all fails, and so does one on a figure that
// was not measured.
func Check(limits []Limit, cells []bench.Cell) []bench.Assertion {
	var all []bench.Assertion
	for _, l := range limits {
		met := false
		for i := range cells {
			c := &cells[i]
			if c.NA != "" || !l.Concerns(c.Strategy, c.Name) {
				continue
			}
			met = true
			all = append(all, l.check(c))
		}
		if !met {
			all = append(all, l.unmet())
		}
	}
	return all
}

// check holds the limit against one cell.
func (l Limit) check(c *bench.Cell) bench.Assertion {
	a := bench.Assertion{Race: c.Race, Scenario: c.Scenario, Strategy: c.Strategy, Text: l.Text, Figure: l.Figure, Limit: &l.Value}
	v, measured := 0.0, false
	if len(c.Trials) > 0 {
		v, measured = l.figure.of(c)
	}
	if !measured {
		a.Failed, a.Message = true, l.notMeasured()
		return a
	}
	u := l.figure.unit
	a.Value, a.Failed = &v, l.holds(v)
	a.Message = fmt.Sprintf("%s is %s", l.Figure, u.format(v))
	if a.Failed {
		a.Message += fmt.Sprintf(", and %q fails when it is %s %s", l.Text, l.Op, u.format(l.Value))
	}
	return a
}

func (l Limit) unmet() bench.Assertion {
	return bench.Assertion{Strategy: l.Strategy, Text: l.Text, Figure: l.Figure, Limit: &l.Value, Failed: true, Message: l.notMeasured()}
}

func (l Limit) notMeasured() string {
	return fmt.Sprintf("%s was not measured, so %q cannot pass", l.Figure, l.Text)
}

func (l Limit) holds(v float64) bool {
	switch l.Op {
	case ">":
		return v > l.Value
	case ">=":
		return v >= l.Value
	case "<":
		return v < l.Value
	case "<=":
		return v <= l.Value
	case "==":
		return v == l.Value
	}
	return v != l.Value
}

// unit is how a figure is written.
type unit int

const (
	count   unit = iota
	ratio        // a share, written as 20% or 0.2
	rate         // a second, written as 500/s or 500
	millis       // a duration in milliseconds, written with its unit
	seconds      // a duration in seconds, written with its unit
	plain        // a number without a unit
)

func (u unit) parse(s string) (float64, error) {
	switch u {
	case millis, seconds:
		d, err := bench.ParseDuration(s)
		if u == seconds {
			return d.Seconds(), err
		}
		return float64(d) / float64(time.Millisecond), err
	case ratio:
		if t, percent := strings.CutSuffix(s, "%"); percent {
			v, err := number(strings.TrimSpace(t), s, "write a share as 20% or 0.2")
			return v / 100, err
		}
		return number(s, s, "write a share as 20% or 0.2")
	case rate:
		return number(strings.TrimSpace(strings.TrimSuffix(s, "/s")), s, "write a rate as 500/s")
	case count:
		v, err := number(s, s, "write a count as 0 or 25")
		if err == nil && v != math.Trunc(v) {
			return 0, bench.Hintf("write a count as 0 or 25", "%q is not a whole number", s)
		}
		return v, err
	}
	return number(s, s, "write a number as 1.5")
}

func number(s, shown, hint string) (float64, error) {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
		return 0, bench.Hintf(hint, "%q cannot be compared with this figure", shown)
	}
	return v, nil
}

func (u unit) format(v float64) string {
	short := strconv.FormatFloat(v, 'f', -1, 64)
	if v != math.Trunc(v) {
		short = strconv.FormatFloat(v, 'g', 4, 64)
	}
	switch u {
	case ratio:
		return strconv.FormatFloat(100*v, 'g', 4, 64) + "%"
	case rate:
		return short + "/s"
	case millis:
		return short + "ms"
	case seconds:
		return short + "s"
	}
	return short
}

// Read returns what the limited figure is in a cell, with its unit.
func (l Limit) Read(c *bench.Cell) string {
	if v, measured := l.figure.of(c); measured && len(c.Trials) > 0 {
		return l.figure.unit.format(v)
	}
	return "not measured"
}
