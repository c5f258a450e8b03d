package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Watcher is told what a run is doing; its methods are called from one goroutine, in order.
type Watcher interface {
	TrialStarts(cell string, trial, order, of int, live *Live)
	TrialEnds(cell string, t *Trial)
}

// Stop ends a run in two steps. Soft: no operation begins any more, those under way are finished. Hard: connections are closed.
type Stop struct {
	soft, hard chan struct{}
	once       [2]sync.Once
}

// NewStop returns a Stop that nobody has pulled.
func NewStop() *Stop { return &Stop{soft: make(chan struct{}), hard: make(chan struct{})} }

// Soft asks for an orderly end. It may be called at any time, from any goroutine.
func (s *Stop) Soft() { s.once[0].Do(func() { close(s.soft) }) }

// Hard ends the run at once.
func (s *Stop) Hard() {
	s.Soft()
	s.once[1].Do(func() { close(s.hard) })
}

// Softly reports whether an orderly end has been asked for.
func (s *Stop) Softly() bool {
	select {
	case <-s.soft:
		return true
	default:
		return false
	}
}

// OnSoft is closed when an orderly end is asked for.
func (s *Stop) OnSoft() <-chan struct{} { return s.soft }

// OnHard is closed when the run is to end at once.
func (s *Stop) OnHard() <-chan struct{} { return s.hard }

// atOnce reports whether the run is to end at once.
func (s *Stop) atOnce() bool {
	select {
	case <-s.hard:
		return true
	default:
		return false
	}
}

