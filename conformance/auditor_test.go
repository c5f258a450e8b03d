package conformance

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/bench/postgres/pgtest"
	"github.com/lockbench/lockbench/scenarios"
	"github.com/lockbench/lockbench/strategies"
)

// An auditor that never saw a violation proves nothing: here runs that were sound are spoilt between their end and their audit.

// tampered is a store in which somebody changes the tables before the audit reads them.
type tampered struct {
	bench.Store
	tamper func()
}

func (s tampered) Snapshot(ctx context.Context, tables []*bench.Table) (bench.Snapshot, error) {
	s.tamper()
	return s.Store.Snapshot(ctx, tables)
}

func TestAuditorSeesTampering(t *testing.T) {
	const seats, item, transfer, onCall, queue = 1, 2, 4, 5, 6 // races
	for _, c := range []struct {
		name     string
		race     int
		strategy string
		sql      string
		counts   map[string]int64 // exact
		also     string           // found as well, with a count that luck decides
		anomaly  bench.Anomaly
		row      int64
		told     string
		holds    string
	}{
		{
			name: "a booking removed", race: seats, strategy: "pessimistic", sql: "UPDATE lockbench.seats SET holder = NULL WHERE id = 2",
			counts: map[string]int64{"lost_updates": 1}, also: "undersold",
			anomaly: bench.LostUpdate, row: 2, told: "the seat is yours", holds: "seat 2 is free",
		},
		{
			name: "a booking of unique removed", race: seats, strategy: "unique", sql: "DELETE FROM lockbench.bookings WHERE seat_id = 3",
			counts: map[string]int64{"lost_updates": 1}, also: "undersold",
			anomaly: bench.LostUpdate, row: 3, told: "the seat is yours", holds: "seat 3 is free",
		},
		{
			name: "a user refused a seat that is free", race: seats, strategy: "atomic", sql: "UPDATE lockbench.seats SET holder = NULL WHERE id = 1",
			counts: map[string]int64{"lost_updates": 1}, also: "undersold",
			anomaly: bench.FalseSoldOut, row: 1, told: "already assigned", holds: "seat 1 is free",
		},
		{
			name: "a seat given to a user who was never told", race: seats, strategy: "optimistic", sql: "UPDATE lockbench.seats SET holder = 999 WHERE id = 2",
			counts:  map[string]int64{"lost_updates": 1, "unexplained": 1},
			anomaly: bench.LostUpdate, row: 2, told: "the seat is yours", holds: "seat 2 names user 999",
		},
		{
			name: "a seat gone", race: seats, strategy: "cas", sql: "DELETE FROM lockbench.seats WHERE id = 2",
			counts:  map[string]int64{"lost_updates": 1},
			anomaly: bench.LostUpdate, row: 2, told: "the seat is yours", holds: "there is no seat 2",
		},
		{
			name: "one unit put back", race: item, strategy: "pessimistic", sql: "UPDATE lockbench.stock SET available = available + 1, reserved = reserved - 1",
			counts: map[string]int64{"lost_updates": 1}, also: "undersold",
			anomaly: bench.LostUpdate, row: 1, told: "20 units were confirmed", holds: "item 1 has 1 available, 19 reserved",
		},
		{
			name: "one unit put back on the shelf alone", race: item, strategy: "atomic", sql: "UPDATE lockbench.stock SET available = available + 1",
			counts: map[string]int64{"lost_updates": 1}, also: "undersold",
			anomaly: bench.FalseSoldOut, row: 1, told: "sold out", holds: "item 1 has 1 available, 20 reserved",
		},
		{
			name: "below zero", race: item, strategy: "serializable", sql: "UPDATE lockbench.stock SET available = -1",
			counts:  map[string]int64{"negative": 1, "unexplained": 1},
			anomaly: bench.Negative, row: 1, told: "20 units were confirmed", holds: "item 1 has -1 available, 20 reserved",
		},
		{
			name: "an item gone", race: item, strategy: "advisory", sql: "DELETE FROM lockbench.stock",
			counts:  map[string]int64{"lost_updates": 20},
			anomaly: bench.LostUpdate,
		},
		{
			name: "money found", race: transfer, strategy: "pessimistic", sql: "UPDATE lockbench.accounts SET balance = balance + 10 WHERE id = 1",
			counts:  map[string]int64{"lost_updates": 1, "sum_drift": 1},
			anomaly: bench.LostUpdate, row: 1, told: "confirmed transfers leave account 1 with ", holds: "it holds ",
		},
		{
			name: "a transfer undone", race: transfer, strategy: "serializable", sql: "UPDATE lockbench.accounts SET balance = balance + CASE id WHEN 2 THEN 10 ELSE -10 END WHERE id IN (2, 3)",
			counts:  map[string]int64{"lost_updates": 2},
			anomaly: bench.LostUpdate, row: 2, told: "confirmed transfers leave account 2 with ", holds: "it holds ",
		},
		{
			name: "an account below zero", race: transfer, strategy: "atomic",
			sql: `UPDATE lockbench.accounts SET balance = CASE id WHEN 1 THEN -10 ELSE balance + 10 + (SELECT balance FROM lockbench.accounts WHERE id = 1) END
				WHERE id IN (1, 2)`,
			counts: map[string]int64{"negative": 1}, also: "lost_updates",
			anomaly: bench.Negative, row: 1, told: "confirmed transfers leave account 1 with ", holds: "it holds -10",
		},
		{
			name: "an account gone", race: transfer, strategy: "optimistic", sql: "DELETE FROM lockbench.accounts WHERE id = 3",
			also: "sum_drift", anomaly: bench.LostUpdate, told: "3 accounts began with 1000 each", holds: "the sum of all balances is ",
		},
		{
			name: "a shift left alone", race: onCall, strategy: "serializable", sql: "UPDATE lockbench.doctors SET on_duty = 0 WHERE shift = 1",
			counts:  map[string]int64{"write_skew": 1, "unexplained": 1},
			anomaly: bench.WriteSkew, row: 1, told: "you are off duty, another stays", holds: "nobody is on duty in shift 1",
		},
		{
			name: "a doctor called back", race: onCall, strategy: "pessimistic", sql: "UPDATE lockbench.doctors SET on_duty = 1 WHERE shift = 2",
			counts:  map[string]int64{"lost_updates": 1, "undersold": 1},
			anomaly: bench.LostUpdate, row: 2, told: "you are off duty", holds: "doctor ",
		},
		{
			name: "a shift refused without need", race: onCall, strategy: "advisory", sql: "UPDATE lockbench.doctors SET on_duty = 1 WHERE shift = 2",
			counts:  map[string]int64{"lost_updates": 1, "undersold": 1},
			anomaly: bench.FalseSoldOut, row: 2, holds: "2 doctors are on duty in shift 2",
		},
		{
			name: "a claim undone", race: queue, strategy: "skip-locked", sql: "UPDATE lockbench.jobs SET worker = NULL WHERE id = 7",
			counts: map[string]int64{"lost_updates": 1}, also: "undersold",
			anomaly: bench.LostUpdate, told: "job 7 is yours", holds: "job 7 is unclaimed",
		},
		{
			name: "a worker refused while a job waits", race: queue, strategy: "pessimistic", sql: "INSERT INTO lockbench.jobs (id) VALUES (101)",
			counts:  map[string]int64{"undersold": 40},
			anomaly: bench.FalseSoldOut, told: "queue empty", holds: "1 job is waiting",
		},
		{
			name: "a job in another's name", race: queue, strategy: "optimistic", sql: "UPDATE lockbench.jobs SET worker = 999 WHERE id = 7",
			counts:  map[string]int64{"lost_updates": 1},
			anomaly: bench.LostUpdate, told: "job 7 is yours", holds: "job 7 names worker 999",
		},
		{
			name: "a job for whom nobody told", race: queue, strategy: "cas", sql: "INSERT INTO lockbench.jobs (id, worker) VALUES (101, 999)",
			counts:  map[string]int64{"unexplained": 1},
			anomaly: bench.LostUpdate, row: 101, told: "nothing", holds: "job 101 names worker 999",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			dsn := pgtest.DSN(t)
			side := pgtest.Connect(t, dsn)
			store := tampered{pgtest.Store(t, dsn), func() { pgtest.Must(t, side, c.sql) }}
			cell := pgtest.Run(t, compile(t, plan(c.race, c.strategy), bench.Connecting{}), store).Cells[0]
			if cell.Verdict != bench.Violated || !cell.ClaimBroken {
				t.Errorf("verdict %s, claim broken: %v", cell.Verdict, cell.ClaimBroken)
			}
			for name, n := range cell.Audit {
				if name == c.also {
					if n == 0 {
						t.Errorf("%s is 0", name)
					}
				} else if n != c.counts[name] {
					t.Errorf("%s is %d, not %d", name, n, c.counts[name])
				}
			}
			i := slices.IndexFunc(cell.Findings, func(f bench.Finding) bool { return f.Anomaly == c.anomaly })
			if i < 0 {
				t.Fatalf("no %s among %+v", c.anomaly, cell.Findings)
			}
			f := cell.Findings[i]
			if f.Trial != 1 || f.Message == "" {
				t.Errorf("the finding is %+v", f)
			}
			if c.holds == "" {
				return
			}
			w := f.First
			if w == nil {
				t.Fatalf("%s has no witness", f.Anomaly)
			}
			if c.row > 0 && w.Row != c.row || !strings.HasPrefix(w.Told, c.told) || !strings.HasPrefix(w.Holds, c.holds) {
				t.Errorf("the witness is %+v", *w)
			}
			// What is wrong with an item's number, or an account's, is no single user's doing.
			nobody := strings.Contains(c.told, "confirmed") || strings.Contains(c.told, "began") || c.told == "nothing"
			if !nobody && (w.User < 1 || w.User > 60 || w.Attempts < 1 || w.EndMS <= 0) {
				t.Errorf("the witness names nobody: %+v", *w)
			}
		})
	}
}

