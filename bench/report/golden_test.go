package report

import (
	"bytes"
	"testing"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/internal/golden"
)

// reports are the hand-made ones, by the name that their goldens go by.
func reports(t testing.TB) map[string]*bench.Report {
	return map[string]*bench.Report{"full": full(t), "partial": partial(t), "single": single(t), "suite": suite(t)}
}

// rendered is the report in a format.
func rendered(t testing.TB, format string, r *bench.Report, o Options) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, format, r, o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestGoldenTable(t *testing.T) {
	for name, r := range reports(t) {
		for where, o := range map[string]Options{"piped": {}, "160": {Width: 160}, "80": {Width: 80}, "40": {Width: 40}, "colour": {Width: 100, Color: true}} {
			golden.Check(t, "table-"+name+"-"+where, rendered(t, "table", r, o))
		}
	}
}

func TestGoldenMarkdown(t *testing.T) {
	for name, r := range reports(t) {
		golden.Check(t, "markdown-"+name, rendered(t, "markdown", r, Options{}))
	}
}

func TestGoldenCSV(t *testing.T) {
	for name, r := range reports(t) {
		golden.Check(t, "csv-"+name, rendered(t, "csv", r, Options{}))
	}
}

func TestGoldenForPrograms(t *testing.T) {
	for _, format := range []string{"benchstat", "junit", "github", "hgrm", "svg", "html"} {
		golden.Check(t, format+"-full", rendered(t, format, full(t), Options{}))
		golden.Check(t, format+"-suite", rendered(t, format, suite(t), Options{}))
		if format != "hgrm" { // the partial report holds no histograms
			golden.Check(t, format+"-partial", rendered(t, format, partial(t), Options{}))
		}
	}
}

// TestGoldenJSON takes the report without histograms: their bytes are those of the compressor of the day.
func TestGoldenJSON(t *testing.T) {
	golden.Check(t, "json-partial", rendered(t, "json", partial(t), Options{}))
}
