package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Fakes of everything the engine meets: a shop that sells stock kept in memory. Together with the clock of testing/synctest they make
// a race whose every moment is known.

// stock is the only table: one column, what is left.
var stock = Table{Name: "stock", Key: "id", Columns: []string{"left"}, Version: "version"}

// fakeScenario sells one unit to each user.
type fakeScenario struct {
	body      Body      // instead of sell
	operation Operation // instead of a single transaction of body
	told      *Ledger   // of the last trial audited
	undersold int64     // what the audit says of it; 0: it is not checked
}

func (*fakeScenario) Info() ScenarioInfo {
	return ScenarioInfo{
		Name: "stock", Anomalies: []Anomaly{LostUpdate, Overbooking},
		Options: []OptionDoc{{Name: "order", Values: []string{"random", "sorted"}}},
	}
}

func (*fakeScenario) Fit(p Params) (Params, error) {
	if p.Capacity > 999 {
		return p, Hintf("at most 999", "capacity cannot be %d", p.Capacity)
	}
	if p.Rows == 0 {
		p.Rows = 1
	}
	if p.Capacity == 0 {
		p.Capacity = 100
	}
	return p, nil
}

func (*fakeScenario) Tables() []*Table   { return []*Table{&stock} }
func (*fakeScenario) Changes() []*Change { return nil }
func (*fakeScenario) SingleWrite() bool  { return true }

func (*fakeScenario) Fill(p Params) []Fill {
	return []Fill{{Table: &stock, Rows: p.Rows, Row: func(key int64) Row { return Row{Key: key, Values: [MaxColumns]int64{p.Capacity}} }}}
}

func (s *fakeScenario) Operation(Lends, Params) (Operation, error) {
	if s.operation != nil {
		return s.operation, nil
	}
	if s.body != nil {
		return Single(s.body), nil
	}
	return Single(sell), nil
}

func sell(tx Tx, r *Request) (Answer, error) {
	row, found, err := tx.Get(&stock, r.Key)
	switch {
	case err != nil:
		return Answer{}, err
	case !found:
		return Unknown(), nil
	case row.Values[0] == 0:
		return No(SoldOut), nil
	}
	tx.Think()
	less := row
	less.Values[0]--
	return Yes(), tx.Put(&stock, row, less)
}

func (s *fakeScenario) Audit(p Params, told *Ledger, db Snapshot) Audit {
	s.told = told
	sold := map[int64]int64{}
	for i := range told.Confirmed {
		sold[told.Confirmed[i].Row()]++
	}
	var lost, over int64
	for _, row := range db[stock.Name] {
		lost += row.Values[0] - (p.Capacity - sold[row.Key])
		over += max(0, sold[row.Key]-p.Capacity)
	}
	var a Audit
	a.Check("lost_updates", Finding{Anomaly: LostUpdate, Count: lost, Message: "sales are missing"})
	a.Check("overbooked", Finding{Anomaly: Overbooking, Count: over, Message: "more was sold than there was"})
	if s.undersold > 0 {
		a.Check("undersold", Finding{Anomaly: FalseSoldOut, Count: s.undersold, Message: "some was left"})
	}
	return a
}

// drawing is a scenario whose requests are for two rows.
type drawing struct {
	*fakeScenario
	draw func(*Request)
}

func (d *drawing) Draw(_ Params, _ *rand.Rand, r *Request) { d.draw(r) }

// step is a moment of an attempt at which a test may interfere.
type step string

const (
	atBegin    step = "begin"
	atGet      step = "get"
	atPut      step = "put"
	atCommit   step = "commit"
	atRollback step = "rollback"
)

// fakeStrategy reads and writes without any protection: with one connection it is sound, with two it is not.
type fakeStrategy struct {
	info   StrategyInfo
	refuse error                                   // of Bind
	lends  Lends                                   // besides the row
	takes  time.Duration                           // of a write
	script func(s step, r *Request, try int) error // what goes wrong, and when; try counts an operation's attempts from 1
	dress  func(*fakeDiscipline) Discipline        // adds what only some disciplines have
}

func (f *fakeStrategy) Info() StrategyInfo { return f.info }

func (f *fakeStrategy) Bind(b Binding) (Discipline, error) {
	if f.refuse != nil {
		return nil, f.refuse
	}
	d := &fakeDiscipline{fakeStrategy: f, binding: b}
	if f.dress != nil {
		return f.dress(d), nil
	}
	return d, nil
}

func plain() *fakeStrategy {
	return &fakeStrategy{info: StrategyInfo{Name: "plain", Prevents: []Anomaly{LostUpdate, Overbooking}}, takes: time.Millisecond}
}

