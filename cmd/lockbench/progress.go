package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/lockbench/lockbench/bench"
)

// How often progress is shown: a bar is redrawn, a log that nobody watches is not flooded.
const (
	redrawEvery = 100 * time.Millisecond
	lineEvery   = 5 * time.Second
)

// progress shows on stderr what a run is doing. Close takes it away.
type progress interface {
	bench.Watcher
	// Say prints a line without disturbing what is shown.
	Say(format string, args ...any)
	Close()
}

// newProgress returns the progress display that suits the stream.
func newProgress(w io.Writer, quiet bool, users int) progress {
	if quiet {
		return silent{}
	}
	if _, tty := terminal(w); tty {
		return newBar(w, users)
	}
	return newLines(w, users, lineEvery)
}

// silent shows nothing.
type silent struct{}

func (silent) TrialStarts(string, int, int, int, *bench.Live) {}
func (silent) TrialEnds(string, *bench.Trial)                 {}
func (silent) Say(string, ...any)                             {}
func (silent) Close()                                         {}

// course is what is known of a run under way.
type course struct {
	mu        sync.Mutex
	users     int
	cell      string
	trial     int
	order, of int
	live      *bench.Live
	began     time.Time // of the run
	started   time.Time // of the trial
	racing    time.Time // when the trial's first attempt was seen: laying the tables is not part of the rate
	before    int64     // operations finished then
	ended     int       // trials
	spent     time.Duration
}

func (c *course) start(now time.Time, cell string, trial, order, of int, live *bench.Live) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.began.IsZero() {
		c.began = now
	}
	c.cell, c.trial, c.order, c.of, c.live, c.started = cell, trial, order, of, live, now
	c.racing = time.Time{}
}

func (c *course) end(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended++
	c.spent = now.Sub(c.began)
	c.live = nil
}

// where names the trial under way, as "[ 3/42] optimistic trial 1".
func (c *course) where() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == 0 {
		return "connecting"
	}
	width := len(fmt.Sprint(c.of))
	return fmt.Sprintf("[%*d/%d] %s trial %d", width, c.order, c.of, c.cell, c.trial)
}

// look notes when the trial under way has begun to race. It is to be called often.
func (c *course) look(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live != nil && c.racing.IsZero() && c.live.Attempts.Load() > 0 {
		c.racing, c.before = at, c.live.Finished.Load()
	}
}

// now says how the trial under way is going; "" between trials.
func (c *course) now(at time.Time) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live == nil {
		return ""
	}
	var parts []string
	if c.racing.IsZero() {
		parts = append(parts, "laying the tables")
	} else {
		finished, attempts, lost := c.live.Finished.Load(), c.live.Attempts.Load(), c.live.Contention.Load()
		parts = append(parts, thousands(finished)+" finished")
		if took := at.Sub(c.racing).Seconds(); took > 0.05 {
			parts = append(parts, thousands(int64(float64(finished-c.before)/took))+" ops/s")
		}
		parts = append(parts, fmt.Sprintf("%.0f %% conflicts", 100*float64(lost)/float64(max(1, attempts))))
	}
	if c.ended > 0 {
		if d := c.remaining(at); d >= time.Second {
			parts = append(parts, d.Round(time.Second).String()+" left")
		}
	}
	return strings.Join(parts, ", ")
}

// remaining guesses what is left from the trials that have ended.
func (c *course) remaining(at time.Time) time.Duration {
	each := c.spent / time.Duration(c.ended)
	return max(0, each*time.Duration(c.of-c.ended)-at.Sub(c.started))
}

// result is the line of a finished trial.
func (c *course) result(t *bench.Trial) string {
	s := fmt.Sprintf("%s operations, %s confirmed", thousands(t.Operations), thousands(t.Outcomes[bench.Confirmed.String()]))
	if n := t.Outcomes[bench.Failed.String()]; n > 0 {
		s += fmt.Sprintf(", %s failed", thousands(n))
	}
	return s + fmt.Sprintf(", %.2f s", t.DurationS)
}

