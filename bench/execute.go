package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"
)

// Execute runs every cell of the race over all trials and returns the report. When the run is stopped or breaks off, the report
// holds what was measured until then and is marked partial; the error says why it broke off.
func (r *Race) Execute(ctx context.Context, store Store, stop *Stop, w Watcher) (*Report, error) {
	reps, err := Interleave(ctx, store, stop, w, []*Race{r})
	return reps[0], err
}

// contest is one of the races that are run together.
type contest struct {
	*Race
	rep  *Report
	runs []*cellRun
}

// Interleave runs several races as one, and returns a report of each: every repetition takes all races, in an order drawn from the
// seed, so that a machine that slows down for a while does not look like a difference between them. Seed and stop are those of all;
// what holds for [Race.Execute] holds here.
func Interleave(ctx context.Context, store Store, stop *Stop, w Watcher, races []*Race) ([]*Report, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // waits outside the measured path end with the hard stop
		select {
		case <-stop.hard:
			cancel()
		case <-ctx.Done():
		}
	}()

	all := make([]*contest, len(races))
	for i, r := range races {
		if r.Run == "" {
			r.Run = runID()
		}
		rep := &Report{Schema: Schema, Started: time.Now().UTC(), Plan: r.Settings, Warnings: append([]Warning{}, r.Warnings...)}
		rep.Environment.Host = Host{OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU()}
		all[i] = &contest{Race: r, rep: rep}
		for place, e := range r.Cells {
			all[i].runs = append(all[i].runs, &cellRun{entrant: e, place: place, sum: newTally()})
		}
	}
	err := measure(ctx, store, stop, w, all)
	partial := err != nil || stop.Softly()
	if stop.Softly() && errors.Is(err, context.Canceled) {
		err = nil
	}
	reps := make([]*Report, len(all))
	for i, c := range all {
		c.rep.Partial = partial
		for _, run := range c.runs {
			c.rep.Cells = append(c.rep.Cells, run.cell(c.Scenario))
		}
		c.rep.Warnings = append(c.rep.Warnings, selfCheck(c.Race, c.rep)...)
		reps[i] = c.rep
	}
	return reps, err
}

// measure connects and runs the trials, interleaved: each repetition of all races and of all their cells in an order drawn from the seed.
func measure(ctx context.Context, store Store, stop *Stop, w Watcher, all []*contest) error {
	server, err := ready(ctx, store, stop)
	if err != nil {
		return err
	}
	trials, of := 0, 0
	for _, c := range all {
		c.rep.Environment.Server = server
		trials = max(trials, c.Settings.Trials)
		of += c.Settings.Trials * len(c.racing())
	}
	who := field{store: store, stop: stop, alone: NewCrew(store, stop, 0, 1)}
	defer who.close()
	order := 0
	for n := 1; n <= trials; n++ {
		rng := rand.New(rand.NewPCG(all[0].Settings.Seed, uint64(n)))
		for _, c := range shuffled(rng, all) {
			if n > c.Settings.Trials {
				continue
			}
			racers, err := who.take(ctx, c.Race)
			if err != nil {
				return err
			}
			if err := c.repetition(ctx, store, racers, stop, w, rng, n, &order, of); err != nil {
				return err
			}
		}
	}
	return nil
}

// racing are the cells that are run.
func (c *contest) racing() []*cellRun {
	return slices.DeleteFunc(slices.Clone(c.runs), func(run *cellRun) bool { return run.entrant.NA != "" })
}

// repetition runs one trial of every cell of a race.
func (c *contest) repetition(ctx context.Context, store Store, racers Fleet, stop *Stop, w Watcher, rng *rand.Rand, n int, order *int, of int) error {
	for _, run := range shuffled(rng, c.racing()) {
		if stop.Softly() {
			return nil
		}
		*order++
		live := &Live{}
		label := run.entrant.Spec.Label
		if c.Name != "" {
			label += " " + c.Name
		}
		w.TrialStarts(label, n, *order, of, live)
		if n == 1 {
			if err := c.warmUp(ctx, store, racers, stop, run.place); err != nil {
				return fmt.Errorf("%s: %w", label, err)
			}
		}
		t, err := c.trial(ctx, store, racers, stop, run, n, live)
		if t != nil {
			t.Order = *order
			run.trials = append(run.trials, *t)
			w.TrialEnds(label, t)
		}
		if err != nil {
			return fmt.Errorf("%s, trial %d: %w", label, n, err)
		}
	}
	return nil
}

