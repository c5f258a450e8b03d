package sweep

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/bench"
)

func ptr(v float64) *float64 { return &v }

// point is a report of one strategy with so many users: a tenth of them to the power is tried again, and goodput follows a law.
func point(strategy string, users int, law Scaling, power float64) *bench.Report {
	n := float64(users)
	operations := 1000 * law.At(n)
	retries := operations * (math.Pow(n, power) - 1) / 10
	f := bench.Figures{
		Operations: int64(operations), Attempts: int64(operations + retries), Retries: int64(retries), DurationS: 1000,
		Goodput: ptr(law.At(n)), Amplification: ptr((operations + retries) / operations), ConflictRate: ptr(retries / (operations + retries)),
		Latency: map[string]bench.Percentiles{"confirmed": {Count: int64(operations), P99: ptr(10 * n)}},
	}
	return &bench.Report{
		Schema: bench.Schema, Plan: bench.Settings{Mode: bench.Closed, Users: users, Connections: users, Strategies: []string{strategy}},
		Cells: []bench.Cell{{
			Strategy: strategy, Name: strategy, Verdict: bench.Sound, Figures: f,
			Trials: []bench.Trial{{Number: 1, Order: 100 - users, Figures: f}},
		}},
		Warnings: []bench.Warning{{Code: "some", Strategy: strategy}},
	}
}

