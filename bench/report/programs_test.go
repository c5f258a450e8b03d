package report

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/perf/benchfmt"

	"github.com/lockbench/lockbench/bench"
)

func TestBenchstatReadsWhatIsWritten(t *testing.T) {
	for name, r := range reports(t) {
		var trials []map[string]string
		for _, c := range jsonCells(t, r) {
			for _, trial := range c["trials"].([]any) {
				want := map[string]string{"label": c["strategy"].(string)}
				flatten(want, "", trial)
				trials = append(trials, want)
			}
		}
		paths := map[string]string{
			"sec/op": "latency_confirmed_mean_ms", "p50-sec/op": "latency_confirmed_p50_ms", "p95-sec/op": "latency_confirmed_p95_ms", "p99-sec/op": "latency_confirmed_p99_ms",
			"confirmed/s": "goodput", "ops/s": "throughput", "attempts/confirmed": "amplification", "conflicts/attempt": "conflict_rate",
			"overbooked": "audit_overbooked", "lost-updates": "audit_lost_updates",
		}
		read := benchfmt.NewReader(strings.NewReader(rendered(t, "benchstat", r, Options{})), name)
		n := 0
		for read.Scan() {
			res, ok := read.Result().(*benchfmt.Result)
			if !ok {
				if e, bad := read.Result().(*benchfmt.SyntaxError); bad {
					t.Errorf("%s: %v", name, e)
				}
				continue
			}
			want := trials[n]
			n++
			if !strings.Contains(res.Name.String(), "/strategy="+want["label"]+"-2") {
				t.Errorf("%s: %s stands for %s", name, res.Name, want["label"])
			}
			if fmt.Sprint(res.Iters) != want["operations"] || len(res.Values) != len(paths) {
				t.Errorf("%s: %d operations and %d values of %s", name, res.Iters, len(res.Values), want["label"])
			}
			if res.GetConfig("users") != strconv.Itoa(r.Plan.Users) || res.GetConfig("postgresql") != "15.18" {
				t.Errorf("%s: users %q, postgresql %q", name, res.GetConfig("users"), res.GetConfig("postgresql"))
			}
			for _, v := range res.Values {
				exact, err := strconv.ParseFloat(want[paths[v.Unit]], 64)
				if strings.Contains(v.Unit, "sec/op") {
					exact /= 1000
				}
				if err != nil || math.Abs(v.Value-exact) > 1e-11*math.Abs(exact) {
					t.Errorf("%s, %s: %v %s, the JSON has %s", name, want["label"], v.Value, v.Unit, want[paths[v.Unit]])
				}
			}
		}
		if err := read.Err(); err != nil || n != len(trials) {
			t.Errorf("%s: %d of %d trials: %v", name, n, len(trials), err)
		}
	}
}

func TestBenchstatLabelsStayOneWord(t *testing.T) {
	read := benchfmt.NewReader(strings.NewReader(rendered(t, "benchstat", hostileReport(t), Options{})), "hostile")
	n := 0
	for read.Scan() {
		switch res := read.Result().(type) {
		case *benchfmt.SyntaxError:
			t.Error(res)
		case *benchfmt.Result:
			n++
		}
	}
	if n != 15 {
		t.Errorf("%d trials, want 15", n)
	}
}

