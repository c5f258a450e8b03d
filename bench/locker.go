package bench

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// Hold is a lock that a user holds outside the database, from [Gate.Enter] to Leave.
type Hold struct {
	// Tokens are the fencing tokens of the locks on [Request.Key] and [Request.To]: who holds a lock later has a higher one. 0: there
	// is none.
	Tokens [2]int64
	// Lost is closed when the holder learns that the lock is not his any more; nil: nobody would tell him.
	Lost <-chan struct{}
	// Freeze stops what keeps the lock alive, as in a process that does not run, until thaw is called; nil: nothing does.
	Freeze func() (thaw func())
	// Leave gives the lock back. It is called once.
	Leave func()
}

// Token returns the fencing token of the lock that covers a row.
func (h *Hold) Token(r *Request, key int64) int64 {
	switch {
	case h == nil: // nobody locked
		return 0
	case r.To > 0 && key == r.To:
		return h.Tokens[1]
	}
	return h.Tokens[0]
}

// Known returns the contention of a holder who knows that he lost his lock, nil otherwise.
func (h *Hold) Known() error {
	if h == nil {
		return nil
	}
	select {
	case <-h.Lost:
		return Lost(Lease)
	default:
		return nil
	}
}

// Holder is a session that looks at the lock its user holds.
type Holder interface {
	// Holding is called before the attempt begins.
	Holding(h *Hold)
}

// Locker is a gate whose locks are leases that a service beside the database grants. An error of Enter that is no [*Fault] and does not
// come from ctx is a failure of the operation.
type Locker interface {
	Gate
	// Reach finds out whether the service answers, and how long a lease it grants. Its error says where it does not, with a hint how to
	// start one.
	Reach(ctx context.Context) (lease time.Duration, err error)
	// Connect opens and warms what this process needs for a trial.
	Connect(ctx context.Context, n Leasing) error
	// Sweep counts the locks that are still there after the trial's last user, and removes everything the trial kept in the service. It
	// comes before any process disconnects, and needs no Connect.
	Sweep(ctx context.Context, n Leasing) (int64, error)
	// Disconnect ends what Connect opened, if it did.
	Disconnect()
}

// Leasing is what a trial needs from a lock service.
type Leasing struct {
	Name     string // of everything that the trial keeps in the service; unique, and the same in all processes that share it
	Rows     int64  // that may be locked, from 1; row 0 stands for the table
	Sessions int    // users who may stand in line or hold a lock at a time
}

// DefaultTTL is how long a lease lasts when nothing else is said: long beside an operation, short beside an outage.
const DefaultTTL = 10 * time.Second

// shortestTTL is the shortest lease: below it a busy machine loses locks that it should have.
const shortestTTL = 50 * time.Millisecond

// runID is a name that no other run has.
func runID() string { return strings.ToLower(crand.Text()[:12]) }

// Reach finds out whether the lock services that the race needs answer. It reports every one that does not.
func (r *Race) Reach(ctx context.Context) error {
	var errs []error
	refused := map[string]bool{}
	for _, e := range r.Cells {
		l, ok := e.Discipline.(Locker)
		if !ok || refused[e.Spec.Name] {
			continue
		}
		var err error
		if e.lease, err = l.Reach(ctx); err != nil {
			refused[e.Spec.Name] = true
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// leasing is what a trial of the race needs from its lock service. There are as many sessions as connections, since nobody needs more of
// either.
func (r *Race) leasing(h Heat) Leasing {
	name := fmt.Sprintf("%s-%d-%d", r.Run, h.Cell, h.Seed)
	if h.Warmup {
		name += "-w"
	}
	return Leasing{Name: name, Rows: r.Params.Rows, Sessions: min(r.Settings.Users, r.Settings.Connections)}
}

// sweep removes what a trial kept in its lock service, if it has one, and counts the locks among it.
func (r *Race) sweep(ctx context.Context, h Heat) (left int64, err error) {
	l, ok := r.Cells[h.Cell].Discipline.(Locker)
	if !ok {
		return 0, nil
	}
	if left, err = l.Sweep(ctx, r.leasing(h)); err != nil {
		err = fmt.Errorf("looking for locks left in the service: %w", err)
	}
	return left, err
}

// enlist connects this process's part of a trial to the lock service, if the strategy has one.
func (c *Crew) enlist(ctx context.Context, h Heat) error {
	c.discharge()
	l, ok := c.race.Cells[h.Cell].Discipline.(Locker)
	if !ok {
		return nil
	}
	c.locker = l
	n := c.race.leasing(h)
	n.Sessions = max(1, min(c.part.share(c.race.Settings.Users), len(c.pool.Conns())))
	return l.Connect(ctx, n)
}

// discharge ends the connection to the lock service.
func (c *Crew) discharge() {
	if c.locker != nil {
		c.locker.Disconnect()
		c.locker = nil
	}
}

// Stall is how holders stop in mid-operation, as a process does that collects garbage or a machine that is suspended.
type Stall struct {
	For   time.Duration
	Share float64 // of operations, 0 to 1
}

// draws reports whether an operation stalls: the n-th does under every strategy, or under none.
func (s Stall) draws(seed uint64, op int64) bool {
	return s.Share > 0 && rand.New(rand.NewPCG(seed, ^uint64(op))).Float64() < s.Share
}

// ParseStall reads 800ms@2%; "" is none.
func ParseStall(s string) (Stall, error) {
	if s == "" {
		return Stall{}, nil
	}
	const form = "stalls look like 800ms@2%: how long, and how many of all operations"
	length, share, ok := strings.Cut(s, "@")
	number, percent := strings.CutSuffix(share, "%")
	if !ok || !percent {
		return Stall{}, Hintf(form, "%q is not a stall", s)
	}
	d, err := ParseDuration(length)
	if err != nil {
		return Stall{}, err
	}
	p, err := strconv.ParseFloat(number, 64)
	if err != nil || !(p > 0 && p <= 100) || d == 0 {
		return Stall{}, Hintf(form, "%q is not a stall", s)
	}
	return Stall{For: d, Share: p / 100}, nil
}
