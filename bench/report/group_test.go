package report

import (
	"bytes"
	"encoding/csv"
	"slices"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/internal/golden"
)

// twoSources share the strategy atomic.
func twoSources(t testing.TB) []Source {
	return []Source{{"old.json", full(t)}, {"new.json", suite(t)}}
}

func groupedAs(t testing.TB, format string, by []string, o Options) string {
	t.Helper()
	var b bytes.Buffer
	if err := WriteGrouped(&b, format, twoSources(t), by, o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestGoldenGrouped(t *testing.T) {
	golden.Check(t, "grouped-table", groupedAs(t, "table", []string{"strategy"}, Options{}))
	golden.Check(t, "grouped-table-80", groupedAs(t, "table", []string{"users", "file"}, Options{Width: 80}))
	golden.Check(t, "grouped-markdown", groupedAs(t, "markdown", []string{"users", "strategy"}, Options{}))
	golden.Check(t, "grouped-csv", groupedAs(t, "csv", []string{"strategy"}, Options{}))
}

// TestGroupedHoldsTheFiguresOfTheJSON: every cell of every report stands in one row, with its figures, beside those it is grouped with.
func TestGroupedHoldsTheFiguresOfTheJSON(t *testing.T) {
	for _, by := range [][]string{{"strategy"}, {"file"}, {"users", "strategy"}, {"race", "scenario", "rows"}} {
		head, rows := markdownTable(groupedAs(t, "markdown", by, Options{}))
		if !slices.Equal(head[:len(by)], by) {
			t.Errorf("grouped by %v, the columns are %v", by, head)
		}
		at := func(row []string, name string) string { return row[slices.Index(head, name)] }
		cells := 0
		for _, s := range twoSources(t) {
			for _, c := range jsonCells(t, s.Report) {
				cells++
				want := map[string]string{}
				flatten(want, "", c)
				race, _ := c["race"].(string)
				i := slices.IndexFunc(rows, func(row []string) bool {
					return at(row, "file") == s.Name && at(row, "race") == race && at(row, "strategy") == c["strategy"]
				})
				if i < 0 {
					t.Errorf("%v of %s has no row", c["strategy"], s.Name)
					continue
				}
				for j, name := range head {
					if place, known := shown[name]; known {
						if err := agrees(rows[i][j], want[place.path], place.by, len(c["trials"].([]any)) > 0); err != nil {
							t.Errorf("%v of %s, %s: %v", c["strategy"], s.Name, name, err)
						}
					}
				}
			}
		}
		if cells != len(rows) {
			t.Errorf("%d rows of %d cells", len(rows), cells)
		}
		seen := map[string]bool{} // a group that has ended does not begin again
		for i, row := range rows {
			group := strings.Join(row[:len(by)], "\x00")
			if i > 0 && strings.Join(rows[i-1][:len(by)], "\x00") != group && seen[group] {
				t.Errorf("group %q stands in two places", group)
			}
			seen[group] = true
		}
	}
}

func TestGroupedCSV(t *testing.T) {
	rows, err := csv.NewReader(strings.NewReader(groupedAs(t, "csv", []string{"file"}, Options{}))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	at := 1
	for _, s := range twoSources(t) {
		plain, err := csv.NewReader(strings.NewReader(rendered(t, "csv", s.Report, Options{}))).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range plain[1:] {
			if got := rows[at]; got[0] != s.Name || !slices.Equal(got[1:], want) {
				t.Errorf("row %d: %v, want %v of %s", at, got, want, s.Name)
			}
			at++
		}
	}
	if at != len(rows) {
		t.Errorf("%d rows, want %d", len(rows), at)
	}
}

func TestGroupedRefuses(t *testing.T) {
	var b bytes.Buffer
	wantError(t, WriteGrouped(&b, "html", twoSources(t), []string{"file"}, Options{}), `there is no "html" form of several reports side by side`, "use table")
	wantError(t, WriteGrouped(&b, "table", []Source{{"none.json", base()}}, []string{"file"}, Options{}), "these reports hold no cells", "take reports")
}

// TestHGRMNames: each cell has a file name of its own, also where labels differ in signs only.
func TestHGRMNames(t *testing.T) {
	r := suite(t)
	r.Cells[1].Strategy, r.Cells[2].Strategy = "a:b=1", "a/b 1"
	blocks, err := HGRM(r)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, b := range blocks {
		names = append(names, b.Name)
	}
	want := []string{"seats-seats-none", "seats-seats-a-b-1", "seats-seats-a-b-1-3", "last-seat-seats-atomic", "last-seat-seats-cas"}
	if !slices.Equal(names, want) {
		t.Errorf("names %q, want %q", names, want)
	}
}
