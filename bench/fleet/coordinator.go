package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockbench/lockbench/bench"
)

// Member is a worker that has joined a run.
type Member struct {
	Number int // from 1
	Name   string
	Host   string
	Failed string // why it could not take part
}

// Host is where the coordinator of a run meets its workers. Every method but Receive and Ages is for one goroutine.
type Host interface {
	Line
	// Announce makes the run known, for so many workers.
	Announce(ctx context.Context, lockbench string, workers int) error
	// Plan lays out what the workers are to read.
	Plan(ctx context.Context, plan []byte) error
	// Members returns who has joined.
	Members(ctx context.Context) ([]Member, error)
	// Ages returns for every worker how long ago it showed a sign of life, by the server's clock; one whose session has ended is absent.
	Ages(ctx context.Context) (map[int]time.Duration, error)
	// Shares returns what the workers have handed over, by their numbers, and takes it away.
	Shares(ctx context.Context) (map[int][]byte, error)
	// Flushed notes that so many racing sessions have published their statistics.
	Flushed(sessions int)
	// Terminate ends whatever the run's racing sessions still do, and returns when they are gone.
	Terminate(ctx context.Context) error
	// Dismiss ends all other sessions of the run and removes every trace of it.
	Dismiss(ctx context.Context) error
}

// Config is what a coordinator needs.
type Config struct {
	Host      Host
	Lockbench string        // version; workers of another are refused
	Wait      time.Duration // for workers to come
	// Summon is called when workers may come, and sees to it that they do. What it returns tells of a process that has ended, which only
	// who started it can know at once.
	Summon func(ctx context.Context, s *bench.Settings) (gone <-chan error, err error)
}

// Coordinator is a fleet of workers. It implements [bench.Fleet]; its methods are for one goroutine.
type Coordinator struct {
	Config
	members     []*member
	connections int // that all workers have together
	step        int
	said        chan message
	failed      chan error
	gone        <-chan error
	ctx         context.Context // of listening, which outlasts whoever asked for it; nil while there are no workers
	cancel      context.CancelFunc
	wg          sync.WaitGroup
	broken      error // why nothing more can be asked of the workers
}

// member is a worker as the coordinator sees it.
type member struct {
	Member
	answered int // the last order it has carried out
	began    time.Duration
	lost     string
}

// New returns a coordinator whose workers are not there yet.
func New(c Config) *Coordinator { return &Coordinator{Config: c} }

// Take tells the workers of the race that follows; those it needs are gathered first.
func (c *Coordinator) Take(ctx context.Context, r *bench.Race) error {
	if c.broken != nil {
		return c.broken
	}
	if n := r.Settings.Processes(); n != len(c.members) {
		if err := c.Dismiss(ctx); err != nil {
			return err
		}
		if err := c.gather(ctx, &r.Settings, n); err != nil {
			return err
		}
	}
	plan, err := json.Marshal(plan{Settings: r.Settings, Run: r.Run})
	if err == nil {
		err = c.Host.Plan(ctx, plan)
	}
	if err != nil {
		return fmt.Errorf("laying out the plan for the workers: %w", err)
	}
	c.connections = r.Settings.Connections
	return c.all(ctx, message{Do: take})
}

