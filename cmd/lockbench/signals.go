package main

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/lockbench/lockbench/bench"
)

// interruption turns signals into an end of the run in two steps.
type interruption struct {
	stop   *bench.Stop
	under  atomic.Bool     // racing: there is something to finish
	ctx    context.Context // of everything before and beside the race: the first signal ends it
	cancel context.CancelFunc
	say    atomic.Pointer[func(format string, args ...any)]
	first  atomic.Int32 // the number of the first signal, 0 for none
	ch     chan os.Signal
	done   chan struct{}
}

// endings are the signals that end a run in order. One that the caller has told the program to ignore, as nohup does with SIGHUP, stays
// ignored.
func endings() []os.Signal {
	return slices.DeleteFunc([]os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}, signal.Ignored)
}

// interruptible starts listening for the signals that end a run. Until racing begins there is nothing to finish, and one signal ends it all.
func interruptible(ctx context.Context, say func(format string, args ...any)) *interruption {
	i := &interruption{stop: bench.NewStop(), ch: make(chan os.Signal, 4), done: make(chan struct{})}
	i.ctx, i.cancel = context.WithCancel(ctx)
	i.say.Store(&say)
	if all := endings(); len(all) > 0 { // none would mean every signal there is
		signal.Notify(i.ch, all...)
	}
	go i.listen()
	return i
}

func (i *interruption) listen() {
	defer close(i.done)
	for s := range i.ch {
		say := *i.say.Load()
		if number, ok := s.(syscall.Signal); ok && i.first.CompareAndSwap(0, int32(number)) {
			if i.under.Load() {
				say("stopping: finishing operations under way; press Ctrl-C again to stop at once")
			} else {
				say("stopping")
			}
			i.stop.Soft()
			i.cancel()
			continue
		}
		say("stopping at once")
		i.stop.Hard()
		signal.Reset(endings()...) // a third ends the program as it is; its server goes with it
	}
}

// racing says that the race begins, and where to say things while it lasts.
func (i *interruption) racing(say func(format string, args ...any)) {
	i.say.Store(&say)
	i.under.Store(true)
}

// over says that the race has ended: what remains is to write the report, which is not cut short.
func (i *interruption) over(say func(format string, args ...any)) {
	i.say.Store(&say)
	i.under.Store(false)
}

// code is the exit code the signal asks for; 0 without one.
func (i *interruption) code() int {
	switch syscall.Signal(i.first.Load()) {
	case 0:
		return 0
	case syscall.SIGHUP:
		return exitHungUp
	case syscall.SIGTERM:
		return exitTerminated
	}
	return exitInterrupted
}

// end stops listening: a signal after it has its usual effect.
func (i *interruption) end() {
	signal.Stop(i.ch)
	close(i.ch)
	<-i.done
	i.cancel()
}
