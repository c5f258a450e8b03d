package trace

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/lockbench/lockbench/bench"
)

// looking is how often the server is asked who waits for whom while a statement is under way.
const looking = time.Millisecond

// patience is how long nothing may change before the director gives up and lets everybody run: longer than any deadlock_timeout in
// use, after which the server itself ends what stands still.
const patience = 30 * time.Second

// state is what a user is doing, as far as the director must know.
type state int

const (
	absent   state = iota // has not come on stage yet
	moving                // in lockbench's own code: will soon do something else
	parked                // before a step, until it is its turn
	asking                // a statement is under way in the server
	entering              // in the gate
	gone                  // has its answer
)

// actor is a user on stage. Its fields are the director's, under its lock.
type actor struct {
	user    int64
	request *bench.Request
	state   state
	grant   chan struct{}

	// What decides whose turn it is: the smallest goes first. The attempt makes retries follow after first attempts, writing makes all
	// reads come before any write, and the steps take turns.
	attempt int
	writing bool
	steps   int
	answers bool // has nothing left to do but to tell its answer
	entered bool // the gate has begun the attempt
	inside  bool // the gate

	session int
	pid     int64
	event   *Event   // under way
	last    *Event   // statement that ended last
	ended   []*Event // since everybody last stood still
}

// director lets one user move at a time. Users ask for each step and wait until it is granted; the director grants the next only when
// everybody stands still: parked, waiting for a lock in the server or for the gate, or gone.
type director struct {
	sight Sight
	out   bool // a wait ends by itself, in a lock timeout that is worth seeing
	began time.Time

	mu      sync.Mutex
	actors  []*actor
	byPID   map[int64]*actor
	events  []*Event
	unread  []*Event // statements whose text the server has not been asked for
	notes   []string
	seq     int
	changes int           // counts whatever users do
	wake    chan struct{} // holds a token after a change
	free    bool          // everybody moves as they like
	freed   chan struct{}
	parted  bool           // the note between reads and writes has been made
	front   map[int64]bool // users for whom another waits; nil when nobody waits
}

func newDirector(users int, sight Sight, out bool) *director {
	d := &director{
		sight: sight, out: out, began: time.Now(), byPID: map[int64]*actor{},
		wake: make(chan struct{}, 1), freed: make(chan struct{}),
	}
	for i := range users {
		d.actors = append(d.actors, &actor{user: int64(i) + 1, grant: make(chan struct{}, 1)})
	}
	return d
}

func (d *director) actor(user int64) *actor { return d.actors[user-1] }

// told returns what happened, in order.
func (d *director) told() ([]*Event, []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closeEnded()
	slices.SortStableFunc(d.events, func(a, b *Event) int { return a.Seq - b.Seq })
	if len(d.events) > 0 { // what came before the first statement is no part of the race
		d.shift(-d.events[0].StartMS)
	}
	return d.events, d.notes
}

func (d *director) shift(by float64) {
	for _, e := range d.events {
		e.StartMS = round(e.StartMS + by)
		for i := range e.Waits {
			e.Waits[i].AtMS = round(e.Waits[i].AtMS + by)
		}
	}
}

// round takes milliseconds to whole microseconds, which is as fine as they were measured.
func round(ms float64) float64 { return math.Round(ms*1000) / 1000 }

