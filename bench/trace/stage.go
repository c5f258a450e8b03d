package trace

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"time"

	"github.com/lockbench/lockbench/bench"
)

// The wrappers below stand between the engine and a strategy, and between a strategy and its connections. They change nothing of what
// is done: they make it wait for its turn and write it down.

// cast draws one request a user such that they meet: all want the same row, two-row requests go in opposite directions, and where a
// request has more to it the next user wants something else.
func cast(race *bench.Race) []bench.Request {
	drawer, draws := race.Scenario.(bench.Drawer)
	rng := rand.New(rand.NewPCG(race.Settings.Seed, 0))
	var all []bench.Request
	for i := range int64(race.Settings.Users) {
		r := bench.Request{Op: i, User: i + 1, Key: 1, Quantity: 1}
		if draws {
			drawUnlike(race, drawer, rng, &r, all)
		}
		all = append(all, r)
	}
	for i := range all {
		if all[i].To > 0 && i%2 == 1 {
			all[i].Key, all[i].To = all[i].To, all[i].Key
		}
	}
	return all
}

// drawUnlike draws until the request meets the one before and differs from it; not every scenario lets it. A second row is everybody's.
// Where users are of several kinds, the first is of the first kind.
func drawUnlike(race *bench.Race, drawer bench.Drawer, rng *rand.Rand, r *bench.Request, before []bench.Request) {
	fresh := *r
	var alike *bench.Request
	for range 64 {
		*r = fresh
		drawer.Draw(race.Params, rng, r)
		if len(before) == 0 {
			if r.Class == 0 {
				return
			}
			continue
		}
		last := before[len(before)-1]
		if r.To > 0 {
			r.To = last.To
			return
		}
		if !meet(r, &last) {
			continue
		}
		last.Op, last.User = r.Op, r.User
		if *r != last {
			return
		}
		same := *r
		alike = &same
	}
	if alike != nil {
		*r = *alike
	}
}

// staged is the entrant with everything it does under direction.
func staged(e *bench.Entrant, race *bench.Race, d *director) *bench.Entrant {
	s := *e
	think := race.Settings.Think > 0
	s.Discipline = discipline{Discipline: e.Discipline, d: d, thinks: think}
	if g, ok := e.Discipline.(bench.Gate); ok {
		directed := gated{discipline: discipline{Discipline: e.Discipline, d: d, thinks: think}, gate: g}
		s.Discipline = directed
		if l, ok := g.(bench.Locker); ok {
			s.Discipline = leased{directed, l}
		}
	}
	requests := cast(race)
	s.Operation = func(u *bench.User, r *bench.Request) bench.Answer {
		a := d.actor(u.ID)
		*r = requests[u.ID-1]
		a.request = r
		d.step(a) // connections are handed out in the order of users
		ans := e.Operation(u, r)
		d.answer(a, ans)
		return ans
	}
	return &s
}

// lockTimeout finds a lock timeout in a strategy's SQL, in milliseconds.
var lockTimeout = regexp.MustCompile(`lock_timeout = (\d+)`)

// worthAWait is the longest lock timeout that a trace waits for.
const worthAWait = 5 * time.Second

// waitsOut reports whether waits of the strategy end in a lock timeout: then that is the interesting case, and whoever holds the lock
// is kept from moving until it has struck.
func waitsOut(e *bench.Entrant, s bench.Settings) bool {
	limit := time.Duration(s.LockTimeout)
	for _, q := range e.Discipline.Statements() {
		if m := lockTimeout.FindStringSubmatch(q.SQL); m != nil {
			n, _ := strconv.Atoi(m[1])
			limit = time.Duration(n) * time.Millisecond
		}
	}
	return limit > 0 && limit <= worthAWait
}

// discipline opens sessions that wait for their turn.
type discipline struct {
	bench.Discipline
	d      *director
	thinks bool
}

// UniqueIsContention is the strategy's own answer.
func (s discipline) UniqueIsContention() bool {
	u, ok := s.Discipline.(bench.Uniquer)
	return ok && u.UniqueIsContention()
}

func (s discipline) Open(c bench.Conn, think func()) bench.Session {
	rc := c.(*conn) // of the pool of a stage, as all are
	if s.thinks {
		think = rc.think(think)
	} else {
		think = func() {}
	}
	return &session{Session: s.Discipline.Open(c, think), conn: rc, d: s.d}
}

