package scenarios

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lockbench/lockbench/bench"
)

// Cancelling is the seat map with users who give their seat back, so that a refusal may be right at its time and look wrong at the end.
type Cancelling struct{ Seats }

// giveBack is the cancellation as one statement.
var giveBack = bench.Change{
	Table: &seatsTable, Guard: bench.Cond{Column: "holder", Relation: bench.Equal},
	Steps: []bench.Step{{Column: "holder", Action: bench.Set, Operand: 1}}, Operands: 2,
}

// Fit reads the share.
func (s Cancelling) Fit(p bench.Params) (bench.Params, error) {
	if _, err := share(p, cancel, 0); err != nil {
		return p, err
	}
	return s.Seats.Fit(p)
}

// Changes returns booking and cancellation.
func (Cancelling) Changes() []*bench.Change { return []*bench.Change{&takeSeat, &giveBack} }

// Draw decides who will give his seat back.
func (Cancelling) Draw(p bench.Params, rng *rand.Rand, r *bench.Request) {
	n, _ := share(p, cancel, 0) // Fit has read it
	if rng.Float64() < n {
		r.Mark = 1
	}
}

// NeedsRefusals is true: which refusal was right depends on when it was given.
func (Cancelling) NeedsRefusals(bench.Params) bool { return true }

// Operation books, and gives back in a transaction of its own.
func (s Cancelling) Operation(l bench.Lends, p bench.Params) (bench.Operation, error) {
	if !l.Has(bench.LendsUndo) {
		return nil, &bench.NotApplicable{Reason: "a seat is given back, and this strategy only claims", Remedy: "use pessimistic or atomic"}
	}
	book, err := s.Seats.Operation(l, p)
	if err != nil {
		return nil, err
	}
	back := cancelByRow
	if !l.Has(bench.LendsRow) {
		back = cancelAtOnce
	}
	return func(u *bench.User, r *bench.Request) bench.Answer {
		ans := book(u, r)
		if r.Mark == 0 || ans.Outcome != bench.Confirmed {
			return ans
		}
		given := u.Transact(back, r)
		ans.Returned = given.Outcome == bench.Confirmed
		if given.Outcome == bench.Indeterminate || given.Outcome == bench.Pending {
			ans.Outcome = bench.Indeterminate // it may be his or not
		}
		return ans
	}, nil
}

// cancelByRow frees the seat if it is the user's.
func cancelByRow(tx bench.Tx, r *bench.Request) (bench.Answer, error) {
	seat, found, err := tx.Get(&seatsTable, r.Key)
	switch {
	case err != nil:
		return bench.Answer{}, err
	case !found || seat.Values[holder] != r.User:
		return bench.No(bench.AlreadyAssigned), nil
	}
	tx.Think()
	free := seat
	free.Values[holder] = bench.Null
	return bench.Yes(), tx.Put(&seatsTable, seat, free)
}

func cancelAtOnce(tx bench.Tx, r *bench.Request) (bench.Answer, error) {
	done, err := tx.Apply(&giveBack, r.Key, r.User, bench.Null)
	if err == nil && !done {
		return bench.No(bench.AlreadyAssigned), nil
	}
	return bench.Yes(), err
}

// Audit judges what was kept as the seat map does, and refusals by when they were given.
func (s Cancelling) Audit(p bench.Params, told *bench.Ledger, db bench.Snapshot) bench.Audit {
	kept := *told
	kept.Confirmed = nil
	for i := range told.Confirmed {
		if t := &told.Confirmed[i]; !t.Returned {
			kept.Confirmed = append(kept.Confirmed, *t)
		}
	}
	kept.Refused = nil
	a := s.Seats.Audit(p, &kept, db)
	a.Check("undersold", falselyRefused(told, db))
	return a
}

// falselyRefused counts refusals of a seat that nobody can have held at any moment of the asking: from the first word of a booking to the
// last of its cancellation somebody may have. Between users of different processes a moment is known within [bench.Ledger.Apart] only.
func falselyRefused(told *bench.Ledger, db bench.Snapshot) bench.Finding {
	f := bench.Finding{Anomaly: bench.FalseSoldOut}
	type span struct{ from, to time.Duration }
	taken := map[int64][]span{}
	note := func(t *bench.Told) {
		to := t.End
		if !t.Returned {
			to = 1<<63 - 1
		}
		taken[t.Row()] = append(taken[t.Row()], span{t.Start, to})
	}
	for i := range told.Confirmed {
		note(&told.Confirmed[i])
	}
	for i := range told.Indeterminate {
		note(&told.Indeterminate[i])
	}
	for i := range told.Refusals {
		t := &told.Refusals[i]
		if _, exists := db.Find(seatsTable.Name, t.Row()); !exists {
			continue
		}
		possible := false
		for _, s := range taken[t.Row()] {
			possible = possible || s.from-told.Apart <= t.End && t.Start-told.Apart <= s.to
		}
		if possible && t.Outcome == bench.Rejected {
			continue
		}
		f.Count++
		if f.First == nil {
			holds := fmt.Sprintf("nobody held seat %d while he asked", t.Row())
			if t.Outcome == bench.NotFound {
				holds = fmt.Sprintf("there is a seat %d", t.Row())
			}
			f.First = t.Witness(refusal(t), holds)
		}
	}
	f.Message = fmt.Sprintf("%d user%s refused a seat that was free, or told that it does not exist", f.Count, were(f.Count))
	return f
}
