package report

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/bench"
)

// flatten lists the figures of a JSON value by their path, with the steps joined by underscores.
func flatten(into map[string]string, prefix string, v any) {
	switch x := v.(type) {
	case map[string]any:
		for k, e := range x {
			p := k
			if prefix != "" {
				p = prefix + "_" + k
			}
			flatten(into, p, e)
		}
	case json.Number:
		into[prefix] = x.String()
	case string:
		into[prefix] = x
	}
}

// jsonCells are the cells of the JSON form, each with its trials, as any other program would read them.
func jsonCells(t testing.TB, r *bench.Report) []map[string]any {
	t.Helper()
	var doc struct {
		Cells []map[string]any `json:"cells"`
	}
	dec := json.NewDecoder(strings.NewReader(rendered(t, "json", r, Options{})))
	dec.UseNumber()
	if err := dec.Decode(&doc); err != nil {
		t.Fatal(err)
	}
	return doc.Cells
}

func TestCSVHoldsTheFiguresOfTheJSON(t *testing.T) {
	for name, r := range reports(t) {
		rows, err := csv.NewReader(strings.NewReader(rendered(t, "csv", r, Options{}))).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		head, rows := rows[0], rows[1:]
		for _, c := range jsonCells(t, r) {
			for _, trial := range c["trials"].([]any) {
				want := map[string]string{"scenario": c["scenario"].(string), "strategy": c["strategy"].(string)}
				flatten(want, "", trial)
				want["trial"] = want["number"]
				row := rows[0]
				rows = rows[1:]
				for i, field := range head {
					// A count of a latency that was not measured is 0 in both forms, though the JSON leaves its outcome out.
					if strings.HasSuffix(field, "_count") && want[field] == "" {
						want[field] = "0"
					}
					if !sameNumber(row[i], want[field]) {
						t.Errorf("%s, %s: %s is %q in the CSV and %q in the JSON", name, want["strategy"], field, row[i], want[field])
					}
				}
			}
		}
		if len(rows) > 0 {
			t.Errorf("%s: %d rows too many", name, len(rows))
		}
	}
}

func sameNumber(a, b string) bool {
	x, err1 := strconv.ParseFloat(a, 64)
	y, err2 := strconv.ParseFloat(b, 64)
	return a == b || err1 == nil && err2 == nil && x == y
}

// shown says where in the JSON the figure of a column stands, and in which unit it is shown.
var shown = map[string]struct {
	path string
	by   float64
}{
	"confirmed": {"outcomes_confirmed", 1}, "rejected": {"outcomes_rejected", 1}, "busy": {"outcomes_busy", 1}, "not found": {"outcomes_not_found", 1},
	"indeterminate": {"outcomes_indeterminate", 1}, "failed": {"outcomes_failed", 1},
	"overbooked": {"audit_overbooked", 1}, "lost": {"audit_lost_updates", 1}, "undersold": {"audit_undersold", 1}, "negative": {"audit_negative", 1},
	"unexplained": {"audit_unexplained", 1}, "leaked": {"audit_leaked_locks", 1}, "write skew": {"audit_write_skew", 1}, "sum drift": {"audit_sum_drift", 1},
	"double charged": {"audit_double_charged", 1}, "stuck": {"audit_stuck_reservations", 1},
	"conflicts": {"conflict_rate", 100}, "attempts/conf": {"amplification", 1}, "goodput/s": {"goodput", 1},
	"p50 ms": {"latency_confirmed_p50_ms", 1}, "p95 ms": {"latency_confirmed_p95_ms", 1}, "p99 ms": {"latency_confirmed_p99_ms", 1}, "max ms": {"latency_confirmed_max_ms", 1},
}