// changed notes that a user did something; the lock is held.
func (d *director) changed() {
	d.changes++
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

func (d *director) next() int {
	d.seq++
	return d.seq
}

func (d *director) now() float64 { return millis(time.Since(d.began)) }

// step waits until it is the user's turn.
func (d *director) step(a *actor) {
	d.mu.Lock()
	if d.free {
		d.mu.Unlock()
		return
	}
	a.state = parked
	d.changed()
	d.mu.Unlock()
	select {
	case <-a.grant:
	case <-d.freed:
	}
}

// begin puts a new event under way, at the user's turn.
func (d *director) begin(a *actor, e *Event, s state) *Event {
	d.step(a)
	d.mu.Lock()
	defer d.mu.Unlock()
	e.Seq, e.StartMS, e.User, e.Attempt = d.next(), d.now(), a.user, a.attempt
	d.events = append(d.events, e)
	if e.Kind == Statement && !e.joined {
		d.unread = append(d.unread, e)
	}
	a.event, a.state = e, s
	d.changed()
	return e
}

// end ends the event under way. Its place in the order is given once everybody stands still: of statements that one COMMIT released,
// luck decides which answer is read first.
func (d *director) end(a *actor, finish func(e *Event)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := a.event
	took := round(d.now() - e.StartMS)
	e.TookMS, e.End = &took, e.Seq
	finish(e)
	a.event, a.state = nil, moving
	if e.Kind == Statement {
		a.last = e
	}
	a.ended = append(a.ended, e)
	if d.free {
		d.closeEnded()
	}
	d.changed()
}

// closeEnded gives those that had to wait their place in the order; the lock is held.
func (d *director) closeEnded() {
	for _, a := range d.actors {
		for _, e := range a.ended {
			if len(e.Waits) > 0 {
				e.End = d.next()
			}
		}
		a.ended = nil
	}
}

// attempt begins a user's next try.
func (d *director) attempt(a *actor) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a.attempt++
	a.writing, a.steps = false, 0
}

// writes says that the user has read what it wanted and is about to write.
func (d *director) writes(a *actor) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !a.writing {
		a.writing, a.steps = true, 0
	}
}

// lose notes how an attempt lost its race, where the strategy and not the server said so.
func (d *director) lose(a *actor, err error) {
	var f *bench.Fault
	if !errors.As(err, &f) || f.Class != bench.ClassContention {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if a.last != nil && a.last.Lost == "" {
		a.last.Lost = f.Kind.String()
	}
}

// answer notes the user's final answer, at its turn.
func (d *director) answer(a *actor, ans bench.Answer) {
	d.mu.Lock()
	a.answers = true
	d.mu.Unlock()
	d.step(a)
	d.mu.Lock()
	defer d.mu.Unlock()
	seq := d.next()
	e := &Event{
		Seq: seq, End: seq, Kind: Told, StartMS: d.now(), User: a.user, Attempt: a.attempt,
		Outcome: ans.Outcome.String(), Reason: string(ans.Reason), Got: append([]int64(nil), ans.Batch...),
	}
	if ans.Key != 0 && ans.Key != a.request.Key {
		e.Got = []int64{ans.Key}
	}
	d.events = append(d.events, e)
	a.state = gone
	d.changed()
}

// release lets everybody run as they like, for the reason given, if any.
func (d *director) release(why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.free {
		return
	}
	if why != "" {
		d.notes = append(d.notes, why)
	}
	d.free = true
	d.closeEnded()
	close(d.freed)
}

// direct grants steps until everybody is gone, or ctx ends: then nobody is kept waiting.
func (d *director) direct(ctx context.Context) {
	defer d.release("")
	for d.settle(ctx) {
		switch left := d.grantNext(); {
		case left == 0:
			return
		case left < 0: // nobody can move: the server, or somebody else's session, must
			d.await(ctx, looking)
		}
	}
}

// grantNext gives the next user its turn. It returns how many are left, as a negative number if none of them could be.
func (d *director) grantNext() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	left := 0
	for _, a := range d.actors {
		if a.state != gone {
			left++
		}
	}
	first := d.first()
	if first == nil {
		return -left
	}
	if first.writing && first.attempt == 1 && !first.answers && !d.parted {
		d.parted = true
		seq := d.next()
		d.events = append(d.events, &Event{Seq: seq, End: seq, Kind: Note, StartMS: d.now(), Text: "whoever can read has read: now they write"})
	}
	first.steps++
	first.state = moving
	first.grant <- struct{}{}
	return left
}