// liar says that it protects, and is none.
type liar struct{ strategies.None }

func (liar) Info() bench.StrategyInfo {
	return bench.StrategyInfo{Name: "liar", Prevents: []bench.Anomaly{bench.LostUpdate}}
}

// TestFalseClaimIsBroken: a strategy that claims what it does not do is found out.
func TestFalseClaimIsBroken(t *testing.T) {
	const tries = 10
	store := pgtest.Store(t, pgtest.DSN(t))
	for _, i := range []int{0, 2} {
		found := false
		for n := 0; n < tries && !found; n++ {
			s := plan(i, "liar")
			s.Seed = uint64(n)
			r := pgtest.Compile(t, s, []bench.Strategy{liar{}}, scenarios.All(), bench.Connecting{})
			cell := pgtest.Run(t, r, store).Cells[0]
			found = cell.Verdict == bench.Violated && cell.ClaimBroken
		}
		if !found {
			t.Errorf("%s: the claim stood for %d runs", races[i].scenario, tries)
		}
	}
}

// forgetful is none with something left undone at the end of each transaction.
type forgetful struct {
	strategies.None
	commit func(bench.Conn, bench.Session) error
}

type forgetfulDiscipline struct {
	bench.Discipline
	commit func(bench.Conn, bench.Session) error
}

