package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// keys returns the names a JSON object has, in order.
func keys(t *testing.T, v any) []string {
	t.Helper()
	object, ok := v.(map[string]any)
	if !ok {
		t.Fatalf("%v is no object", v)
	}
	var names []string
	for name := range object {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// TestReportJSON holds the names of the report's JSON form: other programs read them.
func TestReportJSON(t *testing.T) {
	var top map[string]any
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.settings.Mode, g.settings.Rate, g.settings.Operations, g.settings.Trials = Open, 100, 10, 6
		g.settings.Users, g.settings.Connections = 4, 2
		g.store.side = ServerSide{Commits: ptr(int64(5)), WALBytes: ptr(int64(6))}
		g.strategy.takes *= 50
		g.strategy.script = func(s step, r *Request, _ int) error {
			switch {
			case s != atPut:
			case r.Op == 3:
				return errors.New("x")
			case r.Op == 4:
				return Lost(Version)
			}
			return nil
		}
		rep, err := g.execute()
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(rep)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, &top); err != nil {
			t.Fatal(err)
		}
	})
	cell := top["cells"].([]any)[0].(map[string]any)
	trial := cell["trials"].([]any)[0].(map[string]any)
	at := func(v any, path ...string) any {
		for _, p := range path {
			v = v.(map[string]any)[p]
		}
		return v
	}
	percentiles := []string{"count", "max_ms", "mean_ms", "p50_ms", "p90_ms", "p95_ms", "p999_ms", "p99_ms"}
	figures := []string{
		"amplification", "attempts", "audit", "client", "conflict_rate", "contended", "contention", "duration_s", "errors", "findings",
		"goodput", "latency", "latency_uncorrected", "operations", "outcomes", "retries", "server", "throughput", "verdict", "waits",
	}
	with := func(names []string, more ...string) []string {
		all := append(slices.Clone(names), more...)
		slices.Sort(all)
		return all
	}
	for _, tc := range []struct {
		name string
		got  any
		want []string
	}{
		{"report", top, []string{"cells", "command", "environment", "lockbench", "plan", "schema", "started", "warnings"}},
		{"cell", cell, with(figures, "scenario", "strategy", "name", "options", "isolation", "claim", "claim_broken", "trial", "intervals", "trials")},
		{"trial", trial, with(figures, "number", "order", "histograms", "timeline")},
		{"outcomes", at(cell, "outcomes"), []string{"busy", "confirmed", "failed", "indeterminate", "not_found", "rejected"}},
		{"contention", at(cell, "contention"), []string{"deadlock", "fenced", "lease", "lock_timeout", "nowait", "serialization", "unique", "version"}},
		{"audit", at(cell, "audit"), []string{"leaked_locks", "lost_updates", "overbooked"}},
		{"latency", at(cell, "latency"), []string{"all", "busy", "confirmed", "failed"}},
		{"percentiles", at(cell, "latency", "all"), percentiles},
		{"waits", at(cell, "waits"), []string{"lag", "pool"}},
		{"wait", at(cell, "waits", "pool"), []string{"p50_ms", "p99_ms", "total_s"}},
		{"server", at(cell, "server"), []string{"commits", "wal_bytes"}}, // what was not measured is absent
		{"histograms", at(trial, "histograms"), []string{"busy", "confirmed", "failed"}},
		{"interval", at(cell, "intervals", "goodput"), []string{"high", "low", "trials"}},
	} {
		if got := keys(t, tc.got); !slices.Equal(got, tc.want) {
			t.Errorf("%s has\n%v, want\n%v", tc.name, got, tc.want)
		}
	}
	if top["schema"] != "lockbench.report/v1" || cell["verdict"] != "violated" || at(top, "plan", "drain") != "1s" {
		t.Errorf("schema %v, verdict %v, drain %v", top["schema"], cell["verdict"], at(top, "plan", "drain"))
	}
}

// TestListsAreNeverNull: an empty list was looked at, and readers loop over it.
func TestListsAreNeverNull(t *testing.T) {
	for name, bend := range map[string]func(*rig){
		"nothing found": func(*rig) {},
		"nothing claimed, nothing to warn of": func(g *rig) {
			g.strategy.info.Prevents, g.strategy.takes = nil, time.Second
			g.settings.Mode, g.settings.Operations, g.settings.Connections = Closed, 2000, 2
			g.settings.Rows, g.settings.Capacity = 3, 999
		},
		"nothing audited": func(g *rig) { g.store.cannotSnapshot = errors.New("x") },
		"nothing run":     func(g *rig) { g.stop.Soft() },
		"no sense": func(g *rig) {
			g.strategy.refuse = &NotApplicable{Reason: "x"}
			g.settings.Strategies = []string{All}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t)
				bend(g)
				rep, _ := g.execute()
				b, err := json.Marshal(rep)
				if err != nil {
					t.Fatal(err)
				}
				for _, list := range []string{"claim", "findings", "warnings", "cells", "trials"} {
					if bytes.Contains(b, []byte(`"`+list+`":null`)) {
						t.Errorf("%s is null in %s", list, b)
					}
				}
			})
		})
	}
}

func TestVerdictText(t *testing.T) {
	for v, text := range map[Verdict]string{Undetermined: "undetermined", Sound: "sound", Violated: "violated"} {
		b, err := v.MarshalText()
		if err != nil || string(b) != text {
			t.Errorf("%v is written %q, %v", v, b, err)
		}
		back := Verdict(99)
		if err := back.UnmarshalText(b); err != nil || back != v {
			t.Errorf("%q reads as %v, %v", b, back, err)
		}
	}
	var v Verdict
	wantHinted(t, v.UnmarshalText([]byte("fine")), `"fine" is not a verdict`, "sound, violated and undetermined")
}

func TestNamesOfOutcomesAndContention(t *testing.T) {
	if n := len(Outcomes()); n != int(outcomes)-1 {
		t.Errorf("%d outcomes listed of %d", n, outcomes-1)
	}
	if n := len(Contentions()); n != int(contentions)-1 {
		t.Errorf("%d kinds of contention listed of %d", n, contentions-1)
	}
	for want, got := range map[string]string{
		"pending": Pending.String(), "confirmed": Confirmed.String(), "rejected": Rejected.String(), "not_found": NotFound.String(),
		"busy": Busy.String(), "indeterminate": Indeterminate.String(), "failed": Failed.String(),
		"none": NoContention.String(), "version": Version.String(), "serialization": Serialization.String(), "deadlock": Deadlock.String(),
		"nowait": Nowait.String(), "lock_timeout": LockTimeout.String(), "unique": Unique.String(), "lease": Lease.String(), "fenced": Fenced.String(),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