// gated is a discipline with a lock outside the database.
type gated struct {
	discipline
	gate bench.Gate
}

// Enter waits for the turn, then for the gate.
func (g gated) Enter(ctx context.Context, r *bench.Request) (*bench.Hold, error) {
	a := g.d.actor(r.User)
	g.d.attempt(a)
	g.d.begin(a, &Event{Kind: Gate}, entering)
	hold, err := g.gate.Enter(ctx, r)
	g.d.end(a, func(e *Event) {
		if err != nil {
			e.Error = err.Error()
			return
		}
		a.inside, a.entered = true, true
	})
	if err != nil {
		return nil, err
	}
	directed := *hold
	directed.Leave = func() {
		g.d.leave(a)
		hold.Leave()
	}
	return &directed, nil
}

// leased is a gate whose lock a service grants. The engine connects it as it would without direction.
type leased struct {
	gated
	locker bench.Locker
}

func (l leased) Reach(ctx context.Context) (time.Duration, error) { return l.locker.Reach(ctx) }

func (l leased) Connect(ctx context.Context, n bench.Leasing) error { return l.locker.Connect(ctx, n) }

func (l leased) Sweep(ctx context.Context, n bench.Leasing) (int64, error) {
	return l.locker.Sweep(ctx, n)
}

func (l leased) Disconnect() { l.locker.Disconnect() }

// leave says that the user gives the gate back.
func (d *director) leave(a *actor) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a.inside = false
	d.changed()
}

// session is a strategy's session under direction.
type session struct {
	bench.Session
	conn *conn
	d    *director
}

func (s *session) Begin(r *bench.Request) error {
	a := s.d.actor(r.User)
	s.conn.serve(a)
	if !a.entered {
		s.d.attempt(a)
	}
	a.entered = false
	return s.Session.Begin(r)
}

// Holding tells a strategy that looks at its lock, as a fenced one does, which it holds.
func (s *session) Holding(h *bench.Hold) {
	if holder, ok := s.Session.(bench.Holder); ok {
		holder.Holding(h)
	}
}

// Think is where an operation has read what it needs.
func (s *session) Think() {
	s.d.writes(s.conn.actor)
	s.Session.Think()
}

func (s *session) Put(t *bench.Table, old, row bench.Row) error {
	s.d.writes(s.conn.actor)
	err := s.Session.Put(t, old, row)
	s.d.lose(s.conn.actor, err)
	return err
}

func (s *session) Commit() error {
	err := s.Session.Commit()
	s.d.lose(s.conn.actor, err)
	return err
}

// conn is a connection that waits for its user's turn before each statement, and writes it down.
type conn struct {
	bench.Conn
	d      *director
	number int
	pid    int64
	open   bool // in a transaction: ending none sends nothing
	actor  *actor
}

// serve says whose statements come next.
func (c *conn) serve(a *actor) {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	c.actor, a.pid, a.session = a, c.pid, c.number
	c.d.byPID[c.pid] = a
}

// think waits for the turn, and spends the time of --think.
func (c *conn) think(inner func()) func() {
	return func() {
		c.d.begin(c.actor, &Event{Kind: Think}, moving)
		inner()
		c.d.end(c.actor, func(*Event) {})
	}
}

// send runs one statement in its turn.
func (c *conn) send(e *Event, run func(e *Event) error) error {
	e.Kind, e.Session, e.PID = Statement, c.number, c.pid
	c.d.begin(c.actor, e, asking)
	var got Event // filled in while the director may be reading e
	err := run(&got)
	c.d.end(c.actor, func(e *Event) {
		if err == nil {
			e.Rows, e.Result = got.Rows, got.Result
		} else {
			blame(e, err)
		}
	})
	return err
}

// blame notes what the server said.
func blame(e *Event, err error) {
	e.Error = err.Error()
	if f, ok := err.(*bench.Fault); ok {
		e.SQLState = f.SQLState
		if f.Class == bench.ClassContention {
			e.Lost = f.Kind.String()
		}
	}
}

func (c *conn) Begin(b *bench.Stmt) error {
	err := c.send(&Event{Name: b.Name, SQL: b.SQL}, func(*Event) error { return c.Conn.Begin(b) })
	c.open = err == nil
	return err
}

