package trace_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/bench/postgres/pgtest"
	"github.com/lockbench/lockbench/bench/trace"
	"github.com/lockbench/lockbench/internal/golden"
	"github.com/lockbench/lockbench/scenarios"
	"github.com/lockbench/lockbench/strategies"
)

// TestSeats holds every strategy and variant to what it is known to do with two users and one seat: each time the same.
func TestSeats(t *testing.T) {
	store := pgtest.Store(t, pgtest.DSN(t))
	for _, spec := range suited("seats", nil) {
		if spec == "pessimistic:wait=50ms" {
			spec = "pessimistic:wait=400ms" // long enough to be looked at on a busy machine
		}
		t.Run(spec, func(t *testing.T) {
			name := strings.NewReplacer(":", "_", "=", "_").Replace(spec)
			for range 2 {
				tr := ask{scenario: "seats", specs: []string{spec}, users: 2}.run(t, store)
				golden.Check(t, name, text(t, still(tr), 90))
				if t.Failed() {
					return
				}
			}
		})
	}
}

// TestCrowd: with more users the order is as certain, and nobody is left out.
func TestCrowd(t *testing.T) {
	store := pgtest.Store(t, pgtest.DSN(t))
	for _, spec := range []string{"none", "mutex", "pessimistic", "optimistic", "serializable", "unique", "advisory:session"} {
		t.Run(spec, func(t *testing.T) {
			q := ask{scenario: "inventory", specs: []string{spec}, users: 5}
			if spec == "unique" {
				q.scenario = "seats"
			}
			first := text(t, still(q.run(t, store)), 90)
			if again := text(t, still(q.run(t, store)), 90); again != first {
				t.Fatalf("two traces differ:\n%s\n%s", first, again)
			}
		})
	}
}

// TestEverywhere: whatever is not refused can be traced; everybody gets an answer, and what claims to be sound is.
func TestEverywhere(t *testing.T) {
	store := pgtest.Store(t, pgtest.DSN(t))
	for _, q := range []ask{
		{scenario: "inventory", users: 3},
		{scenario: "transfer", users: 2, options: bench.Options{"lock-order": "sorted"}},
		{scenario: "on-call", users: 2},
		{scenario: "queue", users: 2, rows: 3},
	} {
		for _, spec := range suited(q.scenario, q.options) {
			if strings.Contains(spec, ":") {
				continue // variants differ in what TestSeats shows
			}
			t.Run(q.scenario+"/"+spec, func(t *testing.T) {
				q.specs = []string{spec}
				tr := q.run(t, store)
				r := tr.Races[0]
				told := 0
				for _, e := range r.Events {
					if e.Kind == trace.Told {
						told++
					}
					if e.Kind == trace.Told && (e.Outcome == "failed" || e.Outcome == "busy") {
						t.Errorf("U%d was told %s", e.User, e.Outcome)
					}
				}
				if told != q.users {
					t.Errorf("%d users were told something, not %d", told, q.users)
				}
				if r.ClaimBroken {
					t.Errorf("the claim was broken: %v", r.Findings)
				}
				checkMermaid(t, mermaid(t, tr))
			})
		}
	}
}

// TestStatements: what is shown is what the strategy says it sends, in as many words, with the lock clause.
func TestStatements(t *testing.T) {
	q := ask{scenario: "seats", specs: []string{"pessimistic:wait=50ms"}, users: 2}
	known := []string{"ROLLBACK"}
	for _, s := range q.compile(t).Cells[0].Discipline.Statements() {
		known = append(known, s.SQL)
	}
	r := q.run(t, pgtest.Store(t, pgtest.DSN(t))).Races[0]
	locked := false
	for _, e := range statements(r) {
		if !slices.Contains(known, e.SQL) {
			t.Errorf("%q is none of %q", e.SQL, known)
		}
		locked = locked || strings.HasSuffix(e.Filled(), "WHERE id = 1 FOR UPDATE")
	}
	if !locked {
		t.Error("no statement shows its lock clause")
	}
}