type forgetfulSession struct {
	bench.Session
	conn   bench.Conn
	commit func(bench.Conn, bench.Session) error
}

func (f forgetful) Bind(b bench.Binding) (bench.Discipline, error) {
	d, err := f.None.Bind(b)
	return forgetfulDiscipline{d, f.commit}, err
}

func (d forgetfulDiscipline) Open(c bench.Conn, think func()) bench.Session {
	return forgetfulSession{d.Discipline.Open(c, think), c, d.commit}
}

func (s forgetfulSession) Commit() error { return s.commit(s.conn, s.Session) }

// TestAuditorSeesLeaks: what a strategy leaves behind in the database breaks any claim, also that of who claims nothing.
func TestAuditorSeesLeaks(t *testing.T) {
	for _, c := range []struct {
		name   string
		commit func(bench.Conn, bench.Session) error
		leaks  int64
	}{
		{"nothing", func(_ bench.Conn, s bench.Session) error { return s.Commit() }, 0},
		{"an advisory lock", func(c bench.Conn, s bench.Session) error {
			if _, err := c.Exec(&bench.Stmt{SQL: "SELECT pg_advisory_lock(4711)"}, nil); err != nil {
				return err
			}
			return s.Commit()
		}, 1},
		{"an open transaction", func(bench.Conn, bench.Session) error { return nil }, 1},
		{"a prepared transaction", func(c bench.Conn, _ bench.Session) error {
			_, err := c.Exec(&bench.Stmt{SQL: "PREPARE TRANSACTION 'left behind'"}, nil)
			return err
		}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			dsn := pgtest.DSN(t)
			s := plan(0, "none")
			s.Users, s.Connections, s.Think = 1, 1, 0
			r := pgtest.Compile(t, s, []bench.Strategy{forgetful{commit: c.commit}}, scenarios.All(), bench.Connecting{})
			cell := pgtest.Run(t, r, pgtest.Store(t, dsn)).Cells[0]
			if strings.Contains(c.name, "prepared") {
				pgtest.Exec(t, dsn, "ROLLBACK PREPARED 'left behind'")
			}
			if n := cell.Audit["leaked_locks"]; n != c.leaks {
				t.Errorf("%d are counted", n)
			}
			if cell.ClaimBroken != (c.leaks > 0) {
				t.Errorf("claim broken: %v; findings %+v", cell.ClaimBroken, cell.Findings)
			}
		})
	}
}

