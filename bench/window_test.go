package bench

import (
	"testing"
	"time"
)

// TestRatesCountWhatEndedInTheWindow: working off a backlog after the window is not speed, though its latencies count.
func TestRatesCountWhatEndedInTheWindow(t *testing.T) {
	r := newRecorder(1, true, 0, &Live{}, nil)
	r.until = time.Second
	for i, end := range []time.Duration{500 * time.Millisecond, time.Second, 5 * time.Second, 30 * time.Second} {
		d := &done{told: Told{Request: Request{Op: int64(i)}, Answer: Yes(), Attempts: 1, End: end}}
		r.record(0, d)
	}
	f := r.merged().figures(time.Second, true)
	if f.Operations != 4 || f.Latency["confirmed"].Count != 4 {
		t.Errorf("%d operations, %d latencies, want 4", f.Operations, f.Latency["confirmed"].Count)
	}
	if *f.Goodput != 2 || *f.Throughput != 2 {
		t.Errorf("goodput %g, throughput %g, want 2", *f.Goodput, *f.Throughput)
	}
}