// until returns a context that ends with the first wish to stop: for what comes before a race, when there is nothing to finish yet.
func (s *Stop) until(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-s.soft:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// trial is one repetition of a cell at work.
type trial struct {
	race   *Race
	cell   *Entrant
	pool   Pool
	idle   chan *seat // connections nobody uses, first come first served
	rec    *recorder
	gate   Gate
	drawer Drawer // nil: a request is the row asked for
	unique bool
	// everybody meets everybody: operations are not about a certain row.
	everybody bool
	over      sync.WaitGroup // users, and requests sent again
	again     atomic.Int64   // numbers given to those
	resend    struct {
		after time.Duration
		most  int
	}
	deliveries int64 // operations in a row that are one request
	alarms     alarms
	nested     atomic.Int32 // users who hold a connection and wait for a second
	stop       *Stop
	picker     *picker
	flight     []atomic.Int32 // operations under way, by key
	part       part
	ops        atomic.Int64 // operations that were given a number
	begin      time.Time
	cpu        time.Duration // used by this process from the beginning to the end
	wall       time.Duration
	warm       time.Duration
	end        time.Duration // no operation begins later; 0: no limit
	seed       uint64
	sched      *schedule             // of open mode
	broken     atomic.Pointer[error] // why the trial cannot go on
	// ctx ends with the hard stop; only waits outside the database watch it.
	ctx context.Context
}

// seat is a connection with the strategy's session on it.
type seat struct {
	conn  Conn
	sess  Session
	rogue Session // of those who do not follow the strategy; nil if all do
	user  *User   // who uses it
}

// session returns what the request is carried out through.
func (s *seat) session(r *Request) Session {
	if r.Rogue {
		return s.rogue
	}
	return s.sess
}

// User is one client: a goroutine with its own randomness.
type User struct {
	ID  int64
	t   *trial
	pcg *rand.PCG  // behind rng
	rng *rand.Rand // draws requests, from the number of the operation: the n-th is the same under every strategy
	// jitter draws backoffs, apart from the requests, which must not depend on how often somebody lost a race. Most users never lose one.
	jitter *rand.Rand
	lot    uint64 // from which jitter is drawn
	d      done   // of the operation under way
	hold   *Hold  // the lock outside the database that its attempt holds; nil if there is none
	stall  bool   // the operation will stall
}

// run races the trial's users once and returns why it broke off, if it did. They stand in line until the barrier returns, which is nil where
// nobody else is to be waited for; when it fails none of them begins.
func (t *trial) run(barrier func() error) error {
	var ready sync.WaitGroup
	line := make(chan struct{})
	for i := t.part.index; i < t.race.Settings.Users; i += t.part.of {
		if t.stop.Softly() { // a million users take a while to come
			break
		}
		ready.Add(1)
		t.over.Add(1)
		go func() {
			defer t.over.Done()
			u := t.user(int64(i)+1, uint64(i))
			ready.Done()
			<-line
			u.live()
		}()
	}
	ready.Wait()
	var never error
	if barrier != nil {
		if never = barrier(); never != nil {
			t.stop.Soft()
		}
	}
	t.begin = time.Now()
	t.cpu = cpuTime()
	close(line)

	finished := make(chan struct{})
	go func() { t.over.Wait(); close(finished) }()
	t.await(finished)
	t.cpu, t.wall = cpuTime()-t.cpu, time.Since(t.begin)

	if p := t.broken.Load(); p != nil {
		return *p
	}
	return never
}

func (t *trial) user(id int64, jitter uint64) *User {
	u := &User{ID: id, t: t, pcg: rand.NewPCG(0, 0), lot: jitter}
	u.rng = rand.New(u.pcg)
	return u
}

// await waits for the users, and ends their connections when a stopped run does not drain in time or is stopped hard.
func (t *trial) await(finished <-chan struct{}) {
	select {
	case <-finished:
		return
	case <-t.stop.soft:
	}
	drain := time.NewTimer(time.Duration(t.race.Settings.Drain))
	defer drain.Stop()
	select {
	case <-finished:
		return
	case <-drain.C:
		t.stop.Hard()
	case <-t.stop.hard:
	}
	if err := t.pool.Abort(); err != nil {
		t.fail(fmt.Errorf("ending the sessions: %w", err))
	}
	<-finished
}

// live is a user's life.
func (u *User) live() {
	s := &u.t.race.Settings
	switch s.Mode {
	case Burst:
		if u.t.stop.Softly() {
			return
		}
		u.act(u.t.number(), 0)
	case Closed:
		for {
			n := u.t.number()
			now := time.Since(u.t.begin)
			if u.t.stop.Softly() || (s.Operations > 0 && n >= s.Operations) || (u.t.end > 0 && now >= u.t.end) {
				return
			}
			u.act(n, now)
			if s.Pause > 0 && !u.rest(time.Duration(s.Pause)) {
				return
			}
		}
	case Open:
		for {
			n, due, ok := u.t.sched.next(u.t.part)
			if !ok || !u.sleep(due-time.Since(u.t.begin)) {
				return
			}
			u.act(n, due)
		}
	}
}

// rest pauses between operations, and reports whether another may follow. Nobody rests beyond the end of the trial.
func (u *User) rest(pause time.Duration) bool {
	if most := u.t.race.Settings.Operations; most > 0 && u.t.part.number(u.t.ops.Load()) >= most {
		return false
	}
	if u.t.end > 0 {
		pause = min(pause, u.t.end-time.Since(u.t.begin))
	}
	return u.sleep(pause)
}

// sleep waits, and reports whether no stop came between.
func (u *User) sleep(d time.Duration) bool {
	if d <= 0 {
		return !u.t.stop.Softly()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-u.t.stop.soft:
		return false
	}
}

// act runs one operation from its due time to its final answer and records it.
func (u *User) act(n int64, due time.Duration) {
	t := u.t
	u.pcg.Seed(t.seed, uint64(n/t.deliveries))
	r := Request{Op: n, User: u.ID, Key: t.picker.pick(u.rng), Quantity: 1}
	if t.drawer != nil {
		t.drawer.Draw(t.race.Params, u.rng, &r)
	}
	u.perform(r, due, 0)
}

// firstResent is the number of the first request sent again: far above those of operations, whose n-th is the same under every strategy.
const firstResent = int64(1) << 40

// perform carries out a request; resent is how often it was sent before.
func (u *User) perform(r Request, due time.Duration, resent int) {
	t := u.t
	if t.resend.after > 0 && resent < t.resend.most {
		answered := u.sendAgain(r, resent+1)
		defer answered()
	}
	u.d = done{due: due}
	u.d.told.Request = r
	start := time.Since(t.begin)
	u.d.told.Start = start
	u.stall = t.race.stall.draws(t.seed, r.Op)
	if t.rec.open {
		u.wait(waitLag, max(0, start-due))
	}
	u.d.told.Answer = t.cell.Operation(u, &u.d.told.Request)
	u.d.told.End = time.Since(t.begin)
	u.abandon()
	if u.d.told.Outcome == Pending { // a stop kept it from starting
		return
	}
	t.rec.record(int(u.ID), &u.d)
}

// sendAgain sends a request once more, as its resent-th, if it has no answer in time. It returns what must be called at the answer. It
// is a function of its own because a request that a closure holds lives on the heap, which a crowd of users would feel.
func (u *User) sendAgain(r Request, resent int) (answered func()) {
	t := u.t
	t.over.Add(1)
	impatient := time.AfterFunc(t.resend.after, func() {
		defer t.over.Done()
		if t.stop.Softly() {
			return
		}
		r.Op = firstResent + t.part.number(t.again.Add(1))
		t.user(u.ID, uint64(r.Op)).perform(r, time.Since(t.begin), resent)
	})
	return func() {
		if impatient.Stop() {
			t.over.Done()
		}
	}
}

// abandon is the view of a caller whose patience ended before the answer came: he has gone with an error, and what was done for him since
// was done for nobody.
func (u *User) abandon() {
	limit, took := time.Duration(u.t.race.Settings.CallerDeadline), u.d.told.End-u.d.told.Start
	if limit == 0 || took <= limit || u.d.told.Outcome == Pending {
		return
	}
	u.d.cut, u.d.held = limit, took-limit
	if u.d.told.Outcome == Confirmed {
		u.d.told.Outcome = Indeterminate // it was done, and he does not know
	} else if u.d.told.Outcome != Indeterminate {
		u.d.told.Answer = Answer{Outcome: Busy}
	}
}

// meet notes that the user goes for its rows, by delta 1, or has let go of them, by -1. Who comes and finds somebody at a row is contended.
// It is called around what a strategy protects: users in line for a connection have not met anybody yet.
func (t *trial) meet(d *done, r *Request, delta int32) {
	key := r.Key
	if t.everybody {
		key = 0
	}
	others := t.flight[key].Add(delta) > 1
	if r.To > 0 && r.To != key {
		others = t.flight[r.To].Add(delta) > 1 || others
	}
	d.contended = d.contended || others && delta > 0 // who leaves first would depend on luck
}

func (u *User) wait(k waitKind, d time.Duration) {
	u.d.waits[k] += d
	u.d.waited[k] = true
}

// Transact runs body as one transaction under the strategy, again and again as the retry policy allows, and returns the final answer.
// No connection is held between attempts.
func (u *User) Transact(body Body, r *Request) Answer {
	t := u.t
	retry := &t.cell.Retry
	for n := 1; ; n++ {
		ans, err := u.try(body, r)
		if never, ok := err.(*untried); ok {
			return u.giveUp(never.error)
		}
		u.d.told.Attempts++
		if n > 1 {
			u.d.retries++
		}
		if err == nil {
			return ans
		}
		f := faultOf(err)
		kind, final := u.classify(f)
		if final != Pending {
			if final != Busy {
				u.d.err = err
			}
			return Answer{Outcome: final}
		}
		u.d.contention[kind]++
		if n > retry.Max || u.late(0) || t.hardStopped() {
			return Answer{Outcome: Busy}
		}
		if u.jitter == nil {
			u.jitter = rand.New(rand.NewPCG(t.seed, u.lot))
		}
		if pause := retry.Backoff.Wait(n, u.jitter); pause > 0 {
			if u.late(pause) {
				return Answer{Outcome: Busy}
			}
			slept := time.Now()
			timer := time.NewTimer(pause)
			select {
			case <-timer.C:
			case <-t.stop.hard:
				timer.Stop()
			}
			u.wait(waitBackoff, time.Since(slept))
		}
	}
}

// untried is why a user got no further than the gate or the line for a connection; its error is nil when a stop or the deadline came.
type untried struct{ error }

// try makes one attempt: past the gate, on a connection. A race lost at the gate is an attempt too.
func (u *User) try(body Body, r *Request) (Answer, error) {
	t := u.t
	gated := t.gate != nil && !r.Rogue
	if gated {
		hold, err := u.enter(r)
		switch {
		case err == nil:
			defer hold.Leave()
		case faultOf(err).Class == ClassContention:
			return Answer{}, err
		default:
			return Answer{}, &untried{err}
		}
		u.hold = hold
		defer func() { u.hold = nil }()
	}
	c := u.acquire()
	if c == nil {
		return Answer{}, &untried{}
	}
	if !gated {
		t.meet(&u.d, r, 1)
	}
	ans, err := u.attempt(c, body, r)
	if !gated {
		t.meet(&u.d, r, -1)
	}
	t.release(c, err)
	return ans, err
}

// classify turns a fault into a kind of contention, or into the final outcome.
func (u *User) classify(f *Fault) (Contention, Outcome) {
	switch f.Class {
	case ClassContention:
		if f.Kind == Unique && !u.t.unique {
			return NoContention, Failed
		}
		return f.Kind, Pending
	case ClassTimeout:
		return NoContention, Busy
	case ClassIndeterminate:
		return NoContention, Indeterminate
	case ClassAborted:
		return NoContention, Busy
	case ClassFailed:
	}
	return NoContention, Failed
}

// giveUp is the answer of a user who got no further: busy if the deadline passed on the way, nothing at all if a stop kept him from a
// first attempt.
func (u *User) giveUp(err error) Answer {
	switch {
	case u.t.hardStopped() && u.d.told.Attempts == 0:
		return Answer{}
	case err == nil || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled):
		return Answer{Outcome: Busy}
	}
	u.d.err = err
	return Answer{Outcome: Failed}
}

