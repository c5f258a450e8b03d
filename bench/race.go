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
	stop      *Stop
	picker    *picker
	flight    []atomic.Int32 // operations under way, by key
	ops       atomic.Int64   // numbers given to operations
	begin     time.Time
	warm      time.Duration
	end       time.Duration // no operation begins later; 0: no limit
	seed      uint64
	sched     []time.Duration
	broken    atomic.Pointer[error] // why the trial cannot go on
	never     atomic.Int64          // users a stop kept from starting
	// ctx ends with the hard stop; only waits outside the database watch it.
	ctx context.Context
}

// seat is a connection with the strategy's session on it.
type seat struct {
	conn Conn
	sess Session
}

// User is one client: a goroutine with its own randomness.
type User struct {
	ID  int64
	t   *trial
	pcg *rand.PCG  // behind rng
	rng *rand.Rand // draws requests, from the number of the operation: the n-th is the same under every strategy
	// jitter draws backoffs, apart from the requests, which must not depend on how often somebody lost a race.
	jitter *rand.Rand
	d      done // of the operation under way
}

// run races the cell once and returns what was recorded, the window it was measured in and why it broke off, if it did.
func (t *trial) run() (*tally, time.Duration, error) {
	s := &t.race.Settings
	barrier := make(chan struct{})
	var ready, over sync.WaitGroup
	ready.Add(s.Users)
	over.Add(s.Users)
	for i := range s.Users {
		go func() {
			defer over.Done()
			u := &User{ID: int64(i) + 1, t: t, pcg: rand.NewPCG(0, 0), jitter: rand.New(rand.NewPCG(t.seed, uint64(i)))}
			u.rng = rand.New(u.pcg)
			ready.Done()
			<-barrier
			u.live()
		}()
	}
	ready.Wait()
	t.begin = time.Now()
	close(barrier)

	finished := make(chan struct{})
	go func() { over.Wait(); close(finished) }()
	t.await(finished)

	all := t.rec.merged()
	window := max(0, all.last-t.warm) // nothing was measured when a bounded run ends in its warm-up
	if t.rec.until > 0 && !t.stop.Softly() {
		window = time.Duration(s.Duration)
	}
	if p := t.broken.Load(); p != nil {
		return all, window, *p
	}
	return all, window, nil
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
	t.pool.Abort()
	<-finished
}

// live is a user's life.
func (u *User) live() {
	s := &u.t.race.Settings
	switch s.Mode {
	case Burst:
		if u.t.stop.Softly() {
			u.t.never.Add(1)
			return
		}
		u.act(u.t.ops.Add(1)-1, 0)
	case Closed:
		for {
			n := u.t.ops.Add(1) - 1
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
			n := u.t.ops.Add(1) - 1
			if n >= int64(len(u.t.sched)) {
				return
			}
			due := u.t.sched[n]
			if !u.sleep(due - time.Since(u.t.begin)) {
				return
			}
			u.act(n, due)
		}
	}
}

// rest pauses between operations, and reports whether another may follow. Nobody rests beyond the end of the trial.
func (u *User) rest(pause time.Duration) bool {
	if most := u.t.race.Settings.Operations; most > 0 && u.t.ops.Load() >= most {
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
	u.pcg.Seed(t.seed, uint64(n))
	r := Request{Op: n, User: u.ID, Key: t.picker.pick(u.rng), Quantity: 1}
	if t.drawer != nil {
		t.drawer.Draw(t.race.Params, u.rng, &r)
	}
	u.d = done{due: due}
	u.d.told.Request = r
	start := time.Since(t.begin)
	u.d.told.Start = start
	if t.rec.open {
		u.wait(waitLag, max(0, start-due))
	}
	u.d.told.Answer = t.cell.Operation(u, &u.d.told.Request)
	u.d.told.End = time.Since(t.begin)
	if u.d.told.Outcome == Pending { // a stop kept it from starting
		t.never.Add(1)
		return
	}
	t.rec.record(int(u.ID), &u.d)
}

// meet notes that the user goes for its rows, by delta 1, or has let go of them, by -1. Who finds somebody else at a row is contended.
// It is called around what a strategy protects: users in line for a connection have not met anybody yet.
func (t *trial) meet(d *done, r *Request, delta int32) {
	key := r.Key
	if t.everybody {
		key = 0
	}
	if t.flight[key].Add(delta) > 1 {
		d.contended = true
	}
	if r.To > 0 && r.To != key && t.flight[r.To].Add(delta) > 1 {
		d.contended = true
	}
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
		leave, err := u.enter(r)
		if err != nil {
			return u.giveUp(err)
		}
		c := u.acquire()
		if c == nil {
			leave()
			return u.giveUp(nil)
		}
		u.d.told.Attempts++
		if t.gate == nil {
			t.meet(&u.d, r, 1)
		}
		ans, err := attempt(c.sess, body, r)
		if t.gate == nil {
			t.meet(&u.d, r, -1)
		}
		t.release(c, err)
		leave()
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

func (t *trial) hardStopped() bool {
	select {
	case <-t.stop.hard:
		return true
	default:
		return false
	}
}

// enter passes the gate of a strategy that locks outside the database.
func (u *User) enter(r *Request) (leave func(), err error) {
	if u.t.gate == nil {
		return func() {}, nil
	}
	u.t.meet(&u.d, r, 1) // users meet at the gate: behind it there is one at a time
	defer func() {
		if err != nil {
			u.t.meet(&u.d, r, -1)
			return
		}
		open := leave
		leave = func() {
			open()
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
	leave, err = u.t.gate.Enter(ctx, r)
	u.wait(waitLock, time.Since(from))
	return leave, err
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
	var timeout <-chan time.Time
	if d := u.t.cell.Retry.Deadline; d > 0 {
		timer := time.NewTimer(d - (time.Since(u.t.begin) - u.d.told.Start))
		defer timer.Stop()
		timeout = timer.C
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
			why := fmt.Errorf("a connection was lost and could not be replaced: %w", rerr)
			t.broken.CompareAndSwap(nil, &why)
			t.stop.Hard()
			return
		}
		c = &seat{conn: fresh, sess: t.open(fresh)}
	}
	t.idle <- c
}

func (t *trial) open(c Conn) Session { return t.cell.Discipline.Open(c, t.think) }

// think spends the time of --think.
func (t *trial) think() {
	d := time.Duration(t.race.Settings.Think)
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	select {
	case <-timer.C:
	case <-t.stop.hard:
		timer.Stop()
	}
}

// Think spends the time of --think outside any transaction.
func (u *User) Think() { u.t.think() }

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
	if rerr := s.Rollback(); rerr != nil {
		// The first error says what happened to the operation; the second only that its connection is gone.
		f := *faultOf(err)
		f.Broken = true
		return ans, &f
	}
	return ans, err
}

// schedule draws the due times of an open run: a Poisson process of the given rate, from the seed.
func schedule(rate float64, until time.Duration, operations int64, seed uint64) []time.Duration {
	rng := rand.New(rand.NewPCG(seed, 0x5c4ed))
	var due []time.Duration
	at := 0.0
	for {
		at += rng.ExpFloat64() / rate
		d := time.Duration(min(at*float64(time.Second), math.MaxInt64/2)) // what a tiny rate makes due in centuries would wrap around
		if (until > 0 && d >= until) || (operations > 0 && int64(len(due)) >= operations) {
			return due
		}
		due = append(due, d)
	}
}

func shardsFor(users int) int { return min(users, 4*runtime.GOMAXPROCS(0)) }
