package scenarios

import (
	"fmt"
	"math/rand/v2"

	"github.com/lockbench/lockbench/bench"
)

// OnCall is write skew: each doctor may leave if another stays, and no two of them write the same row.
type OnCall struct{}

// The doctor's columns.
const (
	shift  = 0
	onDuty = 1
)

// doctorsPerShift is two: with the smallest number the rule has something to say at once.
const doctorsPerShift = 2

var doctorsTable = bench.Table{Name: "doctors", Key: "id", Columns: []string{"shift", "on_duty"}, Version: "version", Group: "shift"}

// Reasons of a doctor who must stay, or has gone.
const (
	LastOnDuty bench.Reason = "last on duty"
	AlreadyOff bench.Reason = "already off duty"
)

// Info describes the scenario.
func (OnCall) Info() bench.ScenarioInfo {
	return bench.ScenarioInfo{
		Name: "on-call", Unit: "shifts",
		Summary:   "write skew: two doctors a shift, each may go off duty if another stays",
		Story:     "The service reads who is on duty in the shift, and lets a doctor go if another one stays. Two doctors who ask at once both see the other on duty, and each writes a row of their own: no row is written twice, so nothing that guards single rows notices.",
		Invariant: "in every shift somebody is on duty, and who was told to be off duty is",
		Anomalies: []bench.Anomaly{bench.WriteSkew, bench.LostUpdate, bench.FalseSoldOut},
	}
}

// Fit sets fifty shifts.
func (OnCall) Fit(p bench.Params) (bench.Params, error) {
	if p.Rows == 0 {
		p.Rows = 50
		if p.Endless {
			p.Rows = 100_000
		}
	}
	if p.Capacity > 1 {
		return p, bench.About("capacity", "", bench.Hintf("leave --capacity out", "a shift has %d doctors and no capacity", doctorsPerShift))
	}
	p.Capacity = 1
	return p, nil
}

// Tables returns the doctors.
func (OnCall) Tables() []*bench.Table { return []*bench.Table{&doctorsTable} }

// Changes is empty: the rule looks at rows that the write does not touch.
func (OnCall) Changes() []*bench.Change { return nil }

// SingleWrite is true: a doctor writes their own row.
func (OnCall) SingleWrite() bool { return true }

// Fill puts everybody on duty.
func (OnCall) Fill(p bench.Params) []bench.Fill {
	return []bench.Fill{{Table: &doctorsTable, Rows: p.Rows * doctorsPerShift, Row: func(key int64) bench.Row {
		return bench.Row{Key: key, Values: [bench.MaxColumns]int64{shift: (key-1)/doctorsPerShift + 1, onDuty: 1}}
	}}}
}

// Draw picks the doctor: Quantity is the place in the shift.
func (OnCall) Draw(_ bench.Params, rng *rand.Rand, r *bench.Request) {
	r.Quantity = rng.Int64N(doctorsPerShift)
}

// Operation goes off duty.
func (OnCall) Operation(l bench.Lends, _ bench.Params) (bench.Operation, error) {
	if !l.Has(bench.LendsGroup) {
		return nil, &bench.NotApplicable{
			Reason: "the rule rests on every doctor of the shift, and this strategy protects one row only",
			Remedy: "use serializable, or pessimistic, which locks every row that it reads",
		}
	}
	return bench.Single(goOffDuty), nil
}

// goOffDuty reads the shift, decides, and writes one row.
func goOffDuty(tx bench.Tx, r *bench.Request) (bench.Answer, error) {
	team, err := tx.List(&doctorsTable, r.Key)
	if err != nil {
		return bench.Answer{}, err
	}
	staying, mine := int64(0), -1
	for i, d := range team {
		staying += d.Values[onDuty]
		if d.Key == doctorOf(r) {
			mine = i
		}
	}
	if mine < 0 {
		return bench.Unknown(), nil
	}
	me := team[mine]
	switch {
	case me.Values[onDuty] == 0:
		return bench.No(AlreadyOff), nil
	case staying < 2:
		return bench.No(LastOnDuty), nil
	}
	tx.Think()
	off := me
	off.Values[onDuty] = 0
	if err := tx.Put(&doctorsTable, me, off); err != nil {
		return bench.Answer{}, err
	}
	return bench.Yes(), nil
}

