package bench

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// histogram records durations in µs from 1 µs to 1 h with three significant digits. What is longer is not clamped: the true maximum is
// kept beside the buckets.
type histogram struct {
	h    *hdrhistogram.Histogram
	max  time.Duration
	sum  time.Duration
	over int64 // longer than the buckets reach
}

const histogramTop = int64(time.Hour / time.Microsecond)

func (h *histogram) record(d time.Duration) {
	if h.h == nil { // a histogram weighs 190 kB: one that nothing is recorded in is never made
		h.h = hdrhistogram.New(1, histogramTop, 3)
	}
	h.sum += d
	h.max = max(h.max, d)
	if err := h.h.RecordValue((d + 500*time.Nanosecond).Microseconds()); err != nil {
		h.over++
		_ = h.h.RecordValue(histogramTop)
	}
}

func (h *histogram) merge(o *histogram) {
	if o.h == nil {
		return
	}
	if h.h == nil {
		h.h = hdrhistogram.New(1, histogramTop, 3)
	}
	h.h.Merge(o.h)
	h.max = max(h.max, o.max)
	h.sum += o.sum
	h.over += o.over
}

func (h *histogram) count() int64 {
	if h.h == nil {
		return 0
	}
	return h.h.TotalCount()
}

// quantile returns the q-th percentile (0 to 100); a percentile among the values beyond the buckets is the maximum.
func (h *histogram) quantile(q float64) time.Duration {
	v := time.Duration(h.h.ValueAtQuantile(q)) * time.Microsecond
	if h.over > 0 && v >= time.Hour {
		return h.max
	}
	return min(v, h.max)
}

func (h *histogram) percentiles() Percentiles {
	n := h.count()
	p := Percentiles{Count: n}
	if n == 0 {
		return p
	}
	at := func(q float64) *float64 { return ptr(ms(h.quantile(q))) }
	p.Mean = ptr(float64(h.sum.Microseconds()) / 1000 / float64(n))
	p.P50, p.P90, p.P95, p.P99, p.P999 = at(50), at(90), at(95), at(99), at(99.9)
	p.Max = ptr(ms(h.max))
	return p
}

// encode returns the histogram in HdrHistogram's V2 compressed base64 form; "" if nothing was recorded.
func (h *histogram) encode() string {
	if h.count() == 0 {
		return ""
	}
	b, err := h.h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		return ""
	}
	return string(b)
}

func ptr[T any](v T) *T { return &v }

// waitKind is what a user may wait for.
type waitKind int

const (
	waitPool waitKind = iota
	waitLock
	waitBackoff
	waitLag
	waitKinds
)

func (k waitKind) String() string { return [...]string{"pool", "lock", "backoff", "lag"}[k] }

// tally is everything one shard of a trial counts.
type tally struct {
	mu          sync.Mutex
	latency     [outcomes]histogram // from the due time in open mode, else from the start
	uncorrected [outcomes]histogram // from the start; open mode only
	waits       [waitKinds]histogram
	count       [outcomes]int64
	contention  [contentions]int64
	attempts    int64
	retries     int64
	contended   int64
	stalled     int64
	reasons     map[Reason]int64
	errors      map[string]int64
	seconds     []Second
	told        *Ledger
	last        time.Duration // the latest end of a measured operation
	// Of the operations that were measured, those that ended inside the window: rates are of these, or working off a backlog after the
	// window would count as speed.
	finishedIn, confirmedIn int64
	classes                 []classTally // one a class of users, where a scenario has several
	abandoned               int64        // operations whose caller had gone
	held                    time.Duration
}

// classTally is what is kept of a class of users.
type classTally struct {
	count   [outcomes]int64
	latency [outcomes]histogram
}

// maxErrors bounds how many different texts of failures are kept.
const maxErrors = 8

// recorder keeps a trial's figures in shards, each behind its own mutex: an uncontended lock costs less than merging one histogram
// for each of a hundred thousand users.
type recorder struct {
	shards []*tally
	open   bool
	warm   time.Duration // operations due earlier are not measured, though they are audited
	until  time.Duration // end of the window; 0: it ends with the last operation
	live   *Live
	names  []string // of the classes
}