// TestServersWord: the text is the server's, not what lockbench believes to have sent.
func TestServersWord(t *testing.T) {
	store := pgtest.Store(t, pgtest.DSN(t))
	q := ask{scenario: "seats", specs: []string{"optimistic"}, users: 2}
	for _, e := range statements(q.run(t, seeing(store, "SELECT 'what the server saw'")).Races[0]) {
		if e.SQL != "SELECT 'what the server saw'" {
			t.Errorf("%q is not the server's word", e.SQL)
		}
	}
	tr, err := trace.Run(t.Context(), q.compile(t), seeing(store, ""), bench.NewStop())
	if err != nil {
		t.Fatal(err)
	}
	r := tr.Races[0]
	if len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "track_activities") {
		t.Errorf("a server that does not tell goes unnoticed: %q", r.Notes)
	}
	if sql := statements(r)[0].SQL; sql != "BEGIN" {
		t.Errorf("without the server's word %q is shown, not what was sent", sql)
	}
}

// seeing is a store whose sessions all seem to run the same statement.
func seeing(store trace.Store, query string) trace.Store {
	return sights{store, func(all map[int64]trace.Backend) (map[int64]trace.Backend, error) {
		for pid, b := range all {
			b.Query = query
			all[pid] = b
		}
		return all, nil
	}}
}

// TestBlind: when the server cannot be asked the race goes on, and the trace says that its order is luck.
func TestBlind(t *testing.T) {
	store := pgtest.Store(t, pgtest.DSN(t))
	looks := 0
	blind := sights{store, func(all map[int64]trace.Backend) (map[int64]trace.Backend, error) {
		if looks++; looks > 3 {
			return nil, errors.New("gone")
		}
		return all, nil
	}}
	tr, err := trace.Run(t.Context(), ask{scenario: "seats", specs: []string{"pessimistic"}, users: 3}.compile(t), blind, bench.NewStop())
	if err != nil {
		t.Fatal(err)
	}
	r := tr.Races[0]
	if len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "(gone)") {
		t.Errorf("nobody says that the order was lost: %q", r.Notes)
	}
	if r.Verdict != bench.Sound {
		t.Errorf("verdict %s: %v", r.Verdict, r.Findings)
	}
}

// TestWaits: each is seen waiting for the one in front, and gets on when that one commits.
func TestWaits(t *testing.T) {
	r := ask{scenario: "seats", specs: []string{"pessimistic"}, users: 3}.run(t, pgtest.Store(t, pgtest.DSN(t))).Races[0]
	var waits []trace.Wait
	for _, e := range r.Events {
		if len(e.Waits) > 0 && (e.TookMS == nil || e.End <= e.Waits[len(e.Waits)-1].Seq) {
			t.Errorf("%q ends before it has waited", e.SQL)
		}
		if e.User > 1 {
			waits = append(waits, e.Waits...)
		}
	}
	if len(waits) < 2 || !slices.Equal(waits[0].Users, []int64{1}) || waits[0].On != "transactionid" || !slices.Equal(waits[1].Users, []int64{2}) {
		t.Errorf("U2 should wait for U1, then U3 for U2, and not %+v", waits)
	}
}

// TestReadsComeFirst: no user of the first round writes before all have read, wait, or are done.
func TestReadsComeFirst(t *testing.T) {
	r := ask{scenario: "inventory", specs: []string{"none"}, users: 4}.run(t, pgtest.Store(t, pgtest.DSN(t))).Races[0]
	reads, writes := 0, []int64{}
	for _, e := range statements(r) {
		switch e.Name {
		case "read":
			reads++
		case "write":
			writes = append(writes, e.User)
			if reads != 4 {
				t.Errorf("U%d writes after %d reads", e.User, reads)
			}
		}
	}
	if !slices.Equal(writes, []int64{1, 2, 3, 4}) {
		t.Errorf("users write in the order %v", writes)
	}
	if r.Verdict != bench.Violated {
		t.Errorf("verdict %s: three of four updates should be lost", r.Verdict)
	}
}

