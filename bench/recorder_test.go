package bench

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// finished makes an operation of one attempt that began at start and took took.
func finished(o Outcome, start, took time.Duration) *done {
	d := &done{due: start}
	d.told = Told{Request: Request{User: 1, Key: 1}, Answer: Answer{Outcome: o}, Attempts: 1, Start: start, End: start + took}
	return d
}

// recorded records operations round robin over the shards and returns their sum.
func recorded(shards int, open bool, warm time.Duration, ops ...*done) *tally {
	r := newRecorder(shards, open, warm, &Live{}, nil)
	for i, d := range ops {
		r.record(i, d)
	}
	return r.merged()
}

// about fails unless got is there and within 0.1 % of want, which is what three significant digits promise.
func about(t *testing.T, what string, got *float64, want float64) {
	t.Helper()
	switch {
	case got == nil:
		t.Errorf("%s is absent, want %g", what, want)
	case math.Abs(*got-want) > want/1000:
		t.Errorf("%s is %g, want %g", what, *got, want)
	}
}

func TestLongWaitsAreNotClamped(t *testing.T) {
	ops := []*done{finished(Confirmed, 0, 2*time.Hour)}
	for range 2 {
		ops = append(ops, finished(Confirmed, 0, 70*time.Second))
	}
	p := recorded(2, false, 0, ops...).figures(time.Hour, false).Latency["confirmed"]
	if p.Count != 3 {
		t.Errorf("%d of 3 operations counted", p.Count)
	}
	about(t, "p50", p.P50, 70_000)
	about(t, "p99", p.P99, 2*3_600_000) // beyond the buckets: the true maximum
	about(t, "max", p.Max, 2*3_600_000)
	about(t, "mean", p.Mean, (2*3_600_000+2*70_000)/3.0)
}

// TestResolution takes latencies over seven decades: each must come back within three significant digits.
func TestResolution(t *testing.T) {
	for d := 10 * time.Microsecond; d < time.Hour; d = d * 17 / 10 {
		var h histogram
		h.record(d)
		h.record(2 * d) // so that the median does not profit from the exact maximum
		about(t, d.String(), ptr(float64(h.quantile(50))), float64(d.Round(time.Microsecond)))
	}
}

// TestQuantileIsNeverBeyondTheMaximum: a bucket's upper edge lies above what was recorded.
func TestQuantileIsNeverBeyondTheMaximum(t *testing.T) {
	var h histogram
	h.record(1_234_567 * time.Microsecond)
	if q := h.quantile(99.9); q != 1_234_567*time.Microsecond {
		t.Errorf("p99.9 of a single value is %v", q)
	}
}

func TestRejectionsLeaveConfirmedLatencyAlone(t *testing.T) {
	var ops []*done
	for range 10_000 {
		ops = append(ops, finished(Rejected, 0, time.Millisecond))
	}
	for range 100 {
		ops = append(ops, finished(Confirmed, 0, 500*time.Millisecond))
	}
	l := recorded(3, false, 0, ops...).figures(time.Second, false).Latency
	about(t, "p50 of confirmed", l["confirmed"].P50, 500)
	about(t, "p50 of rejected", l["rejected"].P50, 1)
	about(t, "p50 of all", l["all"].P50, 1)
	if n := l["all"].Count; n != 10_100 {
		t.Errorf("all counts %d", n)
	}
}

func TestEmptyPercentilesAreAbsent(t *testing.T) {
	f := recorded(2, true, 0).figures(0, true)
	if l := f.Latency["all"]; l != (Percentiles{}) {
		t.Errorf("percentiles of nothing: %+v", l)
	}
	if len(f.Latency) != 1 || len(f.Waits) != 0 {
		t.Errorf("figures of nothing: latency %v, waits %v", f.Latency, f.Waits)
	}
	for name, v := range map[string]*float64{
		"conflict rate": f.ConflictRate, "amplification": f.Amplification, "throughput": f.Throughput, "goodput": f.Goodput,
	} {
		if v != nil {
			t.Errorf("%s of nothing is %g", name, *v)
		}
	}
}

