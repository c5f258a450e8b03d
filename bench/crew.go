package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"
)

// Heat is one trial as those who race it are told of it.
type Heat struct {
	Cell   int    `json:"cell"` // place among [Race.Cells]
	Seed   uint64 `json:"seed"`
	Warmup bool   `json:"warmup,omitempty"` // a burst with one user a connection, of which nothing is kept
}

// Fleet races users: in this process, or in several that share them. The race itself lays the tables, watches the server, audits and reports.
type Fleet interface {
	// Take makes r the race that follows, and opens the connections it needs.
	Take(ctx context.Context, r *Race) error
	// Start makes ready for a trial: statements are prepared, the statistics of what came before are published.
	Start(ctx context.Context, h Heat, live *Live) error
	// Race releases all users at once and returns when the last has his answer, or why some never will.
	Race(ctx context.Context, stop *Stop) error
	// Recover has the scenario put right what crashed users left half done.
	Recover(ctx context.Context) error
	// Flush makes the server publish the statistics that the racing sessions still hold back.
	Flush(ctx context.Context) error
	// Shares returns what each process measured of the trial.
	Shares(ctx context.Context) ([]*Share, error)
	// Close ends the connections; Take opens others.
	Close()
}

// part says which of several processes this is. All of a race's users and operations are numbered as in one process; each takes those
// whose number leaves its index when divided by how many there are.
type part struct{ index, of int }

// number turns a count within the part into a number among all.
func (p part) number(n int64) int64 { return n*int64(p.of) + int64(p.index) }

// share of a number of things.
func (p part) share(n int) int { return (n - p.index + p.of - 1) / p.of }

// Crew is the part of a race that one process has: its users and its connections.
type Crew struct {
	store Store
	stop  *Stop
	part  part
	race  *Race
	pool  Pool // nil while it has no connections
	opens PoolConfig
	t     *trial
	// locker is nil while no lock service is connected.
	locker Locker
}

// NewCrew makes the crew of one of several processes; index counts from 0. That of the only process is 0 of 1.
func NewCrew(store Store, stop *Stop, index, of int) *Crew {
	return &Crew{store: store, stop: stop, part: part{index, of}}
}

// Take makes r the race that follows, and opens this process's share of its connections unless those that are open are what it needs.
func (c *Crew) Take(ctx context.Context, r *Race) error {
	c.race = r
	need := PoolConfig{Connections: c.part.share(r.Settings.Connections), Pipeline: r.Settings.Pipeline}
	if c.pool != nil && c.opens == need {
		return nil
	}
	c.Close()
	pool, err := c.store.Open(ctx, need)
	if err == nil {
		c.pool, c.opens = pool, need
	}
	return err
}

// Start makes the sessions ready for a trial.
func (c *Crew) Start(ctx context.Context, h Heat, live *Live) error {
	r, e := c.race, c.race.Cells[h.Cell]
	if h.Warmup {
		small := *r
		small.Settings.Users = min(r.Settings.Users, r.Settings.Connections)
		r = &small
	}
	s := &r.Settings
	cfg := SessionConfig{Statements: e.statements(), Deadline: e.Retry.Deadline, LockTimeout: time.Duration(s.LockTimeout)}
	if err := c.pool.Prepare(ctx, cfg); err != nil {
		return err
	}
	t := &trial{
		race: r, cell: e, pool: c.pool, stop: c.stop, ctx: ctx, seed: h.Seed, part: c.part,
		picker: newPicker(r.skew, r.Params.Rows),
		flight: make([]atomic.Int32, r.Params.Rows+1), deliveries: 1,
	}
	if s.Mode != Burst {
		t.warm = time.Duration(s.Warmup)
		if s.Duration > 0 {
			t.end = t.warm + time.Duration(s.Duration)
		}
	}
	if s.Mode == Open {
		t.sched = newSchedule(s.Rate, t.end, s.Operations, h.Seed)
	}
	var classes []string
	if c, ok := r.Scenario.(Classer); ok {
		classes = c.Classes()
	}
	t.rec = newRecorder(shardsFor(s.Users), s.Mode == Open, t.warm, live, classes)
	if h, ok := r.Scenario.(Historian); ok && h.NeedsRefusals(e.Params) {
		for _, shard := range t.rec.shards {
			shard.told.history = true
		}
	}
	if d, ok := r.Scenario.(Deliverer); ok {
		t.deliveries = d.Deliveries(e.Params)
	}
	if again, ok := r.Scenario.(Resender); ok {
		t.resend.after, t.resend.most = again.Resend(e.Params)
	}
	if s.Operations == 0 {
		t.rec.until = t.end
	}
	t.gate, _ = e.Discipline.(Gate)
	t.drawer, _ = r.Scenario.(Drawer)
	t.everybody = e.Discipline.Lends().Has(LendsAny) || slices.ContainsFunc(r.Scenario.Tables(), func(t *Table) bool { return t.Batched })
	if u, ok := e.Discipline.(Uniquer); ok {
		t.unique = u.UniqueIsContention()
	}
	conns := c.pool.Conns()
	t.idle = make(chan *seat, len(conns))
	for _, conn := range conns {
		t.idle <- t.seat(conn)
	}
	c.t = t
	if err := c.enlist(ctx, h); err != nil {
		return err
	}
	if h.Warmup {
		return nil
	}
	return c.pool.Flush(ctx)
}