// Live holds the counters that a progress display reads while a trial runs.
type Live struct {
	Finished   atomic.Int64
	Confirmed  atomic.Int64
	Attempts   atomic.Int64
	Contention atomic.Int64
}

func newRecorder(shards int, open bool, warm time.Duration, live *Live, classes []string) *recorder {
	r := &recorder{open: open, warm: warm, live: live, names: classes}
	for range shards {
		t := newTally()
		t.classes = make([]classTally, len(classes))
		r.shards = append(r.shards, t)
	}
	return r
}

// done is one finished operation with what it spent.
type done struct {
	told       Told
	due        time.Duration // since the trial began
	contention [contentions]int32
	retries    int32 // attempts beyond the first of each transaction
	waits      [waitKinds]time.Duration
	waited     [waitKinds]bool
	contended  bool
	stalled    bool
	err        error
	cut        time.Duration // after which the caller had gone; 0: he waited
	held       time.Duration // what was spent on him afterwards
}

func (r *recorder) record(shard int, d *done) {
	t := r.shards[shard%len(r.shards)]
	measured := d.due >= r.warm
	var lost int64
	for _, n := range d.contention {
		lost += int64(n)
	}
	t.mu.Lock()
	t.told.add(d.told)
	if measured {
		t.measure(d, lost, r.open, r.warm)
		if r.until == 0 || d.told.End <= r.until {
			t.finishedIn++
			if d.told.Outcome == Confirmed {
				t.confirmedIn++
			}
		}
	}
	t.mu.Unlock()
	if !measured {
		return
	}
	r.live.Finished.Add(1)
	r.live.Attempts.Add(int64(d.told.Attempts))
	if lost > 0 {
		r.live.Contention.Add(lost)
	}
	if d.told.Outcome == Confirmed {
		r.live.Confirmed.Add(1)
	}
}

func (t *tally) measure(d *done, lost int64, open bool, warm time.Duration) {
	o := d.told.Outcome
	t.count[o]++
	t.attempts += int64(d.told.Attempts)
	t.retries += int64(d.retries)
	for k, n := range d.contention {
		t.contention[k] += int64(n)
	}
	if d.contended {
		t.contended++
	}
	if d.stalled {
		t.stalled++
	}
	service := d.told.End - d.told.Start
	if d.cut > 0 {
		service = d.cut
		t.abandoned++
		t.held += d.held
	}
	latency := service
	if open {
		latency += d.told.Start - d.due
		t.uncorrected[o].record(service)
	}
	t.latency[o].record(latency)
	if c := int(d.told.Class); c < len(t.classes) {
		t.classes[c].count[o]++
		t.classes[c].latency[o].record(latency)
	}
	for k := range d.waits {
		if d.waited[k] {
			t.waits[k].record(d.waits[k])
		}
	}
	if o == Rejected {
		t.reasons[d.told.Reason]++
	}
	if d.err != nil {
		t.fault(d.err.Error(), 1)
	}
	t.last = max(t.last, d.told.End)
	s := int((d.told.End - warm) / time.Second)
	for len(t.seconds) <= s {
		t.seconds = append(t.seconds, Second{})
	}
	t.seconds[s].Finished++
	t.seconds[s].Contention += lost
	if o == Confirmed {
		t.seconds[s].Confirmed++
	}
}

// fault counts failures under their text, or under a common one when there are too many texts.
func (t *tally) fault(text string, n int64) {
	if _, seen := t.errors[text]; !seen && len(t.errors) >= maxErrors {
		text = "other errors"
	}
	t.errors[text] += n
}

// merged adds up all shards; the recorder must be at rest.
func (r *recorder) merged() *tally {
	all := newTally()
	for _, s := range r.shards {
		all.add(s)
		all.told.merge(s.told)
	}
	all.told.sort()
	return all
}