func shuffled[T any](rng *rand.Rand, all []T) []T {
	all = slices.Clone(all)
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// ready looks at the server and lays lockbench's schema. The first wish to stop ends it.
func ready(ctx context.Context, store Store, stop *Stop) (server Server, err error) {
	connecting, cancel := stop.until(ctx)
	defer cancel()
	if server, err = store.Describe(connecting); err == nil {
		err = store.Prepare(connecting)
	}
	if err != nil && connecting.Err() != nil {
		err = connecting.Err()
	}
	return server, err
}

// restore lays the tables of a trial. The first wish to stop ends it: filling a large table takes a while.
func (r *Race) restore(ctx context.Context, store Store, stop *Stop) error {
	filling, cancel := stop.until(ctx)
	defer cancel()
	err := store.Restore(filling, r.Scenario.Fill(r.Params))
	if err != nil && filling.Err() != nil {
		err = filling.Err()
	}
	return err
}

// warmUp races a burst's cell once with one user a connection and throws the result away, so that the cell's first trial finds the
// server's and lockbench's caches as the later ones do; what restoring the tables invalidates, every trial pays alike. Closed and
// open modes warm up inside the trial instead.
func (r *Race) warmUp(ctx context.Context, store Store, racers Fleet, stop *Stop, cell int) error {
	if r.Settings.Mode != Burst || r.Settings.Warmup == 0 {
		return nil
	}
	if err := r.restore(ctx, store, stop); err != nil {
		return err
	}
	h := Heat{Cell: cell, Seed: r.Settings.Seed, Warmup: true}
	err := racers.Start(ctx, h, &Live{})
	if err == nil {
		err = racers.Race(ctx, stop)
	}
	_, unswept := r.sweep(context.WithoutCancel(ctx), h)
	return errors.Join(err, unswept)
}

// trial races a cell once, audits it, and returns what was measured; nil when a stop came before anybody
// began, or when it broke off and cannot be audited.
func (r *Race) trial(ctx context.Context, store Store, racers Fleet, stop *Stop, c *cellRun, n int, live *Live) (*Trial, error) {
	if err := r.restore(ctx, store, stop); err != nil {
		return nil, err
	}
	h := Heat{Cell: c.place, Seed: r.Settings.Seed*1_000_003 + uint64(n)}
	if err := racers.Start(ctx, h, live); err != nil {
		return nil, err
	}
	if stop.Softly() { // while the tables were laid: a trial in which nobody could start is none
		_, err := r.sweep(context.WithoutCancel(ctx), h)
		return nil, err
	}
	plan, err := r.queryPlan(ctx, store, c.entrant)
	if err != nil {
		return nil, err
	}
	obs, err := store.Observe(ctx)
	if err != nil {
		return nil, err
	}
	broke := racers.Race(ctx, stop)
	if _, ok := r.Scenario.(Recoverer); ok && !stop.atOnce() { // after a hard stop there are no connections to do it on
		if err := racers.Recover(ctx); err != nil && broke == nil {
			broke = err
		}
	}

	// The audit must not be cut short by the very stop that ended the trial, or nothing measured could be judged.
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditTimeout)
	defer cancel()
	if !stop.atOnce() {
		if err := racers.Flush(after); err != nil && broke == nil {
			broke = err
		}
	}
	side, err := obs.End(after)
	if err != nil && broke == nil && !stop.atOnce() {
		broke = err
	}
	shares, err := racers.Shares(after)
	if err != nil && broke == nil {
		broke = err
	}
	left, err := r.sweep(after, h)
	if err != nil && broke == nil {
		broke = err
	}
	all, lost := gather(shares)
	res := &Trial{Number: n, Findings: []Finding{}, Figures: all.figures(r.window(all, stop), r.Settings.Mode == Open), Histograms: all.histograms(), Timeline: all.seconds}
	res.Server, res.QueryPlan = &side, plan
	if classes, ok := r.Scenario.(Classer); ok {
		res.Classes = all.byClass(classes.Classes())
	}
	if r.Settings.CallerDeadline > 0 {
		res.Abandoned = &Abandoned{Operations: all.abandoned, HeldS: all.held.Seconds()}
	}
	if side.LockWaitTotal != nil {
		w := res.Waits[waitLock.String()]
		if w.Total == nil {
			w.Total = side.LockWaitTotal
			res.Waits[waitLock.String()] = w
		}
	}
	res.Client = clientSide(shares)
	res.Instances = instances(shares)
	if lost { // and with it what its users were told
		c.sum.add(all)
		return res, broke
	}

	audit, err := r.audit(after, store, c.entrant.Params, all.told, stop.atOnce())
	if err != nil {
		if broke == nil {
			broke = err
		}
		return nil, broke // nothing can be said of what nobody audited
	}
	c.sum.add(all)
	audit.Check("leaked_locks", Finding{Anomaly: Leak, Count: left, Message: fmt.Sprintf("%d locks were left in the lock service", left)})
	res.Audit, res.Noted = audit.Counts, audit.Noted
	for i := range audit.Findings {
		audit.Findings[i].Trial = n
	}
	res.Findings = append(res.Findings, audit.Findings...)
	res.Verdict = judge(c.entrant.pivotal(), len(audit.Findings) > 0, res.Contended, res.Outcomes[Confirmed.String()])
	return res, broke
}

