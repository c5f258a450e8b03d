package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/bench/postgres/pgtest"
	"github.com/lockbench/lockbench/scenarios"
	"github.com/lockbench/lockbench/strategies"
)

// specs lists every strategy and every variant of it.
func specs() []string {
	var all []string
	for _, st := range strategies.All() {
		info := st.Info()
		if info.External {
			continue
		}
		all = append(all, info.Name)
		all = append(all, info.Variants...)
	}
	return all
}

// race is a scenario as it is raced here.
type race struct {
	scenario       string
	rows, capacity int64
	confirmed      int64  // what a sound strategy must tell exactly
	orMore         bool   // several may share what is left at the end: batches that are part full
	holds          string // asks the table itself; $1 is the capacity
	options        bench.Options
	with           string // options of every strategy
}

// races lists them: on few rows, so that everybody meets.
var races = []race{
	{scenario: "seats", rows: 1, confirmed: 1, holds: takenSeats},
	{scenario: "seats", rows: 3, confirmed: 3, holds: takenSeats},
	{scenario: "inventory", rows: 1, capacity: 20, confirmed: 20, holds: soldUnits},
	{scenario: "inventory", rows: 2, capacity: 100, confirmed: 60, holds: soldUnits}, // more than everybody wants
	{scenario: "transfer", rows: 3, capacity: 1000, confirmed: 60, holds: movedMoney, options: bench.Options{"lock-order": "sorted"}},
	{scenario: "on-call", rows: 2, confirmed: 2, holds: goneDoctors},
	{scenario: "queue", rows: 100, confirmed: 20, orMore: true, holds: claimedBatches, options: bench.Options{"batch": "5"}},
	{scenario: "payment", rows: 4, confirmed: 60, holds: paidOnce, options: bench.Options{"duplicates": "5"}, with: ":idempotency=on"},
	{scenario: "payment", rows: 4, confirmed: 60, holds: paidOnce, options: bench.Options{"call-in-tx": "on"}, with: ":idempotency=on"},
	{scenario: "checkout", rows: 1, capacity: 20, confirmed: 20, holds: placedOrders},
	{scenario: "mixed", rows: 1, capacity: 20, confirmed: 20, holds: soldUnits, options: bench.Options{"rogue": "0%"}},
	{scenario: "bystanders", rows: 3, capacity: 100, confirmed: 60, holds: soldUnits, options: bench.Options{"hold": "1ms"}},
	{scenario: "foreign-key", rows: 2, confirmed: 60, holds: changesAndChildren, options: bench.Options{"hold": "1ms"}},
	{scenario: "seats", rows: 1, capacity: 20, confirmed: 20, holds: ticketsSold, options: bench.Options{"count-capacity": "on"}},
}

const (
	takenSeats = `SELECT count(*) FROM lockbench.seats s LEFT JOIN lockbench.bookings b ON b.seat_id = s.id
		WHERE coalesce(s.holder, b.user_id) IS NOT NULL AND $1 >= 0`
	movedMoney         = `SELECT CASE WHEN sum(balance) = 3 * $1 AND min(balance) >= 0 THEN 60 ELSE -1 END FROM lockbench.accounts`
	goneDoctors        = `SELECT count(*) FROM lockbench.doctors WHERE on_duty = 0 AND $1 >= 0`
	claimedBatches     = `SELECT count(*) / 5 FROM lockbench.jobs WHERE worker IS NOT NULL AND $1 >= 0`
	paidOnce           = `SELECT CASE WHEN count(*) = count(DISTINCT payment) AND $1 >= 0 THEN 5 * count(*) ELSE -1 END FROM lockbench.charges`
	placedOrders       = `SELECT CASE WHEN available = 0 AND reserved = 0 THEN $1 - 20 + (SELECT count(*) FROM lockbench.orders WHERE state = 2) ELSE -1 END FROM lockbench.stock`
	ticketsSold        = `SELECT count(*) FROM lockbench.tickets WHERE $1 >= 0`
	changesAndChildren = `SELECT sum(touched) + (SELECT count(*) FROM lockbench.children) FROM lockbench.parents WHERE $1 >= 0`
	soldUnits          = `SELECT CASE WHEN sum(reserved) = sum($1 - available) THEN sum(reserved) ELSE -1 END FROM lockbench.stock`
)

