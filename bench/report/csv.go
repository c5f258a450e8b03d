package report

import (
	"encoding/csv"
	"io"
	"maps"
	"slices"
	"strconv"

	"github.com/lockbench/lockbench/bench"
)

// field is one figure of a trial, named as in the JSON form with the path's steps joined by underscores.
type field struct {
	name string
	of   func(c *bench.Cell, t *bench.Trial) string
}

// setting is one parameter of a race, named as in the JSON form.
type setting struct {
	name string
	of   func(s *bench.Settings) string
}

// settings are those that reports of several races mostly differ in.
func settings() []setting {
	whole := func(n int64) string { return strconv.FormatInt(n, 10) }
	return []setting{
		{"mode", func(s *bench.Settings) string { return string(s.Mode) }},
		{"users", func(s *bench.Settings) string { return whole(int64(s.Users)) }},
		{"connections", func(s *bench.Settings) string { return whole(int64(s.Connections)) }},
		{"rows", func(s *bench.Settings) string { return whole(s.Rows) }},
		{"capacity", func(s *bench.Settings) string { return whole(s.Capacity) }},
		{"skew", func(s *bench.Settings) string { return s.Skew }},
		{"think", func(s *bench.Settings) string { return s.Think.String() }},
		{"rate", func(s *bench.Settings) string { // of open mode alone
			if s.Rate == 0 {
				return ""
			}
			return strconv.FormatFloat(s.Rate, 'f', -1, 64)
		}},
	}
}

// writeCSV writes one row a cell and trial. What was not measured is an empty field.
func writeCSV(w io.Writer, r *bench.Report, _ Options) error {
	fields := append(raceFields(r), csvFields(auditCounts(r))...)
	out := csv.NewWriter(w)
	row := make([]string, len(fields))
	for i, f := range fields {
		row[i] = f.name
	}
	if err := out.Write(row); err != nil {
		return err
	}
	for i := range r.Cells {
		c := &r.Cells[i]
		for j := range c.Trials {
			for k, f := range fields {
				row[k] = f.of(c, &c.Trials[j])
			}
			if err := out.Write(row); err != nil {
				return err
			}
		}
	}
	out.Flush()
	return out.Error()
}

// auditCounts are the names that audits count under: those that every file has, so that files can be joined, then the report's others.
func auditCounts(r *bench.Report) []string {
	names := []string{"overbooked", "lost_updates", "undersold", "negative", "unexplained", "double_charged", "stuck_reservations", "leaked_locks"}
	others := map[string]bool{}
	for i := range r.Cells {
		for j := range r.Cells[i].Trials {
			for name := range r.Cells[i].Trials[j].Audit {
				if !slices.Contains(names, name) {
					others[name] = true
				}
			}
		}
	}
	return append(names, slices.Sorted(maps.Keys(others))...)
}

// raceFields are the race and its parameters.
func raceFields(r *bench.Report) []field {
	fs := []field{{"race", func(c *bench.Cell, _ *bench.Trial) string { return c.Race }}}
	for _, s := range settings() {
		fs = append(fs, field{s.name, func(c *bench.Cell, _ *bench.Trial) string { return s.of(r.PlanOf(c)) }})
	}
	return fs
}

