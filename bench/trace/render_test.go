package trace_test

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/lockbench/lockbench/bench/postgres/pgtest"
	"github.com/lockbench/lockbench/bench/trace"
	"github.com/lockbench/lockbench/internal/golden"
)

// The lines a sequence diagram may have here. A text must not hold what ends a statement, begins a comment or an entity, or is HTML.
var diagramLine = regexp.MustCompile(`^    (participant U\d|participant PG as PostgreSQL|` +
	`U\d->>PG: ` + plainText + `|PG(-->>|--x)U\d: ` + plainText + `|Note over U\d(,PG)?: ` + plainText + `)$`)

const plainText = `(?:[^;#<>&%]|#[a-z0-9]+;|<br/>)+`

func checkMermaid(t *testing.T, diagram string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(diagram, "\n"), "\n")
	if lines[0] != "sequenceDiagram" {
		t.Errorf("the diagram begins with %q", lines[0])
	}
	for _, l := range lines[1:] {
		if !diagramLine.MatchString(l) {
			t.Errorf("not a line of a sequence diagram: %q", l)
		}
	}
}

// hostile is a trace whose texts hold what means something to Mermaid.
func hostile() *trace.Trace {
	took, rows, arg := 1.0, int64(1), int64(7)
	return &trace.Trace{Scenario: "a;b", Users: 2, Rows: 1, Races: []*trace.Race{{
		Strategy: "x#1", Isolation: "read committed", Notes: []string{"50%% & more"},
		Events: []*trace.Event{
			{Seq: 1, End: 1, Kind: trace.Statement, User: 1, TookMS: &took, SQL: "BEGIN; SET LOCAL lock_timeout = 50"},
			{Seq: 2, End: 2, Kind: trace.Statement, User: 2, TookMS: &took, Rows: &rows, Args: []*int64{&arg, nil}, SQL: "SELECT a # b FROM t WHERE q >= $1 AND r <> $2 AND s = $3"},
			{Seq: 3, End: 3, Kind: trace.Statement, User: 1, TookMS: &took, SQL: "SELECT 1", Error: "syntax error; at #", SQLState: "42601"},
			{Seq: 4, Kind: trace.Statement, User: 1, SQL: "SELECT pg_sleep(1)"},
		},
	}}}
}

func TestMermaidEscapes(t *testing.T) {
	got := mermaid(t, hostile())
	checkMermaid(t, got)
	for _, want := range []string{"BEGIN#59; SET", "a #35; b", "q #gt;= 7", "r #lt;#gt; NULL<br/>AND", "s = $3", "PG--xU1: ERROR 42601: syntax error#59; at #35;"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

func TestMermaid(t *testing.T) {
	tr := ask{scenario: "seats", specs: []string{"optimistic", "mutex"}, users: 2}.run(t, pgtest.Store(t, pgtest.DSN(t)))
	got := mermaid(t, tr)
	checkMermaid(t, got)
	golden.Check(t, "mermaid", mermaid(t, still(tr)))
}

// TestWidths: a narrow terminal gets a line an event, a wide one a column a user, and no line is longer than there is room.
func TestWidths(t *testing.T) {
	tr := ask{scenario: "seats", specs: []string{"optimistic", "serializable", "unique"}, users: 3}.run(t, pgtest.Store(t, pgtest.DSN(t)))
	for width, columns := range map[int]bool{40: false, 80: false, 99: false, 120: false, 140: true, 200: true, 0: true} {
		got := text(t, tr, width)
		if columns != strings.Contains(got, "-------  ---") {
			t.Errorf("width %d: columns should be %v:\n%s", width, columns, got)
		}
		for _, l := range strings.Split(got, "\n") {
			if n := utf8.RuneCountInString(l); width > 0 && n > width {
				t.Errorf("width %d: %d columns in %q", width, n, l)
			}
			if strings.HasSuffix(l, " ") {
				t.Errorf("width %d: blanks at the end of %q", width, l)
			}
		}
	}
}

// TestLeastWidth: two users need a hundred columns to stand side by side.
func TestLeastWidth(t *testing.T) {
	for width, columns := range map[int]bool{99: false, 100: true} {
		if got := text(t, hostile(), width); columns != strings.Contains(got, "-------  ---") {
			t.Errorf("width %d: columns should be %v:\n%s", width, columns, got)
		}
	}
}

// TestColumns holds the layout of columns.
func TestColumns(t *testing.T) {
	tr := ask{scenario: "seats", specs: []string{"optimistic"}, users: 2}.run(t, pgtest.Store(t, pgtest.DSN(t)))
	golden.Check(t, "columns", text(t, still(tr), 120))
}

// TestFilled: parameters are replaced by number, and what has none stays.
func TestFilled(t *testing.T) {
	a, b := int64(1), int64(10)
	args := []*int64{&a, nil, nil, nil, nil, nil, nil, nil, nil, &b}
	e := trace.Event{SQL: "SELECT $1, $10, $2, $11, '$x'", Args: args}
	if got, want := e.Filled(), "SELECT 1, 10, NULL, $11, '$x'"; got != want {
		t.Errorf("%q, not %q", got, want)
	}
}