// plan is the run of a race; scenario's name and size come from it.
func plan(i int, strategies ...string) bench.Settings {
	p := pgtest.Plan(races[i].scenario, strategies...)
	p.Rows, p.Capacity, p.Options = races[i].rows, races[i].capacity, races[i].options
	return p
}

func compile(t *testing.T, s bench.Settings, via bench.Connecting) *bench.Race {
	t.Helper()
	return pgtest.Compile(t, s, strategies.All(), scenarios.All(), via)
}

// suited returns the specs that a scenario does not refuse.
func suited(t *testing.T, i int, via bench.Connecting) (fit []string) {
	t.Helper()
	for _, spec := range specs() {
		spec += races[i].with
		_, err := bench.Compile(plan(i, spec), strategies.All(), scenarios.All(), via)
		if err == nil {
			fit = append(fit, spec)
		}
	}
	return fit
}

// claims says which cells claim to prevent what the scenario is about, and not by virtue of idempotency alone.
func claims(r *bench.Race) map[string]bool {
	m := map[string]bool{}
	for _, e := range r.Cells {
		own := slices.DeleteFunc(slices.Clone(e.Claims), func(a bench.Anomaly) bool { return a == bench.DoubleCharge && e.Params.Idempotent })
		m[e.Spec.Label] = len(own) > 0 && slices.Contains(e.Claims, r.Scenario.Info().Anomalies[0])
	}
	return m
}

// TestEveryScenarioIsRaced: a new scenario needs a line above, with the result that a sound strategy must have.
func TestEveryScenarioIsRaced(t *testing.T) {
	for _, sc := range scenarios.All() {
		if raceOf(sc) < 0 {
			t.Errorf("no race of %s", sc.Info().Name)
		}
	}
}

// raceOf returns the first race of a scenario.
func raceOf(sc bench.Scenario) int {
	return slices.IndexFunc(races, func(r race) bool { return r.scenario == sc.Info().Name })
}

// TestRefusals: a combination that makes no sense is refused with a reason and a way out, and stands as n/a among all.
func TestRefusals(t *testing.T) {
	refused := map[string]bool{}
	for _, sc := range scenarios.All() {
		name := sc.Info().Name
		everything, err := bench.Compile(pgtest.Plan(name, bench.All), strategies.All(), scenarios.All(), bench.Connecting{})
		if err != nil {
			t.Errorf("--strategy all is refused on %s: %v", name, err)
			continue
		}
		for _, e := range everything.Cells {
			_, err := bench.Compile(pgtest.Plan(name, e.Spec.Label), strategies.All(), scenarios.All(), bench.Connecting{})
			if (err != nil) != (e.NA != "") {
				t.Errorf("%s on %s: n/a is %q among all, and by name the error is %v", e.Spec.Label, name, e.NA, err)
			}
			if err == nil {
				continue
			}
			refused[e.Spec.Label+" on "+name] = true
			var hinted *bench.Hinted
			if !errors.As(err, &hinted) || hinted.Hint() == "" || !strings.Contains(err.Error(), e.NA) {
				t.Errorf("%s on %s is refused without a reason and a remedy: %v", e.Spec.Label, name, err)
			}
		}
	}
	for _, must := range []string{"unique on inventory", "skip-locked on inventory"} {
		if !refused[must] {
			t.Errorf("%s is not refused", must)
		}
	}
	for _, sc := range []string{"seats", "inventory"} {
		if _, err := bench.Compile(pgtest.Plan(sc, "pessimistic:wait=skip"), strategies.All(), scenarios.All(), bench.Connecting{}); err == nil {
			t.Errorf("SKIP LOCKED on a certain row is not refused on %s", sc)
		}
	}
}

// TestStatementsPrepare: every statement that a strategy shows is one that the server takes, with the columns it says.
func TestStatementsPrepare(t *testing.T) {
	dsn := pgtest.DSN(t)
	store := pgtest.Store(t, dsn)
	if err := store.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, race := range races {
		if i > 0 && races[i-1].scenario == race.scenario {
			continue
		}
		for _, pipeline := range []bool{false, true} {
			s := plan(i, append(suited(t, i, bench.Connecting{}), "pessimistic:wait=skip:force")...)
			s.Pipeline = pipeline
			for _, e := range compile(t, s, bench.Connecting{}).Cells {
				t.Run(fmt.Sprintf("%s/%s/pipeline=%v", race.scenario, e.Spec.Label, pipeline), func(t *testing.T) {
					c := pgtest.Connect(t, dsn)
					for _, stmt := range e.Discipline.Statements() {
						if stmt.Name == "" {
							t.Errorf("%q has no name", stmt.SQL)
						}
						if stmt.Name == "begin" || stmt.Name == "commit" {
							pgtest.Must(t, c, stmt.SQL)
							continue
						}
						d, err := c.Prepare(t.Context(), "", stmt.SQL)
						if err != nil {
							t.Fatalf("%s does not prepare: %v", stmt.SQL, err)
						}
						if stmt.Columns > 0 && len(d.Fields) != stmt.Columns {
							t.Errorf("%s has %d columns, and %d are expected", stmt.SQL, len(d.Fields), stmt.Columns)
						}
					}
				})
			}
		}
	}
}