// add adds another tally's figures, but not what users were told.
func (t *tally) add(s *tally) {
	for o := range s.count {
		t.count[o] += s.count[o]
		t.latency[o].merge(&s.latency[o])
		t.uncorrected[o].merge(&s.uncorrected[o])
	}
	for k := range s.contention {
		t.contention[k] += s.contention[k]
	}
	for k := range s.waits {
		t.waits[k].merge(&s.waits[k])
	}
	t.attempts += s.attempts
	t.retries += s.retries
	t.contended += s.contended
	t.stalled += s.stalled
	if len(t.classes) < len(s.classes) {
		t.classes = make([]classTally, len(s.classes))
	}
	for c := range s.classes {
		for o := range s.classes[c].count {
			t.classes[c].count[o] += s.classes[c].count[o]
			t.classes[c].latency[o].merge(&s.classes[c].latency[o])
		}
	}
	t.abandoned += s.abandoned
	t.held += s.held
	t.finishedIn += s.finishedIn
	t.confirmedIn += s.confirmedIn
	for k, n := range s.reasons {
		t.reasons[k] += n
	}
	for _, text := range slices.Sorted(maps.Keys(s.errors)) {
		t.fault(text, s.errors[text])
	}
	t.last = max(t.last, s.last)
	for i, sec := range s.seconds {
		if i == len(t.seconds) {
			t.seconds = append(t.seconds, Second{})
		}
		t.seconds[i].Finished += sec.Finished
		t.seconds[i].Confirmed += sec.Confirmed
		t.seconds[i].Contention += sec.Contention
	}
}

// figures computes what the report says of a tally. window is the measured time.
func (t *tally) figures(window time.Duration, open bool) Figures {
	f := Figures{
		Attempts: t.attempts, Retries: t.retries, Contended: t.contended, Stalled: t.stalled, DurationS: window.Seconds(),
		Outcomes: map[string]int64{}, Contention: map[string]int64{}, Audit: map[string]int64{},
	}
	for _, o := range Outcomes() {
		f.Outcomes[o.String()] = t.count[o]
		f.Operations += t.count[o]
	}
	var lost int64
	for _, k := range Contentions() {
		f.Contention[k.String()] = t.contention[k]
		lost += t.contention[k]
	}
	for k, n := range t.reasons {
		if f.Reasons == nil {
			f.Reasons = map[string]int64{}
		}
		f.Reasons[string(k)] = n
	}
	if len(t.errors) > 0 {
		f.Errors = t.errors
	}
	confirmed := t.count[Confirmed]
	if t.attempts > 0 {
		f.ConflictRate = ptr(float64(lost) / float64(t.attempts))
	}
	if confirmed > 0 {
		f.Amplification = ptr(float64(t.attempts) / float64(confirmed))
	}
	if window > 0 {
		f.Throughput = ptr(float64(t.finishedIn) / window.Seconds())
		f.Goodput = ptr(float64(t.confirmedIn) / window.Seconds())
	}
	f.Latency, f.Waits = t.distributions()
	if open {
		f.Uncorrected = byOutcome(&t.uncorrected)
	}
	return f
}

// byClass returns what is known of each class of users; nil where there is only one.
func (t *tally) byClass(names []string) map[string]ClassFigures {
	var m map[string]ClassFigures
	for c := range t.classes {
		f := ClassFigures{Outcomes: map[string]int64{}, Latency: byOutcome(&t.classes[c].latency)}
		for _, o := range Outcomes() {
			f.Outcomes[o.String()] = t.classes[c].count[o]
			f.Operations += t.classes[c].count[o]
		}
		if m == nil {
			m = map[string]ClassFigures{}
		}
		m[names[c]] = f
	}
	return m
}

func (t *tally) distributions() (map[string]Percentiles, map[string]Wait) {
	waits := map[string]Wait{}
	for k := range waitKinds {
		h := &t.waits[k]
		if n := h.count(); n > 0 {
			waits[k.String()] = Wait{P50: ptr(ms(h.quantile(50))), P99: ptr(ms(h.quantile(99))), Total: ptr(h.sum.Seconds())}
		}
	}
	return byOutcome(&t.latency), waits
}

func byOutcome(hs *[outcomes]histogram) map[string]Percentiles {
	m := map[string]Percentiles{}
	var all histogram
	for _, o := range Outcomes() {
		if hs[o].count() > 0 {
			m[o.String()] = hs[o].percentiles()
			all.merge(&hs[o])
		}
	}
	m["all"] = all.percentiles()
	return m
}

func (t *tally) histograms() map[string]string {
	m := map[string]string{}
	for _, o := range Outcomes() {
		if s := t.latency[o].encode(); s != "" {
			m[o.String()] = s
		}
	}
	return m
}