// queryPlan asks the server for the plan on which the strategy's result rests; nil if it rests on none.
func (r *Race) queryPlan(ctx context.Context, store Store, e *Entrant) ([]string, error) {
	p, ok := e.Discipline.(Explained)
	if !ok {
		return nil, nil
	}
	like := Request{User: 1, Key: 1, Quantity: 1}
	if d, ok := r.Scenario.(Drawer); ok {
		d.Draw(e.Params, rand.New(rand.NewPCG(r.Settings.Seed, 0)), &like)
	}
	s, args := p.Explain(&like)
	plan, err := store.Plan(ctx, e.Discipline.Statements()[0], s, args)
	if err != nil {
		return nil, fmt.Errorf("asking for the plan of %q: %w", s.SQL, err)
	}
	return plan, nil
}

// window is the measured time of a trial.
func (r *Race) window(all *tally, stop *Stop) time.Duration {
	s := &r.Settings
	switch {
	case s.Mode == Burst:
		return all.last
	case s.Operations == 0 && !stop.Softly():
		return time.Duration(s.Duration)
	}
	return max(0, all.last-time.Duration(s.Warmup)) // nothing was measured when a bounded run ends in its warm-up
}

// auditTimeout bounds reading the final state; a table of a million rows takes a second or two.
const auditTimeout = time.Minute

func (r *Race) audit(ctx context.Context, store Store, p Params, told *Ledger, cut bool) (Audit, error) {
	snap, err := store.Snapshot(ctx, r.Scenario.Tables())
	if err != nil {
		return Audit{}, fmt.Errorf("reading the final state: %w", err)
	}
	a := r.Scenario.Audit(p, told, snap)
	if cut {
		// A hard stop undoes what others were refused for, and leaves no time to recover: that is lockbench's doing, not the strategy's.
		a.Findings = slices.DeleteFunc(a.Findings, func(f Finding) bool { return f.Anomaly == FalseSoldOut || f.Anomaly == Stuck })
		delete(a.Counts, "undersold")
		delete(a.Counts, "stuck_reservations")
	}
	left, err := store.Leaks(ctx)
	if err != nil {
		return Audit{}, fmt.Errorf("looking for leaked locks: %w", err)
	}
	a.Check("leaked_locks", Finding{Anomaly: Leak, Count: left, Message: fmt.Sprintf("%d locks or transactions were left behind", left)})
	return a, nil
}

// cellRun gathers a cell's trials.
type cellRun struct {
	entrant *Entrant
	place   int // among the race's cells
	trials  []Trial
	sum     *tally
}

func newTally() *tally {
	return &tally{reasons: map[Reason]int64{}, errors: map[string]int64{}, told: newLedger()}
}

// cell folds the trials into the report's cell.
func (c *cellRun) cell(sc Scenario) Cell {
	e := c.entrant
	cell := Cell{
		Scenario: sc.Info().Name, Strategy: e.Spec.Label, Name: e.Spec.Name, Options: e.Spec.Options,
		Claim: append([]Anomaly{}, e.Claims...), Scope: e.Info.Scope, NA: e.NA, Findings: []Finding{}, Trials: c.trials,
	}
	if e.Discipline != nil {
		cell.Isolation = e.Discipline.Isolation()
	}
	if len(c.trials) == 0 {
		cell.Trials = []Trial{}
		return cell
	}
	mid := telling(c.trials)
	cell.Trial, cell.Figures = mid.Number, mid.Figures
	cell.Audit, cell.Outcomes = maps.Clone(mid.Audit), maps.Clone(mid.Outcomes)
	violated, contended, confirmed := false, int64(0), int64(0) // evidence adds up over the trials
	for _, t := range c.trials {
		violated = violated || t.Verdict == Violated
		if len(t.Audit) > 0 { // else it could not be audited
			contended += t.Contended
			confirmed += t.Outcomes[Confirmed.String()]
		}
		for k, v := range t.Audit {
			cell.Audit[k] = max(cell.Audit[k], v)
		}
		for _, o := range []Outcome{Failed, Indeterminate} { // as anomalies, they must not hide in a trial that is not the median
			if n := t.Outcomes[o.String()]; n > cell.Outcomes[o.String()] {
				cell.Outcomes[o.String()] = n
			}
		}
		cell.Findings = mergeFindings(cell.Findings, t.Findings)
	}
	cell.Verdict = judge(e.pivotal(), violated, contended, confirmed)
	cell.ClaimBroken = !e.leaky && broken(e.Claims, cell.Findings)
	cell.Latency, cell.Waits = c.sum.distributions()
	if classes, ok := sc.(Classer); ok {
		cell.Classes = c.sum.byClass(classes.Classes())
	}
	if cell.Uncorrected != nil {
		cell.Uncorrected = byOutcome(&c.sum.uncorrected)
	}
	if w := cell.Waits[waitLock.String()]; w.Total == nil {
		for _, t := range c.trials { // of row locks each trial has its total, from samples
			if of := t.Waits[waitLock.String()].Total; of != nil {
				w.Total = ptr(value(w.Total) + *of)
				cell.Waits[waitLock.String()] = w
			}
		}
	}
	cell.Intervals = intervals(c.trials)
	return cell
}