// TestDeadlock: two transfers in opposite directions lock each other out, the server ends one, and sorted they do not.
func TestDeadlock(t *testing.T) {
	// The server is to find the deadlock only after it has been seen.
	store := pgtest.Store(t, pgtest.Start(t, map[string]string{"deadlock_timeout": "1s"}).DSN())
	for order, want := range map[string]int{"random": 1, "sorted": 0} {
		r := ask{scenario: "transfer", specs: []string{"pessimistic"}, users: 2, options: bench.Options{"lock-order": order}}.run(t, store).Races[0]
		dead, cycle := 0, map[int64][]int64{}
		for _, e := range r.Events {
			if e.SQLState == "40P01" && e.Lost == "deadlock" {
				dead++
			}
			for _, w := range e.Waits {
				cycle[e.User] = w.Users
			}
		}
		if dead != want {
			t.Errorf("%s: %d deadlocks, not %d", order, dead, want)
		}
		if want > 0 && (!slices.Equal(cycle[1], []int64{2}) || !slices.Equal(cycle[2], []int64{1})) {
			t.Errorf("%s: the users do not wait for each other: %v", order, cycle)
		}
	}
}

// TestFailsAtCommit: write skew passes under repeatable read, and fails at COMMIT under serializable.
func TestFailsAtCommit(t *testing.T) {
	if r := one(t, "on-call", "repeatable-read"); r.Verdict != bench.Violated {
		t.Errorf("repeatable read: verdict %s", r.Verdict)
	}
	r := one(t, "on-call", "serializable")
	failed := ""
	for _, e := range statements(r) {
		if e.SQLState == "40001" {
			failed += e.SQL
		}
		if e.Name == "rollback" {
			t.Error("a ROLLBACK is shown after a failed COMMIT, which sends none")
		}
	}
	if failed != "COMMIT" {
		t.Errorf("40001 came at %q", failed)
	}
}

// TestGate: who waits for a mutex sends nothing to the server meanwhile.
func TestGate(t *testing.T) {
	r := one(t, "seats", "mutex")
	for _, g := range r.Events {
		if g.Kind != trace.Gate || g.User != 2 {
			continue
		}
		if len(g.Waits) != 1 || !slices.Equal(g.Waits[0].Users, []int64{1}) {
			t.Errorf("U2 waits for %+v, not for U1", g.Waits)
		}
		for _, e := range statements(r) {
			if e.User == 2 && e.Seq < g.End {
				t.Errorf("U2 sends %q before it is in", e.SQL)
			}
		}
	}
}

// leasing is mutex as a service would grant it: it lets nobody in who is not connected, and gives everybody a token.
type leasing struct{ strategies.Mutex }

func (l leasing) Bind(b bench.Binding) (bench.Discipline, error) {
	d, err := l.Mutex.Bind(b)
	return &granted{Discipline: d, gate: d.(bench.Gate)}, err
}

type granted struct {
	bench.Discipline
	gate      bench.Gate
	connected bool
	calls     []string
	tokens    []int64 // as the sessions were told
}

func (g *granted) Enter(ctx context.Context, r *bench.Request) (*bench.Hold, error) {
	if !g.connected {
		return nil, errors.New("nobody connected the service")
	}
	h, err := g.gate.Enter(ctx, r)
	if err != nil {
		return nil, err
	}
	return &bench.Hold{Tokens: [2]int64{r.User}, Leave: h.Leave}, nil
}

func (g *granted) Reach(context.Context) (time.Duration, error) { return time.Second, nil }

func (g *granted) Connect(context.Context, bench.Leasing) error {
	g.connected, g.calls = true, append(g.calls, "connect")
	return nil
}

func (g *granted) Sweep(context.Context, bench.Leasing) (int64, error) {
	g.calls = append(g.calls, "sweep")
	return 0, nil
}

func (g *granted) Disconnect() { g.connected, g.calls = false, append(g.calls, "disconnect") }

func (g *granted) Open(c bench.Conn, think func()) bench.Session {
	return holding{g.Discipline.Open(c, think), g}
}

type holding struct {
	bench.Session
	g *granted
}

