package gate

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/bench"
)

func ptr(v float64) *float64 { return &v }

// cells is one run cell with a bit of everything, a variant that confirmed nobody, and a combination that was not run.
func cells() []bench.Cell {
	var run, empty, na bench.Cell
	run.Strategy, run.Name = "optimistic", "optimistic"
	run.Trials = []bench.Trial{{Number: 1}}
	run.Operations = 500
	run.Outcomes = map[string]int64{"confirmed": 50, "busy": 0}
	run.Contention = map[string]int64{"version": 120}
	run.Audit = map[string]int64{"overbooked": 2, "lost_updates": 0}
	run.ConflictRate = ptr(0.25)
	run.Goodput = ptr(480.5)
	run.DurationS = 1.5
	run.Latency = map[string]bench.Percentiles{"confirmed": {P99: ptr(62.25)}, "all": {P99: ptr(10)}}
	run.Waits = map[string]bench.Wait{"pool": {P99: ptr(3), Total: ptr(0.5)}}

	empty.Strategy, empty.Name = "pessimistic:wait=nowait", "pessimistic"
	empty.Trials = []bench.Trial{{Number: 1}}
	empty.Outcomes = map[string]int64{"confirmed": 0, "busy": 9}
	empty.Audit = map[string]int64{"overbooked": 0, "lost_updates": 0}

	na.Strategy, na.Name, na.NA = "skip-locked", "skip-locked", "no sense"
	return []bench.Cell{run, empty, na}
}

func TestCheck(t *testing.T) {
	for _, tc := range []struct {
		expr string
		want []string
	}{
		{"overbooked>0", []string{`optimistic: overbooked is 2, and "overbooked>0" fails when it is > 0`}},
		{"overbooked > 2", nil},
		{"lost_updates>0", nil},
		{"optimistic: conflict_rate>20%", []string{`optimistic: conflict_rate is 25%, and "optimistic: conflict_rate>20%" fails when it is > 20%`}},
		{"optimistic:conflict_rate>=0.25", []string{`optimistic: conflict_rate is 25%, and "optimistic:conflict_rate>=0.25" fails when it is >= 25%`}},
		{"optimistic: p99>50ms", []string{`optimistic: p99 is 62.25ms, and "optimistic: p99>50ms" fails when it is > 50ms`}},
		{"optimistic: all.p99>50ms", nil},
		{"optimistic: goodput<500/s", []string{`optimistic: goodput is 480.5/s, and "optimistic: goodput<500/s" fails when it is < 500/s`}},
		{"optimistic: goodput<480", nil},
		{"optimistic: duration>1s", []string{`optimistic: duration is 1.5s, and "optimistic: duration>1s" fails when it is > 1s`}},
		{"optimistic: pool.total>400ms", []string{`optimistic: pool.total is 0.5s, and "optimistic: pool.total>400ms" fails when it is > 0.4s`}},
		{"optimistic: version!=120", nil},
		{"optimistic: version==120", []string{`optimistic: version is 120, and "optimistic: version==120" fails when it is == 120`}},
		{"pessimistic: busy>0", []string{`pessimistic:wait=nowait: busy is 9, and "pessimistic: busy>0" fails when it is > 0`}},
		{"pessimistic:wait=nowait: busy>10", nil},
		// What was not measured is never a pass.
		{"pessimistic: p99>50ms", []string{`pessimistic:wait=nowait: p99 was not measured, so "pessimistic: p99>50ms" cannot pass`}},
		{"optimistic: negative>0", []string{`optimistic: negative was not measured, so "optimistic: negative>0" cannot pass`}},
		{"optimistic: wal_bytes>1", []string{`optimistic: wal_bytes was not measured, so "optimistic: wal_bytes>1" cannot pass`}},
		{"skip-locked: overbooked>0", []string{`skip-locked: overbooked was not measured, so "skip-locked: overbooked>0" cannot pass`}},
	} {
		t.Run(tc.expr, func(t *testing.T) {
			l, err := Parse(tc.expr)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, a := range Check([]Limit{l}, cells()) {
				if a.Failed {
					got = append(got, Say(a))
				}
			}
			if strings.Join(got, "\n") != strings.Join(tc.want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
			}
		})
	}
}

func TestCheckWithoutTrials(t *testing.T) {
	l, err := Parse("overbooked>0")
	if err != nil {
		t.Fatal(err)
	}
	f := Check([]Limit{l}, []bench.Cell{{Strategy: "atomic", Name: "atomic"}})
	if len(f) != 1 || !f[0].Failed || f[0].Value != nil {
		t.Errorf("a cell that was never run passed: %v", f)
	}
	if f := Check([]Limit{l}, nil); len(f) != 1 || !f[0].Failed || Say(f[0]) != `overbooked was not measured, so "overbooked>0" cannot pass` {
		t.Errorf("an empty report passed: %v", f)
	}
}

