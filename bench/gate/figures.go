package gate

import (
	"maps"
	"slices"

	"github.com/lockbench/lockbench/bench"
)

// figure is something a limit may be set on; of reports whether the cell has it.
type figure struct {
	unit unit
	of   func(c *bench.Cell) (float64, bool)
}

// audited are the counts an audit may hold; a scenario that does not check one leaves it out, which is not a 0.
var audited = []string{"overbooked", "lost_updates", "undersold", "unexplained", "negative", "write_skew", "sum_drift", "double_charged", "stuck_reservations", "overstocked", "mischarged", "leaked_locks"}

// waits are the kinds of waiting a report tells apart.
var waits = []string{"pool", "lock", "backoff", "lag"}

// figures are the names a limit may use: those of the report's JSON form. p50 to max alone are those of confirmed operations.
func figures() map[string]figure {
	m := map[string]figure{
		"operations":      {count, func(c *bench.Cell) (float64, bool) { return float64(c.Operations), true }},
		"attempts":        {count, func(c *bench.Cell) (float64, bool) { return float64(c.Attempts), true }},
		"retries":         {count, func(c *bench.Cell) (float64, bool) { return float64(c.Retries), true }},
		"contended":       {count, func(c *bench.Cell) (float64, bool) { return float64(c.Contended), true }},
		"conflict_rate":   {ratio, func(c *bench.Cell) (float64, bool) { return known(c.ConflictRate) }},
		"amplification":   {plain, func(c *bench.Cell) (float64, bool) { return known(c.Amplification) }},
		"throughput":      {rate, func(c *bench.Cell) (float64, bool) { return known(c.Throughput) }},
		"goodput":         {rate, func(c *bench.Cell) (float64, bool) { return known(c.Goodput) }},
		"duration":        {seconds, func(c *bench.Cell) (float64, bool) { return c.DurationS, true }},
		"commits":         {count, server(func(s *bench.ServerSide) *int64 { return s.Commits })},
		"rollbacks":       {count, server(func(s *bench.ServerSide) *int64 { return s.Rollbacks })},
		"deadlocks":       {count, server(func(s *bench.ServerSide) *int64 { return s.Deadlocks })},
		"wal_bytes":       {count, server(func(s *bench.ServerSide) *int64 { return s.WALBytes })},
		"lock_wait_share": {ratio, func(c *bench.Cell) (float64, bool) { return lockWaitShare(c) }},
	}
	for _, o := range bench.Outcomes() {
		m[o.String()] = figure{count, in(func(c *bench.Cell) map[string]int64 { return c.Outcomes }, o.String())}
		addLatency(m, o.String()+".", o.String())
	}
	addLatency(m, "all.", "all")
	addLatency(m, "", bench.Confirmed.String())
	for _, k := range bench.Contentions() {
		m[k.String()] = figure{count, in(func(c *bench.Cell) map[string]int64 { return c.Contention }, k.String())}
	}
	for _, name := range audited {
		m[name] = figure{count, in(func(c *bench.Cell) map[string]int64 { return c.Audit }, name)}
	}
	for _, w := range waits {
		m[w+".p50"] = figure{millis, func(c *bench.Cell) (float64, bool) { return known(c.Waits[w].P50) }}
		m[w+".p99"] = figure{millis, func(c *bench.Cell) (float64, bool) { return known(c.Waits[w].P99) }}
		m[w+".total"] = figure{seconds, func(c *bench.Cell) (float64, bool) { return known(c.Waits[w].Total) }}
	}
	return m
}

// addLatency adds the percentiles of one outcome under a prefix.
func addLatency(m map[string]figure, prefix, outcome string) {
	add := func(name string, of func(p bench.Percentiles) *float64) {
		m[prefix+name] = figure{millis, func(c *bench.Cell) (float64, bool) { return known(of(c.Latency[outcome])) }}
	}
	add("mean", func(p bench.Percentiles) *float64 { return p.Mean })
	add("p50", func(p bench.Percentiles) *float64 { return p.P50 })
	add("p90", func(p bench.Percentiles) *float64 { return p.P90 })
	add("p95", func(p bench.Percentiles) *float64 { return p.P95 })
	add("p99", func(p bench.Percentiles) *float64 { return p.P99 })
	add("p999", func(p bench.Percentiles) *float64 { return p.P999 })
	add("max", func(p bench.Percentiles) *float64 { return p.Max })
}

func known(p *float64) (float64, bool) {
	if p == nil {
		return 0, false
	}
	return *p, true
}

func in(of func(*bench.Cell) map[string]int64, name string) func(*bench.Cell) (float64, bool) {
	return func(c *bench.Cell) (float64, bool) {
		n, measured := of(c)[name]
		return float64(n), measured
	}
}

func server(of func(*bench.ServerSide) *int64) func(*bench.Cell) (float64, bool) {
	return func(c *bench.Cell) (float64, bool) {
		if c.Server == nil || of(c.Server) == nil {
			return 0, false
		}
		return float64(*of(c.Server)), true
	}
}

func lockWaitShare(c *bench.Cell) (float64, bool) {
	if c.Server == nil {
		return 0, false
	}
	return known(c.Server.LockWaitShare)
}

// Names lists the figures a limit may be set on, in alphabetical order.
func Names() []string { return slices.Sorted(maps.Keys(figures())) }
