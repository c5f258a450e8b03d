package bench

import (
	"slices"
	"strings"
	"testing"
)

// cleanReport returns a report that gives no cause for a warning.
func cleanReport() (*Race, *Report) {
	lots := Percentiles{Count: 5000, P50: ptr(2.0), P99: ptr(5.0), Max: ptr(6.0)}
	cell := Cell{
		Strategy: "plain", Claim: []Anomaly{LostUpdate}, Verdict: Sound, Isolation: "serializable", Trials: []Trial{{Figures: Figures{Contended: 60}}, {Figures: Figures{Contended: 40}}},
		Figures: Figures{
			Operations: 5000, Attempts: 5000, Contended: 60, DurationS: 5,
			Outcomes:   map[string]int64{"confirmed": 5000, "busy": 50},
			Contention: map[string]int64{"deadlock": 1},
			Reasons:    map[string]int64{string(SoldOut): 5000},
			Latency:    map[string]Percentiles{"confirmed": lots, "all": lots},
			Waits:      map[string]Wait{"pool": {P50: ptr(0.9)}, "lag": {P99: ptr(10.0)}},
			Server:     &ServerSide{SeqScans: map[string]int64{"stock": 500}},
			Client:     ClientSide{CPUShare: 0.5},
		},
	}
	srv := Server{Durable: true, DeadlockMS: ptr(1000.0)}
	return &Race{Settings: Settings{Mode: Closed, Users: 10, Connections: 2, Rows: 100}},
		&Report{Environment: Environment{Server: srv}, Cells: []Cell{cell}}
}

func TestCleanReportHasNoWarnings(t *testing.T) {
	if ws := selfCheck(cleanReport()); len(ws) > 0 {
		t.Errorf("%+v", ws)
	}
}

// TestWarnings spoils a clean report in one way at a time.
func TestWarnings(t *testing.T) {
	both := func(c *Cell, p Percentiles) { c.Latency = map[string]Percentiles{"all": p, "confirmed": p} }
	for _, tc := range []struct {
		code    string
		spoil   func(*Race, *Report, *Cell)
		message string
	}{
		{"not-durable", func(_ *Race, r *Report, _ *Cell) { r.Environment.Server.Durable = false }, "does not flush commits"},
		{"pooler", func(_ *Race, r *Report, _ *Cell) { r.Environment.Server.Pooler = true }, "parsed at every execution"},
		{"pooler", func(_ *Race, r *Report, _ *Cell) {
			r.Environment.Server.Pooler, r.Environment.Server.PoolerCost = true, ptr(41.7)
		}, "42 µs a statement"},
		{"no-anomaly", func(_ *Race, _ *Report, c *Cell) { c.Verdict, c.Claim = Undetermined, nil }, "luck, not safety"},
		{"no-contention", func(_ *Race, _ *Report, c *Cell) {
			c.Verdict, c.Trials = Undetermined, make([]Trial, 2)
		}, "no two users of plain"},
		{"little-contention", func(_ *Race, _ *Report, c *Cell) {
			c.Verdict, c.Trials = Undetermined, []Trial{{Figures: Figures{Contended: 24}}, {Figures: Figures{Contended: 25}}}
		}, "only 49 operations of plain met another"},
		{"nothing-confirmed", func(_ *Race, _ *Report, c *Cell) {
			c.Verdict, c.Reasons = Undetermined, nil
			c.Outcomes["confirmed"] = 0
		}, "plain confirmed nobody"},
		{"not-audited", func(_ *Race, _ *Report, c *Cell) { c.Verdict = Undetermined }, "so plain was not audited"},
		{"failed", func(_ *Race, _ *Report, c *Cell) {
			c.Outcomes["failed"], c.Errors = 7, map[string]int64{"disk full": 4, "a reset": 1, "b reset": 2}
		}, "7 operations of plain failed (4 × disk full)"},
		{"indeterminate", func(_ *Race, _ *Report, c *Cell) { c.Outcomes["indeterminate"] = 2 }, "2 operations of plain lost the answer"},
		{"busy", func(_ *Race, _ *Report, c *Cell) { c.Outcomes["busy"] = 51 }, "51 of 5000 users of plain"},
		{"sold-out", func(_ *Race, _ *Report, c *Cell) { c.Reasons[string(SoldOut)] = 5001 }, "sold out for most of the window"},
		{"client-cpu", func(_ *Race, _ *Report, c *Cell) { c.Client.CPUShare = 0.61 }, "61 % of the processors"},
		{"schedule-lag", func(_ *Race, _ *Report, c *Cell) { c.Waits["lag"] = Wait{P99: ptr(12.0)} }, "up to 12 ms (p99)"},
		{"pool", func(_ *Race, _ *Report, c *Cell) { c.Waits["pool"] = Wait{P50: ptr(1.5)} }, "one of 2 connections (p50 1.5 ms of 2.0 ms)"},
		{"deadlock-timeout", func(_ *Race, _ *Report, c *Cell) { both(c, Percentiles{Count: 5000, P50: ptr(2.0), P99: ptr(1010.0)}) }, "deadlock_timeout (1000 ms)"},
		{"seq-scan", func(_ *Race, _ *Report, c *Cell) { c.Server.SeqScans["stock"] = 501 }, "scans stock from end to end"},
		{"beyond-hour", func(_ *Race, _ *Report, c *Cell) { both(c, Percentiles{Count: 5000, Max: ptr(3_600_001.0)}) }, "longer than the histogram's hour"},
		{"empty-claims", func(_ *Race, _ *Report, c *Cell) {
			c.Trials[1].Noted = map[string]int64{NotedEmpty: 9, NotedBehindBacklog: 4}
		}, "4 of 9 empty claims of plain"},
		{"claim-plan", func(_ *Race, _ *Report, c *Cell) {
			c.Trials[1].Audit = map[string]int64{CheckOverLimit: 3}
			c.Trials[1].QueryPlan = []string{"Update on jobs", "  ->  Nested Loop Semi Join", "        Join Filter: (a = b)", "        ->  Seq Scan on jobs"}
		}, "in 3 of its claims: its subquery was carried out again for each outer row; the server's plan: Update on jobs > Nested Loop Semi Join > Seq Scan on jobs"},
		{"few-samples", func(_ *Race, _ *Report, c *Cell) { both(c, Percentiles{Count: 999}) }, "fewer than ten samples"},
	} {
		t.Run(tc.code, func(t *testing.T) {
			for range 20 { // often enough that a text left to a map's order would show
				race, rep := cleanReport()
				tc.spoil(race, rep, &rep.Cells[0])
				ws := selfCheck(race, rep)
				if len(ws) != 1 || ws[0].Code != tc.code {
					t.Fatalf("%+v, want one of %s", ws, tc.code)
				}
				if !strings.Contains(ws[0].Message, tc.message) {
					t.Fatalf("%q does not contain %q", ws[0].Message, tc.message)
				}
				if ws[0].Fix == "" && !slices.Contains([]string{"indeterminate", "beyond-hour", "not-audited"}, tc.code) {
					t.Fatalf("%s names no fix", tc.code)
				}
			}
		})
	}
}

