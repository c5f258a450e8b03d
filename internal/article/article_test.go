package article

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"
	"text/template/parse"

	"github.com/lockbench/lockbench/bench"
)

var update = flag.Bool("update", false, "write the article and its plots anew; look at the difference before it is committed")

const docs = "../../docs"

// TestArticle: the article and its plots are what the template makes of the reports, and there is no plot that it does not show.
func TestArticle(t *testing.T) {
	files, err := Make(docs)
	if err != nil {
		t.Fatal(err)
	}
	plots, err := filepath.Glob(filepath.Join(docs, Folder, "*.svg"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range plots {
		if _, shown := files[Folder+"/"+filepath.Base(file)]; !shown {
			t.Errorf("%s stands in no article: remove it", file)
		}
	}
	for name, want := range files {
		file := filepath.Join(docs, filepath.FromSlash(name))
		if *update {
			if err := os.WriteFile(file, want, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
			t.Errorf("docs/%s is not what the template makes of the reports (go test ./internal/article -update writes it): %v", name, err)
		}
	}
}

// said are the digits that prose may hold: SQLSTATEs, percentiles by their names, and options as they are written on a command line.
var said = regexp.MustCompile("\\b(40001|40P01|55P03|23505|p50|p99)\\b|`[a-z=]*wait=[0-9]+ms`|`[0-9]+ms`")

// TestNoFigureIsTyped: what stands in the template outside of its functions holds no digits.
func TestNoFigureIsTyped(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(docs, Template))
	if err != nil {
		t.Fatal(err)
	}
	if typed := typedFigures(t, string(text)); len(typed) > 0 {
		t.Errorf("typed by hand: %q", typed)
	}
	if typed := typedFigures(t, `{{n "a" "b" "p99"}} users lost 12 updates, with 40001`); !slices.Equal(typed, []string{"12"}) {
		t.Errorf("found %q", typed)
	}
}

func typedFigures(t *testing.T, text string) (typed []string) {
	t.Helper()
	tmpl, err := template.New("").Funcs((&author{}).functions()).Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range tmpl.Root.Nodes {
		if prose, ok := node.(*parse.TextNode); ok {
			typed = append(typed, regexp.MustCompile(`[0-9][0-9.,]*`).FindAllString(said.ReplaceAllString(string(prose.Text), ""), -1)...)
		}
	}
	return typed
}

// TestSentencesAreHeldToTheReports: what the reports do not bear out is not written.
func TestSentencesAreHeldToTheReports(t *testing.T) {
	rate := func(v float64) *float64 { return &v }
	cell := func(strategy string, goodput, low, high float64, verdict bench.Verdict) bench.Cell {
		c := bench.Cell{Race: "r", Strategy: strategy, Verdict: verdict, Intervals: map[string]bench.Interval{}}
		c.Goodput, c.Audit = rate(goodput), map[string]int64{"overbooked": int64(goodput)}
		c.Trials = []bench.Trial{{Figures: c.Figures}, {Figures: c.Figures}}
		c.Intervals["goodput"] = bench.Interval{Low: low, High: high, Trials: 6}
		return c
	}
	a := &author{races: &bench.Report{
		Races: []bench.Planned{{Name: "r"}},
		Cells: []bench.Cell{
			cell("quick", 90, 80, 100, bench.Sound), cell("near", 80, 70, 85, bench.Sound),
			cell("slow", 30, 25, 35, bench.Sound), cell("bad", 0, 0, 0, bench.Violated),
		},
	}}
	for text, want := range map[string]string{
		`{{more "r" "goodput" "quick" "slow"}}ok`:         "ok",
		`{{times "r" "goodput" "quick" "slow"}}`:          "3.0\u00a0×",
		`{{more "r" "goodput" "slow" "quick"}}`:           "not what the trials say",
		`{{more "r" "goodput" "quick" "near"}}`:           "not what the trials say",
		`{{times "r" "goodput" "slow" "bad"}}`:            "nothing is a multiple of it",
		`{{about "r" "goodput" "quick" "near"}}ok`:        "ok",
		`{{about "r" "goodput" "quick" "slow"}}`:          "are not alike",
		`{{none "r" "bad" "overbooked"}}ok`:               "ok",
		`{{none "r" "slow" "overbooked"}}`:                "is 30 in r, not 0",
		`{{few "r" "bad" "goodput"}}ok`:                   "ok",
		`{{few "r" "slow" "goodput"}}`:                    "is not few",
		`{{sum "r" "quick" "overbooked"}}`:                "180",
		`{{sum "r" "bad" "overbooked"}}`:                  "is 0 in every trial",
		`{{is "r" "bad" "violated"}}ok`:                   "ok",
		`{{is "r" "bad" "sound"}}`:                        "bad is violated in r, not sound",
		`{{claimed "r" "overbooked"}}`:                    "is 90 and 80",
		`{{finding "r" "quick"}}`:                         "nothing was found",
		`{{n "r" "quick" "p99"}}`:                         "was not measured",
		`{{n "r" "quick" "speed"}}`:                       "no figure is called",
		`{{n "r" "absent" "goodput"}}`:                    "does not race",
		`{{n "elsewhere" "quick" "goodput"}}`:             "no race is called",
		`{{plan "r" "height"}}`:                           "no parameter",
		`{{percent "r" "quick" "goodput" | printf "%s"}}`: "9000\u00a0%",
	} {
		tmpl, err := template.New("").Funcs(a.functions()).Parse(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		var out bytes.Buffer
		got := ""
		if err := tmpl.Execute(&out, nil); err != nil {
			got = err.Error()
		} else {
			got = out.String()
		}
		if !strings.Contains(got, want) || got == "" {
			t.Errorf("%s gave %q, want %q", text, got, want)
		}
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 85: "85", 1234: "1234", 1234.5: "1234", 12.345: "12.3", 1.2345: "1.23", 0.012345: "0.0123"} {
		if got := number(v); got != want {
			t.Errorf("%v is written %q, want %q", v, got, want)
		}
	}
}
