// Package trace shows a race of a few users in slow motion: who sent which statement when, what came back, and who waited for whom.
//
// The race is the engine's own, with its attempts, retries and audit. Only the order is forced: a director lets one user move at a
// time, so that all users read before any of them writes, and the interesting case shows every time.
package trace

import (
	"context"
	"slices"
	"time"

	"github.com/lockbench/lockbench/bench"
)

// Schema names the version of the JSON form.
const Schema = "lockbench.trace/v1"

// Limits of --users: one user meets nobody, and more than a few are no picture any more.
const (
	LeastUsers = 2
	MostUsers  = 9
)

// Trace is one scenario under one or more strategies.
type Trace struct {
	Schema    string       `json:"schema"`
	Lockbench bench.Build  `json:"lockbench"`
	Command   string       `json:"command"`
	Server    bench.Server `json:"server"`
	Scenario  string       `json:"scenario"`
	Users     int          `json:"users"`
	Rows      int64        `json:"rows"`
	Capacity  int64        `json:"capacity"`
	Partial   bool         `json:"partial,omitempty"` // it was stopped, or broke off
	Races     []*Race      `json:"races"`
}

// Race is one strategy's race.
type Race struct {
	Strategy    string          `json:"strategy"`
	Summary     string          `json:"summary"`
	Isolation   string          `json:"isolation,omitempty"`
	NA          string          `json:"na,omitempty"` // why it makes no sense on the scenario; the rest is empty then
	Events      []*Event        `json:"events"`
	Final       []FinalRow      `json:"final"` // what the database holds at the end
	Claim       []bench.Anomaly `json:"claim"`
	Verdict     bench.Verdict   `json:"verdict"`
	Findings    []bench.Finding `json:"findings"`
	ClaimBroken bool            `json:"claim_broken,omitempty"`
	Notes       []string        `json:"notes,omitempty"` // what a reader must know before believing it
}

// Kind says what an event is.
type Kind string

// The kinds of events.
const (
	Statement Kind = "statement" // sent to the server
	Gate      Kind = "gate"      // the lock of a strategy that locks outside the database
	Think     Kind = "think"     // the time of --think, where the application would compute
	Told      Kind = "told"      // the user's final answer
	Note      Kind = "note"      // about all users
)

// Event is something that happened. Seq and End are its places in the order of all that happened; times are since the beginning.
type Event struct {
	Seq      int        `json:"seq"`
	End      int        `json:"end"` // equal to Seq where nothing happened between
	Kind     Kind       `json:"kind"`
	User     int64      `json:"user,omitempty"`
	Attempt  int        `json:"attempt,omitempty"`
	Session  int        `json:"session,omitempty"` // the number of the connection, from 1
	PID      int64      `json:"pid,omitempty"`     // the server process behind it
	StartMS  float64    `json:"start_ms"`
	TookMS   *float64   `json:"took_ms,omitempty"` // absent: it never ended
	Name     string     `json:"name,omitempty"`    // what the statement does in the strategy
	SQL      string     `json:"sql,omitempty"`     // as the server shows it
	Args     []*int64   `json:"args,omitempty"`    // of $1, $2 …; null is NULL
	Rows     *int64     `json:"rows,omitempty"`    // read, or affected
	Result   [][]*int64 `json:"result,omitempty"`  // the first rows read
	SQLState string     `json:"sqlstate,omitempty"`
	Lost     string     `json:"contention,omitempty"` // how the attempt lost its race here
	Error    string     `json:"error,omitempty"`
	Waits    []Wait     `json:"waits,omitempty"`
	Outcome  string     `json:"outcome,omitempty"` // of an answer
	Reason   string     `json:"reason,omitempty"`
	Got      []int64    `json:"got,omitempty"`  // the rows an answer is about, where they are not the one asked for
	Text     string     `json:"text,omitempty"` // of a note

	joined bool // COMMIT went along in the same message, so that the server shows only that
}

// Wait is whom an event was seen waiting for, from then on.
type Wait struct {
	Seq    int     `json:"seq"`
	AtMS   float64 `json:"at_ms"`
	Users  []int64 `json:"users,omitempty"`
	Others []int64 `json:"pids,omitempty"` // server processes that are no user's
	On     string  `json:"on,omitempty"`   // the server's wait event
}

// FinalRow is a row as it is in the end.
type FinalRow struct {
	Table  string  `json:"table"`
	Key    int64   `json:"key"`
	Values []Value `json:"values"`
}

// Value is a column's value; nil is NULL.
type Value struct {
	Column string `json:"column"`
	Value  *int64 `json:"value"`
}

// Backend is what the server says of one of its processes.
type Backend struct {
	Blockers []int64 // processes it waits for
	On       string  // what kind of lock it waits for; "" if it waits for none
	Query    string  // the statement that it runs, or ran last; "" where the server does not tell
}

// Sight looks at the server's processes from a connection of its own.
type Sight interface {
	Look(ctx context.Context, pids []int64) (map[int64]Backend, error)
	Close()
}

