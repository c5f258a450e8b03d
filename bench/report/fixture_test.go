package report

import (
	"math"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/lockbench/lockbench/bench"
)

func ptr[T any](v T) *T { return &v }

// started is when the hand-made runs took place.
func started() time.Time { return time.Date(2026, 3, 14, 9, 26, 53, 0, time.UTC) }

// base is a report without cells.
func base() *bench.Report {
	return &bench.Report{
		Schema:    bench.Schema,
		Lockbench: bench.Build{Version: "v1.2.3", Commit: "0123456", Go: "go1.26.8"},
		Command:   "lockbench run --trials 3 --output race.json",
		Started:   started(),
		Environment: bench.Environment{
			Server: bench.Server{
				Version: "15.18", Major: 15, Embedded: true, Durable: true, Address: "/run/lockbench postgres", ExecMode: "prepared",
				Settings: map[string]string{"fsync": "on", "shared_buffers": "128MB"}, DeadlockMS: ptr(1000.0),
			},
			Host: bench.Host{OS: "linux", Arch: "amd64", CPUs: 2},
		},
		Plan: bench.Settings{
			Strategies: []string{"all"}, Scenario: "seats", Mode: bench.Burst, Users: 500, Connections: 32, Trials: 3, Warmup: bench.Duration(time.Second),
			Seed: 1, Rows: 50, Capacity: 1, Skew: "uniform", Think: bench.Duration(2 * time.Millisecond), Retries: 100, Backoff: "exp=1ms..50ms",
			Deadline: bench.Duration(30 * time.Second), Drain: bench.Duration(10 * time.Second),
		},
		Cells: []bench.Cell{}, Warnings: []bench.Warning{},
	}
}

// latencies makes n latencies around a median in ms, with a tail; the same every time.
func latencies(t testing.TB, n int64, median float64) (string, bench.Percentiles) {
	t.Helper()
	h := hdrhistogram.New(1, int64(time.Hour/time.Microsecond), 3)
	var sum, most float64
	for i := range n {
		q := (float64(i) + 0.5) / float64(n)
		us := math.Round(median * 1000 * math.Pow(2*q/(2-2*q), 0.4))
		if err := h.RecordValue(int64(us)); err != nil {
			t.Fatal(err)
		}
		sum, most = sum+us, max(most, us)
	}
	b, err := h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		t.Fatal(err)
	}
	at := func(q float64) *float64 { return ptr(min(float64(h.ValueAtQuantile(q)), most) / 1000) }
	return string(b), bench.Percentiles{
		Count: n, Mean: ptr(sum / 1000 / float64(n)), P50: at(50), P90: at(90), P95: at(95), P99: at(99), P999: at(99.9), Max: ptr(most / 1000),
	}
}

// figures are those of a trial of 500 users.
func figures(t testing.TB, confirmed int64, goodput, median float64, lost int64) (bench.Figures, map[string]string) {
	t.Helper()
	yes, yesP := latencies(t, confirmed, median)
	no, noP := latencies(t, 500-confirmed, median*2)
	f := bench.Figures{
		Operations: 500, Attempts: 500 + lost, Retries: lost, Contended: 450, DurationS: float64(confirmed) / goodput,
		Outcomes:   map[string]int64{"confirmed": confirmed, "rejected": 500 - confirmed, "not_found": 0, "busy": 0, "indeterminate": 0, "failed": 0},
		Reasons:    map[string]int64{"already assigned": 500 - confirmed},
		Contention: map[string]int64{"version": lost, "serialization": 0, "deadlock": 0, "nowait": 0, "lock_timeout": 0, "unique": 0, "lease": 0, "fenced": 0},
		Audit:      map[string]int64{"overbooked": 0, "lost_updates": 0, "undersold": 0, "unexplained": 0, "leaked_locks": 0},
		Latency:    map[string]bench.Percentiles{"confirmed": yesP, "rejected": noP, "all": noP},
		Waits:      map[string]bench.Wait{"pool": {P50: ptr(median / 2), P99: ptr(median), Total: ptr(500 * median / 2000)}, "lock": {Total: ptr(0.25)}},
		Server:     &bench.ServerSide{Commits: ptr(int64(500)), Rollbacks: ptr(lost), WALBytes: ptr(int64(20616)), LockWaitShare: ptr(0.125), Samples: 8},
		Client:     bench.ClientSide{CPUSeconds: 0.03, CPUShare: 0.25},
	}
	f.ConflictRate = ptr(float64(lost) / float64(f.Attempts))
	f.Amplification = ptr(float64(f.Attempts) / float64(confirmed))
	f.Goodput = ptr(goodput)
	f.Throughput = ptr(500 / f.DurationS)
	return f, map[string]string{"confirmed": yes, "rejected": no}
}

