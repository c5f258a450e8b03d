package scenarios

import (
	"fmt"

	"github.com/lockbench/lockbench/bench"
)

// Inventory is a stock of items: a user reserves units of one, and there must never be fewer than none.
type Inventory struct{}

// The stock item's columns.
const (
	available = 0
	reserved  = 1
)

var stockTable = bench.Table{Name: "stock", Key: "id", Columns: []string{"available", "reserved"}, Version: "version", Fence: "fence"}

// takeUnits is the rule as one statement: enough is available, and it moves to reserved.
var takeUnits = bench.Change{
	Table: &stockTable,
	Guard: bench.Cond{Column: "available", Relation: bench.AtLeast, Operand: 0},
	Steps: []bench.Step{
		{Column: "available", Action: bench.Subtract, Operand: 0},
		{Column: "reserved", Action: bench.Add, Operand: 0},
	},
	Operands: 1,
}

// Info describes the scenario.
func (Inventory) Info() bench.ScenarioInfo {
	return bench.ScenarioInfo{
		Name: "inventory", Unit: "stock items",
		Summary:   "a stock item with --capacity units: each user reserves one unit",
		Story:     "The service reads the item, checks that enough is available, and moves the units from available to reserved. Both numbers are written as computed from what was read.",
		Anomalies: []bench.Anomaly{bench.Overbooking, bench.LostUpdate, bench.Negative, bench.FalseSoldOut},
		Invariant: "initial − confirmed units = available, confirmed units = reserved, and available is never below 0",
		Options:   []bench.OptionDoc{{Name: check, Values: []string{"inside", "before"}, Doc: "where the rule is checked: under the strategy's protection (default), or in a transaction before it"}},
	}
}

// check is the option that says where the rule is checked.
const check = "check"

func before(p bench.Params) bool { return p.Options[check] == "before" }

// AtStake leaves the rule out where no strategy gets to see it.
func (s Inventory) AtStake(p bench.Params) []bench.Anomaly {
	if before(p) {
		return []bench.Anomaly{bench.LostUpdate}
	}
	return s.Info().Anomalies
}

// Fit sets one item of a hundred units unless told otherwise, and stock that lasts when users come back for more.
func (Inventory) Fit(p bench.Params) (bench.Params, error) {
	if p.Rows == 0 {
		p.Rows = 1
	}
	if p.Capacity == 0 {
		p.Capacity = 100
		if p.Endless {
			p.Capacity = 1_000_000_000
		}
	}
	return p, nil
}

// Tables returns the stock.
func (Inventory) Tables() []*bench.Table { return []*bench.Table{&stockTable} }

// Changes returns the reservation as one statement.
func (Inventory) Changes() []*bench.Change { return []*bench.Change{&takeUnits} }

// SingleWrite is true: a reservation writes its item.
func (Inventory) SingleWrite() bool { return true }

// Fill puts --capacity units of each item on the shelf.
func (Inventory) Fill(p bench.Params) []bench.Fill {
	return []bench.Fill{{Table: &stockTable, Rows: p.Rows, Row: func(key int64) bench.Row {
		return bench.Row{Key: key, Values: [bench.MaxColumns]int64{available: p.Capacity, reserved: 0}}
	}}}
}

// Operation reserves units.
func (Inventory) Operation(l bench.Lends, p bench.Params) (bench.Operation, error) {
	switch {
	case before(p) && l.Has(bench.LendsChange):
		return nil, &bench.NotApplicable{Reason: "its one statement is the rule: there is no checking before it", Remedy: "use pessimistic"}
	case before(p):
		return reserveUnchecked, nil
	case l.Has(bench.LendsChange):
		return bench.ThinkFirst(reserveAtOnce), nil
	}
	return bench.Single(reserve), nil
}

// reserveUnchecked trusts what it read before: the protected transaction counts the unit off, however many there are.
func reserveUnchecked(u *bench.User, r *bench.Request) bench.Answer {
	ans := u.Transact(func(tx bench.Tx, r *bench.Request) (bench.Answer, error) {
		item, found, err := tx.Get(&stockTable, r.Key)
		switch {
		case err != nil:
			return bench.Answer{}, err
		case !found:
			return bench.Unknown(), nil
		case item.Values[available] < r.Quantity:
			return bench.No(bench.SoldOut), nil
		}
		return bench.Yes(), nil
	}, r)
	if ans.Outcome != bench.Confirmed {
		return ans
	}
	return u.Transact(func(tx bench.Tx, r *bench.Request) (bench.Answer, error) {
		item, _, err := tx.Get(&stockTable, r.Key)
		if err != nil {
			return bench.Answer{}, err
		}
		tx.Think()
		less := item
		less.Values[available] -= r.Quantity
		less.Values[reserved] += r.Quantity
		return bench.Yes(), tx.Put(&stockTable, item, less)
	}, r)
}

// reserve reads, decides and writes.
func reserve(tx bench.Tx, r *bench.Request) (bench.Answer, error) {
	return reserveWith(tx, r, func() error { return nil })
}

