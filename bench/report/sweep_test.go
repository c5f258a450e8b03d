package report

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"image/png"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/bench/sweep"
	"github.com/lockbench/lockbench/internal/golden"
)

// swept is a sweep of users from 1 to 32: optimistic with a peak, atomic without one, none not sound.
func swept(t testing.TB, until ...string) *sweep.Sweep {
	t.Helper()
	p, err := sweep.Lookup("users")
	if err != nil {
		t.Fatal(err)
	}
	peaked, rising := sweep.Scaling{Lambda: 300, Sigma: 0.05, Kappa: 0.005}, sweep.Scaling{Lambda: 400, Sigma: 0.02}
	optimistic, atomic, none := cell(t, "optimistic", 3, 450, 1, 1, 0), cell(t, "atomic", 3, 450, 1, 1, 0), violate(cell(t, "none", 3, 450, 1, 1, 0), false)
	var reports []*bench.Report
	for i, users := range []int{1, 2, 4, 8, 16, 32} {
		n := float64(users)
		r := base()
		r.Command = "lockbench sweep --output sweep.json"
		r.Plan.Scenario, r.Plan.Mode, r.Plan.Users, r.Plan.Connections, r.Plan.Rows = "inventory", bench.Closed, users, users, 20
		off := 1 + 0.02*float64(1-i%3)
		r.Cells = []bench.Cell{
			pace(optimistic, peaked.At(n)*off, 10*n, int64(12*(n-1))), pace(atomic, rising.At(n)*off, 8, 0), pace(none, 500*n, 6, 0),
		}
		if users == 1 {
			r.Cells[0].Verdict, r.Cells[1].Verdict = bench.Undetermined, bench.Undetermined
			r.Warnings = []bench.Warning{{Code: "no-contention", Strategy: "atomic", Message: "no two users of atomic wanted the same row"}}
		}
		if users > 8 {
			r.Gate = []bench.Assertion{{Race: "", Strategy: "optimistic", Text: "p99>100ms", Figure: "p99", Failed: true, Message: fmt.Sprintf("p99 is %dms, and more than 100ms fails", 10*users)}}
			r.Warnings = []bench.Warning{{Code: "client-cpu", Strategy: "atomic", Message: fmt.Sprintf("lockbench itself used %d %% of the processors during atomic", 40+users), Fix: "lower --users"}}
		}
		reports = append(reports, r)
	}
	s, err := sweep.Of(p, until, reports)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// pace returns the cell with this goodput, latency in ms, and as many retries, a little less of each in every further trial.
func pace(c bench.Cell, goodput, p99 float64, retries int64) bench.Cell {
	c.Trials = slices.Clone(c.Trials)
	for n := range c.Trials {
		f := &c.Trials[n].Figures
		share := 1 - 0.05*float64(n)
		f.Goodput, f.DurationS = ptr(goodput*share), 450/goodput
		f.Retries, f.Attempts = retries, f.Operations+retries
		f.ConflictRate, f.Amplification = ptr(float64(retries)/float64(f.Attempts)), ptr(float64(f.Attempts)/450)
		f.Latency = map[string]bench.Percentiles{"confirmed": {Count: 450, P50: ptr(p99 / 10), P95: ptr(p99 / 2), P99: ptr(p99 / share)}}
	}
	c.Figures = c.Trials[0].Figures
	c.Latency = map[string]bench.Percentiles{"confirmed": {Count: 1350, P50: ptr(p99 / 10), P95: ptr(p99 / 2), P99: ptr(p99)}}
	return c
}

func sweepAs(t testing.TB, format string, s *sweep.Sweep, o Options) string {
	t.Helper()
	var b bytes.Buffer
	if err := WriteSweep(&b, format, s, o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestGoldenSweep(t *testing.T) {
	s := swept(t, "p99>100ms")
	for where, o := range map[string]Options{"piped": {}, "80": {Width: 80}, "40": {Width: 40}, "colour": {Width: 100, Color: true}} {
		golden.Check(t, "sweep-table-"+where, sweepAs(t, "table", s, o))
	}
	for _, format := range []string{"markdown", "svg", "html"} {
		golden.Check(t, "sweep-"+format, sweepAs(t, format, s, Options{}))
	}
	stopped := swept(t)
	stopped.Report.Partial = true
	golden.Check(t, "sweep-table-partial", sweepAs(t, "table", stopped, Options{Width: 100}))
	golden.Check(t, "sweep-markdown-partial", sweepAs(t, "markdown", stopped, Options{}))
}

// TestSweepJSONIsReadAgain: every other format of what was read is that of what was written.
func TestSweepJSONIsReadAgain(t *testing.T) {
	s := swept(t, "p99>100ms")
	again, err := sweep.Read(strings.NewReader(sweepAs(t, "json", s, Options{})))
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range Formats() {
		if sweepAs(t, format, again, Options{}) != sweepAs(t, format, s, Options{}) {
			t.Errorf("%s differs once the sweep was saved and read", format)
		}
	}
}

// TestSweepPNG: it can be decoded, and is as high as three plots.
func TestSweepPNG(t *testing.T) {
	img, err := png.Decode(strings.NewReader(sweepAs(t, "png", swept(t), Options{})))
	if err != nil {
		t.Fatal(err)
	}
	if size := img.Bounds(); size.Dx() != int(plotWidth*pixelRatio) || size.Dy() < 2*800 {
		t.Errorf("the picture is %v", size)
	}
}

// TestSweepFiguresAreThoseOfThePoints: table and CSV say of each point what its own cell does.
func TestSweepFiguresAreThoseOfThePoints(t *testing.T) {
	s := swept(t)
	rows, err := csv.NewReader(strings.NewReader(sweepAs(t, "csv", s, Options{}))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 1+3*6*3 {
		t.Fatalf("%d rows, want a head and 54 trials", len(rows))
	}
	column := func(name string) int { return slices.Index(rows[0], name) }
	for _, row := range rows[1:] {
		for _, pt := range s.Points(row[column("strategy")]) {
			trial := row[column("trial")]
			if fmt.Sprint(pt.Value) != row[column("users")] || trial != "1" {
				continue
			}
			if got := row[column("goodput")]; got != fmt.Sprint(*pt.Cell.Trials[0].Goodput) {
				t.Errorf("%s at %g users has goodput %s", pt.Cell.Strategy, pt.Value, got)
			}
		}
	}
	for line := range strings.Lines(sweepAs(t, "table", s, Options{})) {
		f := strings.Fields(line)
		if len(f) < 5 || f[0] != "optimistic" {
			continue
		}
		for _, pt := range s.Points("optimistic") {
			if fmt.Sprint(pt.Value) == f[1] && !slices.Contains(f, number(*pt.Cell.Goodput)) {
				t.Errorf("goodput %s is not in %q", number(*pt.Cell.Goodput), line)
			}
		}
	}
}

// TestCurveText tells every kind of curve in a line that can be repeated.
func TestCurveText(t *testing.T) {
	p, err := sweep.Lookup("users")
	if err != nil {
		t.Fatal(err)
	}
	s := swept(t)
	law := func(exponent, low, high, scatter float64) *sweep.Growth {
		return &sweep.Growth{Exponent: exponent, Low: low, High: high, Points: 6, Scatter: scatter}
	}
	for want, c := range map[string]sweep.Curve{
		"optimistic: 1.94 attempts per confirmed at 32 users, growing like users^0.9 (0.8 to 1.0); best goodput near 12 users (9 to 17).": {
			Amplification: law(0.9, 0.8, 1.04, 1.1), Scaling: &sweep.Scaling{Shape: sweep.Peaks, Peak: &sweep.Peak{At: 12.3, Low: ptr(9.4), High: ptr(16.8)}},
		},
		"optimistic: 1.94 attempts per confirmed at 32 users, growing like users^0.90 (0.85 to 0.95); best goodput near 12 users (9 or more).": {
			Amplification: law(0.9, 0.85, 0.95, 1.1), Scaling: &sweep.Scaling{Shape: sweep.Peaks, Peak: &sweep.Peak{At: 12.3, Low: ptr(9.4)}},
		},
		"optimistic: 1.94 attempts per confirmed at 32 users, following no power law; goodput still rises at 32 users, the most measured.": {
			Amplification: law(0.9, 0.5, 1.3, 2), Scaling: &sweep.Scaling{Shape: sweep.Rises, From: 1, To: 32},
		},
		"optimistic: 1.94 attempts per confirmed at 32 users, too few points for a law of growth; goodput still rises at 8, the most with a connection each, and is best at 16 users.": {
			Scaling: &sweep.Scaling{Shape: sweep.Rises, From: 1, To: 8},
		},
		"optimistic: 1.94 attempts per confirmed at 32 users, not growing with users; goodput is best with 1 user, the fewest measured.": {
			Amplification: law(0, -0.01, 0.01, 1), Scaling: &sweep.Scaling{Shape: sweep.Falls, From: 1, To: 32},
		},
		"optimistic: 1.94 attempts per confirmed at 32 users, whether they grow with users is not settled: users^0.4 (0.0 to 0.9); goodput is the same from 1 to 32 users.": {
			Amplification: law(0.4, -0.02, 0.9, 1.2), Scaling: &sweep.Scaling{Shape: sweep.Level, From: 1, To: 32},
		},
		"optimistic: NOT sound; 1.94 attempts per confirmed at 32 users, too few points for a law of growth; its goodput does not count.": {
			Verdict: bench.Violated, NoScaling: "it is not sound, so its goodput is none",
		},
	} {
		c.Strategy, c.Best = "optimistic", &sweep.Best{Value: 16, Goodput: 100}
		if c.Scaling != nil {
			c.Scaling.Off = 0.01
		}
		if got := curveText(s, p, &c); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestUsableAndRetryingText(t *testing.T) {
	p, err := sweep.Lookup("users")
	if err != nil {
		t.Fatal(err)
	}
	kept, failed := &sweep.Edge{Value: 80, Figures: "p99 190ms"}, &sweep.Edge{Value: 90, Figures: "p99 230ms"}
	for want, u := range map[string]sweep.Usable{
		"optimistic is usable up to about 80 users (p99 190ms; at 90: p99 230ms).":  {Kept: kept, Failed: failed},
		"optimistic is usable at least up to 80 users, the most tried (p99 190ms).": {Kept: kept},
		"optimistic is not usable even at 90 users (p99 230ms).":                    {Failed: failed},
	} {
		if got := usableText(p, &sweep.Curve{Strategy: "optimistic", Usable: &u}); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	if got := usableText(p, &sweep.Curve{Strategy: "none", Verdict: bench.Violated, Usable: &sweep.Usable{Kept: kept}}); got != "none is not usable: it is not sound." {
		t.Error(got)
	}
	r := &sweep.Retrying{
		From: sweep.Load{Value: 2, ConflictRate: 0.001, Operations: 100, Retries: 0.1}, To: sweep.Load{Value: 32, ConflictRate: 0.02, Operations: 400, Retries: 8},
		Growth: &sweep.Growth{Exponent: 1.1, Low: 0.9, High: 1.3},
	}
	start := "optimistic: from 2 to 32 users, conflicts went from 0.100 % to 2.00 %, operations grew 4.00 ×, retries 80.0 ×: retries per operation like users^1.1 (0.9 to 1.3), so "
	for want, super := range map[string]bool{"retries outgrow the volume.": true, "whether retries outgrow the volume is not settled.": false} {
		r.Superlinear = super
		if got := retryingText(p, &sweep.Curve{Strategy: "optimistic", Retrying: r}); got != start+want {
			t.Errorf("got  %s\nwant %s", got, start+want)
		}
	}
	if got := retryingText(p, &sweep.Curve{Strategy: "atomic"}); got != "" {
		t.Errorf("of one that never retried: %s", got)
	}
}

// TestAcross: the values that were measured are the ticks, as far as there is room, and a 0 has a place.
func TestAcross(t *testing.T) {
	s := across([]float64{32, 1, 2, 4, 2, 8, 16})
	if !slices.Equal(s.ticks, []float64{1, 2, 4, 8, 16, 32}) || s.of(1) != 0 || s.of(32) != 1 || math.Abs(s.of(4)-0.4) > 1e-9 {
		t.Errorf("ticks %v, 4 at %g", s.ticks, s.of(4))
	}
	s = across([]float64{1, 100, 101, 102, 1000})
	if !slices.Equal(s.ticks, []float64{1, 100, 1000}) {
		t.Errorf("ticks %v", s.ticks)
	}
	s = across([]float64{0, 5, 50})
	if s.of(0) != 0 || s.of(50) != 1 {
		t.Errorf("0 at %g, 50 at %g", s.of(0), s.of(50))
	}
	if s = across([]float64{8}); !slices.Equal(s.ticks, []float64{8}) || math.IsNaN(s.of(8)) {
		t.Errorf("a single value: %v, %g", s.ticks, s.of(8))
	}
}
