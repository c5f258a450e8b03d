package report

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/lockbench/lockbench/bench"
)

var update = flag.Bool("update", false, "write the golden files anew; look at the difference before it is committed")

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

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (run go test with -update)", err)
	}
	if got != string(want) {
		t.Errorf("%s differs (run go test with -update, and look at what changed):\n%s", file, firstDifference(got, string(want)))
	}
}

// firstDifference shows the first line that differs.
func firstDifference(got, want string) string {
	g, w := bytes.Split([]byte(got), []byte("\n")), bytes.Split([]byte(want), []byte("\n"))
	for i := range max(len(g), len(w)) {
		var a, b []byte
		if i < len(g) {
			a = g[i]
		}
		if i < len(w) {
			b = w[i]
		}
		if !bytes.Equal(a, b) {
			return fmt.Sprintf("line %d\n got: %s\nwant: %s", i+1, a, b)
		}
	}
	return ""
}

func TestGoldenTable(t *testing.T) {
	for name, r := range reports(t) {
		for where, o := range map[string]Options{"piped": {}, "160": {Width: 160}, "80": {Width: 80}, "40": {Width: 40}, "colour": {Width: 100, Color: true}} {
			golden(t, "table-"+name+"-"+where, rendered(t, "table", r, o))
		}
	}
}

func TestGoldenMarkdown(t *testing.T) {
	for name, r := range reports(t) {
		golden(t, "markdown-"+name, rendered(t, "markdown", r, Options{}))
	}
}

func TestGoldenCSV(t *testing.T) {
	for name, r := range reports(t) {
		golden(t, "csv-"+name, rendered(t, "csv", r, Options{}))
	}
}

func TestGoldenForPrograms(t *testing.T) {
	for _, format := range []string{"benchstat", "junit", "github", "hgrm", "svg", "html"} {
		golden(t, format+"-full", rendered(t, format, full(t), Options{}))
		golden(t, format+"-suite", rendered(t, format, suite(t), Options{}))
		if format != "hgrm" { // the partial report holds no histograms
			golden(t, format+"-partial", rendered(t, format, partial(t), Options{}))
		}
	}
}

// TestGoldenJSON takes the report without histograms: their bytes are those of the compressor of the day.
func TestGoldenJSON(t *testing.T) {
	golden(t, "json-partial", rendered(t, "json", partial(t), Options{}))
}