// TestWarmupIsAuditedButNotMeasured: who was told yes during warm-up holds a row all the same.
func TestWarmupIsAuditedButNotMeasured(t *testing.T) {
	live := &Live{}
	r := newRecorder(1, false, time.Second, live, nil)
	r.record(0, finished(Confirmed, 999*time.Millisecond, time.Hour)) // due before the window, ends in it
	r.record(0, finished(Confirmed, time.Second, time.Millisecond))
	all := r.merged()
	f := all.figures(time.Second, false)
	if len(all.told.Confirmed) != 2 {
		t.Errorf("%d confirmations kept for the audit, want 2", len(all.told.Confirmed))
	}
	if f.Operations != 1 || f.Attempts != 1 || f.Latency["confirmed"].Count != 1 || all.last != 1001*time.Millisecond {
		t.Errorf("measured %d operations, %d attempts, %+v until %v", f.Operations, f.Attempts, f.Latency["confirmed"], all.last)
	}
	if !slices.Equal(all.seconds, []Second{{Finished: 1, Confirmed: 1}}) {
		t.Errorf("timeline %v", all.seconds)
	}
	if n := live.Finished.Load(); n != 1 {
		t.Errorf("progress shows %d", n)
	}
}

// TestOpenModeIsCorrected: who starts late has waited since he was due.
func TestOpenModeIsCorrected(t *testing.T) {
	d := finished(Confirmed, 250*time.Millisecond, 10*time.Millisecond)
	d.due = 50 * time.Millisecond
	f := recorded(1, true, 0, d).figures(time.Second, true)
	about(t, "corrected", f.Latency["confirmed"].P50, 210)
	about(t, "uncorrected", f.Uncorrected["confirmed"].P50, 10)

	f = recorded(1, false, 0, d).figures(time.Second, false)
	about(t, "closed mode", f.Latency["confirmed"].P50, 10)
	if f.Uncorrected != nil {
		t.Errorf("closed mode reports an uncorrected latency: %v", f.Uncorrected)
	}
}

// busyDay is a mixture of everything a recorder counts.
func busyDay() []*done {
	var ops []*done
	for i := range 500 {
		d := finished(Outcomes()[i%6], time.Duration(i)*10*time.Millisecond, time.Duration(1+i*i%977)*time.Millisecond)
		d.told.User, d.told.Request.Key, d.told.Attempts = int64(i), int64(i%7), int32(1+i%4)
		d.contention[Contentions()[i%8]] = int32(i % 4)
		d.contended = i%3 == 0
		d.waits[waitKind(i%4)], d.waited[waitKind(i%4)] = time.Duration(i)*time.Microsecond, true
		switch d.told.Outcome {
		case Rejected:
			d.told.Reason = SoldOut
		case Failed:
			d.err = fmt.Errorf("fault %d", i%5)
		default:
		}
		ops = append(ops, d)
	}
	return ops
}

func TestShardsAddUpToOne(t *testing.T) {
	one, many := recorded(1, true, time.Second, busyDay()...), recorded(3, true, time.Second, busyDay()...)
	if a, b := one.figures(time.Second, true), many.figures(time.Second, true); !reflect.DeepEqual(a, b) {
		t.Errorf("one shard:\n%+v\nthree shards:\n%+v", a, b)
	}
	if !maps.Equal(one.histograms(), many.histograms()) {
		t.Error("the histograms differ")
	}
	if !slices.Equal(one.seconds, many.seconds) || one.last != many.last {
		t.Errorf("one shard: %v until %v\nthree shards: %v until %v", one.seconds, one.last, many.seconds, many.last)
	}
	if !reflect.DeepEqual(one.told, many.told) {
		t.Error("what users were told differs")
	}
	if len(one.told.Confirmed) == 0 || !slices.IsSortedFunc(one.told.Confirmed, func(a, b Told) int { return int(a.End - b.End) }) {
		t.Error("confirmations are not in the order of their end")
	}
}

func TestHistogramsDecode(t *testing.T) {
	all := recorded(1, false, 0, finished(Confirmed, 0, 5*time.Millisecond), finished(Confirmed, 0, 3*time.Hour), finished(Busy, 0, time.Second))
	texts := all.histograms()
	if len(texts) != 2 {
		t.Errorf("histograms of %v, want confirmed and busy", slices.Sorted(maps.Keys(texts)))
	}
	h, err := hdrhistogram.Decode([]byte(texts["confirmed"]))
	if err != nil {
		t.Fatal(err)
	}
	if h.TotalCount() != 2 || h.ValueAtQuantile(50)/10 != 500 {
		t.Errorf("%d values, median %d µs", h.TotalCount(), h.ValueAtQuantile(50))
	}
}

