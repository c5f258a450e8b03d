package reference

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/scenarios"
	"github.com/lockbench/lockbench/strategies"
)

var update = flag.Bool("update", false, "write the pages anew; look at the difference before it is committed")

const docs = "../../docs"

func measured(t *testing.T) *Measured {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(docs, "measured.json"))
	if err != nil {
		t.Fatalf("%v (make measured writes it)", err)
	}
	m, err := ReadMeasured(text)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestPages: the pages in docs are what the registry and the record say, and there is none of anything else.
func TestPages(t *testing.T) {
	pages, err := Pages(measured(t))
	if err != nil {
		t.Fatal(err)
	}
	var there []string
	for _, pattern := range []string{"strategies/*", "scenarios/*"} {
		all, err := filepath.Glob(filepath.Join(docs, pattern))
		if err != nil {
			t.Fatal(err)
		}
		there = append(there, all...)
	}
	for _, file := range there {
		name, err := filepath.Rel(docs, file)
		if err != nil {
			t.Fatal(err)
		}
		if _, known := pages[filepath.ToSlash(name)]; known {
			continue
		}
		if !*update {
			t.Errorf("docs/%s is the page of nothing (go test ./internal/reference -update removes it)", name)
		} else if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range pages {
		file := filepath.Join(docs, filepath.FromSlash(name))
		if *update {
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		got, err := os.ReadFile(file)
		if err != nil || string(got) != want {
			t.Errorf("docs/%s is not what the registry says (go test ./internal/reference -update writes it): %v", name, err)
		}
	}
}

// TestRecordIsComplete: whatever can be raced was, or there is a reason; and what was sent is still what would be.
func TestRecordIsComplete(t *testing.T) {
	m := measured(t)
	known := 0
	for _, sc := range scenarios.All() {
		for _, o := range Settings(sc) {
			on := Flags(sc.Info().Name, o)
			for _, st := range strategies.All() {
				for _, label := range Labels(st, sc) {
					c := m.Find(sc.Info().Name, o, label)
					if c == nil {
						t.Errorf("%s on %s is not in docs/measured.json: make measured", label, on)
						continue
					}
					known++
					held(t, c, st, sc)
				}
			}
		}
	}
	if known != len(m.Cells) {
		t.Errorf("docs/measured.json holds %d cells, and %d can be raced: make measured", len(m.Cells), known)
	}
}

// held compares a recorded cell with what the registry says today.
func held(t *testing.T, c *Cell, st bench.Strategy, sc bench.Scenario) {
	t.Helper()
	b, err := Bind(c.Strategy, sc, c.Options)
	if err != nil {
		t.Fatal(err)
	}
	on := c.Strategy + " on " + Flags(c.Scenario, c.Options)
	if why := c.Stale(&b); why != "" {
		t.Errorf("%s: %s: make measured", on, why)
		return
	}
	if c.NA != "" {
		return
	}
	if c.Skipped != "" {
		if !st.Info().External {
			t.Errorf("%s was not measured, and needs nothing: %s", on, c.Skipped)
		}
		return
	}
	for a := range c.Found {
		if slices.Contains(b.Prevents, a) {
			t.Errorf("%s claims to prevent %s, and let it through", on, a)
		}
	}
	if _, mixed := sc.(bench.Mixer); mixed != (len(c.Sent) == 0) {
		t.Errorf("%s: what is sent is %v", on, c.Sent)
	}
}

// TestStale: what is recorded is compared with what the registry says.
func TestStale(t *testing.T) {
	now := Binding{Statements: []Statement{{Name: "read"}, {Name: "write"}}}
	raced := map[string]int64{"confirmed": 1}
	for _, tt := range []struct {
		cell Cell
		want string
	}{
		{Cell{Outcomes: raced, Sent: []string{Lock, "read", "write"}}, ""},
		{Cell{Skipped: "no service"}, ""},
		{Cell{}, "nobody raced"},
		{Cell{NA: "no"}, `it is n/a for "", and was for "no"`},
		{Cell{Outcomes: raced, Sent: []string{"compare"}}, `it sent "compare", and has no such statement any more`},
	} {
		if got := tt.cell.Stale(&now); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.cell, got, tt.want)
		}
	}
}

// TestOtherRecords: what is no record of ours is refused with the command that makes one.
func TestOtherRecords(t *testing.T) {
	for _, text := range []string{"", "{}", `{"schema": "lockbench.measured/v9"}`} {
		_, err := ReadMeasured([]byte(text))
		var h *bench.Hinted
		if !errors.As(err, &h) || h.Hint() != "make measured" {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestSentence(t *testing.T) {
	for text, want := range map[string]string{
		"made to wait":            "Made to wait.",
		"SELECT first":            "SELECT first.",
		"wait=skip for a row":     "wait=skip for a row.",
		"An ordinary sentence.":   "An ordinary sentence.",
		"40001 taken for a fault": "40001 taken for a fault.",
		"one":                     "One.",
		"a call under the lock":   "A call under the lock.",
	} {
		if got := sentence(text); got != want {
			t.Errorf("%q became %q", text, got)
		}
	}
}

// TestMatrix: the matrix in the README is what was recorded.
func TestMatrix(t *testing.T) {
	const file, begins, ends = "../../README.md", "<!-- matrix: go test ./internal/reference -update -->\n", "<!-- /matrix -->"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begins)
	got, after, ended := strings.Cut(rest, ends)
	if !found || !ended {
		t.Fatal("the README has no place for the matrix")
	}
	want := Matrix(measured(t))
	switch {
	case got == want:
	case *update:
		if err := os.WriteFile(file, []byte(before+begins+want+ends+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Error("the matrix in the README is not what was recorded (go test ./internal/reference -update writes it)")
	}
	for _, must := range []string{"| `none` | **", "| `serializable` | no | no | no | no |"} {
		if !strings.Contains(want, must) {
			t.Errorf("the matrix lacks %q:\n%s", must, want)
		}
	}
}