// gather announces the run and waits for its workers.
func (c *Coordinator) gather(ctx context.Context, s *bench.Settings, n int) error {
	if err := c.Host.Announce(ctx, c.Lockbench, n); err != nil {
		return fmt.Errorf("announcing the run: %w", err)
	}
	listening, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c.ctx, c.cancel, c.said, c.failed = listening, cancel, make(chan message), make(chan error)
	c.wg.Go(func() { listen(listening, c.Host, c.said, c.failed) })
	var err error
	if c.gone, err = c.Summon(ctx, s); err != nil {
		return err
	}
	limit := time.NewTimer(c.Wait)
	defer limit.Stop()
	for {
		joined, err := c.Host.Members(ctx)
		if err != nil {
			return fmt.Errorf("looking who has joined: %w", err)
		}
		var names []string
		for _, m := range joined {
			if m.Failed != "" {
				return fmt.Errorf("%s cannot take part: %s", m.Name, m.Failed)
			}
			names = append(names, m.Name)
		}
		if len(joined) == n {
			for _, m := range joined {
				c.members = append(c.members, &member{Member: m})
			}
			c.wg.Go(func() { watch(listening, c.lookout(c.members), c.failed) })
			return nil
		}
		select {
		case <-c.said: // somebody has joined
		case err := <-c.failed:
			return err
		case err := <-c.gone:
			return err
		case <-limit.C:
			who := "nobody came"
			if len(names) > 0 {
				who = "only " + strings.Join(names, ", ") + " came"
			}
			return bench.Hintf("raise --wait, or look why the others do not start", "the run waits for %d workers, and %s within %v", n, who, c.Wait)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// lookout looks for workers that are gone; it reports each once.
func (c *Coordinator) lookout(members []*member) func(context.Context) error {
	gone := map[int]bool{}
	return func(ctx context.Context) error {
		ages, err := c.Host.Ages(ctx)
		if err != nil {
			return fmt.Errorf("looking for the workers: %w", err)
		}
		for _, m := range members {
			age, alive := ages[m.Number]
			if gone[m.Number] || alive && age <= silence {
				continue
			}
			gone[m.Number] = true
			if !alive {
				return &Lost{m.Name, "its session has ended"}
			}
			return &Lost{m.Name, fmt.Sprintf("nothing was heard of it for %v", age.Round(time.Second))}
		}
		return nil
	}
}

// Start has every worker make ready for a trial.
func (c *Coordinator) Start(ctx context.Context, h bench.Heat, _ *bench.Live) error {
	return c.all(ctx, message{Do: start, Heat: &h})
}

// Recover has the first worker do it.
func (c *Coordinator) Recover(ctx context.Context) error {
	return c.all(ctx, message{Do: recover, Only: 1})
}

// Flush has the workers publish their sessions' statistics.
func (c *Coordinator) Flush(ctx context.Context) error {
	err := c.all(ctx, message{Do: flush})
	if err == nil {
		c.Host.Flushed(c.connections)
	}
	return err
}

// Close has the workers close their connections; Take has them open others.
func (c *Coordinator) Close() {
	if c.ctx != nil && c.broken == nil {
		c.broken = c.order(c.ctx, &message{Do: rest})
	}
}

// all gives an order and waits until those whom it concerns have carried it out.
func (c *Coordinator) all(ctx context.Context, m message) error {
	if c.broken != nil {
		return c.broken
	}
	if err := c.order(ctx, &m); err != nil {
		return err
	}
	for !c.done(m) {
		select {
		case a := <-c.said:
			if err := c.note(a, m.Step); err != nil {
				return c.breakOff(err)
			}
		case err := <-c.failed:
			return c.breakOff(c.lose(err))
		case err := <-c.gone:
			return c.breakOff(c.lose(err))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// order gives the next order.
func (c *Coordinator) order(ctx context.Context, m *message) error {
	c.step++
	m.Step = c.step
	if err := send(ctx, c.Host, *m); err != nil {
		return fmt.Errorf("telling the workers: %w", err)
	}
	return nil
}

func (c *Coordinator) done(m message) bool {
	return !slices.ContainsFunc(c.members, func(w *member) bool {
		return w.lost == "" && w.answered < m.Step && (m.Only == 0 || m.Only == w.Number)
	})
}

// note takes an answer down; one to an earlier order is no news.
func (c *Coordinator) note(a message, step int) error {
	i := slices.IndexFunc(c.members, func(w *member) bool { return w.Number == a.From })
	if i < 0 || a.Step != step {
		return nil
	}
	w := c.members[i]
	if a.Error != "" {
		return &bench.Hinted{Msg: w.Name + ": " + a.Error, Advice: a.Hint}
	}
	w.answered = a.Step
	return nil
}

// lose notes a worker that is gone, and returns the error that says so.
func (c *Coordinator) lose(err error) error {
	var l *Lost
	if errors.As(err, &l) {
		for _, w := range c.members {
			if w.Name == l.Name {
				w.lost = l.Why
			}
		}
	}
	return err
}

func (c *Coordinator) breakOff(err error) error {
	c.broken = err
	return err
}

// Race releases all users at once, passes on a wish to stop, and returns when the last worker is done. When one is lost the others are
// stopped, and the sessions of the lost one are ended: nobody knows when the server would notice that it is gone.
func (c *Coordinator) Race(ctx context.Context, stop *bench.Stop) error {
	if c.broken != nil {
		return c.broken
	}
	ctx = context.WithoutCancel(ctx) // the stop that ends it has to be passed on
	m := message{Do: race}
	for _, w := range c.members {
		w.began = 0
	}
	released := time.Now()
	if err := c.order(ctx, &m); err != nil {
		return err
	}
	softly, atOnce := stop.OnSoft(), stop.OnHard()
	var broke error
	giveUp := func(err error) {
		if c.lose(err); broke == nil {
			broke = c.breakOff(err)
			stop.Hard()
		}
		if err := c.Host.Terminate(ctx); err != nil {
			broke = errors.Join(broke, err)
		}
	}
	for !c.done(m) {
		select {
		case a := <-c.said:
			if a.Began && a.Step == m.Step {
				for _, w := range c.members {
					if w.Number == a.From {
						w.began = time.Since(released) - a.Since
					}
				}
				continue
			}
			if a.Cut {
				stop.Hard()
			}
			if err := c.note(a, m.Step); err != nil {
				for _, w := range c.members {
					if w.Number == a.From {
						w.answered = m.Step // it is done, though not as it should be
					}
				}
				if broke == nil {
					broke = err
					stop.Hard()
				}
			}
		case err := <-c.failed:
			giveUp(err)
			if l := (*Lost)(nil); !errors.As(err, &l) { // nobody can be heard any more
				return broke
			}
		case err := <-c.gone:
			giveUp(err)
		case <-softly:
			softly = nil
			if err := send(ctx, c.Host, message{Do: soft}); err != nil {
				return err
			}
		case <-atOnce:
			atOnce = nil
			if err := send(ctx, c.Host, message{Do: hard}); err != nil {
				return err
			}
		}
	}
	return broke
}

// Shares returns what every worker measured.
func (c *Coordinator) Shares(ctx context.Context) ([]*bench.Share, error) {
	broken := c.broken
	c.broken = nil // those that are left can still be asked
	err := c.all(ctx, message{Do: share})
	if broken != nil {
		c.broken = broken
	}
	var packed map[int][]byte
	if err == nil {
		packed, err = c.Host.Shares(ctx)
	}
	var all []*bench.Share
	for _, w := range c.members {
		s := &bench.Share{}
		if b, ok := packed[w.Number]; ok {
			if uerr := s.UnmarshalBinary(b); uerr != nil && err == nil {
				err = uerr
			}
		} else {
			s.Lost = w.lost
			if s.Lost == "" {
				s.Lost = "it handed nothing over"
			}
		}
		s.Name, s.Host = w.Name, w.Host
		if w.began > 0 {
			ms := float64(w.began.Microseconds()) / 1000
			s.Began = &ms
		}
		all = append(all, s)
	}
	return all, err
}

// Dismiss ends the workers and removes every trace of the run.
func (c *Coordinator) Dismiss(ctx context.Context) error {
	if c.ctx == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), silence)
	defer cancel()
	err := send(ctx, c.Host, message{Do: end})
	c.cancel()
	c.wg.Wait()
	c.ctx, c.members = nil, nil
	return errors.Join(err, c.Host.Dismiss(ctx))
}