// TestWarningsThatDoNotApply: the same figures under other circumstances are as they should be.
func TestWarningsThatDoNotApply(t *testing.T) {
	for name, calm := range map[string]func(*Race, *Report, *Cell){
		"sold out in a burst":        func(r *Race, _ *Report, c *Cell) { r.Settings.Mode = Burst; c.Reasons[string(SoldOut)] = 9999 },
		"pool wait in a burst":       func(r *Race, _ *Report, c *Cell) { r.Settings.Mode = Burst; c.Waits["pool"] = Wait{P50: ptr(500.0)} },
		"busy for an instant":        func(_ *Race, _ *Report, c *Cell) { c.Client.CPUShare, c.DurationS = 0.9, 0.1 },
		"scans of a single row":      func(r *Race, _ *Report, c *Cell) { r.Settings.Rows = 1; c.Server.SeqScans["stock"] = 9999 },
		"scans at another isolation": func(_ *Race, _ *Report, c *Cell) { c.Isolation = "read committed"; c.Server.SeqScans["stock"] = 9999 },
		"a second without deadlocks": func(_ *Race, _ *Report, c *Cell) {
			c.Contention["deadlock"] = 0
			c.Latency["all"] = Percentiles{P99: ptr(1000.0)}
		},
		"a queue that was empty": func(_ *Race, _ *Report, c *Cell) {
			c.Trials[0].Noted = map[string]int64{NotedEmpty: 9, NotedBehindBacklog: 0}
		},
		"nothing observed":             func(_ *Race, _ *Report, c *Cell) { c.Server = nil },
		"a cell that makes no sense":   func(_ *Race, _ *Report, c *Cell) { *c = Cell{Strategy: "plain", NA: "no table"} },
		"violated, as was to be shown": func(_ *Race, _ *Report, c *Cell) { c.Verdict, c.Claim = Violated, nil },
	} {
		race, rep := cleanReport()
		calm(race, rep, &rep.Cells[0])
		if ws := selfCheck(race, rep); len(ws) > 0 {
			t.Errorf("%s: %+v", name, ws)
		}
	}
}

func TestMinSamples(t *testing.T) {
	for q, want := range map[float64]int64{50: 20, 90: 100, 95: 200, 99: 1000, 99.9: 10_000} {
		if got := MinSamples(q); got != want {
			t.Errorf("p%g rests on %d samples, want %d", q, got, want)
		}
	}
}