// manyUsers is from where the stacks of waiting users are worth collecting between trials.
const (
	manyUsers = 10_000
	tightGC   = 25 // percent of growth between collections, instead of 100
)

// Race releases the users of the only process.
func (c *Crew) Race(context.Context, *Stop) error { return c.Run(nil) }

// Run races this process's users. They stand in line when barrier is called, and begin when it returns; when it fails, nobody does.
func (c *Crew) Run(barrier func() error) error {
	if c.part.share(c.race.Settings.Users) >= manyUsers {
		debug.FreeOSMemory() // the stacks of the trial before would stand beside those of this one
		defer debug.SetGCPercent(debug.SetGCPercent(tightGC))
	}
	return c.t.run(barrier)
}

// Recover lets the scenario put right what crashed users left half done.
func (c *Crew) Recover(ctx context.Context) error {
	rec, ok := c.race.Scenario.(Recoverer)
	if !ok {
		return nil
	}
	db, err := c.store.Snapshot(ctx, c.race.Scenario.Tables())
	if err != nil {
		return fmt.Errorf("reading what is to be recovered: %w", err)
	}
	u := c.t.user(0, 0)
	u.d.told.Start = time.Since(c.t.begin)
	rec.Recover(u, c.t.cell.Params, db)
	return nil
}

// Flush publishes the statistics of this process's sessions.
func (c *Crew) Flush(ctx context.Context) error { return c.pool.Flush(ctx) }

// Shares returns what the only process measured.
func (c *Crew) Shares(context.Context) ([]*Share, error) { return []*Share{c.Share()}, nil }

// Share returns what this process measured of the trial.
func (c *Crew) Share() *Share {
	s := &Share{tally: c.t.rec.merged(), wall: c.t.wall}
	s.Instance = Instance{
		Users: c.part.share(c.race.Settings.Users), Connections: len(c.pool.Conns()), CPUs: runtime.GOMAXPROCS(0), CPUSeconds: c.t.cpu.Seconds(),
	}
	return s
}

// Close ends the connections.
func (c *Crew) Close() {
	c.discharge()
	if c.pool != nil {
		c.pool.Close()
		c.pool = nil
	}
}

// Musterer is a store at which several processes can meet to share a race's users.
type Musterer interface {
	// Muster gathers the processes, or returns those that are there.
	Muster(ctx context.Context) (Fleet, error)
}

// field is who races: this process alone, or several.
type field struct {
	store Store
	stop  *Stop
	alone *Crew
	fleet Fleet // nil before somebody needs it
}

// take makes ready whoever races r. The first wish to stop ends it. Connections that nobody uses would cost the server something all the
// same, so the others give theirs up.
func (f *field) take(ctx context.Context, r *Race) (who Fleet, err error) {
	connecting, cancel := f.stop.until(ctx)
	defer cancel()
	switch {
	case r.Settings.shared():
		f.alone.Close()
		if f.fleet == nil {
			f.fleet, err = f.muster(connecting)
		}
		who = f.fleet
	default:
		if f.fleet != nil {
			f.fleet.Close()
		}
		who = f.alone
	}
	if err == nil {
		err = who.Take(connecting, r)
	}
	if err != nil && connecting.Err() != nil {
		err = connecting.Err()
	}
	return who, err
}

func (f *field) muster(ctx context.Context) (Fleet, error) {
	if m, ok := f.store.(Musterer); ok {
		return m.Muster(ctx)
	}
	return nil, errors.New("users cannot be shared by several processes here")
}

func (f *field) close() {
	f.alone.Close()
	if f.fleet != nil {
		f.fleet.Close()
	}
}

// number gives an operation its number.
func (t *trial) number() int64 { return t.part.number(t.ops.Add(1) - 1) }
