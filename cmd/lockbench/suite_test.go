package main

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/lockbench/lockbench/scenarios/suites"
)

// bound are the races of a suite, and what is wrong with it.
func bound(t testing.TB, name string, flags ...string) ([]planned, string) {
	t.Helper()
	a := &app{env: func(string) string { return "" }}
	f := &runFlags{}
	fs := pflag.NewFlagSet("run", pflag.ContinueOnError)
	f.add(flagSet{a: a, fs: fs})
	if err := fs.Parse(flags); err != nil {
		t.Fatal(err)
	}
	races := a.suiteRaces(name, fs)
	var all strings.Builder
	for _, e := range flatten(a.usage()) {
		all.WriteString(e.Error() + "\n  " + hintOf(e) + "\n")
	}
	return races, all.String()
}

// suiteFile writes a suite and returns its path.
func suiteFile(t testing.TB, text string) string {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.WriteFile("suite.yaml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return "suite.yaml"
}

// TestSuitesCompile: what lockbench brings along, and what it writes to begin with, has no mistake, and says what it expects.
func TestSuitesCompile(t *testing.T) {
	names := append(suites.Names(), suiteFile(t, (&app{env: func(string) string { return "" }}).suiteToBeginWith()))
	if len(names) < 4 {
		t.Fatalf("only %v", names)
	}
	for _, name := range names {
		races, wrong := bound(t, name)
		if wrong != "" {
			t.Errorf("%s:\n%s", name, wrong)
		}
		for _, r := range races {
			if len(r.race.Cells) == 0 || len(r.expect) == 0 {
				t.Errorf("%s, %s: %d cells, %d expectations", name, r.name, len(r.race.Cells), len(r.expect))
			}
		}
	}
}

// TestTenMistakes: each is reported, with its place, at once.
func TestTenMistakes(t *testing.T) {
	file := suiteFile(t, `defaults:
  user: 500
  think: 5
races:
  - name: last seat
    scenario: seets
    strategy: [none, optimstic]
    trials: many
  - name: stock
    scenario: inventory
    strategy: [atomic, pessimistic:wait=sometimes]
    mode: closd
    skew: zipf
    fail-on: [overboked>0]
    expect: {none: broken}
  - name: stock
    rows: 1
    rows: 2
    lock-order: sorted
`)
	_, got := bound(t, file)
	want := `suite.yaml:2:3: unknown key "user"
  did you mean users?
suite.yaml:3:10: think: duration "5" has no unit
  write 5ms or 5s
suite.yaml:5:11: "last seat" cannot name a race
  letters, digits, dots, dashes and underscores, as last-seat
suite.yaml:6:15: unknown scenario "seets"
  did you mean seats?`
	if !strings.HasPrefix(got, want) {
		t.Errorf("got\n%s\nwant to begin with\n%s", got, want)
	}
	for _, place := range []string{"7:22: unknown strategy", "8:13: trials: ", "11:24: option", "12:11: mode: ", "13:11: ", "14:15: unknown figure", "15:20: ", "16:11: race \"stock\" is named twice", "18:5: \"rows\" stands twice", "19:17: "} {
		if strings.Count(got, "suite.yaml:"+place) != 1 {
			t.Errorf("nothing, or more than one thing, at %s\n%s", place, got)
		}
	}
	if n := strings.Count(got, "suite.yaml:"); n != 14 {
		t.Errorf("%d problems of fourteen mistakes:\n%s", n, got)
	}
	if strings.Contains(got, "--") {
		t.Errorf("a file has no dashes before its keys:\n%s", got)
	}
}

// TestBesideSuite: parameters on the command line hold for all races, and what is raced is the suite's to say.
func TestBesideSuite(t *testing.T) {
	file := suiteFile(t, "races:\n  - {name: a, strategy: atomic, users: 10, warmup: 3s}\n  - {name: b, strategy: none, connections: 7}\n")
	races, wrong := bound(t, file, "--users", "50", "--warmup", "0s", "--trials=2")
	if wrong != "" {
		t.Fatal(wrong)
	}
	for i, connections := range []int{32, 7} {
		if s := races[i].race.Settings; s.Users != 50 || s.Trials != 2 || s.Warmup != 0 || s.Connections != connections {
			t.Errorf("race %s: %+v", races[i].name, s)
		}
	}
	_, wrong = bound(t, file, "--strategy", "cas", "--lock-order", "sorted")
	for _, flag := range []string{"--strategy", "--lock-order"} {
		if !strings.Contains(wrong, flag+" cannot be given beside --suite, which says what is raced\n") {
			t.Errorf("%s is taken:\n%s", flag, wrong)
		}
	}
}

// TestDefaultsOfSuite: a race's own value replaces a default; a default for a strategy holds where it races, and must hold somewhere.
func TestDefaultsOfSuite(t *testing.T) {
	text := `defaults:
  users: 30
  strategy: [none, atomic]
  fail-on: ["atomic: p99>1s", overbooked>9]
  expect: {none: violated, atomic: sound}
races:
  - name: both
  - name: one
    strategy: atomic
    users: 40
  - name: free
    fail-on: []
    expect: {}
`
	races, wrong := bound(t, suiteFile(t, text))
	if wrong != "" {
		t.Fatal(wrong)
	}
	for i, want := range []struct{ users, cells, limits, expect int }{{30, 2, 2, 2}, {40, 1, 2, 1}, {30, 2, 0, 0}} {
		r := races[i]
		if got := (struct{ users, cells, limits, expect int }{r.race.Settings.Users, len(r.race.Cells), len(r.limits), len(r.expect)}); got != want {
			t.Errorf("%s: %+v, want %+v", r.name, got, want)
		}
	}
	_, wrong = bound(t, suiteFile(t, strings.ReplaceAll(text, "none: violated", "cas: violated")))
	if !strings.HasPrefix(wrong, "suite.yaml:5:12: ") || strings.Count(wrong, "suite.yaml") != 1 {
		t.Errorf("an expectation that concerns nobody:\n%s", wrong)
	}
	_, wrong = bound(t, suiteFile(t, "races:\n  - name: a\n    strategy: atomic\n    expect: {optimistic: sound}\n    fail-on: 'cas: p99>1s'\n"))
	for _, want := range []string{`suite.yaml:4:14: expect: strategy "optimistic" does not race`, `suite.yaml:5:14: fail-on: strategy "cas" of threshold`} {
		if !strings.Contains(wrong, want) {
			t.Errorf("no %s in\n%s", want, wrong)
		}
	}
}