// cell is one that ran, over some trials that differ a little.
func cell(t testing.TB, strategy string, trials int, confirmed int64, goodput, median float64, lost int64) bench.Cell {
	t.Helper()
	c := bench.Cell{
		Scenario: "seats", Strategy: strategy, Name: strategy, Options: map[string]string{}, Isolation: "read committed",
		Claim: []bench.Anomaly{bench.Overbooking, bench.LostUpdate}, Verdict: bench.Sound, Findings: []bench.Finding{}, Trial: 1,
	}
	for n := range trials {
		share := 1 - 0.05*float64(n)
		f, hs := figures(t, confirmed, goodput*share, median/share, lost)
		c.Trials = append(c.Trials, bench.Trial{
			Number: n + 1, Order: 2*n + 1, Verdict: bench.Sound, Findings: []bench.Finding{}, Figures: f, Histograms: hs,
			Timeline: []bench.Second{{Finished: 400, Confirmed: confirmed - 10, Contention: lost}, {Finished: 100, Confirmed: 10}},
		})
	}
	c.Figures = c.Trials[0].Figures
	p := c.Latency["confirmed"]
	p.Count *= int64(trials)
	c.Latency = map[string]bench.Percentiles{"confirmed": p, "rejected": c.Latency["rejected"], "all": c.Latency["all"]}
	return c
}

// violate makes a cell's anomalies: nine users were told yes too many.
func violate(c bench.Cell, claimed bool) bench.Cell {
	w := &bench.Witness{
		User: 492, Op: 141, Attempts: 1, Row: 4, StartMS: 1.13, EndMS: 53.59, Told: "the seat is yours",
		Holds: "seat 4 names user 341; 13 users were told yes for it",
	}
	f := []bench.Finding{
		{Anomaly: bench.Overbooking, Count: 9, Message: "19 users were told yes for 10 seats", First: w, Worst: w, Trial: 1},
		{Anomaly: bench.LostUpdate, Count: 9, Message: "9 confirmed bookings are missing from the database", First: w, Trial: 1},
	}
	c.Verdict, c.Findings, c.ClaimBroken = bench.Violated, f, claimed
	if !claimed {
		c.Claim = []bench.Anomaly{}
	}
	counts := map[string]int64{"overbooked": 9, "lost_updates": 9, "undersold": 0, "unexplained": 0, "leaked_locks": 0}
	c.Audit = counts
	c.Trials[0].Verdict, c.Trials[0].Findings, c.Trials[0].Audit = bench.Violated, f, counts
	return c
}

// full is a report with every kind of cell.
func full(t testing.TB) *bench.Report {
	t.Helper()
	r := base()
	undetermined := cell(t, "serializable", 3, 50, 640, 14, 40)
	undetermined.Verdict, undetermined.Contended = bench.Undetermined, 0
	r.Cells = []bench.Cell{
		violate(cell(t, "none", 3, 109, 12345.6, 10, 0), false),
		cell(t, "optimistic:retries=3:backoff=exp=1ms..50ms", 3, 50, 940.25, 18.1, 400),
		violate(cell(t, "optimistic-broken", 3, 84, 1401, 19.8, 26), true),
		cell(t, "atomic", 3, 450, 1061.5, 15.125, 0),
		undetermined,
		{
			Scenario: "seats", Strategy: "skip-locked", Name: "skip-locked", Options: map[string]string{}, Claim: []bench.Anomaly{bench.Overbooking},
			NA: "it takes any free row, and these users want a certain one", Findings: []bench.Finding{}, Trials: []bench.Trial{},
		},
		{
			Scenario: "seats", Strategy: "advisory", Name: "advisory", Options: map[string]string{}, Claim: []bench.Anomaly{bench.LostUpdate},
			Findings: []bench.Finding{}, Trials: []bench.Trial{},
		},
	}
	r.Cells[3].Intervals = map[string]bench.Interval{"goodput": {Low: 1000, High: 1100, Trials: 6}}
	r.Warnings = []bench.Warning{
		{Code: "few-samples", Message: "percentiles marked ~ rest on fewer than ten samples beyond them", Fix: "raise --trials or --capacity"},
		{Code: "client-cpu", Strategy: "none", Message: "lockbench itself used 61 % of the processors during none: it may have been the bottleneck", Fix: "lower --users"},
		{Code: "client-cpu", Strategy: "atomic", Message: "lockbench itself used 55 % of the processors during atomic: it may have been the bottleneck", Fix: "lower --users"},
		{Code: "failed", Strategy: "none", Message: "3 operations of none failed (3 × connection reset)", Fix: "lockbench doctor"},
		{Code: "failed", Strategy: "atomic", Message: "5 operations of atomic failed (5 × out of memory)", Fix: "lockbench doctor"},
	}
	return r
}

