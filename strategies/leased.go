package strategies

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockbench/lockbench/bench"
)

// lockService is what sets a strategy apart whose lock lives in a service beside the database. The rest is shared: the plain read and
// write of none, behind a lock on the row.
type lockService struct {
	name  string
	port  string // the usual one
	start string // how to start one, as a list of ways
	// dial connects to the service at an address, and returns how long a lease it grants.
	dial func(ctx context.Context, address string, o leaseOptions) (lockClient, time.Duration, error)
}

// leaseOptions are what a service's client must know of the strategy's options.
type leaseOptions struct {
	bench.Leasing
	ttl     time.Duration
	fencing bool
	options bench.Options
}

// lockClient is a connection to a lock service.
type lockClient interface {
	// session opens one of the sessions that users take in turn.
	session(ctx context.Context) (lockSession, error)
	// sweep counts the trial's locks that are still there, and removes everything that the trial kept in the service.
	sweep(ctx context.Context) (int64, error)
	close()
}

// lockSession is one client as the service sees it. One user at a time has it.
type lockSession interface {
	// acquire waits in line for a lock. When it fails it leaves nothing in line, unless the session is not usable any more. errLapsed
	// says that the session's lease lapsed meanwhile.
	acquire(ctx context.Context, key int64) (token int64, release func(context.Context), err error)
	lost() <-chan struct{}
	freeze() (thaw func())
	usable() bool
	// close ends the session and with it whatever it still holds.
	close(ctx context.Context)
}

// errLapsed is how a session ends whose lease has lapsed.
var errLapsed = errors.New("the lease lapsed")

// fixed is embedded by sessions whose leases have a length from the start: nothing renews them, so that there is nothing to stop when a
// holder stalls, and nobody tells a holder that his has lapsed.
type fixed struct{}

func (fixed) lost() <-chan struct{} { return nil }
func (fixed) freeze() (thaw func()) { return func() {} }

// patience bounds what is cleaned up in a service after its user has his answer.
const patience = 5 * time.Second

// whileLeased is where the claims of a lock service hold.
const whileLeased = "while the lease holds"

// info completes what is the same for every lock service.
func (s lockService) info(i bench.StrategyInfo) bench.StrategyInfo {
	i.Name, i.External, i.Address, i.Scope = s.name, true, "localhost:"+s.port, whileLeased
	i.Prevents = append(noLostUpdate(), bench.WriteSkew) // the lock stands for all that is read
	i.LoserIs = "made to wait in line at the service, then shown the winner's row; with fencing refused if he comes late with a lapsed lock"
	i.Options = append([]bench.OptionDoc{
		{Name: "fencing", Doc: "check in the UPDATE that nobody with a later lock has written, and that nobody has written since the read"},
	}, i.Options...)
	i.Variants = append([]string{i.Name + ":fencing"}, i.Variants...)
	return i
}

// leased is the discipline of a lock service.
type leased struct {
	*rowwise
	service lockService
	address string
	options leaseOptions
	stall   bench.Stall

	client  lockClient
	after   context.Context  // of what is cleaned up when those who raced have gone
	idle    chan lockSession // nil stands for a session that could not be opened
	renewal sync.WaitGroup   // of sessions that are not usable any more
}

// bindLeased writes the SQL of none, with a fence or without.
func bindLeased(b bench.Binding, service lockService) (bench.Discipline, error) {
	_, fencing := b.Options["fencing"]
	d := rowwise{}
	if fencing {
		for _, t := range b.Tables {
			if t.Fence == "" {
				return nil, &bench.NotApplicable{
					Reason: fmt.Sprintf("a fence guards the row that is written, and what is decided on %s rests on other rows too", t.Name),
					Remedy: "leave fencing out, and see what the lock alone is worth; or use serializable",
				}
			}
		}
		d.guard = byToken
	}
	bound, err := bindRows(b, d)
	if err != nil {
		return nil, err
	}
	address := b.Services[service.name]
	if address == "" {
		address = "localhost:" + service.port
	}
	return &leased{
		rowwise: bound.(*rowwise), service: service, address: address, stall: b.Stall,
		options: leaseOptions{ttl: b.TTL, fencing: fencing, options: b.Options},
	}, nil
}

// Prevents gives the claims up where holders may outlast their lease and nothing fences them off. Half of a lease may have passed when
// a stall begins.
func (l *leased) Prevents() []bench.Anomaly {
	if !l.options.fencing && l.stall.Share > 0 && l.stall.For >= l.options.ttl/2 {
		return nil
	}
	return append(noLostUpdate(), bench.WriteSkew)
}

// Scope is where the claims hold: with a fence everywhere.
func (l *leased) Scope() string {
	if l.options.fencing {
		return ""
	}
	return whileLeased
}

// Open starts a session that looks at the lock its user holds.
func (l *leased) Open(c bench.Conn, think func()) bench.Session {
	return &leasedSession{rowSession{session: session{conn: c, think: think, begin: l.begin}, d: l.rowwise}}
}

