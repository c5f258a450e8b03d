package bench

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// selfCheck looks for what would mislead a reader of the report and says how to mend it.
func selfCheck(r *Race, rep *Report) []Warning {
	var ws []Warning
	warn := func(code, strategy, fix, format string, args ...any) {
		ws = append(ws, Warning{Code: code, Strategy: strategy, Message: fmt.Sprintf(format, args...), Fix: fix})
	}
	s, srv := &r.Settings, &rep.Environment.Server
	if !srv.Durable {
		warn("not-durable", "", "leave --no-durable out, or compare only with runs that are not durable either",
			"the server does not flush commits to disk: locks are held for a shorter time than in production")
	}
	if srv.Pooler {
		cost := ""
		if srv.PoolerCost != nil {
			cost = fmt.Sprintf(", which cost %.0f µs a statement when measured on this link", *srv.PoolerCost)
		}
		warn("pooler", "", "connect to PostgreSQL itself to measure prepared execution",
			"a pooler stands in front of the server: statements are parsed at every execution%s", cost)
	}
	var few []string
	var about Anomaly // what the scenario is about
	if r.Scenario != nil && len(r.Scenario.Info().Anomalies) > 0 {
		about = r.Scenario.Info().Anomalies[0]
	}
	for i := range rep.Cells {
		c := &rep.Cells[i]
		if len(c.Trials) == 0 {
			continue
		}
		checkEvidence(c, s, about, warn)
		checkBottleneck(c, s, warn)
		checkServer(c, s, srv, warn)
		checkPercentiles(c, warn)
		checkClaims(c, warn)
		if n := c.Latency[Confirmed.String()].Count; n > 0 && n < MinSamples(99) {
			few = append(few, c.Strategy)
		}
	}
	if len(few) > 0 {
		warn("few-samples", "", "raise --trials or --capacity, or use --mode closed --duration 10s",
			"percentiles marked ~ rest on fewer than ten samples beyond them")
	}
	return ws
}

type warner func(code, strategy, fix, format string, args ...any)

// checkEvidence warns of cells whose verdict rests on too little.
func checkEvidence(c *Cell, s *Settings, about Anomaly, warn warner) {
	more := "raise --users or --think, or lower --rows"
	var met int64
	for i := range c.Trials {
		met += c.Trials[i].Contended
	}
	switch {
	case c.Verdict == Undetermined && len(c.Claim) > 0 && about != "" && !slices.Contains(c.Claim, about):
		warn("not-claimed", c.Strategy, more, "%s does not claim to prevent %s and showed none this time: that is luck, not safety", c.Strategy, about)
	case c.Verdict == Undetermined && len(c.Claim) == 0:
		warn("no-anomaly", c.Strategy, more, "%s claims nothing and showed no anomaly this time: that is luck, not safety", c.Strategy)
	case c.Verdict == Undetermined && met > 0 && met < MinContended:
		warn("little-contention", c.Strategy, more, "only %d operations of %s met another on their row, and a verdict asks for %d: next to nothing was put to the test", met, c.Strategy, MinContended)
	case c.Verdict == Undetermined && met == 0:
		warn("no-contention", c.Strategy, more, "no two users of %s wanted the same row at the same time: nothing was put to the test", c.Strategy)
	case c.Verdict == Undetermined && c.Outcomes[Confirmed.String()] > 0:
		warn("not-audited", c.Strategy, "", "a process was lost with what its users had been told, so %s was not audited", c.Strategy)
	case c.Verdict == Undetermined:
		warn("nothing-confirmed", c.Strategy, "raise --capacity, --retries or --deadline", "%s confirmed nobody: there is nothing to audit", c.Strategy)
	}
	deadlocked := c.Errors[errPoolDeadlock.Error()]
	if deadlocked > 0 {
		warn("pool-deadlock", c.Strategy, "take all that an operation needs from the pool at once, or keep users below connections",
			"%d operations of %s met a pool deadlock: every connection was held by a user who waited for a second one; a pool that does not notice would hang", deadlocked, c.Strategy)
	}
	if n := c.Outcomes[Failed.String()]; n > deadlocked {
		warn("failed", c.Strategy, "lockbench doctor", "%d operations of %s failed%s", n, c.Strategy, commonest(c.Errors))
	}
	if n := c.Outcomes[Indeterminate.String()]; n > 0 {
		warn("indeterminate", c.Strategy, "", "%d operations of %s lost the answer to their COMMIT, or never got one%s; the audit allows them both ways", n, c.Strategy, commonest(c.Errors))
	}
	n, of := c.Outcomes[Busy.String()], c.Operations
	for _, t := range c.Trials { // of the worst trial, should it not be the median one
		if b := t.Outcomes[Busy.String()]; b > n {
			n, of = b, t.Operations
		}
	}
	if n > 0 && float64(n) > 0.01*float64(of) {
		warn("busy", c.Strategy, "raise --retries or --deadline, or lengthen --backoff",
			"%d of %d users of %s were told to try later: their retries or their deadline ran out", n, of, c.Strategy)
	}
	if s.Mode != Burst && c.Reasons[string(SoldOut)] > c.Outcomes[Confirmed.String()] {
		warn("sold-out", c.Strategy, "raise --capacity or --rows", "%s was sold out for most of the window: its goodput is that of the stock, not of the strategy", c.Strategy)
	}
}

