package scenarios

import (
	"fmt"

	"github.com/lockbench/lockbench/bench"
)

// Seats is a seat map: each user wants one seat, and a seat has one holder.
type Seats struct{}

// The seat's columns.
const holder = 0

var seatsTable = bench.Table{
	Name: "seats", Key: "id", Columns: []string{"holder"}, Version: "version", Fence: "fence",
	Claim: &bench.Claim{Table: "bookings", Key: "seat_id", Column: "user_id", Value: "holder"},
	Free:  &bench.Cond{Column: "holder", Relation: bench.IsNull},
}

// takeSeat is the rule as one statement: a free seat, or the user's own again.
var takeSeat = bench.Change{
	Table: &seatsTable,
	Guard: bench.Cond{Column: "holder", Relation: bench.IsNull, Or: &bench.Cond{Column: "holder", Relation: bench.Equal, Operand: 0}},
	Steps: []bench.Step{{Column: "holder", Action: bench.Set, Operand: 0}}, Operands: 1,
}

// Info describes the scenario.
func (Seats) Info() bench.ScenarioInfo {
	return bench.ScenarioInfo{
		Name: "seats", Unit: "seats",
		Summary:   "a seat map: each user wants one seat, --rows 1 is the last seat",
		Story:     "The service reads the seat, checks that nobody holds it, and writes its user. A user who asks again for the seat he holds gets the same confirmation; another holder is a rejection.",
		Anomalies: []bench.Anomaly{bench.Overbooking, bench.LostUpdate, bench.FalseSoldOut},
		Invariant: "a seat was confirmed to one user at the most, and that user is the one its row names",
		Options: []bench.OptionDoc{
			{Name: cancel, Values: []string{"N%"}, Doc: "users who give their seat back, for others to book (default 0%)"},
			{Name: byCount, Values: []string{"on", "off"}, Doc: "sell --capacity tickets a show by counting those sold, instead of seats: there is no row to lock (default off)"},
		},
		Variants: []bench.Options{{cancel: "20%"}, {byCount: "on"}},
	}
}

// The flags of seats.
const (
	cancel  = "cancel"
	byCount = "count-capacity"
)

// Variant is what the options make of the seat map.
func (s Seats) Variant(p bench.Params) bench.Scenario {
	if on(p, byCount) {
		return Counted{}
	}
	if _, given := p.Options[cancel]; given {
		return Cancelling{}
	}
	return s
}

// Fit sets fifty seats unless told otherwise, many more when users come back for more.
func (Seats) Fit(p bench.Params) (bench.Params, error) {
	if p.Rows == 0 {
		p.Rows = 50
		if p.Endless {
			p.Rows = 100_000
		}
	}
	if p.Capacity > 1 {
		return p, bench.About("capacity", "", bench.Hintf("use --rows for more seats, or --scenario inventory", "a seat holds one user: capacity cannot be %d", p.Capacity))
	}
	p.Capacity = 1
	return p, nil
}

// Tables returns the seat map.
func (Seats) Tables() []*bench.Table { return []*bench.Table{&seatsTable} }

// Changes returns the booking as one statement.
func (Seats) Changes() []*bench.Change { return []*bench.Change{&takeSeat} }

// SingleWrite is true: a booking writes its seat.
func (Seats) SingleWrite() bool { return true }

// Fill lays out free seats.
func (Seats) Fill(p bench.Params) []bench.Fill {
	return []bench.Fill{{Table: &seatsTable, Rows: p.Rows, Row: func(key int64) bench.Row {
		return bench.Row{Key: key, Values: [bench.MaxColumns]int64{holder: bench.Null}}
	}}}
}

// Operation books a seat.
func (Seats) Operation(l bench.Lends, _ bench.Params) (bench.Operation, error) {
	switch {
	case l.Has(bench.LendsRow):
		return bench.Single(book), nil
	case l.Has(bench.LendsChange):
		return bench.ThinkFirst(bookAtOnce), nil
	}
	return bench.Single(bookAny), nil
}