// witness is a store that asks the table itself, past everything that lockbench knows, before each audit.
type witness struct {
	bench.Store
	ask  func(context.Context) int64
	held []int64 // in the order of trials
}

// Restore begins a trial; a scenario that recovers is read twice in it, and the last time counts.
func (w *witness) Restore(ctx context.Context, fills []bench.Fill) error {
	w.held = append(w.held, -1)
	return w.Store.Restore(ctx, fills)
}

func (w *witness) Snapshot(ctx context.Context, tables []*bench.Table) (bench.Snapshot, error) {
	w.held[len(w.held)-1] = w.ask(ctx)
	return w.Store.Snapshot(ctx, tables)
}

// TestClaimsHold: under contention every strategy that claims something confirms exactly what there is, and the table says so.
func TestClaimsHold(t *testing.T) {
	t.Parallel()
	for _, way := range []struct {
		race, trials int
		pipeline     bool
	}{
		{race: 0, trials: 2},
		{race: 1, trials: 3, pipeline: true}, // and without, through the pooler; on several rows fewer users meet in a trial
		{race: 2, trials: 1},
		{race: 2, trials: 1, pipeline: true},
		{race: 3, trials: 3},
		{race: 4, trials: 3},
		{race: 4, trials: 3, pipeline: true},
		{race: 5, trials: 3},
		{race: 6, trials: 1},
		{race: 7, trials: 3},
		{race: 7, trials: 3, pipeline: true},
		{race: 8, trials: 3},
		{race: 9, trials: 3},
		{race: 10, trials: 1},
		{race: 11, trials: 3},
		{race: 12, trials: 3},
		{race: 13, trials: 1},
	} {
		race := races[way.race]
		t.Run(fmt.Sprintf("%s/rows=%d/pipeline=%v", race.scenario, race.rows, way.pipeline), func(t *testing.T) {
			t.Parallel() // users think most of the time
			dsn := pgtest.DSN(t)
			s := plan(way.race, suited(t, way.race, bench.Connecting{})...)
			s.Trials, s.Pipeline, s.Think = way.trials, way.pipeline, bench.Duration(time.Millisecond)
			sound(t, dsn, dsn, way.race, compile(t, s, bench.Connecting{}))
		})
	}
}

// TestThroughPgBouncer: the same through a transaction pooler, where no statement stays prepared and no session state survives.
func TestThroughPgBouncer(t *testing.T) {
	t.Parallel()
	direct := pgtest.DSN(t)
	dsn := pgtest.PgBouncer(t, direct)
	probe := pgtest.Store(t, dsn)
	if !probe.Pooled() {
		t.Fatal("the store does not notice the pooler")
	}
	if pgtest.Store(t, direct).Pooled() {
		t.Error("the store takes the server for a pooler")
	}
	via := bench.Connecting{Pooled: probe.Pooled()}
	_, err := bench.Compile(plan(0, "advisory:session"), strategies.All(), scenarios.All(), via)
	if err == nil || !strings.Contains(err.Error(), "pooler") {
		t.Errorf("a session lock through a pooler is not refused: %v", err)
	}
	for i, pipeline := range map[int]bool{1: false, 2: true} {
		t.Run(fmt.Sprintf("%s/pipeline=%v", races[i].scenario, pipeline), func(t *testing.T) {
			s := plan(i, suited(t, i, via)...)
			s.Pipeline, s.Trials = pipeline, 3
			rep := sound(t, dsn, direct, i, compile(t, s, via))
			srv := rep.Environment.Server
			if !srv.Pooler || srv.ExecMode != "unprepared" || srv.PoolerCost == nil {
				t.Errorf("the report says pooler %v, exec mode %q, cost %v", srv.Pooler, srv.ExecMode, srv.PoolerCost)
			}
			if !slices.ContainsFunc(rep.Warnings, func(w bench.Warning) bool { return w.Code == "pooler" }) {
				t.Error("the report does not warn of the pooler")
			}
		})
	}
}