// commonest tells the error that came most often.
func commonest(errors map[string]int64) string {
	text, most := "", int64(0)
	for _, e := range slices.Sorted(maps.Keys(errors)) {
		if k := errors[e]; k > most {
			text, most = fmt.Sprintf(" (%d × %s)", k, e), k
		}
	}
	return text
}

// checkBottleneck warns when lockbench or the pool limited the figures.
func checkBottleneck(c *Cell, s *Settings, warn warner) {
	if c.Client.CPUShare > 0.5 && c.DurationS > 0.2 {
		warn("client-cpu", c.Strategy, "run lockbench on another machine than the server, or lower --users",
			"lockbench itself used %.0f %% of the processors during %s: it may have been the bottleneck", 100*c.Client.CPUShare, c.Strategy)
	}
	if lag := c.Waits[waitLag.String()]; value(lag.P99) > 10 {
		warn("schedule-lag", c.Strategy, "raise --users or lower --rate",
			"users of %s started up to %.0f ms (p99) after they were due: all %d users were busy, or the machine was; response times count from the due time", c.Strategy, *lag.P99, s.Users)
	}
	pool, all := c.Waits[waitPool.String()], c.Latency["all"]
	if s.Mode != Burst && value(pool.P50) > 1 && value(pool.P50) > 0.5*value(all.P50) {
		warn("pool", c.Strategy, "raise --connections or lower --users",
			"users of %s spent most of their time waiting for one of %d connections (p50 %.1f ms of %.1f ms)", c.Strategy, s.Connections, *pool.P50, *all.P50)
	}
}

// checkServer warns of server effects that look like the strategy's own.
func checkServer(c *Cell, s *Settings, srv *Server, warn warner) {
	if c.Server == nil {
		return
	}
	if d := c.Contention[Deadlock.String()]; d > 0 && srv.DeadlockMS != nil {
		if p := value(c.Latency["all"].P99); p >= 0.95**srv.DeadlockMS && p <= 1.5**srv.DeadlockMS {
			warn("deadlock-timeout", c.Strategy, "take locks in one order, for example by id",
				"p99 of %s sits at the server's deadlock_timeout (%.0f ms): victims waited for the deadlock check", c.Strategy, *srv.DeadlockMS)
		}
	}
	if strings.HasPrefix(c.Isolation, "serializable") && s.Rows > 1 {
		for table, n := range c.Server.SeqScans {
			if n > c.Attempts/10 {
				warn("seq-scan", c.Strategy, "raise --rows so that the planner uses the index",
					"the planner scans %s from end to end, so serializable sees conflicts between users of different rows", table)
			}
		}
	}
}

// checkClaims warns of a queue that looked empty to workers who looked past what others held, and of claims that got more than they asked
// for, with the plan that did it.
func checkClaims(c *Cell, warn warner) {
	var hidden, of, over int64
	var plan []string
	for i := range c.Trials { // of the worst trial, should it not be the median one
		t := &c.Trials[i]
		if n := t.Noted[NotedBehindBacklog]; n > hidden {
			hidden, of = n, t.Noted[NotedEmpty]
		}
		if n := t.Audit[CheckOverLimit]; n > over {
			over, plan = n, t.QueryPlan
		}
	}
	if hidden > 0 {
		warn("empty-claims", c.Strategy, "let a worker that finds nothing look again later, and not take it for the end of the work",
			"%d of %d empty claims of %s came while jobs were free or in a claim still under way, which may yet fail", hidden, of, c.Strategy)
	}
	if over > 0 && len(plan) > 0 {
		warn("claim-plan", c.Strategy, "use = (… LIMIT 1) or a MATERIALIZED CTE, which the server evaluates once whatever the plan",
			"%s got more rows than its LIMIT, in %d of its claims: its subquery was carried out again for each outer row; the server's plan: %s", c.Strategy, over, PlanLine(plan))
	}
}

// PlanLine writes a plan in one line: each node after what it feeds, the conditions left out.
func PlanLine(plan []string) string {
	var nodes []string
	for i, line := range plan {
		node, found := strings.CutPrefix(strings.TrimSpace(line), "->")
		if found || i == 0 {
			nodes = append(nodes, strings.TrimSpace(node))
		}
	}
	return strings.Join(nodes, " > ")
}

// checkPercentiles warns of percentiles beyond what the histograms resolve.
func checkPercentiles(c *Cell, warn warner) {
	if value(c.Latency["all"].Max) > float64(time.Hour/time.Millisecond) {
		warn("beyond-hour", c.Strategy, "", "operations of %s took longer than the histogram's hour: percentiles above it print the maximum", c.Strategy)
	}
}

// MinSamples returns how many samples the q-th percentile (0 to 100) should rest on: enough for ten beyond it.
func MinSamples(q float64) int64 { return int64(10/(1-q/100) + 0.5) }