// mostShown is how many of the rows read an event carries.
const mostShown = 5

func (c *conn) Query(s *bench.Stmt, args []int64, into *bench.Rows) error {
	return c.send(&Event{Name: s.Name, SQL: s.SQL, Args: nullables(args)}, func(e *Event) error {
		err := c.Conn.Query(s, args, into)
		if err == nil {
			n := int64(into.Len())
			e.Rows = &n
			for i := range min(into.Len(), mostShown) {
				e.Result = append(e.Result, nullables(into.At(i)))
			}
		}
		return err
	})
}

func (c *conn) Exec(s *bench.Stmt, args []int64) (n int64, err error) {
	err = c.send(&Event{Name: s.Name, SQL: s.SQL, Args: nullables(args)}, func(e *Event) error {
		n, err = c.Conn.Exec(s, args)
		e.Rows = &n
		return err
	})
	return n, err
}

func (c *conn) Last(s *bench.Stmt, args []int64) (n int64, err error) {
	c.open = false
	err = c.send(&Event{Name: s.Name, SQL: s.SQL + "; COMMIT", Args: nullables(args), joined: true}, func(e *Event) error {
		n, err = c.Conn.Last(s, args)
		e.Rows = &n
		return err
	})
	return n, err
}

func (c *conn) Commit() error {
	c.open = false // also where it fails: the server ends the transaction either way
	return c.send(&Event{Name: "commit", SQL: "COMMIT"}, func(*Event) error { return c.Conn.Commit() })
}

func (c *conn) Rollback() error {
	if !c.open {
		return c.Conn.Rollback()
	}
	c.open = false
	return c.send(&Event{Name: "rollback", SQL: "ROLLBACK"}, func(*Event) error { return c.Conn.Rollback() })
}

// stage is the database with its connections under direction.
type stage struct {
	Store
	director *director
	final    bench.Snapshot
}

// Snapshot keeps what the audit reads.
func (s *stage) Snapshot(ctx context.Context, tables []*bench.Table) (bench.Snapshot, error) {
	snap, err := s.Store.Snapshot(ctx, tables)
	s.final = snap
	return snap, err
}

// Observe looks at nothing: a trace measures no load.
func (s *stage) Observe(context.Context) (bench.Observation, error) { return unobserved{}, nil }

type unobserved struct{}

func (unobserved) End(context.Context) (bench.ServerSide, error) { return bench.ServerSide{}, nil }

func (s *stage) Open(ctx context.Context, cfg bench.PoolConfig) (bench.Pool, error) {
	p, err := s.Store.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &pool{Pool: p, d: s.director}, nil
}

// pool hands out connections under direction.
type pool struct {
	bench.Pool
	d     *director
	conns []*conn
}

func (p *pool) Prepare(ctx context.Context, cfg bench.SessionConfig) error {
	if err := p.Pool.Prepare(ctx, cfg); err != nil {
		return err
	}
	p.conns = nil
	for i, c := range p.Pool.Conns() {
		w, err := p.wrap(c, i+1)
		if err != nil {
			return err
		}
		p.conns = append(p.conns, w)
	}
	return nil
}

// wrap learns which server process is behind a connection.
func (p *pool) wrap(c bench.Conn, number int) (*conn, error) {
	var rows bench.Rows
	if err := c.Query(&bench.Stmt{Name: "pid", SQL: "SELECT pg_backend_pid()", Columns: 1}, nil, &rows); err != nil {
		return nil, fmt.Errorf("asking a session for its process number: %w", err)
	}
	return &conn{Conn: c, d: p.d, number: number, pid: rows.Data[0]}, nil
}

func (p *pool) Conns() []bench.Conn {
	var all []bench.Conn
	for _, c := range p.conns {
		all = append(all, c)
	}
	return all
}

// Flush has nothing to do: nobody reads the server's statistics.
func (p *pool) Flush(context.Context) error { return nil }

func (p *pool) Replace(ctx context.Context, broken bench.Conn) (bench.Conn, error) {
	old := broken.(*conn)
	fresh, err := p.Pool.Replace(ctx, old.Conn)
	if err != nil {
		return nil, err
	}
	w, err := p.wrap(fresh, old.number)
	if err != nil {
		return nil, err
	}
	return w, nil
}