// sound races and holds every cell with a claim to it. The table is asked past the pooler.
func sound(t *testing.T, dsn, direct string, i int, r *bench.Race) *bench.Report {
	t.Helper()
	race := races[i]
	side := pgtest.Connect(t, direct)
	w := &witness{Store: pgtest.Store(t, dsn), ask: func(context.Context) int64 {
		return pgtest.Number(t, side, race.holds, race.capacity)
	}}
	rep := pgtest.Run(t, r, w)
	claimed := claims(r)
	for _, cell := range rep.Cells {
		if !claimed[cell.Strategy] {
			continue
		}
		t.Run(cell.Strategy, func(t *testing.T) {
			if cell.Verdict != bench.Sound || cell.ClaimBroken {
				t.Errorf("verdict %s, findings %+v", cell.Verdict, cell.Findings)
			}
			if len(cell.Trials) != r.Settings.Trials {
				t.Errorf("%d trials of %d", len(cell.Trials), r.Settings.Trials)
			}
			for _, trial := range cell.Trials {
				told := trial.Outcomes
				if more := told["confirmed"] - race.confirmed; more < 0 || more > 0 && !race.orMore || told["confirmed"]+told["rejected"] != int64(r.Settings.Users) {
					t.Errorf("users were told %v, and %d should be confirmed, the others rejected; errors %v", told, race.confirmed, trial.Errors)
				}
				for _, name := range []string{"lost_updates", "leaked_locks"} {
					if _, checked := trial.Audit[name]; !checked {
						t.Errorf("%s was not checked", name)
					}
				}
				for name, n := range trial.Audit {
					if n != 0 {
						t.Errorf("%s is %d", name, n)
					}
				}
				if n := w.held[trial.Order-1]; n != race.confirmed {
					t.Errorf("the table holds %d, and %d were confirmed", n, race.confirmed)
				}
			}
		})
	}
	return rep
}

// TestClaimlessBreak: a strategy that claims nothing is seen to break; the interleavings in package strategies show how.
func TestClaimlessBreak(t *testing.T) {
	const tries = 10
	for i, race := range races[:3] {
		for _, spec := range []string{"none", "optimistic-broken"} {
			t.Run(fmt.Sprintf("%s/rows=%d/%s", race.scenario, race.rows, spec), func(t *testing.T) {
				store := pgtest.Store(t, pgtest.DSN(t))
				for n := range tries {
					s := plan(i, spec)
					s.Seed = uint64(n)
					cell := pgtest.Run(t, compile(t, s, bench.Connecting{}), store).Cells[0]
					if cell.Verdict == bench.Sound || cell.ClaimBroken {
						t.Fatalf("verdict %s, claim broken %v, though nothing is claimed", cell.Verdict, cell.ClaimBroken)
					}
					if cell.Verdict == bench.Violated {
						return
					}
				}
				t.Errorf("no anomaly in %d runs", tries)
			})
		}
	}
}

// TestForcedSkipUndersells: a busy row that looks like one that is gone shows as units left although users were refused.
func TestForcedSkipUndersells(t *testing.T) {
	s := plan(3, "pessimistic:wait=skip:force")
	cell := pgtest.Run(t, compile(t, s, bench.Connecting{}), pgtest.Store(t, pgtest.DSN(t))).Cells[0]
	if cell.Audit["undersold"] == 0 || cell.Verdict != bench.Violated {
		t.Errorf("undersold %d, verdict %s; users were told %v", cell.Audit["undersold"], cell.Verdict, cell.Outcomes)
	}
	if len(cell.Claim) > 0 || cell.ClaimBroken {
		t.Errorf("it claims %v, broken %v", cell.Claim, cell.ClaimBroken)
	}
}