// first returns whose turn it is; nil if nobody can move. While somebody waits only those in front move, so that no more than one
// waits: of several who wait at a row, PostgreSQL serves whoever wakes up fastest, and of a gate's queue nobody can see the order. The
// lock is held.
func (d *director) first() *actor {
	var first, inFront *actor
	for _, a := range d.actors {
		if a.state != parked {
			continue
		}
		if first == nil || before(a, first) {
			first = a
		}
		if (a.answers || d.front[a.user]) && (inFront == nil || before(a, inFront)) {
			inFront = a
		}
	}
	if inFront != nil && d.front != nil {
		return inFront
	}
	return first
}

// before reports whether a's turn comes before b's. Answers go first: they touch nothing.
func before(a, b *actor) bool {
	switch {
	case a.answers != b.answers:
		return a.answers
	case a.attempt != b.attempt:
		return a.attempt < b.attempt
	case a.writing != b.writing:
		return b.writing
	case a.steps != b.steps:
		return a.steps < b.steps
	}
	return a.user < b.user
}

// await waits for a change, no longer than limit (0: without limit), and reports whether there was one.
func (d *director) await(ctx context.Context, limit time.Duration) bool {
	var timeout <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-d.wake:
		return true
	case <-timeout:
	case <-ctx.Done():
	}
	return false
}

// standing is what everybody does at one moment.
type standing struct {
	changes int
	moves   bool    // somebody does
	asking  []int64 // server processes with a statement under way
	passing bool    // somebody in the gate has nobody in front
}

func (d *director) standing() standing {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := standing{changes: d.changes}
	for _, a := range d.actors {
		switch a.state {
		case absent, moving:
			s.moves = true
		case asking:
			s.asking = append(s.asking, a.pid)
		case entering:
			s.passing = s.passing || len(d.inFront(a)) == 0
		case parked, gone:
		}
	}
	return s
}

// inFront returns the users inside the gate who keep a user out: those who want one of its rows. The lock is held.
func (d *director) inFront(a *actor) (users []int64) {
	for _, b := range d.actors {
		if b != a && b.inside && meet(a.request, b.request) {
			users = append(users, b.user)
		}
	}
	return users
}

func meet(a, b *bench.Request) bool {
	return a.Key == b.Key || a.Key == b.To || a.To > 0 && (a.To == b.To || a.To == b.Key)
}

// settle waits until everybody stands still, and notes who waits for whom. It returns false when directing is over.
func (d *director) settle(ctx context.Context) bool {
	var seen map[int64]Backend
	idle := time.Now()
	for ctx.Err() == nil {
		s := d.standing()
		switch {
		case s.moves:
			d.await(ctx, 0)
			idle = time.Now()
			continue
		case s.passing:
			if !d.await(ctx, patience) && ctx.Err() == nil {
				d.release("the gate let nobody in: from there on the order was left to luck")
				return false
			}
			continue
		case len(s.asking) == 0:
			d.rest(nil)
			return d.verify(ctx)
		}
		if d.await(ctx, looking) {
			seen, idle = nil, time.Now()
			continue
		}
		now, err := d.look(ctx, s)
		switch {
		case err != nil:
			d.release(blind(err))
			return false
		case time.Since(idle) > patience:
			d.release("nothing moved any more: from there on the order was left to luck")
			return false
		case now == nil || !same(seen, now):
			seen = now // a single look may fall between two waits
			continue
		}
		d.rest(now)
		if held(now) && !d.out {
			return d.verify(ctx)
		}
	}
	return false
}

// look asks the server about the statements under way. It returns nil if one of them does not wait, or anything changed meanwhile.
func (d *director) look(ctx context.Context, s standing) (map[int64]Backend, error) {
	now, err := d.sight.Look(ctx, s.asking)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.changes != s.changes {
		return nil, nil
	}
	for _, pid := range s.asking {
		if b := now[pid]; len(b.Blockers) == 0 || b.On == "" {
			return nil, nil
		}
	}
	return now, nil
}

