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

// benchstatHolds: golang.org/x/perf reads what is written.
func benchstatHolds(t *testing.T, r *bench.Report) {
	var trials []map[string]string
	for _, c := range jsonCells(t, r) {
		for _, trial := range c["trials"].([]any) {
			want := map[string]string{"label": c["strategy"].(string)}
			flatten(want, "", c["plan"])
			flatten(want, "", trial)
			want["race"], _ = c["race"].(string)
			trials = append(trials, want)
		}
	}
	paths := map[string]string{
		"sec/op": "latency_confirmed_mean_ms", "p50-sec/op": "latency_confirmed_p50_ms", "p95-sec/op": "latency_confirmed_p95_ms", "p99-sec/op": "latency_confirmed_p99_ms",
		"confirmed/s": "goodput", "ops/s": "throughput", "attempts/confirmed": "amplification", "conflicts/attempt": "conflict_rate",
		"overbooked": "audit_overbooked", "lost-updates": "audit_lost_updates",
	}
	read := benchfmt.NewReader(strings.NewReader(rendered(t, "benchstat", r, Options{})), "bench")
	n := 0
	for read.Scan() {
		res, ok := read.Result().(*benchfmt.Result)
		if !ok {
			if e, bad := read.Result().(*benchfmt.SyntaxError); bad {
				t.Errorf("%v", e)
			}
			continue
		}
		want := trials[n]
		n++
		if !strings.Contains(res.Name.String(), "/strategy="+want["label"]+"-2") {
			t.Errorf("%s stands for %s", res.Name, want["label"])
		}
		if fmt.Sprint(res.Iters) != want["operations"] || len(res.Values) != len(paths) {
			t.Errorf("%d operations and %d values of %s", res.Iters, len(res.Values), want["label"])
		}
		if res.GetConfig("users") != want["users"] || res.GetConfig("race") != want["race"] || res.GetConfig("postgresql") != "15.18" {
			t.Errorf("users %q, postgresql %q", res.GetConfig("users"), res.GetConfig("postgresql"))
		}
		for _, v := range res.Values {
			exact, err := strconv.ParseFloat(want[paths[v.Unit]], 64)
			if strings.Contains(v.Unit, "sec/op") {
				exact /= 1000
			}
			if err != nil || math.Abs(v.Value-exact) > 1e-11*math.Abs(exact) {
				t.Errorf("%s: %v %s, the JSON has %s", want["label"], v.Value, v.Unit, want[paths[v.Unit]])
			}
		}
	}
	if err := read.Err(); err != nil || n != len(trials) {
		t.Errorf("%d of %d trials: %v", n, len(trials), err)
	}
}

// junitHolds: a case for each verdict, with the seconds that were measured, and one for each limit and expectation.
func junitHolds(t *testing.T, r *bench.Report) {
	var got junitSuites
	if err := xml.Unmarshal([]byte(rendered(t, "junit", r, Options{})), &got); err != nil {
		t.Fatal(err)
	}
	var cases []junitCase
	failures, tests := 0, 0
	for _, s := range got.Suites {
		cases = append(cases, s.Cases...)
		failures, tests = failures+s.Failures, tests+s.Tests
	}
	if len(cases) != tests || len(cases) != len(r.Cells)+len(r.Gate) || got.Tests != tests || got.Failures != failures {
		t.Fatalf("%d cases of %d cells and %d limits and expectations; %d tests and %d failures are told", len(cases), len(r.Cells), len(r.Gate), got.Tests, got.Failures)
	}
	for _, part := range r.Parts() {
		for i := range part.Cells {
			c, jc := &part.Cells[i], cases[i]
			if want := junitTime(measuredSeconds(c)); jc.Name != c.Strategy || jc.Time != want {
				t.Errorf("case %s took %s, %s was measured for %s s", jc.Name, jc.Time, c.Strategy, want)
			}
			if failed := jc.Failure != nil; failed != (c.ClaimBroken && !r.Expected(c)) {
				t.Errorf("%s: failed is %v, its claim was broken: %v", c.Strategy, failed, c.ClaimBroken)
			}
		}
		cases = cases[len(part.Cells):]
		for i, a := range part.Gate {
			if jc := cases[i]; (jc.Failure != nil) != a.Failed || a.Failed && jc.Failure.Message != a.Message || !strings.HasSuffix(jc.Name, a.Text) {
				t.Errorf("%+v became %+v", a, jc)
			}
		}
		cases = cases[len(part.Gate):]
	}
}

// hgrmHolds: each block counts the confirmed operations of all trials, and reaches as far as the longest.
func hgrmHolds(t *testing.T, r *bench.Report) {
	type block struct {
		name  string
		count int64
		most  float64
	}
	var want []block
	for _, c := range r.Cells {
		b := block{name: cellName(&c)}
		for _, trial := range c.Trials {
			if trial.Histograms["confirmed"] != "" {
				p := trial.Latency["confirmed"]
				b.count, b.most = b.count+p.Count, max(b.most, *p.Max)
			}
		}
		if b.count > 0 {
			want = append(want, b)
		}
	}
	if len(want) == 0 {
		return // it is refused, which has a test of its own
	}
	var got []block
	for l := range strings.Lines(rendered(t, "hgrm", r, Options{})) {
		if name, ok := strings.CutPrefix(l, "#["); ok && strings.Contains(name, ": latency of ") {
			name, _, _ = strings.Cut(name, ": latency of ")
			got = append(got, block{name: name})
		} else if ok && strings.HasPrefix(name, "Max") {
			b := &got[len(got)-1]
			if _, err := fmt.Sscanf(name, "Max = %f, Total count = %d]", &b.most, &b.count); err != nil {
				t.Fatalf("%q: %v", l, err)
			}
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%d blocks, want %d", len(got), len(want))
	}
	for i, w := range want {
		if g := got[i]; g.name != w.name || g.count != w.count || math.Abs(g.most-w.most) > w.most/1000+0.001 {
			t.Errorf("block %+v, the JSON has %+v", g, w)
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
