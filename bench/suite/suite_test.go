package suite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/bench"
)

var settings = []string{"users", "strategy", "think"}

func TestParse(t *testing.T) {
	s, problems := Parse("s.yaml", []byte(`# races
defaults:
  users: 500  # each
  fail-on: failed>0
races:
  - name: a
    strategy: [none, "atomic", pessimistic:wait=nowait]
    think: 5ms
    fail-on:
      - 'none: p99>5s'
    expect:
      pessimistic:wait=nowait: sound
      all: violated
  - {name: b, users: 7, expect: undetermined}
`), settings)
	if err := Join(problems); err != nil {
		t.Fatal(err)
	}
	a, b := s.Races[0], s.Races[1]
	if got := a.Settings[0].Values[2]; got.Text != "pessimistic:wait=nowait" || got.Place != (Place{7, 32}) || got.Default {
		t.Errorf("third strategy: %+v", got)
	}
	if got := a.Settings[2]; got.Name.Text != "users" || got.Values[0].Text != "500" || got.Values[0].Place != (Place{3, 10}) {
		t.Errorf("users by default: %+v", got)
	}
	if len(a.FailOn) != 1 || a.FailOn[0].Text != "none: p99>5s" {
		t.Errorf("limits: %+v", a.FailOn)
	}
	if len(a.Expect) != 2 || a.Expect[0].Strategy.Text != "pessimistic:wait=nowait" || a.Expect[0].Verdict != bench.Sound || a.Expect[1].Verdict != bench.Violated {
		t.Errorf("expectations: %+v", a.Expect)
	}
	if len(b.Settings) != 1 || b.Settings[0].Values[0].Text != "7" || !b.FailOn[0].Default || b.Expect[0].Strategy.Text != bench.All {
		t.Errorf("second race: %+v", b)
	}
	for _, tc := range []struct {
		setting, value string
		want           Place
	}{{"strategy", "atomic", Place{7, 22}}, {"strategy", "cas", Place{7, 5}}, {"think", "", Place{8, 12}}, {"rows", "", Place{6, 11}}} {
		if got := a.Find(tc.setting, tc.value); got != tc.want {
			t.Errorf("%s %s is found at %v, not %v", tc.setting, tc.value, got, tc.want)
		}
	}
}

func TestProblems(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{"", "s.yaml:1:1: the suite is empty"},
		{"# nothing\n", "s.yaml:1:1: the suite is empty"},
		{"races:\n", "s.yaml:1:8: a suite needs a list of races"},
		{"races: []\n", "s.yaml:1:8: a suite needs a list of races"},
		{"- a\n", "s.yaml:1:1: a suite is made of keys and values\ns.yaml:1:1: a suite needs a list of races"},
		{"a: b: c\n", "s.yaml:1:4: this is no YAML: mapping value is not allowed in this context"},
		{"races:\n  - name: a\n---\nraces:\n", "s.yaml:4:1: a second document begins here"},
		{"races:\n  - name: a\n    users: &n 5\n  - name: b\n    users: *n\n", "s.yaml:3:12: anchors, aliases and merge keys are not read\ns.yaml:5:12: anchors, aliases and merge keys are not read"},
		{"races:\n  - name: a\n    users: !!int 5\n", "s.yaml:3:12: tags are not read"},
		{"races:\n  - users: 5\n  - b\n", "s.yaml:2:5: this race has no name\ns.yaml:3:5: a race is made of keys and values\ns.yaml:3:5: this race has no name"},
		{"defaults:\n  name: x\nraces:\n  - name: a\n", "s.yaml:2:3: each race has a name of its own"},
		{"races:\n  - name: a\n    expect: {none: {}}\n", "s.yaml:3:20: none takes a plain value here"},
		{"races:\n  - name: a\n    expect:\n", "s.yaml:3:13: expect has no value"},
		{"race:\n  - name: a\n", "s.yaml:1:1: unknown key \"race\"\ns.yaml:1:1: a suite needs a list of races"},
	} {
		_, problems := Parse("s.yaml", []byte(tc.text), settings)
		if err := Join(problems); err == nil || err.Error() != tc.want {
			t.Errorf("%q: got\n%v\nwant\n%s", tc.text, err, tc.want)
		}
	}
}

// FuzzParse: no text makes the reader panic, every problem has a place and a hint, and what is taken has races with names.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("../../scenarios/suites/*.yaml")
	if err != nil || len(files) == 0 {
		f.Fatalf("no suites to begin with: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	for _, text := range []string{"", "races:", "races:\n- &a {name: *a}", "races: [{name: a, users: [1, 2], think: .inf}]", "? [a]\n: b", "{a: {b: {c:", "\t", "races:\n  - name: |\n      x\n    <<: y", "--- \n...\n---\na"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, problems := Parse("s.yaml", []byte(text), settings)
		for _, p := range problems {
			if p.Line < 1 || p.Column < 1 || p.Err.Error() == "" || p.Err.(*bench.Hinted).Advice == "" {
				t.Errorf("a problem without place, text or hint: %v", p)
			}
		}
		if len(problems) > 0 {
			return
		}
		if len(s.Races) == 0 {
			t.Error("a suite without races is taken")
		}
		for _, r := range s.Races {
			if strings.TrimSpace(r.Name.Text) == "" || r.Name.Line < 1 {
				t.Errorf("a race without a name is taken: %+v", r)
			}
		}
	})
}