// thousands writes a count with separators.
func thousands(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// lines shows progress where no terminal is: a line for each trial, and now and then one for a trial that takes long.
type lines struct {
	course
	out  sync.Mutex
	w    io.Writer
	stop chan struct{}
	done chan struct{}
}

func newLines(w io.Writer, users int, every time.Duration) *lines {
	l := &lines{w: w, stop: make(chan struct{}), done: make(chan struct{})}
	l.users = users
	go l.tick(every)
	return l
}

func (l *lines) tick(every time.Duration) {
	defer close(l.done)
	t := time.NewTicker(min(every, redrawEvery))
	defer t.Stop()
	last := time.Now()
	for {
		select {
		case <-l.stop:
			return
		case at := <-t.C:
			l.look(at)
			if at.Sub(last) >= every {
				last = at
				l.beat(at)
			}
		}
	}
}

// beat prints how the trial under way is going; nothing between trials.
func (l *lines) beat(at time.Time) {
	if s := l.now(at); s != "" {
		l.Say("%s: %s", l.where(), s)
	}
}

func (l *lines) Say(format string, args ...any) {
	l.out.Lock()
	defer l.out.Unlock()
	fmt.Fprintf(l.w, format+"\n", args...)
}

func (l *lines) TrialStarts(cell string, trial, order, of int, live *bench.Live) {
	l.start(time.Now(), cell, trial, order, of, live)
}

func (l *lines) TrialEnds(_ string, t *bench.Trial) {
	l.Say("%s: %s", l.where(), l.result(t))
	l.end(time.Now())
}

func (l *lines) Close() {
	close(l.stop)
	<-l.done
}

// bar shows progress on a terminal; it is gone at the end.
type bar struct {
	course
	w   io.Writer
	p   *mpb.Progress
	bar *mpb.Bar
}

func newBar(w io.Writer, users int, more ...mpb.ContainerOption) *bar {
	b := &bar{w: w}
	b.users = users
	b.p = mpb.New(append([]mpb.ContainerOption{mpb.WithOutput(w), mpb.WithRefreshRate(redrawEvery)}, more...)...)
	return b
}

func (b *bar) TrialStarts(cell string, trial, order, of int, live *bench.Live) {
	b.start(time.Now(), cell, trial, order, of, live)
	if b.bar != nil {
		return
	}
	var err error
	b.bar, err = b.p.Add(int64(of), mpb.BarFillerFunc(b.fill), mpb.BarFillerTrim(), mpb.BarRemoveOnComplete())
	if err != nil {
		b.bar = nil // the display has ended: there is nowhere to draw
	}
}

func (b *bar) fill(w io.Writer, s decor.Statistics) error {
	_, err := io.WriteString(w, draw(s.AvailableWidth, b.where(), b.figures(time.Now()), s.Current, s.Total))
	return err
}

// barWidth is that of the bar alone, without the words beside it.
const barWidth = 24

// draw lays a line out in so many columns: the trial, a bar where there is room for it, and the figures.
func draw(width int, where, figures string, done, of int64) string {
	if len(where)+len(figures)+barWidth+4 > width || of == 0 {
		return clip(where+"  "+figures, width)
	}
	full := int(barWidth * done / of)
	return where + "  " + strings.Repeat("█", full) + strings.Repeat("░", barWidth-full) + "  " + figures
}

func (b *bar) figures(at time.Time) string {
	b.look(at)
	return b.now(at)
}

func (b *bar) TrialEnds(string, *bench.Trial) {
	b.end(time.Now())
	if b.bar != nil {
		b.bar.Increment()
	}
}

// Say prints above the bar. The terminal has echoed ^C where the bar was to be redrawn, so the cursor goes back to its column first.
func (b *bar) Say(format string, args ...any) {
	_, _ = io.WriteString(b.w, "\r")
	_, _ = fmt.Fprintf(b.p, format+"\n", args...)
}

func (b *bar) Close() {
	if b.bar != nil {
		b.bar.Abort(true)
	}
	b.p.Wait()
}

// clip shortens s to width columns; names of strategies and figures are ASCII.
func clip(s string, width int) string {
	switch {
	case width <= 0:
		return ""
	case len(s) <= width:
		return s
	case width < 4:
		return strings.Repeat(".", width)
	}
	return s[:width-3] + "..."
}