// same reports whether two looks saw the same waits.
func same(a, b map[int64]Backend) bool {
	if len(a) != len(b) {
		return false
	}
	for pid, x := range a {
		y, ok := b[pid]
		if !ok || x.On != y.On || !slices.Equal(x.Blockers, y.Blockers) {
			return false
		}
	}
	return true
}

// held reports whether every wait leads to somebody who stands still. One that leads only to other waits is a deadlock, which the
// server will end.
func held(now map[int64]Backend) bool {
	for pid := range now {
		if !reaches(pid, now, map[int64]bool{}) {
			return false
		}
	}
	return true
}

func reaches(pid int64, now map[int64]Backend, seen map[int64]bool) bool {
	if seen[pid] {
		return false
	}
	seen[pid] = true
	b, waits := now[pid]
	if !waits {
		return true
	}
	return slices.ContainsFunc(b.Blockers, func(p int64) bool { return reaches(p, now, seen) })
}

// rest notes, now that everybody stands still, what ended and who waits for whom.
func (d *director) rest(now map[int64]Backend) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closeEnded()
	d.front = nil
	for _, a := range d.actors {
		switch a.state {
		case asking:
			w := d.blockers(now[a.pid])
			d.wait(a, w)
			if w.On != "advisory" { // these are given out first come first served
				d.goFirst(w.Users)
			}
		case entering:
			w := Wait{Users: d.inFront(a)}
			d.wait(a, w)
			d.goFirst(w.Users)
		case absent, moving, parked, gone:
		}
	}
}

// goFirst lets only users in front of a waiting one move, until everybody stands still again; the lock is held.
func (d *director) goFirst(users []int64) {
	if d.front == nil {
		d.front = map[int64]bool{}
	}
	for _, u := range users {
		d.front[u] = true
	}
}

// blockers names the users behind the processes that block; the lock is held.
func (d *director) blockers(b Backend) Wait {
	w := Wait{On: b.On}
	for _, pid := range b.Blockers {
		if a := d.byPID[pid]; a != nil {
			w.Users = append(w.Users, a.user)
		} else {
			w.Others = append(w.Others, pid)
		}
	}
	slices.Sort(w.Users)
	slices.Sort(w.Others)
	w.Users, w.Others = slices.Compact(w.Users), slices.Compact(w.Others)
	return w
}

// wait notes whom a user waits for, if that is news; the lock is held.
func (d *director) wait(a *actor, w Wait) {
	e := a.event
	if n := len(e.Waits); n > 0 && slices.Equal(e.Waits[n-1].Users, w.Users) && slices.Equal(e.Waits[n-1].Others, w.Others) {
		return
	}
	w.Seq, w.AtMS = d.next(), d.now()
	e.Waits = append(e.Waits, w)
}

// verify takes the text of the statements begun since the last time from the server, now that its sessions stand still and show them.
// It reports whether directing goes on.
func (d *director) verify(ctx context.Context) bool {
	d.mu.Lock()
	begun := d.unread
	d.unread = nil
	d.mu.Unlock()
	if len(begun) == 0 {
		return ctx.Err() == nil
	}
	var pids []int64
	for _, e := range begun {
		pids = append(pids, e.PID)
	}
	now, err := d.sight.Look(ctx, pids)
	if err != nil {
		d.release(blind(err))
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range begun {
		b, alive := now[e.PID]
		switch {
		case b.Query != "":
			e.SQL = b.Query
		case alive && !slices.Contains(d.notes, untold):
			d.notes = append(d.notes, untold)
		}
	}
	return true
}

// untold is said where the statements shown are what was sent, without the server's word for it.
const untold = "the server does not show its statements (track_activities is off): they stand here as they were sent"

func blind(err error) string {
	return fmt.Sprintf("the server could not be asked who waits for whom (%v): from there on the order was left to luck", err)
}
