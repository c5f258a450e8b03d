package report

import (
	"strings"
	"testing"

	"github.com/lockbench/lockbench/bench"
)

// soundCell is a sound cell with a goodput and its interval; low 0: none.
func soundCell(name string, goodput, low, high float64, trials int) bench.Cell {
	c := bench.Cell{Strategy: name, Verdict: bench.Sound, Trials: make([]bench.Trial, trials)}
	c.Goodput = &goodput
	if low > 0 {
		c.Intervals = map[string]bench.Interval{"goodput": {Low: low, High: high, Trials: trials}}
	}
	return c
}

func TestComparisonSaysWhatIsSettled(t *testing.T) {
	for _, c := range []struct {
		cells []bench.Cell
		want  string
	}{
		{[]bench.Cell{soundCell("a", 100, 0, 0, 1), soundCell("b", 50, 0, 0, 1)}, "2.0 × as fast as b, the slowest (one trial: do not quote the ratio)."},
		{[]bench.Cell{soundCell("a", 100, 0, 0, 3), soundCell("b", 50, 0, 0, 1)}, "(one trial"},
		{[]bench.Cell{soundCell("a", 100, 0, 0, 3), soundCell("b", 50, 0, 0, 3)}, "(medians of 3 trials; six or more give an interval)."},
		{[]bench.Cell{soundCell("a", 100, 90, 110, 6), soundCell("b", 50, 40, 60, 6)}, "a is fastest, 2.0 × as fast as b, the slowest."},
		{[]bench.Cell{soundCell("a", 100, 90, 110, 6), soundCell("b", 99, 89, 109, 6)}, "Whether a is faster than b is not settled"},
		{
			[]bench.Cell{soundCell("a", 100, 90, 110, 6), soundCell("b", 99, 89, 109, 6), soundCell("c", 50, 40, 60, 6)},
			"as fast as c, the slowest; its 95 % interval overlaps that of b, so which of them is faster is not settled.",
		},
	} {
		got := strings.Join(sentences(&bench.Report{Cells: c.cells}), " ")
		if !strings.Contains(got, c.want) {
			t.Errorf("%q does not say %q", got, c.want)
		}
	}
}

// TestOnlyTheBrokenClaimIsBlamed: of two findings the one that the strategy claims to prevent is told.
func TestOnlyTheBrokenClaimIsBlamed(t *testing.T) {
	c := bench.Cell{
		Strategy: "rr", Verdict: bench.Violated, Claim: []bench.Anomaly{bench.LostUpdate}, ClaimBroken: true, Trials: make([]bench.Trial, 1),
		Findings: []bench.Finding{{Anomaly: bench.WriteSkew, Count: 3, Message: "3 shifts are empty"}, {Anomaly: bench.LostUpdate, Count: 1, Message: "1 update is lost"}},
	}
	if got := violation(&c); got != "rr: 1 update is lost. It claims to prevent this." {
		t.Error(got)
	}
	c.Findings = c.Findings[:1]
	if got := violation(&c); got != "rr: 3 shifts are empty." {
		t.Error(got)
	}
}

func TestScopeIsSaid(t *testing.T) {
	c := soundCell("mutex", 1, 0, 0, 1)
	c.Scope = "in one process"
	if got := strings.Join(sentences(&bench.Report{Cells: []bench.Cell{c}}), " "); got != "mutex is sound in one process only." {
		t.Error(got)
	}
}