func TestParseErrors(t *testing.T) {
	for _, tc := range []struct{ expr, want, hint string }{
		{"overbooked", `threshold "overbooked" has no comparison`, "thresholds look like"},
		{"", `threshold "" has no comparison`, "thresholds look like"},
		{">0", `threshold ">0" names no figure`, "thresholds look like"},
		{": p99>1ms", `threshold ": p99>1ms" names no strategy before its colon`, "thresholds look like"},
		{"overboked>0", `unknown figure "overboked" in threshold "overboked>0"`, "did you mean overbooked?"},
		{"p99>50", `threshold "p99>50": duration "50" has no unit`, "write 50ms or 50s"},
		{"overbooked>1.5", `threshold "overbooked>1.5": "1.5" is not a whole number`, "write a count"},
		{"conflict_rate>lots", `threshold "conflict_rate>lots": "lots" cannot be compared with this figure`, "write a share"},
		{"goodput<50ms", `threshold "goodput<50ms": "50ms" cannot be compared with this figure`, "write a rate"},
		{"amplification>NaN", `threshold "amplification>NaN": "NaN" cannot be compared with this figure`, "write a number"},
	} {
		t.Run(tc.expr, func(t *testing.T) {
			_, err := Parse(tc.expr)
			if err == nil || err.Error() != tc.want {
				t.Fatalf("got %v, want %s", err, tc.want)
			}
			var h interface{ Hint() string }
			if !errors.As(err, &h) || !strings.HasPrefix(h.Hint(), tc.hint) {
				t.Errorf("hint of %v does not begin with %q", err, tc.hint)
			}
		})
	}
}

func TestParseAllReportsEveryProblem(t *testing.T) {
	limits, err := ParseAll([]string{"nope>0", "overbooked>0", "p99>3"})
	if len(limits) != 1 || err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("got %d limits and %v", len(limits), err)
	}
}

// FuzzParse checks that no text makes the parser panic, and that what it accepts can be checked and printed.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"overbooked>0", "pessimistic:wait=nowait: p99>=50ms", "conflict_rate>20%", "goodput<500/s", ":>", "a:b:c==1", "p99>1e9h"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		l, err := Parse(s)
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without a text")
			}
			return
		}
		again, err := Parse(l.Text)
		if err != nil || again.Value != l.Value || again.Figure != l.Figure || again.Strategy != l.Strategy || again.Op != l.Op {
			t.Errorf("%q does not read the same twice: %v", s, err)
		}
		for _, x := range Check([]Limit{l}, cells()) {
			if x.Message == "" {
				t.Error("an assertion without a text")
			}
		}
	})
}

func TestRead(t *testing.T) {
	p99, share := 12.345, 0.25
	c := &bench.Cell{
		Figures: bench.Figures{Retries: 7, ConflictRate: &share, Latency: map[string]bench.Percentiles{"confirmed": {P99: &p99}}},
		Trials:  []bench.Trial{{}},
	}
	for text, want := range map[string]string{"p99>200ms": "12.35ms", "conflict_rate>20%": "25%", "retries>5": "7", "goodput<5/s": "not measured"} {
		l, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := l.Read(c); got != want {
			t.Errorf("%s reads %s, want %s", l.Figure, got, want)
		}
	}
}