// TestLeaksOfOthersAreTheirs: what somebody else holds in the same database is no finding.
func TestLeaksOfOthersAreTheirs(t *testing.T) {
	dsn := pgtest.DSN(t)
	other := pgtest.Connect(t, dsn)
	pgtest.Must(t, other, "BEGIN")
	pgtest.Must(t, other, "SELECT pg_advisory_lock(4711)")
	before := pgtest.Connect(t, dsn)
	pgtest.Must(t, before, "BEGIN")
	pgtest.Must(t, before, "PREPARE TRANSACTION 'somebody''s'")
	defer pgtest.Exec(t, dsn, "ROLLBACK PREPARED 'somebody''s'")
	s := plan(0, "pessimistic")
	cell := pgtest.Run(t, compile(t, s, bench.Connecting{}), pgtest.Store(t, dsn)).Cells[0]
	if cell.Verdict != bench.Sound || cell.Audit["leaked_locks"] != 0 {
		t.Errorf("verdict %s, findings %+v", cell.Verdict, cell.Findings)
	}
}

// negligent is none whose transactions end as these functions say, if at all.
type negligent struct {
	strategies.None
	end func(bench.Conn) error
}

type negligentDiscipline struct {
	bench.Discipline
	end func(bench.Conn) error
}

type negligentSession struct {
	bench.Session
	conn bench.Conn
	end  func(bench.Conn) error
}

func (negligent) Info() bench.StrategyInfo {
	info := strategies.None{}.Info()
	info.Name = "negligent"
	return info
}

func (n negligent) Bind(b bench.Binding) (bench.Discipline, error) {
	d, err := n.None.Bind(b)
	return negligentDiscipline{d, n.end}, err
}

func (d negligentDiscipline) Open(c bench.Conn, think func()) bench.Session {
	return negligentSession{d.Discipline.Open(c, think), c, d.end}
}

func (s negligentSession) Commit() error   { return s.end(s.conn) }
func (s negligentSession) Rollback() error { return nil }

// TestNeglectIsTheNeglectfuls: what a strategy leaves open is counted against it, neither breaks the run nor holds up the next trial,
// and is not held against the strategy that comes after it.
func TestNeglectIsTheNeglectfuls(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(bench.Conn) error
		says string
	}{
		{"an open transaction", func(bench.Conn) error { return nil }, ""},
		{"a failed transaction", func(c bench.Conn) error {
			_, err := c.Exec(&bench.Stmt{SQL: "SELECT 1 / 0"}, nil)
			return err
		}, "division by zero"},
		{"a session lock", func(c bench.Conn) error {
			if _, err := c.Exec(&bench.Stmt{SQL: "SELECT pg_advisory_lock_shared(4711)"}, nil); err != nil {
				return err
			}
			return c.Commit()
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := plan(1, "negligent", "pessimistic")
			s.Connections, s.Trials, s.Warmup, s.Deadline = 2, 2, 1, bench.Duration(500*time.Millisecond) // who waits for what was left open is told so soon
			all := append(strategies.All(), negligent{end: c.end})
			rep := pgtest.Run(t, pgtest.Compile(t, s, all, scenarios.All(), bench.Connecting{}), pgtest.Store(t, pgtest.DSN(t)))
			bad, good := rep.Cells[0], rep.Cells[1]
			if bad.Audit["leaked_locks"] == 0 || bad.Verdict != bench.Violated || !bad.ClaimBroken {
				t.Errorf("verdict %s, claim broken %v, audit %v", bad.Verdict, bad.ClaimBroken, bad.Audit)
			}
			if good.Audit["leaked_locks"] != 0 || len(good.Findings) > 0 || good.Outcomes["confirmed"] != 3 {
				t.Errorf("the strategy beside it: %v, %+v", good.Outcomes, good.Findings)
			}
			if said := slices.ContainsFunc(slices.Collect(maps.Keys(bad.Errors)), func(text string) bool { return strings.Contains(text, c.says) }); !said && c.says != "" {
				t.Errorf("%q is not among the errors %v", c.says, bad.Errors)
			}
		})
	}
}
