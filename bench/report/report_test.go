package report

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/bench"
)

func TestNoLineIsWiderThanTheTerminal(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	original := full(t)
	for range 400 {
		r := *original
		r.Cells = slices.Clone(r.Cells)
		r.Partial = rng.IntN(2) == 0
		for i := range r.Cells {
			switch rng.IntN(4) {
			case 0:
				r.Cells[i].Strategy = strings.Repeat("optimistic:", 1+rng.IntN(12)) + fmt.Sprint(i)
			case 1:
				r.Cells[i].Strategy = strings.Repeat("予約", 1+rng.IntN(20))
			case 2:
				r.Cells[i].NA = strings.Repeat("because ", rng.IntN(20)) + strings.Repeat("x", rng.IntN(120))
			}
		}
		r.Command = "lockbench run --strategy " + strings.Repeat("optimistic:retries=3,", rng.IntN(30))
		width := 30 + rng.IntN(170)
		for l := range strings.Lines(rendered(t, "table", &r, Options{Width: width})) {
			if strings.HasPrefix(l, again) { // which is to be copied
				if l != again+r.Command+"\n" {
					t.Errorf("the command is broken: %s", l)
				}
				continue
			}
			if n := columnsOf(strings.TrimSuffix(l, "\n")); n > width {
				t.Fatalf("%d columns on a terminal of %d:\n%s", n, width, l)
			}
		}
	}
}

func TestElideKeepsBothEnds(t *testing.T) {
	for _, tt := range []struct {
		text  string
		width int
		want  string
	}{
		{"atomic", 6, "atomic"},
		{"optimistic:retries=3", 12, "optimist…s=3"},
		{"optimistic:retries=3", 4, "op…3"},
		{"予約予約予約", 7, "予約…約"},
	} {
		if got := elide(tt.text, tt.width); got != tt.want {
			t.Errorf("elide(%q, %d) = %q, want %q", tt.text, tt.width, got, tt.want)
		}
	}
}

// hostile is text as it may stand in a report that came from elsewhere.
const hostile = "a|b\nc\x1b[31md\r`e` <script>alert(1)</script> *f* \u202eg & \"h\" 100%"

func hostileReport(t testing.TB) *bench.Report {
	r := full(t)
	r.Command = "lockbench run " + hostile
	r.Environment.Server.Embedded, r.Environment.Server.Address = false, hostile
	for i := range r.Cells {
		c := &r.Cells[i]
		c.Strategy = fmt.Sprint(hostile, i)
		if c.NA != "" {
			c.NA = hostile
		}
		for j := range c.Findings {
			f := &c.Findings[j]
			f.Message = hostile
			f.First = &bench.Witness{User: 1, Told: hostile, Holds: hostile}
			f.Worst = f.First
		}
	}
	for i := range r.Warnings {
		r.Warnings[i].Message, r.Warnings[i].Fix = hostile, hostile
	}
	return r
}

func TestNothingSteersTheTerminalUnasked(t *testing.T) {
	for name, r := range map[string]*bench.Report{"full": full(t), "hostile": hostileReport(t)} {
		for _, format := range []string{"table", "markdown"} {
			for _, o := range []Options{{}, {Width: 80}} {
				out := rendered(t, format, r, o)
				if strings.ContainsAny(out, "\x1b\r\u202e") {
					t.Errorf("%s, %s: control characters in %q", name, format, out)
				}
			}
		}
	}
	if !strings.Contains(rendered(t, "table", full(t), Options{Color: true}), "\x1b[32msound\x1b[0m") {
		t.Error("no colour though it was asked for")
	}
}