// late reports whether the operation's deadline will have passed after another pause.
func (u *User) late(pause time.Duration) bool {
	d := u.t.cell.Retry.Deadline
	return d > 0 && time.Since(u.t.begin)+pause-u.d.told.Start >= d
}

func (t *trial) hardStopped() bool { return t.stop.atOnce() }

// enter passes the gate of a strategy that locks outside the database.
func (u *User) enter(r *Request) (hold *Hold, err error) {
	u.t.meet(&u.d, r, 1) // users meet at the gate: behind it there is one at a time
	defer func() {
		if err != nil {
			u.t.meet(&u.d, r, -1)
			return
		}
		leave := hold.Leave
		hold.Leave = func() {
			leave()
			u.t.meet(&u.d, r, -1)
		}
	}()
	ctx := u.t.ctx
	if d := u.t.cell.Retry.Deadline; d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, u.t.begin.Add(u.d.told.Start+d))
		defer cancel()
	}
	from := time.Now()
	hold, err = u.t.gate.Enter(ctx, r)
	u.wait(waitLock, time.Since(from))
	return hold, err
}

// acquire takes a free connection, waiting in line for one; nil when the run is stopped hard, or the deadline passes, first.
func (u *User) acquire() *seat {
	u.d.waited[waitPool] = true
	if u.t.hardStopped() {
		return nil
	}
	select {
	case c := <-u.t.idle:
		return c
	default:
	}
	var timeout <-chan struct{}
	if d := u.t.cell.Retry.Deadline; d > 0 {
		timeout = u.t.alarms.at(u.t.begin, u.d.told.Start+d)
	}
	from := time.Now()
	defer func() { u.d.waits[waitPool] += time.Since(from) }()
	select {
	case c := <-u.t.idle:
		return c
	case <-timeout:
		return nil
	case <-u.t.stop.hard:
		return nil
	}
}

