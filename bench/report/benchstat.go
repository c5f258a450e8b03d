package report

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"

	"github.com/lockbench/lockbench/bench"
)

// measure is one figure of a trial under its unit in Go's benchmark format.
type measure struct {
	unit   string
	better string // higher or lower
	of     func(t *bench.Trial) (float64, bool)
}

// measures are the figures that benchstat compares. Latencies are those of confirmed operations.
func measures() []measure {
	latency := func(of func(p *bench.Percentiles) *float64) func(*bench.Trial) (float64, bool) {
		return func(t *bench.Trial) (float64, bool) {
			p := t.Latency[bench.Confirmed.String()]
			if v := of(&p); v != nil {
				return *v / 1000, true
			}
			return 0, false
		}
	}
	rate := func(of func(t *bench.Trial) *float64) func(*bench.Trial) (float64, bool) {
		return func(t *bench.Trial) (float64, bool) {
			if v := of(t); v != nil {
				return *v, true
			}
			return 0, false
		}
	}
	audited := func(name string) func(*bench.Trial) (float64, bool) {
		return func(t *bench.Trial) (float64, bool) { n, ok := t.Audit[name]; return float64(n), ok }
	}
	return []measure{
		{"sec/op", "lower", latency(func(p *bench.Percentiles) *float64 { return p.Mean })},
		{"p50-sec/op", "lower", latency(func(p *bench.Percentiles) *float64 { return p.P50 })},
		{"p95-sec/op", "lower", latency(func(p *bench.Percentiles) *float64 { return p.P95 })},
		{"p99-sec/op", "lower", latency(func(p *bench.Percentiles) *float64 { return p.P99 })},
		{"confirmed/s", "higher", rate(func(t *bench.Trial) *float64 { return t.Goodput })},
		{"ops/s", "higher", rate(func(t *bench.Trial) *float64 { return t.Throughput })},
		{"attempts/confirmed", "lower", rate(func(t *bench.Trial) *float64 { return t.Amplification })},
		{"conflicts/attempt", "lower", rate(func(t *bench.Trial) *float64 { return t.ConflictRate })},
		{"overbooked", "lower", audited("overbooked")},
		{"lost-updates", "lower", audited("lost_updates")},
	}
}

// writeBenchstat writes Go's benchmark format, a line a cell and trial, for golang.org/x/perf's benchstat. Format:
// https://go.dev/design/14313-benchmark-format
func writeBenchstat(w io.Writer, r *bench.Report, _ Options) error {
	var b strings.Builder
	for i, part := range r.Parts() {
		if i > 0 {
			b.WriteString("\n")
		}
		for _, kv := range benchConfig(part) {
			if kv[1] != "" {
				fmt.Fprintf(&b, "%s: %s\n", kv[0], printable(kv[1]))
			}
		}
		if i == 0 {
			for _, m := range measures() {
				fmt.Fprintf(&b, "Unit %s better=%s\n", m.unit, m.better)
			}
		}
		b.WriteString("\n")
		for i := range part.Cells {
			c := &part.Cells[i]
			for j := range c.Trials {
				benchLine(&b, benchName(c, r.Environment.Host.CPUs), &c.Trials[j])
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// benchConfig is what must be equal for figures to be comparable; benchstat sets apart what differs.
func benchConfig(r bench.Part) [][2]string {
	srv, p := &r.Environment.Server, &r.Plan
	return [][2]string{
		{"goos", r.Environment.Host.OS}, {"goarch", r.Environment.Host.Arch},
		{"lockbench", r.Lockbench.Version}, {"postgresql", srv.Version}, {"durable", strconv.FormatBool(srv.Durable)}, {"exec-mode", srv.ExecMode},
		{"race", r.Name}, {"mode", string(p.Mode)}, {"users", strconv.Itoa(p.Users)}, {"connections", strconv.Itoa(p.Connections)},
		{"rows", strconv.FormatInt(p.Rows, 10)}, {"capacity", strconv.FormatInt(p.Capacity, 10)}, {"skew", p.Skew}, {"think", p.Think.String()},
	}
}

// benchName names a cell as a benchmark. The processors stand at its end as go test writes them, since a label may itself end in a
// number that would be taken for them.
func benchName(c *bench.Cell, cpus int) string {
	return fmt.Sprintf("BenchmarkRace/scenario=%s/strategy=%s-%d", benchWord(c.Scenario), benchWord(c.Strategy), max(1, cpus))
}

// benchWord keeps a label one part of a benchmark's name.
func benchWord(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || r == '/' {
			return '_'
		}
		return r
	}, printable(s))
}

// benchLine writes a trial. A trial without operations has no line: the format asks for at least one.
func benchLine(b *strings.Builder, name string, t *bench.Trial) {
	if t.Operations == 0 {
		return
	}
	var pairs []string
	for _, m := range measures() {
		if v, ok := m.of(t); ok {
			pairs = append(pairs, strconv.FormatFloat(v, 'g', 12, 64)+" "+m.unit)
		}
	}
	fmt.Fprintf(b, "%s %d %s\n", name, t.Operations, strings.Join(pairs, " "))
}