func TestMarkdownKeepsCellsWhole(t *testing.T) {
	r := hostileReport(t)
	head, rows := markdownTable(rendered(t, "markdown", r, Options{}))
	if len(rows) != len(r.Cells) {
		t.Fatalf("%d rows of %d cells", len(rows), len(r.Cells))
	}
	for _, row := range rows {
		if len(row) != len(head) {
			t.Errorf("%d cells under %d heads: %q", len(row), len(head), row)
		}
	}
	out := rendered(t, "markdown", r, Options{})
	if strings.Contains(strings.ReplaceAll(out, code("lockbench run "+hostile), ""), "<script>") {
		t.Error("markup comes through")
	}
}

func TestJSONRoundTrip(t *testing.T) {
	for name, r := range reports(t) {
		got, err := Read(strings.NewReader(rendered(t, "json", r, Options{})))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, r) {
			t.Errorf("%s: what was read is not what was written", name)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	ok := rendered(t, "json", partial(t), Options{})
	for _, tt := range []struct{ text, err, hint string }{
		{"", "this is no report: it is empty", "save one with --output FILE.json"},
		{"strategy,verdict\n", "this is no report: invalid character", "save one with --output FILE.json"},
		{`{"cells": 3}`, "this is no report: json: cannot unmarshal number", "save one with --output FILE.json"},
		{`{}`, `this report is of schema "", not "lockbench.report/v1"`, "use the lockbench that wrote it"},
		{`{"schema": "lockbench.report/v2"}`, `this report is of schema "lockbench.report/v2"`, "use the lockbench that wrote it"},
		{ok + ok, "something follows the report", "keep one report a file"},
	} {
		_, err := Read(strings.NewReader(tt.text))
		wantError(t, err, tt.err, tt.hint)
	}
	if _, err := Read(strings.NewReader(ok + "\n \n")); err != nil {
		t.Errorf("space after the report: %v", err)
	}
}

func wantError(t *testing.T, err error, text, hint string) {
	t.Helper()
	if err == nil || !strings.HasPrefix(err.Error(), text) {
		t.Errorf("error %v, want %s", err, text)
		return
	}
	h, ok := err.(interface{ Hint() string })
	if !ok || !strings.Contains(h.Hint(), hint) {
		t.Errorf("the hint of %v does not say %q", err, hint)
	}
}

func TestUnknownFormats(t *testing.T) {
	wantError(t, Write(nil, "markdwon", partial(t), Options{}), `unknown format "markdwon"`, "did you mean markdown?")
	wantError(t, Write(nil, "yaml", partial(t), Options{}), `unknown format "yaml"`, "there are table, markdown")
	for _, file := range []string{"race", "race.yaml", "json", ".json/race"} {
		_, err := FormatOf(file)
		wantError(t, err, fmt.Sprintf("no format goes by the extension of %q", file), ".json")
	}
	for file, want := range map[string]string{"a/b.MD": "markdown", "x.txt": "table", "x.json": "json", "x.tar.csv": "csv"} {
		if got, err := FormatOf(file); got != want || err != nil {
			t.Errorf("FormatOf(%q) = %q, %v", file, got, err)
		}
	}
}

func TestPercentilesOnTooFewSamples(t *testing.T) {
	p := map[string]bench.Percentiles{"confirmed": {Count: 999, P50: ptr(1.0), P95: ptr(2.0), P99: ptr(3.0), Max: ptr(4.0)}}
	l := &line{cell: &bench.Cell{Figures: bench.Figures{Latency: p}}}
	got := map[string]string{}
	for _, c := range columns() {
		if strings.HasSuffix(c.head, " ms") {
			got[c.head] = c.text(l)
		}
	}
	if want := map[string]string{"p50 ms": "1.00", "p95 ms": "2.00", "p99 ms": "~3.00", "max ms": "4.00"}; !reflect.DeepEqual(got, want) {
		t.Errorf("of 999 samples: %v, want %v", got, want)
	}
	p["confirmed"] = bench.Percentiles{Count: 1000, P99: ptr(3.0)}
	for _, c := range columns() {
		if c.head == "p99 ms" && c.text(l) != "3.00" {
			t.Errorf("p99 of 1000 samples is shown as %q", c.text(l))
		}
		if c.head == "p50 ms" && c.text(l) != dash {
			t.Errorf("a p50 that was not measured is shown as %q", c.text(l))
		}
	}
}

func TestOnlySoundCellsAreRanked(t *testing.T) {
	sound, others := ranked(full(t))
	names := func(ls []line) (all []string) {
		for _, l := range ls {
			all = append(all, l.cell.Name)
		}
		return all
	}
	if got := names(sound); !slices.Equal(got, []string{"atomic", "optimistic:retries=3:backoff=exp=1ms..50ms"}) {
		t.Errorf("ranked: %q", got)
	}
	if got := names(others); !slices.Equal(got, []string{"none", "optimistic-broken", "serializable", "advisory", "skip-locked"}) {
		t.Errorf("below the rule: %q", got)
	}
	for _, l := range others {
		if ratio(&l) != "" {
			t.Errorf("%s is compared with the fastest", l.cell.Strategy)
		}
	}
	for _, s := range sentences(full(t)) {
		if strings.Contains(s, "none") && strings.Contains(s, "fast") {
			t.Errorf("an unsound strategy is compared: %s", s)
		}
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.0004: "<0.001", 0.0123: "0.0123", 0.00996: "0.00996", 0.1254: "0.125", 0.9996: "1.00", 1.005: "1.00", 9.994: "9.99", 9.996: "10.0", 99.94: "99.9", 99.96: "100",
		1234.4: "1234", 12345.6: "12,346", 1234567: "1,234,567", 123456: "123,456", -12345: "-12,345",
	} {
		if got := number(v); got != want {
			t.Errorf("number(%v) = %q, want %q", v, got, want)
		}
	}
}

func TestWarningsOfTheSameKindStandTogether(t *testing.T) {
	r := base()
	r.Warnings = []bench.Warning{
		{Code: "busy", Strategy: "cas", Message: "30 of 500 users of cas were told to try later", Fix: "raise --retries"},
		{Code: "busy", Strategy: "mutex", Message: "7 of 500 users of mutex were told to try later", Fix: "raise --retries"},
		{Code: "busy", Strategy: "mutex", Message: "9 of 500 users of mutex were told to try later", Fix: "raise --retries"},
		{Code: "failed", Strategy: "cas", Message: "3 operations of cas failed (3 × reset)"},
		{Code: "failed", Strategy: "mutex", Message: "3 operations of mutex failed (3 × out of memory)"},
		{Code: "not-durable", Message: "the server does not flush"},
		{Code: "not-durable", Message: "the server does not flush"},
	}
	var got []string
	for _, w := range warnings(r) {
		got = append(got, w.message)
	}
	want := []string{
		"30 of 500 users of cas were told to try later (likewise mutex)",
		"3 operations of cas failed (3 × reset)",
		"3 operations of mutex failed (3 × out of memory)",
		"the server does not flush",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCountsOfOne(t *testing.T) {
	out := rendered(t, "table", single(t), Options{})
	if !strings.Contains(out, "1 user on 1 connection,") || !strings.Contains(out, " 1 row,") {
		t.Errorf("a plural of one:\n%s", out)
	}
	r := full(t)
	for range 2 {
		r.Cells = append(r.Cells, r.Cells[0])
	}
	if s := strings.Join(sentences(r), "\n"); !strings.Contains(s, "1 more strategy let an anomaly through.") {
		t.Errorf("a plural of one: %s", s)
	}
}

func TestCSVHoldsEveryCountOfTheAudits(t *testing.T) {
	r := single(t)
	r.Cells[0].Trials[0].Audit["write_skew"] = 7
	if head, _, _ := strings.Cut(rendered(t, "csv", r, Options{}), "\n"); !strings.Contains(head, ",audit_write_skew,") {
		t.Errorf("no column of write skew: %s", head)
	}
}