// TestEveryFigureOfTheJSONHasItsName: each number of a cell's JSON form can be limited by its path there, and is read from there.
func TestEveryFigureOfTheJSONHasItsName(t *testing.T) {
	var cell bench.Cell
	next := 0.0
	fill(reflect.ValueOf(&cell.Figures).Elem(), "", &next)
	cell.Name, cell.Strategy, cell.Trials = "atomic", "atomic", []bench.Trial{{Number: 1}}
	b, err := json.Marshal(cell.Figures)
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	found := 0
	var walk func(name string, v any)
	walk = func(name string, v any) {
		switch x := v.(type) {
		case map[string]any:
			for key, e := range x {
				walk(strings.TrimPrefix(name+"."+key, "."), e)
			}
		case float64:
			found++
			f, known := find(name)
			if !known {
				t.Errorf("no limit can be set on %s", name)
				return
			}
			if got, measured := f.of(&cell); !measured || got != x {
				t.Errorf("%s is %v in the JSON and %v to a limit", name, x, got)
			}
			if _, measured := f.of(&bench.Cell{}); measured && strings.Contains(name, "latency") {
				t.Errorf("%s is measured in an empty cell", name)
			}
		}
	}
	walk("", doc)
	if found < 150 {
		t.Errorf("only %d figures", found)
	}
	for short, path := range map[string]string{
		"p99": "latency.confirmed.p99_ms", "confirmed.p99": "latency.confirmed.p99_ms", "rejected.mean": "latency.rejected.mean_ms", "busy": "outcomes.busy",
		"pool.total": "waits.pool.total_s", "duration": "duration_s", "cpu_share": "client.cpu_share", "wal_bytes": "server.wal_bytes",
		"uncorrected.all.p50": "latency_uncorrected.all.p50_ms", "classes.bystander.p99": "classes.bystander.latency.confirmed.p99_ms",
	} {
		a, ok := find(short)
		b, ok2 := find(path)
		if !ok || !ok2 {
			t.Errorf("%s or %s is unknown", short, path)
			continue
		}
		x, _ := a.of(&cell)
		y, _ := b.of(&cell)
		if x != y || a.unit != b.unit {
			t.Errorf("%s is %v, %s is %v", short, x, path, y)
		}
	}
}

// fill gives every number a value of its own, and every map whose keys are known all of them.
func fill(v reflect.Value, name string, next *float64) {
	*next++
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), name, next)
	case reflect.Int64:
		v.SetInt(int64(*next))
	case reflect.Float64:
		v.SetFloat(*next + 0.5)
	case reflect.Struct:
		for _, f := range reflect.VisibleFields(v.Type()) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			fill(v.FieldByIndex(f.Index), name, next)
		}
	case reflect.Map:
		of := keys()[name]
		if name == classes {
			of = []string{"bystander"}
		}
		v.Set(reflect.MakeMap(v.Type()))
		for _, key := range of {
			e := reflect.New(v.Type().Elem()).Elem()
			fill(e, key, next)
			v.SetMapIndex(reflect.ValueOf(key), e)
		}
	}
}

func TestJudge(t *testing.T) {
	all := cells()
	all[0].Verdict, all[0].ClaimBroken = bench.Violated, true
	all[0].Findings = []bench.Finding{{Message: "two users were told yes"}}
	all[1].Verdict = bench.Sound
	for _, tc := range []struct {
		expected []Expectation
		want     []string
	}{
		{[]Expectation{{bench.All, bench.Sound}}, []string{"optimistic: verdict is violated, and sound was expected: two users were told yes"}},
		{[]Expectation{{bench.All, bench.Sound}, {"optimistic", bench.Violated}}, nil},
		{[]Expectation{{"pessimistic:wait=nowait", bench.Undetermined}, {"pessimistic", bench.Sound}}, []string{"pessimistic:wait=nowait: verdict is sound, and undetermined was expected"}},
		{[]Expectation{{"pessimistic", bench.Sound}}, nil},
		{[]Expectation{{"skip-locked", bench.Sound}}, []string{"skip-locked: it makes no sense here (no sense), and sound was expected"}},
	} {
		var got []string
		for _, a := range Judge(tc.expected, all) {
			if a.Failed {
				got = append(got, Say(a))
			}
		}
		if strings.Join(got, "\n") != strings.Join(tc.want, "\n") {
			t.Errorf("%v: got %q, want %q", tc.expected, got, tc.want)
		}
	}
	if a := Judge([]Expectation{{bench.All, bench.Sound}}, []bench.Cell{{Strategy: "cas", Name: "cas"}}); len(a) != 1 || Say(a[0]) != "cas: it was not run, and sound was expected" {
		t.Errorf("a cell that was never run: %v", a)
	}
}

func TestValue(t *testing.T) {
	p99 := 12.5
	c := &bench.Cell{Strategy: "s", Figures: bench.Figures{
		Outcomes: map[string]int64{"confirmed": 7},
		Latency:  map[string]bench.Percentiles{"confirmed": {P99: &p99}},
		Classes:  map[string]bench.ClassFigures{"hot": {Operations: 3}},
	}}
	for name, want := range map[string]float64{"confirmed": 7, "outcomes.confirmed": 7, "p99": 12.5, "latency.confirmed.p99_ms": 12.5, "classes.hot.operations": 3} {
		if v, err := Value(c, name); err != nil || v != want {
			t.Errorf("%s is %v, %v, want %v", name, v, err, want)
		}
	}
	for name, want := range map[string]string{"p95": "p95 of s was not measured", "p98": `no figure is called "p98"`} {
		if _, err := Value(c, name); err == nil || err.Error() != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