// book reads, decides and writes.
func book(tx bench.Tx, r *bench.Request) (bench.Answer, error) {
	seat, found, err := tx.Get(&seatsTable, r.Key)
	if err != nil {
		return bench.Answer{}, err
	}
	if !found {
		return bench.Unknown(), nil
	}
	if by := seat.Values[holder]; by != bench.Null {
		return seatTaken(by, r), nil
	}
	tx.Think()
	mine := seat
	mine.Values[holder] = r.User
	if err := tx.Put(&seatsTable, seat, mine); err != nil {
		return bench.Answer{}, err
	}
	return bench.Yes(), nil
}

// bookAtOnce leaves rule and write to one statement.
func bookAtOnce(tx bench.Tx, r *bench.Request) (bench.Answer, error) {
	done, err := tx.Apply(&takeSeat, r.Key, r.User)
	if err != nil {
		return bench.Answer{}, err
	}
	if done {
		return bench.Yes(), nil
	}
	seat, found, err := tx.Peek(&seatsTable, r.Key)
	switch {
	case err != nil:
		return bench.Answer{}, err
	case !found:
		return bench.Unknown(), nil
	}
	return seatTaken(seat.Values[holder], r), nil
}

// bookAny takes whatever seat is free.
func bookAny(tx bench.Tx, r *bench.Request) (bench.Answer, error) {
	seat, found, err := tx.Take(&seatsTable)
	if err != nil {
		return bench.Answer{}, err
	}
	if !found {
		return bench.No(bench.SoldOut), nil
	}
	tx.Think()
	mine := seat
	mine.Values[holder] = r.User
	if err := tx.Put(&seatsTable, seat, mine); err != nil {
		return bench.Answer{}, err
	}
	return bench.Answer{Outcome: bench.Confirmed, Key: seat.Key}, nil
}

// seatTaken answers a user whose seat has a holder: himself again, or somebody else.
func seatTaken(by int64, r *bench.Request) bench.Answer {
	if by == r.User {
		return bench.Yes()
	}
	return bench.No(bench.AlreadyAssigned)
}

// Audit holds every confirmation against the row's holder.
func (Seats) Audit(p bench.Params, told *bench.Ledger, db bench.Snapshot) bench.Audit {
	promised := map[int64]map[int64]bool{} // users told yes, by seat
	for i := range told.Confirmed {
		t := &told.Confirmed[i]
		if promised[t.Row()] == nil {
			promised[t.Row()] = map[int64]bool{}
		}
		promised[t.Row()][t.User] = true
	}
	var a bench.Audit
	a.Check("overbooked", overbookedSeats(told, db, promised))
	a.Check("lost_updates", lostSeats(told, db))
	a.Check("undersold", unsoldSeats(told, db))
	a.Check("unexplained", strangeHolders(told, db, promised))
	return a
}

// overbookedSeats counts users beyond the first to whom a seat was confirmed.
func overbookedSeats(told *bench.Ledger, db bench.Snapshot, promised map[int64]map[int64]bool) bench.Finding {
	f := bench.Finding{Anomaly: bench.Overbooking}
	users, seats, worst := 0, 0, int64(0)
	for seat, to := range promised {
		if len(to) < 2 {
			continue
		}
		seats++
		users += len(to)
		f.Count += int64(len(to) - 1)
		if worst == 0 || len(to) > len(promised[worst]) || len(to) == len(promised[worst]) && seat < worst {
			worst = seat
		}
	}
	if f.Count == 0 {
		return f
	}
	f.Message = fmt.Sprintf("%d users were told yes for %d seat%s", users, seats, plural(seats))
	for i := range told.Confirmed {
		t := &told.Confirmed[i]
		if to := promised[t.Row()]; len(to) > 1 && !holds(db, t) {
			w := t.Witness("the seat is yours", heldBy(db, t.Row())+fmt.Sprintf("; %d users were told yes for it", len(to)))
			if f.First == nil {
				f.First = w
			}
			if f.Worst == nil && t.Row() == worst {
				f.Worst = w
			}
		}
	}
	return f
}