// checkRows compares a table's rows, by their heads, with the JSON's cells. Every cell and every column must be there once.
func checkRows(t *testing.T, head []string, rows [][]string, cells []map[string]any) {
	t.Helper()
	if len(rows) != len(cells) {
		t.Fatalf("%d rows of %d cells", len(rows), len(cells))
	}
	for _, c := range cells {
		want := map[string]string{}
		flatten(want, "", c)
		found := 0
		for _, row := range rows {
			if row[0] != want["strategy"] {
				continue
			}
			found++
			for i := 1; i < len(head); i++ {
				at, known := shown[head[i]]
				if !known {
					continue
				}
				if err := agrees(row[i], want[at.path], at.by, len(c["trials"].([]any)) > 0); err != nil {
					t.Errorf("%s, %s: %v", want["strategy"], head[i], err)
				}
			}
		}
		if found != 1 {
			t.Errorf("%s stands in %d rows", want["strategy"], found)
		}
	}
}

// agrees compares a figure for people with the JSON's: equal to the last digit that is shown, and to three significant digits at least.
func agrees(text, exact string, by float64, ran bool) error {
	if exact == "" || !ran {
		if text != dash {
			return fmt.Errorf("%q is shown, but it was not measured", text)
		}
		return nil
	}
	want, err := strconv.ParseFloat(exact, 64)
	if err != nil {
		return err
	}
	want *= by
	if text == "<0.001" {
		if want <= 0 || want >= 0.001 {
			return fmt.Errorf("%q is shown, the JSON has %s", text, exact)
		}
		return nil
	}
	digits := strings.NewReplacer("~", "", ",", "", " %", "").Replace(text)
	got, err := strconv.ParseFloat(digits, 64)
	if err != nil {
		return fmt.Errorf("%q is no figure, the JSON has %s", text, exact)
	}
	last := 1.0
	if _, frac, ok := strings.Cut(digits, "."); ok {
		last = math.Pow10(-len(frac))
	}
	if math.Abs(got-want) > last*0.500001 {
		return fmt.Errorf("%q is shown, the JSON has %s", text, exact)
	}
	if want != 0 && math.Abs(got-want)/want > 0.005 && last > 0.001 {
		return fmt.Errorf("%q is shown, too coarse for %s", text, exact)
	}
	return nil
}

func TestTableHoldsTheFiguresOfTheJSON(t *testing.T) {
	gap := regexp.MustCompile(` {2,}`)
	for name, r := range reports(t) {
		t.Run(name, func(t *testing.T) {
			var head []string
			var rows [][]string
			for l := range strings.Lines(rendered(t, "table", r, Options{})) {
				l = strings.TrimSpace(l)
				switch {
				case strings.HasPrefix(l, "strategy "):
					head = gap.Split(l, -1)
				case l == "" && rows != nil:
					head2, rows2 := alignRatio(head, rows)
					checkRows(t, head2, rows2, jsonCells(t, r))
					return
				case head != nil && !strings.HasPrefix(l, "─"):
					rows = append(rows, gap.Split(l, -1))
				}
			}
		})
	}
}

// alignRatio puts the empty ratio of an unranked row back, which splitting at spaces loses.
func alignRatio(head []string, rows [][]string) ([]string, [][]string) {
	for i, row := range rows {
		if len(row) == len(head)-1 {
			for j, h := range head {
				if h == "× fastest" {
					rows[i] = append(append(append([]string{}, row[:j]...), ""), row[j:]...)
				}
			}
		}
	}
	return head, rows
}

func TestMarkdownHoldsTheFiguresOfTheJSON(t *testing.T) {
	for name, r := range reports(t) {
		t.Run(name, func(t *testing.T) {
			head, rows := markdownTable(rendered(t, "markdown", r, Options{}))
			checkRows(t, head, rows, jsonCells(t, r))
		})
	}
}

// markdownTable reads the first table of a text.
func markdownTable(text string) (head []string, rows [][]string) {
	n := 0
	for l := range strings.Lines(text) {
		l = strings.TrimSpace(l)
		if !strings.HasPrefix(l, "|") {
			if n > 0 {
				break
			}
			continue
		}
		cells := regexp.MustCompile(`[^\\](\|)`).Split(" "+strings.Trim(l, "|")+" ", -1)
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch n {
		case 0:
			head = cells
		case 1: // the line below the head
		default:
			rows = append(rows, cells)
		}
		n++
	}
	return head, rows
}