// partial is the report of a run that was stopped during its second cell.
func partial(t testing.TB) *bench.Report {
	t.Helper()
	r := base()
	r.Partial = true
	r.Plan.Mode, r.Plan.Duration = bench.Closed, bench.Duration(10*time.Second)
	r.Environment.Server.Embedded, r.Environment.Server.Durable, r.Environment.Server.Address = false, false, "db.example.org:5432 shop"
	r.Environment.Server.Pooler, r.Environment.Server.ExecMode = true, "unprepared"
	r.Cells = []bench.Cell{
		cell(t, "atomic", 1, 50, 1061.5, 15.125, 0),
		{Scenario: "seats", Strategy: "cas", Name: "cas", Options: map[string]string{}, Claim: []bench.Anomaly{}, Findings: []bench.Finding{}, Trials: []bench.Trial{}},
	}
	r.Cells[0].Trials[0].Histograms = nil // as of a program that does not keep them
	r.Cells[0].Trials[0].Timeline = nil
	return r
}

// single is a report of one trial, one user and one row.
func single(t testing.TB) *bench.Report {
	t.Helper()
	r := base()
	r.Plan.Trials, r.Plan.Users, r.Plan.Connections, r.Plan.Rows = 1, 1, 1, 1
	r.Plan.Pipeline = true
	r.Cells = []bench.Cell{
		cell(t, "atomic", 1, 450, 1061.5, 0.151, 0),
		cell(t, "cas", 1, 450, 530.75, 0.302, 1000),
	}
	return r
}

// suite is a report of two races, with limits and expectations of which some were not kept.
func suite(t testing.TB) *bench.Report {
	t.Helper()
	seats := base()
	seats.Command = "lockbench run --suite ours.yaml"
	seats.Cells = []bench.Cell{
		violate(cell(t, "none", 2, 84, 1401, 19.8, 0), false),
		cell(t, "atomic", 2, 50, 1061.5, 15.125, 0),
		violate(cell(t, "optimistic-broken", 2, 84, 1401, 19.8, 26), true),
	}
	seats.Warnings = []bench.Warning{{Code: "failed", Strategy: "none", Message: "3 operations of none failed (3 × connection reset)", Fix: "lockbench doctor"}}
	held := func(strategy, text, figure, message string, value, limit *float64, failed bool) bench.Assertion {
		return bench.Assertion{Scenario: "seats", Strategy: strategy, Text: text, Figure: figure, Value: value, Limit: limit, Failed: failed, Message: message}
	}
	seats.Gate = []bench.Assertion{
		held("none", "overbooked>0", "overbooked", `overbooked is 9, and "overbooked>0" fails when it is > 0`, ptr(9.0), ptr(0.0), true),
		held("atomic", "overbooked>0", "overbooked", "overbooked is 0", ptr(0.0), ptr(0.0), false),
		held("atomic", "atomic: lag.p99>1s", "lag.p99", `lag.p99 was not measured, so "atomic: lag.p99>1s" cannot pass`, nil, ptr(1000.0), true),
		held("none", "expect: violated", bench.FigureVerdict, "verdict is violated, as expected", nil, nil, false),
		held("optimistic-broken", "expect: violated", bench.FigureVerdict, "verdict is violated, as expected", nil, nil, false),
		held("atomic", "expect: violated", bench.FigureVerdict, "verdict is sound, and violated was expected", nil, nil, true),
	}
	return bench.Join([]bench.Part{{Name: "seats", Report: seats}, {Name: "last-seat", Report: single(t)}})
}