// fakeStrategies are one of each kind for the command line to name.
func fakeStrategies() []Strategy {
	other, picky, remote := plain(), plain(), plain()
	other.info.Name, picky.info.Name, remote.info.Name = "other", "picky", "remote"
	picky.refuse = &NotApplicable{Reason: "it wants another table", Remedy: "try plain"}
	remote.info.External = true
	return []Strategy{plain(), other, picky, remote}
}

type fakeDiscipline struct {
	*fakeStrategy
	binding Binding
}

func (d *fakeDiscipline) Lends() Lends      { return LendsRow | d.lends }
func (*fakeDiscipline) Statements() []*Stmt { return nil }
func (*fakeDiscipline) Isolation() string   { return "none at all" }
func (d *fakeDiscipline) Open(c Conn, think func()) Session {
	return &fakeSession{d: d, conn: c.(*fakeConn), think: think}
}

// uniquer takes a unique violation for a lost race.
type uniquer struct{ *fakeDiscipline }

func (uniquer) UniqueIsContention() bool { return true }

// gated lets one operation in at a time.
type gated struct {
	*fakeDiscipline
	door          chan struct{}
	entered, left *atomic.Int64
	refuse        error
}

func (g gated) Enter(ctx context.Context, _ *Request) (*Hold, error) {
	if g.refuse != nil {
		return nil, g.refuse
	}
	select {
	case g.door <- struct{}{}:
		g.entered.Add(1)
		return &Hold{Leave: func() { g.left.Add(1); <-g.door }}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// fakeSession is one transaction after the other on a connection. What a test does not need is not there.
type fakeSession struct {
	Session
	d     *fakeDiscipline
	conn  *fakeConn
	think func()
	r     *Request
	try   int
	undo  *Row
}

// at is where an attempt may go wrong: by the script, or because the connections were closed.
func (s *fakeSession) at(where step) error {
	if s.conn.pool.isAborted() {
		return &Fault{Class: ClassAborted, Broken: true, Err: errors.New("closed")}
	}
	if s.d.script == nil {
		return nil
	}
	err := s.d.script(where, s.r, s.try)
	if err != nil && faultOf(err).Broken {
		s.conn.gone = true
	}
	return err
}

func (s *fakeSession) Begin(r *Request) error {
	if !s.conn.busy.CompareAndSwap(false, true) {
		panic("two users on one connection")
	}
	if s.conn.gone {
		return errors.New("a broken connection was used again")
	}
	s.r, s.undo, s.try = r, nil, s.conn.pool.store.begun(r.Op)
	return s.at(atBegin)
}

func (s *fakeSession) Get(t *Table, key int64) (Row, bool, error) {
	row, found := s.conn.pool.store.get(t, key)
	return row, found, s.at(atGet)
}

func (s *fakeSession) Put(t *Table, old, row Row) error {
	s.conn.pool.sleep(s.d.takes)
	if err := s.at(atPut); err != nil {
		return err
	}
	s.undo = &old
	s.conn.pool.store.put(t, row)
	return nil
}

func (s *fakeSession) Think() { s.think() }

func (s *fakeSession) Wrote() bool { return s.undo != nil }

func (s *fakeSession) Commit() error {
	if err := s.at(atCommit); err != nil {
		return err
	}
	s.conn.pool.store.commits.Add(1)
	s.conn.busy.Store(false)
	return nil
}

func (s *fakeSession) Rollback() error {
	s.conn.busy.Store(false)
	s.conn.pool.store.rollbacks.Add(1)
	if s.undo != nil {
		s.conn.pool.store.put(&stock, *s.undo)
	}
	return s.at(atRollback)
}

// fakeConn is only a place to open a session on.
type fakeConn struct {
	Conn
	pool *fakePool
	busy atomic.Bool
	gone bool // it broke
}

type fakePool struct {
	store    *fakeStore
	conns    []Conn
	abort    chan struct{}
	aborts   sync.Once
	replaced atomic.Int64
	closed   bool
}

func (p *fakePool) isAborted() bool {
	select {
	case <-p.abort:
		return true
	default:
		return false
	}
}

func (p *fakePool) sleep(d time.Duration) {
	if d == 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-p.abort:
	}
}

func (p *fakePool) Prepare(_ context.Context, cfg SessionConfig) error {
	p.store.mu.Lock()
	defer p.store.mu.Unlock()
	p.store.session = cfg
	return nil
}

func (p *fakePool) Conns() []Conn { return p.conns }

func (p *fakePool) Replace(context.Context, Conn) (Conn, error) {
	if p.store.cannotReplace != nil {
		return nil, p.store.cannotReplace
	}
	p.replaced.Add(1)
	return &fakeConn{pool: p}, nil
}

func (p *fakePool) Flush(context.Context) error { return nil }
func (p *fakePool) Abort() error {
	p.aborts.Do(func() { close(p.abort) })
	return p.store.cannotAbort
}
func (p *fakePool) Close() { p.closed = true }

// fakeStore is a database in memory. It commits what is put at once: protection is not its business.
type fakeStore struct {
	mu    sync.Mutex
	rows  []Row
	tries map[int64]int // attempts, by operation of the trial

	pool               *fakePool
	session            SessionConfig
	restored           int
	commits, rollbacks atomic.Int64
	server             Server
	side               ServerSide
	leaks              int64
	plan               []string // of any statement
	onRestore          func()
	filling            time.Duration // how long it takes to lay the tables
	onObserve          func()
	onOpen             func(context.Context) error

	cannotDescribe, cannotReplace, cannotSnapshot, cannotAbort error
}

func (s *fakeStore) begun(op int64) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tries[op]++
	return s.tries[op]
}