func TestJUnitVerdicts(t *testing.T) {
	for name, r := range map[string]*bench.Report{"full": full(t), "hostile": hostileReport(t)} {
		var got junitSuites
		if err := xml.Unmarshal([]byte(rendered(t, "junit", r, Options{})), &got); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got.Tests != 7 || got.Failures != 1 || len(got.Suites) != 1 {
			t.Fatalf("%s: %d tests, %d failures, %d suites", name, got.Tests, got.Failures, len(got.Suites))
		}
		s := got.Suites[0]
		if s.Tests != 7 || s.Failures != 1 || s.Skipped != 3 || s.Name != "lockbench.seats" {
			t.Errorf("%s: %+v", name, s)
		}
		for i, c := range s.Cases {
			what := "passed"
			if c.Failure != nil {
				what = "failed"
			}
			if c.Skipped != nil {
				what = "skipped"
			}
			if want := []string{"passed", "passed", "failed", "passed", "skipped", "skipped", "skipped"}[i]; what != want {
				t.Errorf("%s: %s %s, want it %s", name, r.Cells[i].Name, what, want)
			}
		}
		if name == "full" && !strings.Contains(s.Cases[2].Failure.Text, "user 492 was told") {
			t.Errorf("no witness: %+v", s.Cases[2].Failure)
		}
	}
}

func TestGitHubCommandsStayOneLine(t *testing.T) {
	out := rendered(t, "github", hostileReport(t), Options{})
	commands := 0
	for l := range strings.Lines(out) {
		if !strings.HasPrefix(l, "::") {
			continue
		}
		commands++
		if strings.Contains(l, "100% ") || strings.HasPrefix(l, "::error") && strings.Count(l, "::") != 2 {
			t.Errorf("not escaped: %s", l)
		}
	}
	if commands != 6 { // one broken claim, three kinds of warning, the group and its end
		t.Errorf("%d commands:\n%s", commands, out)
	}
	r := full(t)
	for i := range r.Cells {
		r.Cells[i].Strategy = "::error::" + r.Cells[i].Strategy
	}
	if n := strings.Count("\n"+rendered(t, "github", r, Options{}), "\n::error"); n != 1 {
		t.Errorf("%d errors, want 1: a label became a command", n)
	}
}

func TestHeadline(t *testing.T) {
	broken, held := full(t), single(t)
	nothing := partial(t)
	nothing.Cells = nothing.Cells[1:]
	for _, tt := range []struct {
		r       *bench.Report
		verdict bench.Verdict
		text    string
	}{
		{broken, bench.Violated, "optimistic-broken broke its claim, 2 claims held, 1 not settled, 1 let through what it does not claim to prevent"},
		{held, bench.Sound, "2 claims held"},
		{nothing, bench.Undetermined, "no claim was put to the test"},
	} {
		if v, text := headline(tt.r); v != tt.verdict || text != tt.text {
			t.Errorf("got %s: %s, want %s: %s", v, text, tt.verdict, tt.text)
		}
	}
}

// TestHistogramsAgreeWithThePercentiles: what is drawn and what is printed come from the same latencies.
func TestHistogramsAgreeWithThePercentiles(t *testing.T) {
	r := single(t)
	for i := range r.Cells {
		c := &r.Cells[i]
		h, err := distribution(c, bench.Confirmed)
		if err != nil {
			t.Fatal(err)
		}
		p := c.Latency["confirmed"]
		if h.TotalCount() != p.Count {
			t.Errorf("%d latencies of %d", h.TotalCount(), p.Count)
		}
		for q, want := range map[float64]*float64{50: p.P50, 95: p.P95, 99: p.P99} {
			if got := float64(h.ValueAtPercentile(q)) / 1000; got != *want {
				t.Errorf("%s: p%v is %v in the histogram and %v in the JSON", c.Strategy, q, got, *want)
			}
		}
	}
	if !strings.Contains(rendered(t, "hgrm", r, Options{}), "#[seats, atomic: latency of 450 confirmed operations, ms]") {
		t.Error("a block has no name")
	}
}

func TestHistogramsThatCannotBeRead(t *testing.T) {
	var b bytes.Buffer
	wantError(t, Write(&b, "hgrm", partial(t), Options{}), "this report holds no histograms", "lockbench run")
	r := single(t)
	r.Cells[0].Trials[0].Histograms["confirmed"] = "HISTFAAAA"
	wantError(t, Write(&b, "hgrm", r, Options{}), "the histogram of atomic, trial 1, cannot be read", "run it again")
}
