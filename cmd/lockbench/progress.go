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
	lineEvery   = 4 * time.Second
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

// where names the trial under way: its number, as "[ 3/42]", and what it is, as "optimistic trial 1".
func (c *course) where() (number, what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == 0 {
		return "", "connecting"
	}
	width := len(fmt.Sprint(c.of))
	return fmt.Sprintf("[%*d/%d]", width, c.order, c.of), fmt.Sprintf("%s trial %d", c.cell, c.trial)
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
		parts = append(parts, "preparing")
	} else {
		finished, attempts, lost := c.live.Finished.Load(), c.live.Attempts.Load(), c.live.Contention.Load()
		if took := at.Sub(c.racing).Seconds(); took > 0.05 {
			parts = append(parts, thousands(int64(float64(finished-c.before)/took))+" ops/s")
		}
		parts = append(parts, fmt.Sprintf("%.0f %% conflicts", 100*float64(lost)/float64(max(1, attempts))))
	}
	if left := c.left(at); left != "" {
		parts = append(parts, left)
	}
	return strings.Join(parts, ", ")
}

// left guesses from the trials that have ended how long the others take, as "12s left"; "" if that cannot be told or is hardly anything.
func (c *course) left(at time.Time) string {
	if c.ended == 0 {
		return ""
	}
	each := c.spent / time.Duration(c.ended)
	d := each*time.Duration(c.of-c.ended) - at.Sub(c.started)
	if d < time.Second {
		return ""
	}
	return d.Round(time.Second).String() + " left"
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

// lines shows progress where no terminal is: a line every few seconds, of the trial that has just ended or of one that takes long. The
// first and the last trial have theirs in any case.
type lines struct {
	course
	every time.Duration
	out   sync.Mutex
	w     io.Writer
	last  time.Time // when a line was printed; guarded by out
	stop  chan struct{}
	done  chan struct{}
}

func newLines(w io.Writer, users int, every time.Duration) *lines {
	l := &lines{w: w, every: every, last: time.Now(), stop: make(chan struct{}), done: make(chan struct{})}
	l.users = users
	go l.tick()
	return l
}

func (l *lines) tick() {
	defer close(l.done)
	t := time.NewTicker(min(l.every, redrawEvery))
	defer t.Stop()
	for {
		select {
		case <-l.stop:
			return
		case at := <-t.C:
			l.look(at)
			if s := l.now(at); s != "" && l.due(at, l.every) {
				l.tell(s)
			}
		}
	}
}

// due reports whether it is time for another line, and notes that one is printed then.
func (l *lines) due(at time.Time, every time.Duration) bool {
	l.out.Lock()
	defer l.out.Unlock()
	if at.Sub(l.last) < every {
		return false
	}
	l.last = at
	return true
}

func (l *lines) tell(what string) {
	number, trial := l.where()
	l.Say("%s %s: %s", number, trial, what)
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
	now := time.Now()
	l.end(now)
	every := l.every
	if l.ended == 1 || l.ended == l.of {
		every = 0
	}
	if !l.due(now, every) {
		return
	}
	text := l.result(t)
	if left := l.left(now); left != "" {
		text += "; " + left
	}
	l.tell(text)
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
	number, trial := b.where()
	_, err := io.WriteString(w, draw(s.AvailableWidth, number, trial+"  "+b.figures(time.Now()), s.Current, s.Total))
	return err
}

// draw lays a line out in so many columns: the trial's number, a bar, and what there is to say. The bar's place and length depend on
// the width alone: words come and go ten times a second, and what moves with them flickers.
func draw(width int, number, words string, done, of int64) string {
	long := 8
	if width >= 110 {
		long = 24
	}
	if width < 60 || of == 0 {
		return clip(number+" "+words, width)
	}
	full := int(int64(long) * done / of)
	return number + " " + strings.Repeat("█", full) + strings.Repeat("░", long-full) + " " + clip(words, width-len(number)-long-2)
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
