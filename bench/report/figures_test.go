package report

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
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
		Plan  any
		Races []struct {
			Name string
			Plan any
		}
		Cells []map[string]any
	}
	dec := json.NewDecoder(strings.NewReader(rendered(t, "json", r, Options{})))
	dec.UseNumber()
	if err := dec.Decode(&doc); err != nil {
		t.Fatal(err)
	}
	for _, c := range doc.Cells {
		c["plan"] = doc.Plan
		for _, race := range doc.Races {
			if race.Name == c["race"] {
				c["plan"] = race.Plan
			}
		}
	}
	return doc.Cells
}

// ofRaces calls f for each race with what is written under its heading and with its cells; a report of one race has no heading.
func ofRaces(t *testing.T, r *bench.Report, text, heading string, f func(text string, cells []map[string]any)) {
	t.Helper()
	if len(r.Races) == 0 {
		f(text, jsonCells(t, r))
		return
	}
	for i, race := range r.Races {
		_, mine, found := strings.Cut("\n"+text, fmt.Sprintf("\n"+heading+"\n", race.Name))
		if !found {
			t.Fatalf("race %s has no heading in\n%s", race.Name, text)
		}
		if i+1 < len(r.Races) {
			mine, _, _ = strings.Cut(mine, fmt.Sprintf("\n"+heading+"\n", r.Races[i+1].Name))
		}
		f(mine, slices.DeleteFunc(jsonCells(t, r), func(c map[string]any) bool { return c["race"] != race.Name }))
	}
}

// holds says of every format how its figures are compared with the JSON's. There is one for each.
var holds = map[string]func(t *testing.T, r *bench.Report){
	"table": tableHolds, "markdown": markdownHolds, "github": githubHolds, "html": htmlHolds, "csv": csvHolds, "json": jsonHolds,
	"benchstat": benchstatHolds, "junit": junitHolds, "hgrm": hgrmHolds, "svg": svgHolds, "png": pngHolds,
}

// TestEveryFormatHoldsTheFiguresOfTheJSON: of the hand-made reports, and of some whose figures are drawn by lot.
func TestEveryFormatHoldsTheFiguresOfTheJSON(t *testing.T) {
	all := reports(t)
	rng := rand.New(rand.NewPCG(3, 14))
	for i := range 12 {
		all[fmt.Sprint("drawn", i)] = drawnByLot(t, rng)
	}
	for _, format := range Formats() {
		check := holds[format]
		if check == nil {
			t.Errorf("nothing holds %s to the JSON", format)
			continue
		}
		for name, r := range all {
			t.Run(format+"/"+name, func(t *testing.T) { check(t, r) })
		}
	}
}

// drawnByLot is a report, of one race or of several, whose figures span what a run may measure.
func drawnByLot(t testing.TB, rng *rand.Rand) *bench.Report {
	t.Helper()
	race := func() *bench.Report {
		r := base()
		r.Plan.Users, r.Plan.Rows = 1+rng.IntN(100_000), 1+rng.Int64N(1000)
		for i := range 1 + rng.IntN(4) {
			confirmed := 1 + rng.Int64N(499)
			goodput, median := math.Exp(rng.Float64()*12-2), math.Exp(rng.Float64()*12-4)
			c := cell(t, fmt.Sprintf("strategy-%d", i), 1+rng.IntN(3), confirmed, goodput, median, rng.Int64N(5000))
			switch rng.IntN(4) {
			case 0:
				c = violate(c, rng.IntN(2) == 0)
			case 1:
				c.Verdict, c.ConflictRate, c.Amplification = bench.Undetermined, nil, nil
			}
			r.Cells = append(r.Cells, c)
		}
		return r
	}
	if rng.IntN(2) == 0 {
		return race()
	}
	return bench.Join([]bench.Part{{Name: "one", Report: race()}, {Name: "another", Report: race()}})
}

// jsonHolds: reading what was written gives what was there.
func jsonHolds(t *testing.T, r *bench.Report) {
	again, err := Read(strings.NewReader(rendered(t, "json", r, Options{})))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(again, r) {
		t.Error("the JSON form loses something")
	}
}

func csvHolds(t *testing.T, r *bench.Report) {
	rows, err := csv.NewReader(strings.NewReader(rendered(t, "csv", r, Options{}))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	head, rows := rows[0], rows[1:]
	for _, c := range jsonCells(t, r) {
		for _, trial := range c["trials"].([]any) {
			want := map[string]string{"scenario": c["scenario"].(string), "strategy": c["strategy"].(string)}
			flatten(want, "", c["plan"])
			flatten(want, "", trial)
			want["strategy"], want["trial"] = c["strategy"].(string), want["number"]
			want["race"], _ = c["race"].(string)
			row := rows[0]
			rows = rows[1:]
			for i, field := range head {
				// A count of a latency that was not measured is 0 in both forms, though the JSON leaves its outcome out.
				if strings.HasSuffix(field, "_count") && want[field] == "" {
					want[field] = "0"
				}
				if !sameNumber(row[i], want[field]) {
					t.Errorf("%s: %s is %q in the CSV and %q in the JSON", want["strategy"], field, row[i], want[field])
				}
			}
		}
	}
	if len(rows) > 0 {
		t.Errorf("%d rows too many", len(rows))
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

func tableHolds(t *testing.T, r *bench.Report) {
	ofRaces(t, r, rendered(t, "table", r, Options{}), "%s", func(text string, cells []map[string]any) {
		gap := regexp.MustCompile(` {2,}`)
		var head []string
		var rows [][]string
		for l := range strings.Lines(text) {
			l = strings.TrimSpace(l)
			switch {
			case strings.HasPrefix(l, "strategy "):
				head = gap.Split(l, -1)
			case l == "" && rows != nil:
				head, rows = alignRatio(head, rows)
				checkRows(t, head, rows, cells)
				return
			case head != nil && !strings.HasPrefix(l, "─"):
				rows = append(rows, gap.Split(l, -1))
			}
		}
		t.Error("the table has no end")
	})
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

func markdownHolds(t *testing.T, r *bench.Report) {
	markdownIn(t, r, rendered(t, "markdown", r, Options{}))
}

func githubHolds(t *testing.T, r *bench.Report) {
	markdownIn(t, r, rendered(t, "github", r, Options{}))
}

func markdownIn(t *testing.T, r *bench.Report, text string) {
	ofRaces(t, r, text, "### %s", func(text string, cells []map[string]any) {
		head, rows := markdownTable(text)
		checkRows(t, head, rows, cells)
	})
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