func (h holding) Holding(hold *bench.Hold) { h.g.tokens = append(h.g.tokens, hold.Tokens[0]) }

// TestLeased: a lock that a service grants is connected, told to the sessions, swept and disconnected in a trace as in a run.
func TestLeased(t *testing.T) {
	s := trace.Plan(bench.Settings{Strategies: []string{"mutex"}, Scenario: "seats", Users: 2, Rows: 1, Retries: 10, Seed: 1})
	race := pgtest.Compile(t, s, []bench.Strategy{leasing{}}, scenarios.All(), bench.Connecting{})
	g := race.Cells[0].Discipline.(*granted)
	tr, err := trace.Run(t.Context(), race, pgtest.Store(t, pgtest.DSN(t)), bench.NewStop())
	if err != nil {
		t.Fatal(err)
	}
	if r := tr.Races[0]; r.Verdict != bench.Sound || len(r.Notes) > 0 {
		t.Errorf("verdict %s, notes %v", r.Verdict, r.Notes)
	}
	if !slices.Equal(g.calls, []string{"connect", "sweep", "disconnect"}) || !slices.Equal(g.tokens, []int64{1, 2}) {
		t.Errorf("calls %v, tokens %v", g.calls, g.tokens)
	}
}

// TestThink: the time of --think is shown, and no statement's.
func TestThink(t *testing.T) {
	race := ask{scenario: "seats", specs: []string{"none"}, users: 2}.compile(t)
	race.Settings.Think = bench.Duration(3e6)
	tr, err := trace.Run(t.Context(), race, pgtest.Store(t, pgtest.DSN(t)), bench.NewStop())
	if err != nil {
		t.Fatal(err)
	}
	thinks := 0
	for _, e := range tr.Races[0].Events {
		if e.Kind == trace.Think && *e.TookMS >= 3 {
			thinks++
		}
	}
	if thinks != 2 {
		t.Errorf("%d users are shown thinking", thinks)
	}
}

// TestJSON: the form carries its version, NULL as null, and waits.
func TestJSON(t *testing.T) {
	tr := ask{scenario: "seats", specs: []string{"cas", "pessimistic"}, users: 2}.run(t, pgtest.Store(t, pgtest.DSN(t)))
	b, err := json.Marshal(tr)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"schema":"lockbench.trace/v1"`, `"args":[1,1,null]`, `"result":[[null]]`, `"users":[1],"on":"transactionid"`, `"verdict":"sound"`} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no %s in %s", want, b)
		}
	}
	var back trace.Trace
	if err := json.Unmarshal(b, &back); err != nil || len(back.Races) != 2 {
		t.Errorf("it cannot be read again: %v", err)
	}
	if tr.Server.Version == "" {
		t.Error("the server is not named")
	}
}

// TestStopped: a trace that is stopped while somebody waits ends, and leaves no transaction open.
func TestStopped(t *testing.T) {
	dsn := pgtest.DSN(t)
	store := pgtest.Store(t, dsn)
	ctx, cancel := context.WithCancel(t.Context())
	stop := bench.NewStop()
	stopping := sights{store, func(all map[int64]trace.Backend) (map[int64]trace.Backend, error) {
		for _, b := range all {
			if len(b.Blockers) > 0 {
				stop.Soft()
				cancel()
			}
		}
		return all, nil
	}}
	tr, err := trace.Run(ctx, ask{scenario: "seats", specs: []string{"pessimistic", "cas"}, users: 2}.compile(t), stopping, stop)
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if !tr.Partial || len(tr.Races) != 1 {
		t.Errorf("partial: %v, races: %d", tr.Partial, len(tr.Races))
	}
	open := pgtest.Number(t, pgtest.Connect(t, dsn), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in tr%'")
	if open != 0 {
		t.Errorf("%d transactions are left open", open)
	}
}

// statements are a race's statements, in order.
func statements(r *trace.Race) (all []*trace.Event) {
	for _, e := range r.Events {
		if e.Kind == trace.Statement {
			all = append(all, e)
		}
	}
	return all
}
