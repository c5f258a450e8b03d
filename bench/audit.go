package bench

import (
	"slices"
	"time"
)

// Told is one final answer, kept until the audit.
type Told struct {
	Request
	Answer
	Attempts int32
	Start    time.Duration // since the trial began
	End      time.Duration
}

// Row returns the key of the row the answer is about.
func (t *Told) Row() int64 {
	if t.Answer.Key != 0 {
		return t.Answer.Key
	}
	return t.Request.Key
}

// Refusals counts the users to whom a row was refused.
type Refusals struct {
	Count   int64
	Missing int64 // of these, told that there is no such row
	First   Told
}

// Ledger is what users were told in a trial: every confirmation and every lost answer, and of refusals the count and the first for
// each row, which bounds its size in long runs.
type Ledger struct {
	Confirmed     []Told // in the order of their end
	Indeterminate []Told
	Refused       map[int64]Refusals // rejected or not found, by row
	Refusals      []Told             // every one of them, for a [Historian]; in the order of their end
	// Apart is how far from each other the beginnings of the trial may lie from which moments count, where several processes share the
	// users: each counts from its own, and their clocks are not compared. 0 where there is one process.
	Apart   time.Duration
	history bool
}

func (l *Ledger) add(t Told) {
	switch t.Outcome {
	case Confirmed:
		l.Confirmed = append(l.Confirmed, t)
	case Indeterminate:
		l.Indeterminate = append(l.Indeterminate, t)
	case Rejected, NotFound:
		r, seen := l.Refused[t.Row()]
		if !seen || t.End < r.First.End {
			r.First = t
		}
		r.Count++
		if t.Outcome == NotFound {
			r.Missing++
		}
		l.Refused[t.Row()] = r
		if l.history {
			l.Refusals = append(l.Refusals, t)
		}
	default: // busy and failed promise nothing
	}
}

func newLedger() *Ledger { return &Ledger{Refused: map[int64]Refusals{}} }

func (l *Ledger) merge(o *Ledger) {
	l.Confirmed = append(l.Confirmed, o.Confirmed...)
	l.Indeterminate = append(l.Indeterminate, o.Indeterminate...)
	l.Refusals = append(l.Refusals, o.Refusals...)
	for k, r := range o.Refused {
		mine, seen := l.Refused[k]
		if !seen || r.First.End < mine.First.End {
			mine.First = r.First
		}
		mine.Count += r.Count
		mine.Missing += r.Missing
		l.Refused[k] = mine
	}
}

func (l *Ledger) sort() {
	byEnd := func(a, b Told) int { return int(a.End - b.End) }
	slices.SortStableFunc(l.Confirmed, byEnd)
	slices.SortStableFunc(l.Indeterminate, byEnd)
	slices.SortStableFunc(l.Refusals, byEnd)
}

// Witness is one case of a finding that a person can check.
type Witness struct {
	User     int64   `json:"user"`
	Op       int64   `json:"op"`
	Attempts int32   `json:"attempts"`
	Row      int64   `json:"row"`
	StartMS  float64 `json:"start_ms"` // since the trial began
	EndMS    float64 `json:"end_ms"`
	Told     string  `json:"told"`
	Holds    string  `json:"holds"` // what the database says
}

// Witness makes a witness of an answer; told and holds are sentences without a full stop.
func (t *Told) Witness(told, holds string) *Witness {
	return &Witness{User: t.User, Op: t.Op, Attempts: t.Attempts, Row: t.Row(), StartMS: ms(t.Start), EndMS: ms(t.End), Told: told, Holds: holds}
}

// Finding is an anomaly that an audit found.
type Finding struct {
	Anomaly Anomaly  `json:"anomaly"`
	Check   string   `json:"check,omitempty"` // the audit's count that it stands in: several may be of one anomaly
	Count   int64    `json:"count"`
	Message string   `json:"message"`
	First   *Witness `json:"first,omitempty"`
	Worst   *Witness `json:"worst,omitempty"`
	Trial   int      `json:"trial,omitempty"`
}

// Audit is the comparison of what users were told with what the database holds. Counts has an entry, 0 included, for everything that
// was checked, under its name in the JSON form.
type Audit struct {
	Counts   map[string]int64
	Findings []Finding
	// Noted are counts of the scenario's own that are no anomaly.
	Noted map[string]int64
}

// Note records a count that is no anomaly.
func (a *Audit) Note(name string, n int64) {
	if a.Noted == nil {
		a.Noted = map[string]int64{}
	}
	a.Noted[name] += n
}

// Names of what a queue's audit counts.
const (
	CheckOverLimit     = "over_limit"          // batches with more jobs than were asked for
	NotedEmpty         = "empty_claims"        // claims that came back empty
	NotedBehindBacklog = "empty_behind_claims" // of these, while jobs were free or in a claim still under way
)

// Check records that something was checked, and keeps the finding if it was found.
func (a *Audit) Check(name string, f Finding) {
	if a.Counts == nil {
		a.Counts = map[string]int64{}
	}
	a.Counts[name] += f.Count
	if f.Check = name; f.Count > 0 {
		a.Findings = append(a.Findings, f)
	}
}

// MinContended is how many operations must have met another on their row before the absence of anomalies says anything. Of those
// that meet, one in seventeen goes wrong where nothing protects (none on the defaults of seats and on-call, the least telling
// scenarios): fifty pass by luck once in twenty times.
const MinContended = 50

// judge gives the verdict of a trial, or of all trials of a cell together. Sound needs a claim, a confirmation and evidence that users
// did meet on a row: without those nothing was tested.
func judge(claims []Anomaly, violated bool, contended, confirmed int64) Verdict {
	switch {
	case violated:
		return Violated
	case len(claims) > 0 && contended >= MinContended && confirmed > 0:
		return Sound
	}
	return Undetermined
}

// broken reports whether a finding breaks a claim. A leak breaks any: no strategy may leave locks behind.
func broken(claims []Anomaly, findings []Finding) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool {
		return f.Anomaly == Leak || slices.Contains(claims, f.Anomaly)
	})
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