// alarms are deadlines of users in line for a connection. Users share them: a timer of his own for each of 100,000 weighs 25 MB, and
// in a loop each wait would make one.
type alarms struct {
	mu  sync.Mutex
	set map[time.Duration]chan struct{}
}

// alarmStep is how late an alarm may be.
const alarmStep = 10 * time.Millisecond

// at returns what is closed at the deadline, which like the beginning of the trial it is counted from is a monotonic time, or up to
// [alarmStep] later.
func (a *alarms) at(begin time.Time, deadline time.Duration) <-chan struct{} {
	deadline = (deadline + alarmStep - 1) / alarmStep * alarmStep
	a.mu.Lock()
	defer a.mu.Unlock()
	if c, ok := a.set[deadline]; ok {
		return c
	}
	if a.set == nil {
		a.set = map[time.Duration]chan struct{}{}
	}
	c := make(chan struct{})
	a.set[deadline] = c
	time.AfterFunc(time.Until(begin.Add(deadline)), func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.set, deadline)
		close(c)
	})
	return c
}

// release gives a connection back; one that broke is replaced first, and when that fails the trial cannot go on.
func (t *trial) release(c *seat, err error) {
	if err == nil { // the usual case, which must not pay for the variable that errors.As moves to the heap
		t.idle <- c
		return
	}
	var f *Fault
	if errors.As(err, &f) && f.Broken && !t.hardStopped() {
		fresh, rerr := t.pool.Replace(t.ctx, c.conn)
		if rerr != nil {
			t.fail(fmt.Errorf("a connection was lost and could not be replaced: %w", rerr))
			t.stop.Hard()
			return
		}
		c = t.seat(fresh)
	}
	t.idle <- c
}

func (t *trial) seat(c Conn) *seat {
	s := &seat{conn: c}
	think := func() { s.user.Think() }
	s.sess = t.cell.Discipline.Open(c, think)
	if t.cell.Rogue != nil {
		s.rogue = t.cell.Rogue.Open(c, think)
	}
	return s
}

// fail notes why the trial cannot go on; the first reason stands.
func (t *trial) fail(why error) { t.broken.CompareAndSwap(nil, &why) }

// unnoticed is for how long a hard stop may be kept waiting.
const unnoticed = 10 * time.Millisecond

// spend lets time pass, up to the hard stop.
func (t *trial) spend(d time.Duration) {
	switch {
	case d <= 0:
		return
	case d <= unnoticed: // a timer for each of many users, and a place in two queues, is memory
		time.Sleep(d)
		return
	}
	timer := time.NewTimer(d)
	select {
	case <-timer.C:
	case <-t.stop.hard:
		timer.Stop()
	}
}

