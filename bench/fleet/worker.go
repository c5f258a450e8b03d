package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockbench/lockbench/bench"
)

// Guest is where a worker meets the coordinator of its run. Every method but Receive and Age is for one goroutine.
type Guest interface {
	Line
	// Join takes a free place in the run, and listens from then on.
	Join(ctx context.Context, lockbench, name, host string) (number, of int, err error)
	// Plan reads what the coordinator has laid out.
	Plan(ctx context.Context) ([]byte, error)
	// Hand hands over what was measured.
	Hand(ctx context.Context, share []byte) error
	// Age returns how long ago the coordinator showed a sign of life, by the server's clock; false when its session has ended.
	Age(ctx context.Context) (time.Duration, bool, error)
	// Forget removes every trace of a run whose coordinator is gone.
	Forget(ctx context.Context) error
}

// Worker races its part of a run's users.
type Worker struct {
	Guest     Guest
	Store     bench.Store
	Compile   func(bench.Settings) (*bench.Race, error)
	Lockbench string // version
	Name      string
	Host      string        // the machine's name
	Wait      time.Duration // for the run to be announced
	// Joined is called when it has a place in the run; nil to hear nothing.
	Joined func(number, of int)

	number int
	crew   *bench.Crew
	stop   *bench.Stop
	begin  chan message  // the order to begin
	over   chan struct{} // closed when there will be none any more
	mu     sync.Mutex    // guards Guest's sending half: an interruption is told while something else is
}

// ErrNoRun is that the run was not announced while the worker waited for it.
var ErrNoRun = errors.New("the run was not announced")

// errOver keeps users in line from beginning.
var errOver = errors.New("the run is over")

// Work joins the run and does what its coordinator says, until the run is over. It returns early, with the reason, when ctx ends or the
// coordinator is gone; stop is pulled then.
func (w *Worker) Work(ctx context.Context, stop *bench.Stop) error {
	waiting, cancel := context.WithTimeout(ctx, w.Wait)
	defer cancel()
	number, of, err := w.Guest.Join(waiting, w.Lockbench, w.Name, w.Host)
	switch {
	case err != nil && waiting.Err() != nil && ctx.Err() == nil:
		return ErrNoRun
	case err != nil:
		return err
	}
	if w.Joined != nil {
		w.Joined(number, of)
	}
	w.number, w.stop = number, stop
	w.crew = bench.NewCrew(w.Store, stop, number-1, of)
	defer w.crew.Close()
	w.begin, w.over = make(chan message, 1), make(chan struct{})

	working, cancel := context.WithCancel(context.WithoutCancel(ctx))
	racing, halt := context.WithCancel(working) // waits outside the database end with the hard stop
	said, failed := make(chan message), make(chan error)
	jobs := make(chan message, 8) // there is one at a time, and a last one for users who will never begin
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-stop.OnHard():
		case <-working.Done():
		}
		halt()
	})
	wg.Go(func() { listen(working, w.Guest, said, failed) })
	wg.Go(func() { watch(working, w.look, failed) })
	var job sync.WaitGroup
	job.Go(func() {
		for m := range jobs {
			w.do(working, racing, m)
		}
	})
	err = w.obey(ctx, said, failed, jobs)
	if err != nil {
		stop.Hard() // nobody will ask for what is under way
	}
	close(w.over)
	close(jobs)
	job.Wait()
	cancel()
	wg.Wait()
	if l := (*Lost)(nil); errors.As(err, &l) {
		forgetting, cancel := context.WithTimeout(context.WithoutCancel(ctx), silence)
		defer cancel()
		_ = w.Guest.Forget(forgetting) // the reason is what matters
	}
	return err
}

// obey passes orders on until the last.
func (w *Worker) obey(ctx context.Context, said <-chan message, failed <-chan error, jobs chan<- message) error {
	step := 0
	for {
		var m message
		select {
		case m = <-said:
		case err := <-failed:
			return err
		case <-ctx.Done():
			w.say(context.WithoutCancel(ctx), message{Step: step, From: w.number, Error: "it was stopped by a signal"})
			return ctx.Err()
		}
		step = max(step, m.Step)
		switch m.Do {
		case soft:
			w.stop.Soft()
		case hard:
			w.stop.Hard()
		case end:
			return nil
		case race:
			w.begin <- m
		default:
			if m.Only == 0 || m.Only == w.number {
				jobs <- m
			}
		}
	}
}

// do carries out one order and answers it. racing ends with the hard stop, after which there is still something to hand over.
func (w *Worker) do(ctx, racing context.Context, m message) {
	switch m.Do {
	case take:
		w.answer(ctx, m, w.take(racing))
	case start:
		w.start(ctx, racing, m)
	case recover:
		w.answer(ctx, m, w.crew.Recover(racing))
	case flush:
		w.answer(ctx, m, w.crew.Flush(racing))
	case share:
		w.answer(ctx, m, w.hand(ctx))
	case rest:
		w.crew.Close()
	}
}

func (w *Worker) hand(ctx context.Context) error {
	b, err := w.crew.Share().MarshalBinary()
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.Guest.Hand(ctx, b)
}

func (w *Worker) plan(ctx context.Context) (p plan, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b, err := w.Guest.Plan(ctx)
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	if err != nil {
		err = fmt.Errorf("reading the plan: %w", err)
	}
	return p, err
}

// take opens what the plan asks for.
func (w *Worker) take(ctx context.Context) error {
	p, err := w.plan(ctx)
	if err != nil {
		return err
	}
	r, err := w.Compile(p.Settings)
	if err != nil {
		return err
	}
	r.Run = p.Run
	return w.crew.Take(ctx, r)
}

// start makes ready, has the users stand in line, and lets them race when the order comes.
func (w *Worker) start(ctx, racing context.Context, m message) {
	if err := w.crew.Start(racing, *m.Heat, &bench.Live{}); err != nil {
		w.answer(ctx, m, err)
		return
	}
	var begun sync.WaitGroup
	err := w.crew.Run(func() error {
		w.answer(ctx, m, nil)
		select {
		case m = <-w.begin:
			at := time.Now()
			begun.Go(func() { // nobody waits until that is sent
				w.say(ctx, message{Step: m.Step, From: w.number, Began: true, Since: time.Since(at)})
			})
			return nil
		case <-w.over:
			return errOver
		}
	})
	begun.Wait()
	if !errors.Is(err, errOver) {
		w.answer(ctx, m, err)
	}
}

// answer says that an order was carried out, or why not.
func (w *Worker) answer(ctx context.Context, m message, err error) {
	a := message{Step: m.Step, From: w.number}
	select {
	case <-w.stop.OnHard():
		a.Cut = true
	default:
	}
	if err != nil {
		a.Error = err.Error()
		var h interface{ Hint() string }
		if errors.As(err, &h) {
			a.Hint = h.Hint()
		}
	}
	w.say(ctx, a)
}

// say sends an answer. That it cannot be sent the coordinator sees from this process having ended, which the watch sees to.
func (w *Worker) say(ctx context.Context, a message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = send(ctx, w.Guest, a)
}

// look finds out whether the coordinator is alive.
func (w *Worker) look(ctx context.Context) error {
	age, alive, err := w.Guest.Age(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("looking for the coordinator: %w", err)
	case !alive:
		return &Lost{"the coordinator", "its session has ended"}
	case age > silence:
		return &Lost{"the coordinator", fmt.Sprintf("nothing was heard of it for %v", age.Round(time.Second))}
	}
	return nil
}