// reserveWith does work of its own between read and write.
func reserveWith(tx bench.Tx, r *bench.Request, work func() error) (bench.Answer, error) {
	item, found, err := tx.Get(&stockTable, r.Key)
	if err != nil {
		return bench.Answer{}, err
	}
	if !found {
		return bench.Unknown(), nil
	}
	if item.Values[available] < r.Quantity {
		return bench.No(bench.SoldOut), nil
	}
	tx.Think()
	if err := work(); err != nil {
		return bench.Answer{}, err
	}
	less := item
	less.Values[available] -= r.Quantity
	less.Values[reserved] += r.Quantity
	if err := tx.Put(&stockTable, item, less); err != nil {
		return bench.Answer{}, err
	}
	return bench.Yes(), nil
}

// reserveAtOnce leaves rule and write to one statement.
func reserveAtOnce(tx bench.Tx, r *bench.Request) (bench.Answer, error) {
	done, err := tx.Apply(&takeUnits, r.Key, r.Quantity)
	if err != nil {
		return bench.Answer{}, err
	}
	if done {
		return bench.Yes(), nil
	}
	_, found, err := tx.Peek(&stockTable, r.Key)
	switch {
	case err != nil:
		return bench.Answer{}, err
	case !found:
		return bench.Unknown(), nil
	}
	return bench.No(bench.SoldOut), nil
}

// shelf is what users were told about one item.
type shelf struct {
	units     int64 // confirmed
	uncertain int64 // of operations whose COMMIT went unanswered
	past      *bench.Told
}

// Audit holds the units confirmed against what each item has left.
func (Inventory) Audit(p bench.Params, told *bench.Ledger, db bench.Snapshot) bench.Audit {
	shelves := map[int64]*shelf{}
	at := func(key int64) *shelf {
		if shelves[key] == nil {
			shelves[key] = &shelf{}
		}
		return shelves[key]
	}
	for i := range told.Confirmed {
		t := &told.Confirmed[i]
		s := at(t.Row())
		s.units += t.Quantity
		if s.units > p.Capacity && s.past == nil {
			s.past = t
		}
	}
	for i := range told.Indeterminate {
		at(told.Indeterminate[i].Row()).uncertain += told.Indeterminate[i].Quantity
	}
	var a bench.Audit
	over := bench.Finding{Anomaly: bench.Overbooking}
	lost := bench.Finding{Anomaly: bench.LostUpdate}
	phantom := bench.Finding{Anomaly: bench.LostUpdate}
	below := bench.Finding{Anomaly: bench.Negative}
	unsold := bench.Finding{Anomaly: bench.FalseSoldOut}
	for key, s := range shelves {
		if _, found := db.Find(stockTable.Name, key); !found {
			lost.Count += s.units // the row is gone with everything that was sold from it
		}
	}
	for _, item := range db[stockTable.Name] {
		s, refused := at(item.Key), told.Refused[item.Key]
		auditItem(&item, s, p.Capacity, &over, &lost, &phantom, &below)
		wrongly := refused.Missing // the item is there
		if item.Values[available] > 0 {
			wrongly = refused.Count
		}
		if wrongly > 0 {
			unsold.Count += wrongly
			if unsold.First == nil {
				unsold.First = refused.First.Witness(refusal(&refused.First), itemHolds(&item))
			}
		}
	}
	over.Message = fmt.Sprintf("%d unit%s confirmed beyond the capacity", over.Count, were(over.Count))
	lost.Message = fmt.Sprintf("%d confirmed unit%s missing from the database", lost.Count, are(lost.Count))
	phantom.Message = fmt.Sprintf("%d unit%s gone that nobody was told to have", phantom.Count, are(phantom.Count))
	below.Message = fmt.Sprintf("%d item%s below zero", below.Count, are(below.Count))
	unsold.Message = fmt.Sprintf("%d user%s told that an item was gone which is there, with units left or without", unsold.Count, were(unsold.Count))
	a.Check("overbooked", over)
	a.Check("lost_updates", lost)
	a.Check("unexplained", phantom)
	a.Check("negative", below)
	a.Check("undersold", unsold)
	return a
}

// auditItem adds one item's findings. What the row lost must lie between the units confirmed and those plus the uncertain ones; both
// of its numbers are held against that.
func auditItem(item *bench.Row, s *shelf, capacity int64, over, lost, phantom, below *bench.Finding) {
	gone, kept := capacity-item.Values[available], item.Values[reserved]
	w := &bench.Witness{Row: item.Key, Told: fmt.Sprintf("%d units were confirmed", s.units), Holds: itemHolds(item)}
	note := func(f *bench.Finding, n int64, w *bench.Witness) {
		if n <= 0 {
			return
		}
		f.Count += n
		if f.First == nil {
			f.First = w
		}
		if f.Worst == nil || n == f.Count {
			f.Worst = w
		}
	}
	if s.past != nil {
		note(over, s.units-capacity, s.past.Witness("a unit is yours", fmt.Sprintf("item %d had %d units", item.Key, capacity)))
	}
	note(lost, s.units-min(gone, kept), w)
	note(phantom, max(gone, kept)-s.units-s.uncertain, w)
	if item.Values[available] < 0 {
		note(below, 1, w)
	}
}

func itemHolds(item *bench.Row) string {
	return fmt.Sprintf("item %d has %d available, %d reserved", item.Key, item.Values[available], item.Values[reserved])
}