// TestSameUserAgain: who asks again for the seat he holds gets the same confirmation.
func TestSameUserAgain(t *testing.T) {
	const asks = 4
	store := pgtest.Store(t, pgtest.DSN(t))
	for _, pipeline := range []bool{false, true} {
		s := plan(0, suited(t, 0, bench.Connecting{})...)
		s.Mode, s.Users, s.Connections, s.Operations, s.Think, s.Pipeline = bench.Closed, 1, 1, asks, 0, pipeline
		r := compile(t, s, bench.Connecting{})
		for i, cell := range pgtest.Run(t, r, store).Cells {
			want := int64(asks)
			if r.Cells[i].Discipline.Lends().Has(bench.LendsAny) {
				want = 1 // any seat was asked for, and there is no other
			}
			if cell.Outcomes["confirmed"] != want || len(cell.Findings) > 0 {
				t.Errorf("%s, pipeline %v: %d of %d were confirmed; findings %v", cell.Strategy, pipeline, cell.Outcomes["confirmed"], asks, cell.Findings)
			}
		}
	}
}

// bare is a scenario whose table is empty, so that users ask for rows that do not exist.
type bare struct{ bench.Scenario }

func (b bare) Fill(p bench.Params) []bench.Fill {
	fills := b.Scenario.Fill(p)
	for i := range fills {
		fills[i].Rows = 0
	}
	return fills
}

// TestUnknownRow: asking for a row that does not exist is an outcome of its own, neither a rejection nor a failure.
func TestUnknownRow(t *testing.T) {
	store := pgtest.Store(t, pgtest.DSN(t))
	for _, sc := range scenarios.All() {
		i := raceOf(sc)
		s := plan(i, suited(t, i, bench.Connecting{})...)
		s.Users, s.Pipeline = 5, i == 0
		r := pgtest.Compile(t, s, strategies.All(), []bench.Scenario{bare{sc}}, bench.Connecting{})
		for k, cell := range pgtest.Run(t, r, store).Cells {
			want := "not_found"
			if r.Cells[k].Discipline.Lends().Has(bench.LendsAny) || sc.Info().Name == "queue" {
				want = "rejected" // any row was asked for: there is none
			}
			// The audit of transfer misses the money of the accounts that are not there, as it should.
			if cell.Outcomes[want] != 5 || len(cell.Findings) > 0 && sc.Info().Name != "transfer" {
				t.Errorf("%s on %s: users were told %v; findings %v", cell.Strategy, cell.Scenario, cell.Outcomes, cell.Findings)
			}
		}
	}
}

// TestClaimForms: the report tells a claim that got more than its batch, with the plan by which it did, and tells empty claims that looked
// past what others held; a claim that waits has none of those.
func TestClaimForms(t *testing.T) {
	const queue = 6
	s := plan(queue, "skip-locked", "skip-locked:claim=cte:plan=nested-loop", "skip-locked:claim=in:plan=nested-loop", "pessimistic", "pessimistic:wait=nowait")
	rep := pgtest.Run(t, compile(t, s, bench.Connecting{}), pgtest.Store(t, pgtest.DSN(t)))
	for _, c := range rep.Cells {
		over, empty, behind := c.Audit[bench.CheckOverLimit], c.Trials[0].Noted[bench.NotedEmpty], c.Trials[0].Noted[bench.NotedBehindBacklog]
		trap := strings.Contains(c.Strategy, "claim=in")
		claims := strings.HasPrefix(c.Strategy, "skip-locked") && !trap
		if (over > 0) != trap || c.ClaimBroken || slices.Contains(c.Claim, bench.OverLimit) != claims {
			t.Errorf("%s: %d batches over their limit; it claims %v, broken: %v", c.Strategy, over, c.Claim, c.ClaimBroken)
		}
		if planned := len(c.QueryPlan) > 0; planned != strings.Contains(c.Strategy, "claim=") {
			t.Errorf("%s: the plan is %q", c.Strategy, c.QueryPlan)
		}
		if trap && !strings.Contains(bench.PlanLine(c.QueryPlan), "Nested Loop Semi Join > Seq Scan on jobs > Subquery Scan") {
			t.Errorf("%s: the plan is %q", c.Strategy, c.QueryPlan)
		}
		if empty == 0 && !trap || behind > empty {
			t.Errorf("%s: %d empty claims, %d of them behind a backlog", c.Strategy, empty, behind)
		}
		if strings.Contains(c.Strategy, "nowait") && c.Contention[bench.Nowait.String()] == 0 {
			t.Errorf("%s: nobody was refused a lock", c.Strategy)
		}
	}
	if !slices.ContainsFunc(rep.Warnings, func(w bench.Warning) bool { return w.Code == "claim-plan" }) {
		t.Error("no warning names the plan")
	}
}