// Think spends the time of --think, and that of --stall in the operations that stall.
func (u *User) Think() {
	u.t.spend(time.Duration(u.t.race.Settings.Think))
	if !u.stall {
		return
	}
	u.stall, u.d.stalled = false, true // it stops once, or an operation that stalls would never get its answer
	if u.hold != nil && u.hold.Freeze != nil {
		defer u.hold.Freeze()()
	}
	u.t.spend(u.t.race.stall.For)
}

// Spend lets time pass where another system works, inside a transaction or outside.
func (u *User) Spend(d time.Duration) { u.t.spend(d) }

// errPoolDeadlock is how a nested acquire ends that could never have been served.
var errPoolDeadlock = errors.New("pool deadlock: every connection is held by a user who waits for a second one")

// Nested runs body as a transaction of its own on a second connection, while the caller's transaction keeps its first. When everybody who
// holds a connection waits for another, nobody will ever get one: whoever comes last is told so, where a pool would hang.
func (u *User) Nested(body Body, r *Request) (Answer, error) {
	t := u.t
	defer t.nested.Add(-1)
	if t.nested.Add(1) >= int32(cap(t.idle)) {
		return Answer{}, &Fault{Class: ClassFailed, Err: errPoolDeadlock}
	}
	c := u.acquire()
	if c == nil {
		return Answer{}, &Fault{Class: ClassTimeout, Err: errors.New("no second connection came free before the deadline")}
	}
	t.nested.Add(-1) // it waits no longer
	ans, err := u.attempt(c, body, r)
	t.release(c, err)
	t.nested.Add(1)
	return ans, err
}

// attempt is one try of the user's on a connection.
func (u *User) attempt(c *seat, body Body, r *Request) (Answer, error) {
	c.user = u
	s := c.session(r)
	if h, ok := s.(Holder); ok && !r.Rogue {
		h.Holding(u.hold)
	}
	return attempt(s, body, r)
}

// attempt is one try: a transaction around the body.
func attempt(s Session, body Body, r *Request) (Answer, error) {
	err := s.Begin(r)
	var ans Answer
	if err == nil {
		ans, err = body(s, r)
	}
	if err == nil && (ans.Outcome == Confirmed || !s.Wrote()) {
		if err = s.Commit(); err == nil {
			return ans, nil
		}
		if f := faultOf(err); f.Class == ClassIndeterminate && !s.Wrote() {
			g := *f // nothing was written, so there is nothing not to know
			g.Class = ClassFailed
			if g.Aborted {
				g.Class = ClassAborted
			}
			err = &g
		}
	} else if err == nil {
		return ans, s.Rollback()
	}
	if faultOf(err).Broken { // there is nobody to tell
		return ans, err
	}
	if rerr := s.Rollback(); rerr != nil {
		// The first error says what happened to the operation; the second only that its connection is gone.
		f := *faultOf(err)
		f.Broken = true
		return ans, &f
	}
	return ans, err
}

// schedule gives out the due times of an open run, in order: a Poisson process of the given rate, from the seed. They are drawn as users
// ask for them, so that a long run at a high rate costs neither memory nor a wait before it begins.
type schedule struct {
	rate       float64
	until      time.Duration // 0: no limit
	operations int64         // 0: no limit

	mu  sync.Mutex
	rng *rand.Rand
	at  float64 // seconds
	n   int64
}

func newSchedule(rate float64, until time.Duration, operations int64, seed uint64) *schedule {
	return &schedule{rate: rate, until: until, operations: operations, rng: rand.New(rand.NewPCG(seed, 0x5c4ed))}
}

// next returns the number of the next operation of a part, and when it is due; false after the last.
func (s *schedule) next(p part) (n int64, due time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		n, due, ok = s.draw()
		if !ok || int(n%int64(p.of)) == p.index {
			return n, due, ok
		}
	}
}

func (s *schedule) draw() (n int64, due time.Duration, ok bool) {
	if s.operations > 0 && s.n >= s.operations {
		return 0, 0, false
	}
	s.at += s.rng.ExpFloat64() / s.rate
	due = time.Duration(min(s.at*float64(time.Second), math.MaxInt64/2)) // what a tiny rate makes due in centuries would wrap around
	if s.until > 0 && due >= s.until {
		return 0, 0, false
	}
	s.n++
	return s.n - 1, due, true
}

func shardsFor(users int) int { return min(users, 4*runtime.GOMAXPROCS(0)) }
