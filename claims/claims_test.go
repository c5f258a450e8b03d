package claims

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/bench"
)

// TestEveryClaimIsShown: the claims of the field are all there, in order, each with commands and with what they must show.
func TestEveryClaimIsShown(t *testing.T) {
	want := strings.Fields("A1 A2 A3 A4 A5 A6 B1 B2 B3 B4 B5 B6 B7 C1 C2 C3 C4 C5 D1 D2 D3 D4 D5 D6 D8")
	var ids []string
	for _, c := range All() {
		ids = append(ids, c.ID)
		if len(c.Commands) == 0 || len(c.Checks) == 0 || c.Text == "" {
			t.Errorf("%s: %d commands, %d checks, %q", c.ID, len(c.Commands), len(c.Checks), c.Text)
		}
		for _, line := range c.Commands {
			if strings.ContainsAny(line, `"'$*;&|<>\`) {
				t.Errorf("%s: %q cannot be pasted into a shell as it is", c.ID, line)
			}
		}
		// Nothing was observed: nothing may be confirmed.
		if r := c.Judge(&Observed{Reports: make([]*bench.Report, len(c.Commands))}); r.Verdict == Confirmed {
			t.Errorf("%s is confirmed by nothing", c.ID)
		}
	}
	if !slices.Equal(ids, want) {
		t.Errorf("claims are %v, want %v", ids, want)
	}
}

func TestSelect(t *testing.T) {
	for _, c := range []struct {
		patterns, want, unknown string
	}{
		{"", "A1 A2 B1 D1 D2", ""},
		{"a2", "A2", ""},
		{"D* A1", "A1 D1 D2", ""},
		{"B1 X9 C*", "B1", "X9 C*"},
		{"[", "", "["},
	} {
		all := []Claim{{ID: "A1"}, {ID: "A2"}, {ID: "B1"}, {ID: "D1"}, {ID: "D2"}}
		some, unknown := Select(all, strings.Fields(c.patterns))
		var ids []string
		for _, s := range some {
			ids = append(ids, s.ID)
		}
		if got := strings.Join(ids, " "); got != c.want || strings.Join(unknown, " ") != c.unknown {
			t.Errorf("%q: %q, unknown %q", c.patterns, got, unknown)
		}
	}
}

// raced is a report of one strategy.
func raced(strategy string, v bench.Verdict, contended int64, change func(c *bench.Cell)) *Observed {
	c := bench.Cell{Strategy: strategy, Verdict: v}
	c.Outcomes, c.Audit = map[string]int64{"confirmed": 10}, map[string]int64{}
	if change != nil {
		change(&c)
	}
	c.Trials = []bench.Trial{{Number: 1, Figures: c.Figures}}
	c.Trials[0].Contended = contended
	return &Observed{Reports: []*bench.Report{{Cells: []bench.Cell{c}}}}
}

// TestChecks: each kind of check confirms, refutes, and knows when it cannot tell.
func TestChecks(t *testing.T) {
	lose := func(c *bench.Cell) {
		c.Audit["lost_updates"] = 3
		c.Findings = []bench.Finding{{Check: "lost_updates", Message: "3 are missing"}}
	}
	rate := func(r float64) func(c *bench.Cell) {
		return func(c *bench.Cell) { c.ConflictRate = &r }
	}
	both := func(x, y float64) *Observed {
		o := raced("a", bench.Sound, 99, rate(x))
		o.Reports = append(o.Reports, raced("a", bench.Sound, 99, rate(y)).Reports...)
		return o
	}
	twice := times("conflict rate", conflicts, place{0, "a", "here"}, place{1, "a", "there"}, 2)
	for name, c := range map[string]struct {
		check Check
		o     *Observed
		want  Verdict
		says  string
	}{
		"sound":                      {sound(0, "a"), raced("a", bench.Sound, 99, nil), Confirmed, "sound, 10 users"},
		"violated":                   {sound(0, "a"), raced("a", bench.Violated, 99, lose), Refuted, "3 are missing"},
		"undetermined":               {sound(0, "a"), raced("a", bench.Undetermined, 7, nil), Inconclusive, "7 operations"},
		"another strategy":           {sound(0, "b"), raced("a", bench.Sound, 99, nil), Inconclusive, "not raced"},
		"another command":            {sound(1, "a"), raced("a", bench.Sound, 99, nil), Inconclusive, "not raced"},
		"broken":                     {broken(0, "a", "lost_updates"), raced("a", bench.Violated, 0, lose), Confirmed, "3 are missing"},
		"not broken":                 {broken(0, "a", "lost_updates"), raced("a", bench.Undetermined, 99, nil), Refuted, "0"},
		"not broken, nobody met":     {broken(0, "a", "lost_updates"), raced("a", bench.Undetermined, 3, nil), Inconclusive, "only 3"},
		"none":                       {none(0, "a", "lost_updates"), raced("a", bench.Undetermined, 99, nil), Confirmed, "0, 10 users"},
		"some":                       {none(0, "a", "lost_updates"), raced("a", bench.Undetermined, 99, lose), Refuted, "3 are missing"},
		"none, nobody met":           {none(0, "a", "lost_updates"), raced("a", bench.Undetermined, 3, nil), Inconclusive, "only 3"},
		"told as many":               {told(0, "a", "confirmed", 10), raced("a", bench.Sound, 99, nil), Confirmed, "10 in each"},
		"told others":                {told(0, "a", "confirmed", 11), raced("a", bench.Sound, 99, nil), Refuted, "10 in trial 1"},
		"twice as much":              {twice, both(0.4, 0.2), Confirmed, "0.4 against 0.2"},
		"not twice as much":          {twice, both(0.3, 0.2), Refuted, "0.3 against 0.2"},
		"twice nothing":              {twice, both(0, 0), Refuted, "0 against 0"},
		"conflicts":                  {lost(0, "a", "version"), raced("a", bench.Sound, 99, func(c *bench.Cell) { c.Contention = map[string]int64{"version": 2} }), Confirmed, "2 in 0"},
		"no conflicts":               {lost(0, "a", "version"), raced("a", bench.Sound, 99, nil), Refuted, "0 in 0"},
		"no conflicts, nobody met":   {lost(0, "a", "version"), raced("a", bench.Sound, 9, nil), Inconclusive, "0 in 0"},
		"what no trace of it showed": {shown("a", "FOR UPDATE"), raced("a", bench.Sound, 9, nil), Inconclusive, "not traced"},
	} {
		text, v := c.check.measure(c.o)
		if v != c.want || !strings.Contains(text, c.says) {
			t.Errorf("%s: %s, %q; want %s, %q", name, v, text, c.want, c.says)
		}
	}
}

// TestJudge: one refuted check refutes a claim, one that is open leaves it open.
func TestJudge(t *testing.T) {
	check := func(v Verdict) Check {
		return Check{Expect: "x", measure: func(*Observed) (string, Verdict) { return "y", v }}
	}
	for _, c := range []struct {
		all  []Check
		want Verdict
	}{
		{[]Check{check(Confirmed), check(Confirmed)}, Confirmed},
		{[]Check{check(Inconclusive), check(Confirmed)}, Inconclusive},
		{[]Check{check(Refuted), check(Inconclusive), check(Confirmed)}, Refuted},
		{[]Check{check(Inconclusive), check(Refuted)}, Refuted},
	} {
		if r := (&Claim{Checks: c.all}).Judge(&Observed{}); r.Verdict != c.want || len(r.Findings) != len(c.all) {
			t.Errorf("%v gives %s", c.all, r.Verdict)
		}
	}
}

// TestWrite: every format says the same of each claim.
func TestWrite(t *testing.T) {
	one := Claim{ID: "Z1", Text: "a | b", But: "only c", Commands: []string{"run --users 2"}, Checks: []Check{sound(0, "a")}}
	two := Claim{ID: "Z2", Text: "needs more", Commands: []string{"run"}}
	d := &Document{Schema: Schema, Claims: []Result{one.Judge(raced("a", bench.Violated, 99, nil)), two.Skip("it is not there")}}
	for _, format := range Formats() {
		var b bytes.Buffer
		if err := d.Write(&b, format); err != nil {
			t.Fatal(err)
		}
		if format == "json" {
			var back Document
			if err := json.Unmarshal(b.Bytes(), &back); err != nil || back.Claims[0].Verdict != Refuted || back.Claims[1].Why != "it is not there" {
				t.Errorf("%v: %+v", err, back)
			}
			continue
		}
		for _, want := range []string{"lockbench run --users 2", "only c", "it is not there", "2 claims: 0 confirmed, 1 refuted, 1 not run"} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%s lacks %q:\n%s", format, want, b.String())
			}
		}
		if format == "markdown" && !strings.Contains(b.String(), `a \| b`) {
			t.Errorf("a bar breaks the table:\n%s", b.String())
		}
	}
}

var update = flag.Bool("update", false, "write docs/claims.md anew from docs/claims.json; look at the difference before it is committed")

const intro = `<!-- Written from claims.json by: go test ./claims -update. Recorded by: make claims -->

# What people say about locking, put to the test

Each claim is a command or two. The side that is protected holds, the side that is not is seen to break; what was expected stands
beside what was measured. Run them all with ` + "`lockbench claims`, one with `lockbench claims C4`" + `.

`

// TestRecord: docs/claims.md is what was recorded, and what was recorded are the claims as they stand, all confirmed.
func TestRecord(t *testing.T) {
	text, err := os.ReadFile("../docs/claims.json")
	if err != nil {
		t.Fatalf("%v (make claims writes it)", err)
	}
	var d Document
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	all := All()
	if len(d.Claims) != len(all) {
		t.Fatalf("%d claims were recorded, and there are %d (make claims records them anew)", len(d.Claims), len(all))
	}
	for i, r := range d.Claims {
		now := all[i].begin(Confirmed)
		if r.ID != now.ID || r.Text != now.Text || r.But != now.But || !slices.Equal(r.Commands, now.Commands) || len(r.Findings) != len(all[i].Checks) {
			t.Errorf("%s is not the claim that was recorded (make claims records them anew)", now.ID)
		}
		if r.Verdict != Confirmed {
			t.Errorf("%s was recorded as %s", r.ID, r.Verdict)
		}
	}
	var b bytes.Buffer
	b.WriteString(intro)
	if err := d.Write(&b, "markdown"); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("../docs/claims.md", b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile("../docs/claims.md")
	if err != nil || string(got) != b.String() {
		t.Errorf("docs/claims.md is not what was recorded (go test ./claims -update writes it): %v", err)
	}
}
