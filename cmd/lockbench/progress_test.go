package main

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vbauerster/mpb/v8"

	"github.com/lockbench/lockbench/bench"
)

// screen is a buffer that a display may write to from its own goroutine.
type screen struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

func finished(n int64) *bench.Trial {
	return &bench.Trial{Figures: bench.Figures{Operations: n, Outcomes: map[string]int64{"confirmed": n / 10}, DurationS: 0.314}}
}

func TestLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &screen{}
		l := newLines(out, 500, 4*time.Second)
		live := &bench.Live{}
		l.TrialStarts("optimistic", 1, 3, 42, live)
		time.Sleep(6 * time.Second) // of the bubble's clock
		synctest.Wait()
		live.Attempts.Store(1)
		time.Sleep(time.Second)
		live.Attempts.Store(4000)
		live.Finished.Store(3000)
		live.Contention.Store(1000)
		time.Sleep(4 * time.Second)
		synctest.Wait()
		l.TrialEnds("optimistic", finished(12345))
		l.TrialStarts("atomic", 1, 4, 42, &bench.Live{})
		l.Say("a note")
		l.TrialEnds("atomic", finished(100)) // too soon after the last line
		l.ended = 32                         // of 42: those between were seen by nobody
		for n := range 10 {
			l.TrialStarts("cas", n+1, n+33, 42, &bench.Live{})
			time.Sleep(900 * time.Millisecond)
			l.TrialEnds("cas", finished(10))
		}
		synctest.Wait()
		l.Close()
		want := `[ 3/42] optimistic trial 1: preparing
[ 3/42] optimistic trial 1: 1,578 ops/s, 25 % conflicts
[ 3/42] optimistic trial 1: 12,345 operations, 1,234 confirmed, 0.31 s; 7m20s left
a note
[37/42] cas trial 5: preparing, 2s left
[41/42] cas trial 9: preparing
[42/42] cas trial 10: 10 operations, 1 confirmed, 0.31 s
`
		if got := out.String(); got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
	})
}

func TestLinesGuessWhatIsLeft(t *testing.T) {
	var c course
	t0 := time.Unix(1000, 0)
	c.start(t0, "atomic", 1, 1, 3, &bench.Live{})
	c.end(t0.Add(10 * time.Second))
	c.start(t0.Add(10*time.Second), "none", 1, 2, 3, &bench.Live{})
	if got := c.now(t0.Add(14 * time.Second)); got != "preparing, 16s left" {
		t.Errorf("got %q", got)
	}
}

// A bar is drawn with figures, notes stand above it, and nothing of it is left at the end. ForceTTY stands in for a terminal.
func TestBar(t *testing.T) {
	out := &screen{}
	refresh := make(chan any)
	b := newBar(out, 500, mpb.ForceTTY(), mpb.WithWidth(100), mpb.WithManualRefresh(refresh))
	live := &bench.Live{}
	b.TrialStarts("optimistic", 2, 3, 42, live)
	live.Attempts.Store(200)
	live.Finished.Store(100)
	live.Contention.Store(50)
	refresh <- time.Now()
	refresh <- time.Now() // taken only after the one before was drawn
	b.Say("stopping")
	refresh <- time.Now()
	b.TrialEnds("optimistic", finished(500))
	close(refresh)
	b.Close()
	got := out.String()
	for _, want := range []string{"[ 3/42] ░░░░░░░░ optimistic trial 2", "25 % conflicts", "stopping\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing from\n%q", want, got)
		}
	}
	last := got[strings.LastIndex(got, "\x1b["):]
	if strings.Contains(last, "optimistic") {
		t.Errorf("the bar is left standing: %q", last)
	}
}

func TestDraw(t *testing.T) {
	for _, tc := range []struct {
		width int
		words string
		want  string
	}{
		{120, "none trial 1  10 ops/s", "[1/2] ████████████░░░░░░░░░░░░ none trial 1  10 ops/s"},
		{80, "none trial 1  10 ops/s", "[1/2] ████░░░░ none trial 1  10 ops/s"},
		{80, "none trial 1  " + strings.Repeat("x", 80), "[1/2] ████░░░░ none trial 1  " + strings.Repeat("x", 48) + "..."},
		{80, "", "[1/2] ████░░░░ "},
		{50, "none trial 1  10 ops/s", "[1/2] none trial 1  10 ops/s"},
		{25, "none trial 1  10 ops/s", "[1/2] none trial 1  10..."},
		{10, "none trial 1  10 ops/s", "[1/2] n..."},
	} {
		if got := draw(tc.width, "[1/2]", tc.words, 1, 2); got != tc.want {
			t.Errorf("%d columns: got %q", tc.width, got)
		}
	}
}

func TestQuietIsSilent(t *testing.T) {
	out := &screen{}
	p := newProgress(out, true, 1)
	p.TrialStarts("none", 1, 1, 1, &bench.Live{})
	p.Say("a note")
	p.TrialEnds("none", finished(1))
	p.Close()
	if out.String() != "" {
		t.Errorf("got %q", out.String())
	}
}

func TestThousands(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := thousands(n); got != want {
			t.Errorf("%d: got %s", n, got)
		}
	}
}

func TestClip(t *testing.T) {
	for _, tc := range []struct {
		width int
		want  string
	}{{0, ""}, {2, ".."}, {6, "abc..."}, {7, "abcdefg"}, {9, "abcdefg"}} {
		if got := clip("abcdefg", tc.width); got != tc.want {
			t.Errorf("%d: got %q", tc.width, got)
		}
	}
}