type leasedSession struct{ rowSession }

// Holding notes the lock under which the attempt runs.
func (s *leasedSession) Holding(h *bench.Hold) { s.hold = h }

// dial connects for a trial, or for none.
func (l *leased) dial(ctx context.Context, n bench.Leasing) (lockClient, time.Duration, error) {
	dialing, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	o := l.options
	o.Leasing = n
	c, lease, err := l.service.dial(dialing, l.address, o)
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	return c, lease, err
}

// Reach finds out whether the service answers.
func (l *leased) Reach(ctx context.Context) (time.Duration, error) {
	c, lease, err := l.dial(ctx, bench.Leasing{Name: "nobody", Sessions: 1})
	if err != nil {
		return 0, bench.Hintf(fmt.Sprintf("start one (%s), or say where it is with --%s host:port", l.service.start, l.service.name),
			"%s does not answer at %q: %v", l.service.name, l.address, err)
	}
	c.close()
	return lease, nil
}

// Connect opens the sessions of a trial.
func (l *leased) Connect(ctx context.Context, n bench.Leasing) error {
	client, _, err := l.dial(ctx, n)
	if err != nil {
		return fmt.Errorf("connecting to %s at %q: %w", l.service.name, l.address, err)
	}
	l.client, l.idle, l.after = client, make(chan lockSession, n.Sessions), context.WithoutCancel(ctx)
	for range n.Sessions {
		s, err := client.session(ctx)
		if err != nil {
			l.Disconnect()
			return fmt.Errorf("opening a session at %s: %w", l.service.name, err)
		}
		l.idle <- s
	}
	return nil
}

// Sweep counts what the trial left behind, through a client of its own: those who raced may have been other processes.
func (l *leased) Sweep(ctx context.Context, n bench.Leasing) (int64, error) {
	l.renewal.Wait() // sessions that lapsed are being ended
	c, _, err := l.dial(ctx, n)
	if err != nil {
		return 0, err
	}
	defer c.close()
	return c.sweep(ctx)
}

// Disconnect ends the sessions.
func (l *leased) Disconnect() {
	if l.client == nil {
		return
	}
	l.renewal.Wait()
	ctx, cancel := context.WithTimeout(l.after, patience)
	defer cancel()
	var closing sync.WaitGroup
	for range len(l.idle) {
		if s := <-l.idle; s != nil {
			closing.Go(func() { s.close(ctx) })
		}
	}
	closing.Wait()
	l.client.close()
	l.client = nil
}

// Enter takes a session, and with it the lock of each row.
func (l *leased) Enter(ctx context.Context, r *bench.Request) (*bench.Hold, error) {
	s, err := l.take(ctx)
	if err != nil {
		return nil, err
	}
	var held []func(context.Context)
	hold := &bench.Hold{Lost: s.lost(), Freeze: s.freeze, Leave: func() {
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		for _, release := range slices.Backward(held) {
			release(after)
		}
		l.giveBack(s)
	}}
	for _, key := range lockOrder(r) {
		token, release, err := s.acquire(ctx, key)
		if err != nil {
			hold.Leave()
			return nil, l.verdict(ctx, err)
		}
		held = append(held, release)
		if key == r.Key {
			hold.Tokens[0] = token
		} else {
			hold.Tokens[1] = token
		}
	}
	return hold, nil
}

// lockOrder lists the rows to lock: in one order for all, or two users could wait for each other.
func lockOrder(r *bench.Request) []int64 {
	switch {
	case r.To == 0 || r.To == r.Key:
		return []int64{r.Key}
	case r.To < r.Key:
		return []int64{r.To, r.Key}
	}
	return []int64{r.Key, r.To}
}

// take takes a session that nobody uses.
func (l *leased) take(ctx context.Context) (lockSession, error) {
	select {
	case s := <-l.idle:
		if s != nil {
			return s, nil
		}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s, err := l.client.session(ctx)
	if err != nil {
		l.idle <- nil
		return nil, l.verdict(ctx, err)
	}
	return s, nil
}

// giveBack lets others use the session. One that is not usable any more is replaced, while its user goes on.
func (l *leased) giveBack(s lockSession) {
	if s.usable() {
		l.idle <- s
		return
	}
	l.renewal.Go(func() {
		after, cancel := context.WithTimeout(l.after, patience)
		defer cancel()
		s.close(after)
		fresh, err := l.client.session(after)
		if err != nil {
			fresh = nil // whoever takes it tries again, and tells his user
		}
		l.idle <- fresh
	})
}

// verdict sorts an error of the service: the end of the context is the caller's, a lapsed lease is a lost race, all else is a failure.
func (l *leased) verdict(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errLapsed):
		return bench.Lost(bench.Lease)
	}
	return fmt.Errorf("%s at %s: %v", l.service.name, l.address, err) // not wrapped: a time-out of its own is not the operation's
}
