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
		Anomalies: []bench.Anomaly{bench.WriteSkew},
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
		return p, bench.Hintf("leave --capacity out", "a shift has %d doctors and no capacity", doctorsPerShift)
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
func (OnCall) Operation(l bench.Lends) (bench.Operation, error) {
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
	if r.Quantity >= int64(len(team)) {
		return bench.Unknown(), nil
	}
	me := team[r.Quantity]
	staying := int64(0)
	for _, d := range team {
		staying += d.Values[onDuty]
	}
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

// Audit looks for shifts without anybody, and for doctors who were let go and are still on duty.
func (OnCall) Audit(_ bench.Params, told *bench.Ledger, db bench.Snapshot) bench.Audit {
	staying := map[int64]int64{}
	for _, d := range db[doctorsTable.Name] {
		staying[d.Values[shift]] += d.Values[onDuty]
	}
	skew := bench.Finding{Anomaly: bench.WriteSkew}
	lost := bench.Finding{Anomaly: bench.LostUpdate}
	counted := map[int64]bool{}
	for i := range told.Confirmed {
		t := &told.Confirmed[i]
		doctor := (t.Request.Key-1)*doctorsPerShift + 1 + t.Quantity
		if row, found := db.Find(doctorsTable.Name, doctor); !found || row.Values[onDuty] != 0 {
			lost.Count++
			if lost.First == nil {
				lost.First = t.Witness("you are off duty", fmt.Sprintf("doctor %d is on duty", doctor))
			}
		}
		if staying[t.Request.Key] > 0 || counted[t.Request.Key] {
			continue
		}
		counted[t.Request.Key] = true
		skew.Count++
		if skew.First == nil {
			skew.First = t.Witness("you are off duty, another stays", fmt.Sprintf("nobody is on duty in shift %d", t.Request.Key))
		}
	}
	skew.Message = fmt.Sprintf("%d shift%s without anybody on duty", skew.Count, are(skew.Count))
	lost.Message = fmt.Sprintf("%d doctor%s still on duty who had been let go", lost.Count, are(lost.Count))
	var a bench.Audit
	a.Check("write_skew", skew)
	a.Check("lost_updates", lost)
	return a
}