func (s *fakeStore) get(_ *Table, key int64) (Row, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if key < 1 || key > int64(len(s.rows)) {
		return Row{}, false
	}
	return s.rows[key-1], true
}

func (s *fakeStore) put(_ *Table, row Row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows[row.Key-1] = row
}

func (s *fakeStore) Describe(context.Context) (Server, error) { return s.server, s.cannotDescribe }
func (s *fakeStore) Prepare(context.Context) error            { return nil }

func (s *fakeStore) Open(ctx context.Context, cfg PoolConfig) (Pool, error) {
	if s.onOpen != nil {
		if err := s.onOpen(ctx); err != nil {
			return nil, err
		}
	}
	p := &fakePool{store: s, abort: make(chan struct{})}
	for range cfg.Connections {
		p.conns = append(p.conns, &fakeConn{pool: p})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pool = p
	return p, nil
}

func (s *fakeStore) Restore(ctx context.Context, fills []Fill) error {
	if s.filling > 0 {
		select {
		case <-time.After(s.filling):
		case <-ctx.Done():
			return errors.New("canceling statement due to user request") // as the server says it
		}
	}
	if s.onRestore != nil {
		s.onRestore()
	}
	s.restored++
	s.rows, s.tries = nil, map[int64]int{}
	for key := int64(1); key <= fills[0].Rows; key++ {
		s.rows = append(s.rows, fills[0].Row(key))
	}
	return nil
}

func (s *fakeStore) Snapshot(context.Context, []*Table) (Snapshot, error) {
	return Snapshot{stock.Name: s.rows}, s.cannotSnapshot
}

func (s *fakeStore) Plan(context.Context, *Stmt, *Stmt, []int64) ([]string, error) {
	return s.plan, nil
}
func (s *fakeStore) Leaks(context.Context) (int64, error) { return s.leaks, nil }

func (s *fakeStore) Observe(context.Context) (Observation, error) {
	if s.onObserve != nil {
		s.onObserve()
	}
	return s, nil
}

func (s *fakeStore) End(context.Context) (ServerSide, error) { return s.side, nil }

// rig is a race of plain for stock, ready to be bent by a test.
type rig struct {
	t        *testing.T
	settings Settings
	scenario *fakeScenario
	draw     func(*Request) // if set, completes the requests
	strategy *fakeStrategy
	more     []Strategy
	store    *fakeStore
	stop     *Stop
	seen     []string // trials in the order in which they began
}

func newRig(t *testing.T) *rig {
	return &rig{
		t: t, settings: valid(), scenario: &fakeScenario{}, strategy: plain(),
		store: &fakeStore{server: Server{Durable: true}}, stop: NewStop(),
	}
}

func (g *rig) TrialStarts(cell string, trial, _, _ int, _ *Live) {
	g.seen = append(g.seen, fmt.Sprintf("%s %d", cell, trial))
}

func (g *rig) TrialEnds(string, *Trial) {}

func (g *rig) execute() (*Report, error) {
	g.t.Helper()
	var sc Scenario = g.scenario
	if g.draw != nil {
		sc = &drawing{g.scenario, g.draw}
	}
	race, err := Compile(g.settings, append([]Strategy{g.strategy}, g.more...), []Scenario{sc}, Connecting{})
	if err != nil {
		g.t.Fatal(err)
	}
	return race.Execute(g.t.Context(), g.store, g.stop, g)
}

// run executes a race that must not fail and returns its first cell.
func (g *rig) run() *Cell {
	g.t.Helper()
	rep, err := g.execute()
	if err != nil {
		g.t.Fatal(err)
	}
	if !g.store.pool.closed {
		g.t.Error("the pool was left open")
	}
	return &rep.Cells[0]
}

// same compares counts by name.
func same(t *testing.T, got map[string]int64, want map[string]int64) {
	t.Helper()
	for name, n := range got {
		if n != want[name] {
			t.Errorf("%s: %d, want %d", name, n, want[name])
		}
	}
	for name, n := range want {
		if _, ok := got[name]; !ok {
			t.Errorf("%s is absent, want %d", name, n)
		}
	}
}