// mergeFindings adds a trial's findings: one of each of the audit's counts, from the worst trial.
func mergeFindings(all, more []Finding) []Finding {
	for _, f := range more {
		i := slices.IndexFunc(all, func(g Finding) bool { return g.Check == f.Check && g.Anomaly == f.Anomaly })
		switch {
		case i < 0:
			all = append(all, f)
		case f.Count > all[i].Count:
			all[i] = f
		}
	}
	return all
}

// telling returns the trial whose counts stand for the cell: the one with the most anomalies if there are any, since what users were
// told must add up with what was lost, else the median one.
func telling(trials []Trial) *Trial {
	worst, most := medianTrial(trials), int64(0)
	for i := range trials {
		var n int64
		for _, found := range trials[i].Audit {
			n += found
		}
		if n > most {
			worst, most = &trials[i], n
		}
	}
	return worst
}

// medianTrial returns the trial with the median goodput (the lower one of two).
func medianTrial(trials []Trial) *Trial {
	order := make([]*Trial, len(trials))
	for i := range trials {
		order[i] = &trials[i]
	}
	slices.SortStableFunc(order, func(a, b *Trial) int { return cmp.Compare(value(a.Goodput), value(b.Goodput)) })
	return order[(len(order)-1)/2]
}

func value(p *float64) float64 {
	if p == nil {
		return 0
	}
	return *p
}

// intervals returns the 95 % intervals over trials of the figures that are compared.
func intervals(trials []Trial) map[string]Interval {
	figures := map[string]func(*Trial) *float64{
		"goodput":       func(t *Trial) *float64 { return t.Goodput },
		"throughput":    func(t *Trial) *float64 { return t.Throughput },
		"conflict_rate": func(t *Trial) *float64 { return t.ConflictRate },
		"amplification": func(t *Trial) *float64 { return t.Amplification },
		"p50_ms":        func(t *Trial) *float64 { return t.Latency[Confirmed.String()].P50 },
		"p95_ms":        func(t *Trial) *float64 { return t.Latency[Confirmed.String()].P95 },
		"p99_ms":        func(t *Trial) *float64 { return t.Latency[Confirmed.String()].P99 },
	}
	m := map[string]Interval{}
	for name, of := range figures {
		var xs []float64
		for i := range trials {
			if v := of(&trials[i]); v != nil {
				xs = append(xs, *v)
			}
		}
		if iv, ok := medianInterval(xs); ok {
			m[name] = iv
		}
	}
	return m
}

// medianInterval returns the order-statistic interval that holds the median with at least 95 % confidence: the widest k such that
// at most k-1 of n fair coins showing heads has a probability of 2.5 %. Below six values there is none.
func medianInterval(xs []float64) (Interval, bool) {
	n := len(xs)
	slices.Sort(xs)
	heads := func(k int) float64 { // probability of exactly k heads; in logarithms, since 0.5^n is nothing a float64 can hold for large n
		all, _ := math.Lgamma(float64(n + 1))
		up, _ := math.Lgamma(float64(k + 1))
		down, _ := math.Lgamma(float64(n - k + 1))
		return math.Exp(all - up - down - float64(n)*math.Ln2)
	}
	k, tail := 0, heads(0)
	for tail <= 0.025 {
		k++
		tail += heads(k)
	}
	if k == 0 {
		return Interval{}, false
	}
	return Interval{Low: xs[k-1], High: xs[n-k], Trials: n}, true
}