func csvFields(audits []string) []field {
	fs := []field{
		{"scenario", func(c *bench.Cell, _ *bench.Trial) string { return c.Scenario }},
		{"strategy", func(c *bench.Cell, _ *bench.Trial) string { return c.Strategy }},
		{"trial", func(_ *bench.Cell, t *bench.Trial) string { return strconv.Itoa(t.Number) }},
		{"order", func(_ *bench.Cell, t *bench.Trial) string { return strconv.Itoa(t.Order) }},
		{"verdict", func(_ *bench.Cell, t *bench.Trial) string { return t.Verdict.String() }},
		whole("operations", func(t *bench.Trial) int64 { return t.Operations }),
		whole("attempts", func(t *bench.Trial) int64 { return t.Attempts }),
		whole("retries", func(t *bench.Trial) int64 { return t.Retries }),
		whole("contended", func(t *bench.Trial) int64 { return t.Contended }),
	}
	for _, o := range bench.Outcomes() {
		fs = append(fs, whole("outcomes_"+o.String(), func(t *bench.Trial) int64 { return t.Outcomes[o.String()] }))
	}
	for _, k := range bench.Contentions() {
		fs = append(fs, whole("contention_"+k.String(), func(t *bench.Trial) int64 { return t.Contention[k.String()] }))
	}
	fs = append(fs,
		decimal("conflict_rate", func(t *bench.Trial) *float64 { return t.ConflictRate }),
		decimal("amplification", func(t *bench.Trial) *float64 { return t.Amplification }),
		decimal("throughput", func(t *bench.Trial) *float64 { return t.Throughput }),
		decimal("goodput", func(t *bench.Trial) *float64 { return t.Goodput }),
		decimal("duration_s", func(t *bench.Trial) *float64 { return &t.DurationS }),
	)
	for _, a := range audits {
		fs = append(fs, field{"audit_" + a, func(_ *bench.Cell, t *bench.Trial) string {
			if n, checked := t.Audit[a]; checked {
				return strconv.FormatInt(n, 10)
			}
			return ""
		}})
	}
	for _, o := range []string{"confirmed", "rejected", "busy", "all"} {
		fs = append(fs, latencyFields(o)...)
	}
	for _, k := range []string{"pool", "lock", "backoff", "lag"} {
		fs = append(fs,
			decimal("waits_"+k+"_p50_ms", func(t *bench.Trial) *float64 { return t.Waits[k].P50 }),
			decimal("waits_"+k+"_p99_ms", func(t *bench.Trial) *float64 { return t.Waits[k].P99 }),
			decimal("waits_"+k+"_total_s", func(t *bench.Trial) *float64 { return t.Waits[k].Total }))
	}
	return append(fs,
		server("commits", func(s *bench.ServerSide) *int64 { return s.Commits }),
		server("rollbacks", func(s *bench.ServerSide) *int64 { return s.Rollbacks }),
		server("deadlocks", func(s *bench.ServerSide) *int64 { return s.Deadlocks }),
		server("wal_bytes", func(s *bench.ServerSide) *int64 { return s.WALBytes }),
		decimal("server_lock_wait_share", func(t *bench.Trial) *float64 {
			if t.Server == nil {
				return nil
			}
			return t.Server.LockWaitShare
		}),
		decimal("client_cpu_share", func(t *bench.Trial) *float64 { return &t.Client.CPUShare }),
	)
}

func latencyFields(outcome string) []field {
	prefix := "latency_" + outcome + "_"
	at := func(name string, of func(p bench.Percentiles) *float64) field {
		return decimal(prefix+name, func(t *bench.Trial) *float64 { return of(t.Latency[outcome]) })
	}
	return []field{
		whole(prefix+"count", func(t *bench.Trial) int64 { return t.Latency[outcome].Count }),
		at("mean_ms", func(p bench.Percentiles) *float64 { return p.Mean }),
		at("p50_ms", func(p bench.Percentiles) *float64 { return p.P50 }),
		at("p90_ms", func(p bench.Percentiles) *float64 { return p.P90 }),
		at("p95_ms", func(p bench.Percentiles) *float64 { return p.P95 }),
		at("p99_ms", func(p bench.Percentiles) *float64 { return p.P99 }),
		at("p999_ms", func(p bench.Percentiles) *float64 { return p.P999 }),
		at("max_ms", func(p bench.Percentiles) *float64 { return p.Max }),
	}
}

func whole(name string, of func(*bench.Trial) int64) field {
	return field{name, func(_ *bench.Cell, t *bench.Trial) string { return strconv.FormatInt(of(t), 10) }}
}

func decimal(name string, of func(*bench.Trial) *float64) field {
	return field{name, func(_ *bench.Cell, t *bench.Trial) string {
		if v := of(t); v != nil {
			return strconv.FormatFloat(*v, 'g', -1, 64)
		}
		return ""
	}}
}

func server(name string, of func(*bench.ServerSide) *int64) field {
	return field{"server_" + name, func(_ *bench.Cell, t *bench.Trial) string {
		if t.Server != nil {
			if v := of(t.Server); v != nil {
				return strconv.FormatInt(*v, 10)
			}
		}
		return ""
	}}
}