// lostSeats counts confirmed users whose seat does not name them.
func lostSeats(told *bench.Ledger, db bench.Snapshot) bench.Finding {
	f := bench.Finding{Anomaly: bench.LostUpdate}
	type claim struct{ seat, user int64 }
	seen := map[claim]bool{}
	for i := range told.Confirmed {
		t := &told.Confirmed[i]
		c := claim{t.Row(), t.User}
		if holds(db, t) || seen[c] {
			continue
		}
		seen[c] = true
		f.Count++
		if f.First == nil {
			f.First = t.Witness("the seat is yours", heldBy(db, t.Row()))
		}
	}
	f.Message = fmt.Sprintf("%d confirmed booking%s missing from the database", f.Count, are(f.Count))
	return f
}

// unsoldSeats counts refusals of seats that stand free at the end: seats are never given back, so they were free all along.
func unsoldSeats(told *bench.Ledger, db bench.Snapshot) bench.Finding {
	f := bench.Finding{Anomaly: bench.FalseSoldOut}
	free := map[int64]bool{}
	for _, seat := range db[seatsTable.Name] {
		if seat.Values[holder] == bench.Null {
			free[seat.Key] = true
		}
	}
	for key, r := range told.Refused {
		n, holds := int64(0), ""
		_, exists := db.Find(seatsTable.Name, key)
		switch {
		case free[key]:
			n, holds = r.Count, fmt.Sprintf("seat %d is free", key)
		case r.First.Reason == bench.SoldOut && len(free) > 0: // "sold out" speaks of every seat
			n, holds = r.Count, fmt.Sprintf("%d seat%s free", len(free), are(int64(len(free))))
		case exists:
			n, holds = r.Missing, fmt.Sprintf("there is a seat %d", key)
		}
		f.Count += n
		if n > 0 && (f.First == nil || ms(r.First.Start) < f.First.StartMS) {
			f.First = r.First.Witness(refusal(&r.First), holds)
		}
	}
	f.Message = fmt.Sprintf("%d user%s refused a seat that is free, or told that it does not exist", f.Count, were(f.Count))
	return f
}

// strangeHolders counts seats held by somebody who was never told so; whoever lost the answer to his COMMIT is excused.
func strangeHolders(told *bench.Ledger, db bench.Snapshot, promised map[int64]map[int64]bool) bench.Finding {
	f := bench.Finding{Anomaly: bench.LostUpdate}
	excused := map[int64]int{} // lost answers of a user: each may stand for one seat, whichever it was
	for i := range told.Indeterminate {
		excused[told.Indeterminate[i].User]++
	}
	for _, seat := range db[seatsTable.Name] {
		by := seat.Values[holder]
		if by == bench.Null || promised[seat.Key][by] {
			continue
		}
		if excused[by] > 0 {
			excused[by]--
			continue
		}
		f.Count++
		if f.First == nil {
			f.First = &bench.Witness{User: by, Row: seat.Key, Told: "nothing", Holds: fmt.Sprintf("seat %d names user %d", seat.Key, by)}
		}
	}
	f.Message = fmt.Sprintf("%d seat%s held by a user who was never told so", f.Count, are(f.Count))
	return f
}

func holds(db bench.Snapshot, t *bench.Told) bool {
	seat, found := db.Find(seatsTable.Name, t.Row())
	return found && seat.Values[holder] == t.User
}

func heldBy(db bench.Snapshot, key int64) string {
	seat, found := db.Find(seatsTable.Name, key)
	switch {
	case !found:
		return fmt.Sprintf("there is no seat %d", key)
	case seat.Values[holder] == bench.Null:
		return fmt.Sprintf("seat %d is free", key)
	}
	return fmt.Sprintf("seat %d names user %d", key, seat.Values[holder])
}