// doctorOf is the doctor who asks.
func doctorOf(r *bench.Request) int64 { return (r.Key-1)*doctorsPerShift + 1 + r.Quantity }

// Audit looks at every shift: whether anybody is on duty, whether who was let go is off and nobody else, and whether anybody was refused
// without need. Who lost the answer to a COMMIT may be off or on.
func (OnCall) Audit(_ bench.Params, told *bench.Ledger, db bench.Snapshot) bench.Audit {
	letGo, unanswered := map[int64]*bench.Told{}, map[int64]bool{} // by doctor
	for i := range told.Confirmed {
		letGo[doctorOf(&told.Confirmed[i].Request)] = &told.Confirmed[i]
	}
	for i := range told.Indeterminate {
		unanswered[doctorOf(&told.Indeterminate[i].Request)] = true
	}
	skew, lost := bench.Finding{Anomaly: bench.WriteSkew}, bench.Finding{Anomaly: bench.LostUpdate}
	strange, needless := bench.Finding{Anomaly: bench.LostUpdate}, bench.Finding{Anomaly: bench.FalseSoldOut}
	note := func(f *bench.Finding, w *bench.Witness) {
		f.Count++
		if f.First == nil {
			f.First = w
		}
	}
	staying := map[int64]int64{}
	for _, d := range db[doctorsTable.Name] {
		staying[d.Values[shift]] += d.Values[onDuty]
		t, off := letGo[d.Key], d.Values[onDuty] == 0
		switch {
		case t != nil && !off:
			note(&lost, t.Witness("you are off duty", fmt.Sprintf("doctor %d is on duty", d.Key)))
		case t == nil && off && !unanswered[d.Key]:
			note(&strange, &bench.Witness{Row: d.Key, Told: "nothing", Holds: fmt.Sprintf("doctor %d is off duty", d.Key)})
		}
	}
	for doctor, t := range letGo {
		if _, found := db.Find(doctorsTable.Name, doctor); !found {
			note(&lost, t.Witness("you are off duty", fmt.Sprintf("there is no doctor %d", doctor)))
		}
	}
	for n, on := range staying {
		if on == 0 {
			w := &bench.Witness{Row: n, Told: "nothing"}
			for _, t := range letGo {
				if t.Request.Key == n && (w.User == 0 || ms(t.End) > w.EndMS) {
					w = t.Witness("you are off duty, another stays", "")
				}
			}
			w.Holds = fmt.Sprintf("nobody is on duty in shift %d", n)
			note(&skew, w)
		}
		if r := told.Refused[n]; on == doctorsPerShift && r.Count > 0 || r.Missing > 0 { // nobody ever comes back on duty
			note(&needless, r.First.Witness(refusal(&r.First), fmt.Sprintf("%d doctors are on duty in shift %d", on, n)))
		}
	}
	skew.Message = fmt.Sprintf("%d shift%s without anybody on duty", skew.Count, are(skew.Count))
	lost.Message = fmt.Sprintf("%d doctor%s still on duty who had been let go", lost.Count, are(lost.Count))
	strange.Message = fmt.Sprintf("%d doctor%s off duty whom nobody let go", strange.Count, are(strange.Count))
	needless.Message = fmt.Sprintf("in %d shift%s somebody was refused without need", needless.Count, plural(needless.Count))
	var a bench.Audit
	a.Check("write_skew", skew)
	a.Check("lost_updates", lost)
	a.Check("unexplained", strange)
	a.Check("undersold", needless)
	return a
}