// TestWaitsAreKeptApart: and a wait that did not apply is absent, while one of 0 counts.
func TestWaitsAreKeptApart(t *testing.T) {
	d := finished(Confirmed, 0, time.Second)
	d.waits[waitPool], d.waited[waitPool] = 100*time.Millisecond, true
	d.waits[waitBackoff], d.waited[waitBackoff] = 300*time.Millisecond, true
	e := finished(Confirmed, 0, time.Second)
	e.waited[waitPool] = true
	w := recorded(1, false, 0, d, e).figures(time.Second, false).Waits
	about(t, "pool", w["pool"].Total, 0.1)
	about(t, "median pool", w["pool"].P50, 0)
	about(t, "backoff", w["backoff"].Total, 0.3)
	about(t, "median backoff", w["backoff"].P50, 300)
	if len(w) != 2 {
		t.Errorf("waits %v, want pool and backoff", w)
	}
}

func TestErrorTextsAreBounded(t *testing.T) {
	var ops []*done
	for i := range 1000 {
		d := finished(Failed, 0, time.Millisecond)
		d.err = fmt.Errorf("no. %d", i)
		ops = append(ops, d)
	}
	got := recorded(4, false, 0, ops...).figures(time.Second, false).Errors
	var n int64
	for _, k := range got {
		n += k
	}
	if len(got) > maxErrors+1 || n != 1000 {
		t.Errorf("%d texts of %d failures", len(got), n)
	}
}

func TestFigures(t *testing.T) {
	var ops []*done
	add := func(n int, o Outcome, attempts, lost int32) {
		for range n {
			d := finished(o, 0, time.Millisecond)
			d.told.Attempts, d.contention[Version], d.retries = attempts, lost, max(0, attempts-1)
			d.told.Reason = SoldOut
			ops = append(ops, d)
		}
	}
	add(10, Confirmed, 3, 2)
	add(5, Rejected, 1, 0)
	add(3, Busy, 4, 4)
	add(2, Busy, 0, 0) // the deadline passed in line for a connection
	add(1, Failed, 1, 0)
	ops[len(ops)-1].err = errors.New("broken")
	ops[0].contended = true
	f := recorded(1, false, 0, ops...).figures(2*time.Second, false)

	for name, n := range map[string][2]int64{
		"operations": {f.Operations, 21}, "attempts": {f.Attempts, 48}, "retries": {f.Retries, 29}, "contended": {f.Contended, 1},
		"confirmed": {f.Outcomes["confirmed"], 10}, "rejected": {f.Outcomes["rejected"], 5}, "busy": {f.Outcomes["busy"], 5},
		"failed": {f.Outcomes["failed"], 1}, "version": {f.Contention["version"], 32}, "sold out": {f.Reasons["sold out"], 5},
		"broken": {f.Errors["broken"], 1},
	} {
		if n[0] != n[1] {
			t.Errorf("%s: %d, want %d", name, n[0], n[1])
		}
	}
	about(t, "conflict rate", f.ConflictRate, 32.0/48)
	about(t, "amplification", f.Amplification, 4.8)
	about(t, "throughput", f.Throughput, 10.5)
	about(t, "goodput", f.Goodput, 5)
	if len(f.Outcomes) != len(Outcomes()) || len(f.Contention) != len(Contentions()) {
		t.Errorf("outcomes %v, contention %v: some are missing", f.Outcomes, f.Contention)
	}
}

func TestFiguresWithoutConfirmationHaveNoAmplification(t *testing.T) {
	f := recorded(1, false, 0, finished(Busy, 0, time.Second)).figures(time.Second, false)
	if f.Amplification != nil {
		t.Errorf("amplification %g", *f.Amplification)
	}
	about(t, "conflict rate", f.ConflictRate, 0)
	about(t, "goodput", f.Goodput, 0)
}

// TestRecordingCostsNoAllocation: a measured operation costs no garbage, or the collector would be part of what is measured. What the
// ledger's growth costs is less than one allocation in a hundred operations.
func TestRecordingCostsNoAllocation(t *testing.T) {
	for _, o := range []Outcome{Confirmed, Rejected, Busy} {
		r := newRecorder(1, true, 0, &Live{}, nil)
		d := finished(o, 0, time.Millisecond)
		for k := range d.waited {
			d.waited[k] = true
		}
		r.record(0, d)
		hundred := testing.AllocsPerRun(100, func() {
			for range 100 {
				r.record(0, d)
			}
		})
		if hundred > 0 {
			t.Errorf("%v: %g allocations in a hundred operations", o, hundred)
		}
	}
}
