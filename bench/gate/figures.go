package gate

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/lockbench/lockbench/bench"
)

// figure is something a limit may be set on; of reports whether the cell has it.
type figure struct {
	unit unit
	of   func(c *bench.Cell) (float64, bool)
}

// keys are those of the JSON form's objects whose fields have no names of their own. A scenario that does not check one of the audited
// counts leaves it out, which is not a 0.
func keys() map[string][]string {
	var outcomes, contentions []string
	for _, o := range bench.Outcomes() {
		outcomes = append(outcomes, o.String())
	}
	for _, k := range bench.Contentions() {
		contentions = append(contentions, k.String())
	}
	latencies := append(slices.Clone(outcomes), "all")
	return map[string][]string{
		"outcomes": outcomes, "contention": contentions, "latency": latencies, "latency_uncorrected": latencies,
		"waits": {"pool", "lock", "backoff", "lag"},
		"audit": {"overbooked", "lost_updates", "undersold", "unexplained", "negative", "write_skew", "sum_drift", "double_charged", "mischarged", "overstocked", "stuck_reservations", "leaked_locks", bench.CheckOverLimit},
		"noted": {bench.NotedEmpty, bench.NotedBehindBacklog},
	}
}

// figures are all that a limit may be set on: the numbers of a cell's JSON form, by their path (latency.rejected.p99_ms) and by a short
// name (rejected.p99). p50 to max alone are those of confirmed operations.
func figures() map[string]figure {
	all := map[string]figure{}
	for _, p := range paths(reflect.TypeFor[bench.Figures](), nil) {
		f := figure{unitOf(p), func(c *bench.Cell) (float64, bool) { return read(reflect.ValueOf(c.Figures), p.steps) }}
		for _, name := range p.names() {
			all[name] = f
		}
	}
	return all
}

// find returns a figure by its name. Those of one kind of users (classes.bystander.p99) depend on the scenario, so that they are in no
// list.
func find(name string) (figure, bool) {
	if rest, ok := strings.CutPrefix(name, classes+"."); ok {
		class, of, _ := strings.Cut(rest, ".")
		for _, p := range paths(reflect.TypeFor[bench.ClassFigures](), nil) {
			if slices.Contains(p.names(), of) {
				steps := append([]string{classes, class}, p.steps...)
				return figure{unitOf(p), func(c *bench.Cell) (float64, bool) { return read(reflect.ValueOf(c.Figures), steps) }}, true
			}
		}
	}
	f, known := figures()[name]
	return f, known
}

// Value returns a cell's figure by any of the names that a limit may use, in the figure's own unit. A name that is unknown, and a figure that
// was not measured, are errors.
func Value(c *bench.Cell, name string) (float64, error) {
	f, known := find(name)
	if !known {
		return 0, bench.Hintf("did you mean "+bench.Nearest(name, Names())+"?", "no figure is called %q", name)
	}
	v, measured := f.of(c)
	if !measured {
		return 0, bench.Hintf("leave it out, or run a scenario that measures it", "%s of %s was not measured", name, c.Strategy)
	}
	return v, nil
}

// classes is the object of the JSON form that holds the figures of users of several kinds.
const classes = "classes"

// path leads to a number.
type path struct {
	steps []string
	kind  reflect.Kind
}

// names are what the number goes by.
func (p path) names() []string {
	return []string{strings.Join(p.steps, "."), short(p.steps), strings.TrimPrefix(strings.Join(shortened(p.steps), "."), "latency.")}
}

// paths lists the numbers below a type.
func paths(t reflect.Type, before []string) (all []path) {
	switch t.Kind() {
	case reflect.Pointer:
		return paths(t.Elem(), before)
	case reflect.Int64, reflect.Float64:
		return []path{{before, t.Kind()}}
	case reflect.Struct:
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			all = append(all, paths(f.Type, append(slices.Clone(before), name))...)
		}
	case reflect.Map:
		for _, key := range keys()[before[len(before)-1]] {
			all = append(all, paths(t.Elem(), append(slices.Clone(before), key))...)
		}
	}
	return all
}

// read follows a path; what is absent was not measured.
func read(v reflect.Value, steps []string) (float64, bool) {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return 0, false
		}
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Int64:
		return float64(v.Int()), true
	case reflect.Float64:
		return v.Float(), true
	case reflect.Map:
		at := v.MapIndex(reflect.ValueOf(steps[0]))
		if !at.IsValid() {
			return 0, false
		}
		return read(at, steps[1:])
	}
	for _, f := range reflect.VisibleFields(v.Type()) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name == steps[0] {
			return read(v.FieldByIndex(f.Index), steps[1:])
		}
	}
	return 0, false
}

// unitOf reads the unit off the name, as the JSON form has it there.
func unitOf(p path) unit {
	name := p.steps[len(p.steps)-1]
	switch {
	case p.kind == reflect.Int64:
		return count
	case strings.HasSuffix(name, "_ms"):
		return millis
	case strings.HasSuffix(name, "_s"):
		return seconds
	case strings.HasSuffix(name, "_rate"), strings.HasSuffix(name, "_share"):
		return ratio
	case name == "throughput", name == "goodput":
		return rate
	}
	return plain
}

// shortened is a path without the unit at its end.
func shortened(steps []string) []string {
	steps = slices.Clone(steps)
	last := &steps[len(steps)-1]
	*last = strings.TrimSuffix(strings.TrimSuffix(*last, "_ms"), "_s")
	return steps
}

// short is a path without what goes without saying.
func short(steps []string) string {
	switch steps = shortened(steps); steps[0] {
	case "latency":
		steps = steps[1:]
		if steps[0] == bench.Confirmed.String() {
			steps = steps[1:]
		}
	case "latency_uncorrected":
		steps[0] = "uncorrected"
	case "outcomes", "contention", "audit", "waits", "server", "client":
		steps = steps[1:]
	}
	return strings.Join(steps, ".")
}

// Names lists the short names of the figures a limit may be set on, in alphabetical order. Their paths in the JSON form will do as well.
func Names() []string {
	names := map[string]bool{}
	for _, p := range paths(reflect.TypeFor[bench.Figures](), nil) {
		names[short(p.steps)] = true
	}
	return slices.Sorted(maps.Keys(names))
}