func TestOf(t *testing.T) {
	law := Scaling{Lambda: 300, Sigma: 0.02, Kappa: 0.004}
	var reports []*bench.Report
	for _, users := range []int{32, 1, 2, 4, 16, 8} { // as they were run
		reports = append(reports, point("optimistic", users, law, 1.2))
	}
	reports = append(reports, point("atomic", 4, law, 0)) // of a later round of a search
	s, err := Of(parameter(t, "users"), []string{"p99>100ms", "atomic: p99<1ms"}, reports)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range s.Report.Races {
		names = append(names, r.Name)
	}
	if want := []string{"users=1", "users=2", "users=4", "users=8", "users=16", "users=32"}; !reflect.DeepEqual(names, want) {
		t.Errorf("races %v, want %v", names, want)
	}
	if got := s.Report.Races[2].Plan.Strategies; !reflect.DeepEqual(got, []string{"optimistic", "atomic"}) {
		t.Errorf("the race of both rounds is planned with %v", got)
	}
	if len(s.Report.Warnings) != len(reports) {
		t.Errorf("%d warnings, want %d", len(s.Report.Warnings), len(reports))
	}
	for _, pt := range s.Points("optimistic") {
		if got := pt.Cell.Trials[0].Order; got != 100-int(pt.Value) {
			t.Errorf("the trial with %g users was run as number %d", pt.Value, got)
		}
	}

	c := s.Curve("optimistic")
	if c == nil || c.Verdict != bench.Sound || c.Amplification == nil || c.Best.Value != 16 {
		t.Fatalf("%+v", c)
	}
	if k := c.Scaling; k == nil || k.Peak == nil || math.Abs(k.Peak.At-law.summit()) > 0.1 || k.From != 1 || k.To != 32 {
		t.Errorf("scaling %+v (%s)", k, c.NoScaling)
	}
	// Alone a user never has to try again: five points of six have retries.
	r := c.Retrying
	if r.From.Value != 2 || r.To.Value != 32 || r.Growth.Points != 5 || !r.Superlinear || r.To.Retries/r.From.Retries < 2*r.To.Operations/r.From.Operations {
		t.Errorf("retrying %+v", r)
	}
	if u := c.Usable; u.Kept == nil || u.Kept.Value != 8 || u.Failed == nil || u.Failed.Value != 16 || u.Failed.Figures != "p99 160ms" {
		t.Errorf("usable %+v, %+v", u.Kept, u.Failed)
	}
	c = s.Curve("atomic")
	if c.Amplification != nil || c.Retrying != nil || c.Scaling != nil || !strings.Contains(c.NoScaling, "there are 1") {
		t.Errorf("of a single point: %+v", c)
	}
	if u := c.Usable; u.Kept == nil || u.Failed != nil || u.Kept.Figures != "p99 40ms, p99 40ms" {
		t.Errorf("usable %+v, %+v", u.Kept, u.Failed)
	}

	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Read(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if b2, err := json.Marshal(again); err != nil || !bytes.Equal(b, b2) {
		t.Errorf("read and written again it differs: %v", err)
	}
}

// TestFlatRetriesAreNotSuperlinear: retries that grow with the volume, and no faster, do not outgrow it.
func TestFlatRetriesAreNotSuperlinear(t *testing.T) {
	var reports []*bench.Report
	for i, users := range []int{2, 4, 8, 16, 32} {
		r := point("optimistic", users, Scaling{Lambda: 10}, 1)
		r.Cells[0].Retries = r.Cells[0].Operations * int64(100+i%2) / 1000 // a tenth of the operations, give or take
		reports = append(reports, r)
	}
	s, err := Of(parameter(t, "users"), nil, reports)
	if err != nil {
		t.Fatal(err)
	}
	r := s.Curves[0].Retrying
	if r.Growth == nil || r.Superlinear || r.To.Retries < 15*r.From.Retries {
		t.Errorf("%+v", r)
	}
}

// TestNoScaling: the law is fitted only to what it is about.
func TestNoScaling(t *testing.T) {
	for want, change := range map[string]func(r *bench.Report){
		"":                  func(r *bench.Report) { r.Plan.Mode = bench.Burst },
		"not sound":         func(r *bench.Report) { r.Cells[0].Verdict = bench.Violated },
		"there are 2":       func(r *bench.Report) { r.Plan.Connections = min(r.Plan.Users, 5) },
		"nobody was":        func(r *bench.Report) { r.Cells[0].Goodput = nil },
		"rows":              nil,
		"typically lie":     func(r *bench.Report) { *r.Cells[0].Goodput *= 1 + float64(r.Plan.Users%3) },
		"there are 0":       func(r *bench.Report) { r.Plan.Connections = 1 },
		"nothing of a wall": func(r *bench.Report) { *r.Cells[0].Goodput = 5 },
	} {
		var reports []*bench.Report
		name := "users"
		for i, users := range []int{2, 4, 8, 16, 32} {
			r := point("optimistic", users, Scaling{Lambda: 10, Sigma: 0.1}, 1)
			if change == nil {
				name, r.Plan.Rows = "rows", int64(i+1)
			} else {
				change(r)
			}
			reports = append(reports, r)
		}
		s, err := Of(parameter(t, name), nil, reports)
		if err != nil {
			t.Fatal(err)
		}
		c := s.Curves[0]
		if want == "nothing of a wall" {
			if c.Scaling == nil || c.Scaling.Shape != Level {
				t.Errorf("a wall: %+v, %q", c.Scaling, c.NoScaling)
			}
			continue
		}
		if want == "" || want == "rows" {
			if c.Scaling != nil || c.NoScaling != "" {
				t.Errorf("the law has no meaning here, but: %+v, %q", c.Scaling, c.NoScaling)
			}
			continue
		}
		if c.Scaling != nil || !strings.Contains(c.NoScaling, want) {
			t.Errorf("%s: %+v, %q", want, c.Scaling, c.NoScaling)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "this is no sweep",
		`{"schema": "lockbench.sweep/v9"}`:  `this sweep is of schema "lockbench.sweep/v9", not "lockbench.sweep/v1"`,
		`{"schema": "lockbench.sweep/v1"}`:  `"" cannot be swept`,
		`{"schema": "lockbench.sweep/v1"}{`: "something follows the sweep",
		`{"schema": "lockbench.sweep/v1", "parameter": "users"}`:                                                                             "holds no report",
		`{"schema": "lockbench.sweep/v1", "parameter": "users", "report": {"schema": "x"}}`:                                                  "holds no report",
		`{"schema": "lockbench.sweep/v1", "parameter": "weather", "report": {"schema": "x"}}`:                                                `"weather" cannot be swept`,
		`{"schema": "lockbench.sweep/v1", "parameter": "users", "report": {"schema": "lockbench.report/v1"}, "curves": [{"strategy": "x"}]}`: `a curve of "x", and no points`,
		`{"schema": "lockbench.sweep/v1", "parameter": "users", "curves": [{"verdict": "maybe"}]}`:                                           `"maybe" is not a verdict`,
	} {
		if _, err := Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestParameters: a value that is set is read, and named, as it was.
func TestParameters(t *testing.T) {
	for name, want := range map[string]string{"users": "users=16", "connections": "connections=16", "rate": "rate=16/s", "think": "think=16ms", "rows": "rows=16"} {
		p := parameter(t, name)
		var s bench.Settings
		p.Set(&s, 16)
		if got := p.Race(p.Of(&s)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if reflect.DeepEqual(s, bench.Settings{}) {
			t.Errorf("setting %s changes nothing", name)
		}
	}
	var s bench.Settings
	p := parameter(t, "think")
	p.Set(&s, 0.25)
	if s.Think.String() != "250µs" || p.Race(p.Of(&s)) != "think=0.25ms" {
		t.Errorf("a quarter of a millisecond is %v, %s", s.Think, p.Race(p.Of(&s)))
	}
}