// Store is a database under test that can be watched.
type Store interface {
	bench.Store
	Sight(ctx context.Context) (Sight, error)
}

// Plan completes the settings of a race in slow motion: everybody has a connection, nobody waits between attempts, and all want the
// same row.
func Plan(s bench.Settings) bench.Settings {
	s.Mode, s.Trials, s.Warmup, s.Pipeline = bench.Burst, 1, 0, false
	s.Connections, s.Skew, s.Backoff = max(s.Users, 1), "hot:1", "none"
	s.Drain = bench.Duration(5 * time.Second)
	return s
}

// LeastRows is the smallest number of rows on which the scenario makes sense: users meet more surely on fewer.
func LeastRows(sc bench.Scenario, s bench.Settings) int64 {
	for rows := int64(1); rows < 10; rows++ {
		if _, err := sc.Fit(bench.Params{Rows: rows, Capacity: s.Capacity, Users: s.Users, Options: s.Options}); err == nil {
			return rows
		}
	}
	return 1
}

// Run races every cell once, one after the other. What was seen until it broke off is returned with the error.
func Run(ctx context.Context, race *bench.Race, store Store, stop *bench.Stop) (*Trace, error) {
	t := &Trace{
		Schema: Schema, Scenario: race.Scenario.Info().Name, Users: race.Settings.Users,
		Rows: race.Params.Rows, Capacity: race.Params.Capacity, Races: []*Race{},
	}
	for _, e := range race.Cells {
		if stop.Softly() {
			t.Partial = true
			return t, nil
		}
		r := newRace(e)
		t.Races = append(t.Races, r)
		if e.NA != "" {
			continue
		}
		rep, err := stageRace(ctx, race, e, store, stop, r)
		if rep != nil {
			t.Server = rep.Environment.Server
			t.Partial = t.Partial || rep.Partial
		}
		if err != nil {
			t.Partial = true
			return t, err
		}
	}
	return t, nil
}

func newRace(e *bench.Entrant) *Race {
	r := &Race{
		Strategy: e.Spec.Label, Summary: e.Info.Summary, NA: e.NA, Claim: append([]bench.Anomaly{}, e.Claims...),
		Events: []*Event{}, Final: []FinalRow{}, Findings: []bench.Finding{},
	}
	if e.Discipline != nil {
		r.Isolation = e.Discipline.Isolation()
	}
	return r
}

// stageRace runs one cell under a director.
func stageRace(ctx context.Context, race *bench.Race, e *bench.Entrant, store Store, stop *bench.Stop, into *Race) (*bench.Report, error) {
	sight, err := store.Sight(ctx)
	if err != nil {
		return nil, err
	}
	defer sight.Close()
	d := newDirector(race.Settings.Users, sight, waitsOut(e, race.Settings))
	st := &stage{Store: store, director: d}
	one := *race
	one.Cells = []*bench.Entrant{staged(e, race, d)}

	directing, cancel := context.WithCancel(ctx)
	defer cancel()
	over := make(chan struct{})
	go func() { defer close(over); d.direct(directing) }()
	rep, err := one.Execute(ctx, st, stop, unwatched{})
	cancel()
	<-over

	into.Events, into.Notes = d.told()
	into.Final = finalRows(race.Scenario.Tables(), st.final)
	if c := rep.Cells; len(c) == 1 {
		into.Verdict, into.Findings, into.ClaimBroken = verdict(&c[0], race.Scenario.Info()), c[0].Findings, c[0].ClaimBroken
	}
	return rep, err
}

// verdict is the cell's, but for the number of meetings that it asks for: here users do not meet by luck, they are made to.
func verdict(c *bench.Cell, sc bench.ScenarioInfo) bench.Verdict {
	if c.Verdict == bench.Undetermined && c.Contended > 0 && c.Outcomes[bench.Confirmed.String()] > 0 && slices.Contains(c.Claim, sc.Anomalies[0]) {
		return bench.Sound
	}
	return c.Verdict
}

// unwatched is a race of which nobody is told while it lasts.
type unwatched struct{}

func (unwatched) TrialStarts(string, int, int, int, *bench.Live) {}
func (unwatched) TrialEnds(string, *bench.Trial)                 {}

func finalRows(tables []*bench.Table, snap bench.Snapshot) []FinalRow {
	all := []FinalRow{}
	for _, t := range tables {
		for _, row := range snap[t.Name] {
			f := FinalRow{Table: t.Name, Key: row.Key}
			for i, c := range t.Columns {
				f.Values = append(f.Values, Value{Column: c, Value: nullable(row.Values[i])})
			}
			all = append(all, f)
		}
	}
	return all
}

// nullable is a value as JSON knows it.
func nullable(v int64) *int64 {
	if v == bench.Null {
		return nil
	}
	return &v
}

func nullables(all []int64) []*int64 {
	var out []*int64
	for _, v := range all {
		out = append(out, nullable(v))
	}
	return out
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
