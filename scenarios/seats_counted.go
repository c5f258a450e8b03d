package scenarios

import (
	"fmt"

	"github.com/lockbench/lockbench/bench"
)

// Counted is the seat map without seats: a show has --capacity tickets, a sale inserts a row, and whether there is one left is found by
// counting. A lock on rows that were read keeps nobody from inserting another.
type Counted struct{}

// The ticket's columns.
const (
	ticketShow   = 0
	ticketHolder = 1
)

var ticketsTable = bench.Table{Name: "tickets", Key: "id", Columns: []string{"show", "holder"}, Version: "version", Group: "show", Inserts: true}

// Info describes the variant.
func (Counted) Info() bench.ScenarioInfo {
	info := Seats{}.Info()
	info.Unit = "shows"
	info.Story = "The service reads the show's tickets, counts them, and inserts one more if there are fewer than --capacity. What it decides on is that a row does not exist, and a row that does not exist cannot be locked."
	info.Invariant = "no show has more tickets than --capacity, and every confirmed ticket is there"
	info.Anomalies = []bench.Anomaly{bench.Phantom, bench.LostUpdate, bench.FalseSoldOut}
	return info
}

// Fit sets one show of fifty tickets.
func (Counted) Fit(p bench.Params) (bench.Params, error) {
	if p.Rows == 0 {
		p.Rows = 1
	}
	if p.Capacity == 0 {
		p.Capacity = 50
	}
	if _, given := p.Options[cancel]; given {
		return p, bench.Hintf("leave one of them out", "--%s and --%s do not go together", cancel, byCount)
	}
	return p, nil
}

// Tables returns the tickets.
func (Counted) Tables() []*bench.Table { return []*bench.Table{&ticketsTable} }

// Changes is empty: how many rows there are fits into no WHERE clause that is checked again after a wait.
func (Counted) Changes() []*bench.Change { return nil }

// SingleWrite is false: the write is an insert.
func (Counted) SingleWrite() bool { return false }

// Fill sells nothing.
func (Counted) Fill(bench.Params) []bench.Fill { return []bench.Fill{{Table: &ticketsTable}} }

// Operation buys a ticket.
func (Counted) Operation(l bench.Lends, p bench.Params) (bench.Operation, error) {
	if !l.Has(bench.LendsGroup | bench.LendsInsert) {
		return nil, &bench.NotApplicable{Reason: "tickets are counted and inserted, and this strategy protects a row that is there", Remedy: "use serializable, or advisory, which locks a number"}
	}
	return bench.Single(func(tx bench.Tx, r *bench.Request) (bench.Answer, error) {
		sold, err := tx.List(&ticketsTable, r.Key)
		switch {
		case err != nil:
			return bench.Answer{}, err
		case int64(len(sold)) >= p.Capacity:
			return bench.No(bench.SoldOut), nil
		}
		tx.Think()
		id := r.Op + 1
		_, err = tx.Insert(&ticketsTable, bench.Row{Key: id, Values: [bench.MaxColumns]int64{ticketShow: r.Key, ticketHolder: r.User}})
		return bench.Answer{Outcome: bench.Confirmed, Key: id}, err
	}), nil
}

// Audit counts tickets.
func (Counted) Audit(p bench.Params, told *bench.Ledger, db bench.Snapshot) bench.Audit {
	over := bench.Finding{Anomaly: bench.Phantom}
	lost := bench.Finding{Anomaly: bench.LostUpdate}
	stray := bench.Finding{Anomaly: bench.LostUpdate}
	unsold := bench.Finding{Anomaly: bench.FalseSoldOut}
	sold, known := map[int64]int64{}, map[int64]bool{}
	for _, ticket := range db[ticketsTable.Name] {
		sold[ticket.Values[ticketShow]]++
	}
	for i := range told.Confirmed {
		t := &told.Confirmed[i]
		known[t.Row()] = true
		ticket, found := db.Find(ticketsTable.Name, t.Row())
		if !found || ticket.Values[ticketHolder] != t.User {
			lost.Count++
			if lost.First == nil {
				lost.First = t.Witness("the ticket is yours", fmt.Sprintf("there is no ticket %d of yours", t.Row()))
			}
		}
		if n := sold[t.Request.Key]; n > p.Capacity && over.First == nil {
			over.First = t.Witness("the ticket is yours", fmt.Sprintf("show %d has %d tickets for %d places", t.Request.Key, n, p.Capacity))
		}
	}
	for i := range told.Indeterminate {
		known[told.Indeterminate[i].Op+1] = true
	}
	for _, ticket := range db[ticketsTable.Name] {
		if !known[ticket.Key] {
			stray.Count++
			if stray.First == nil {
				stray.First = &bench.Witness{Row: ticket.Key, Told: "nothing", Holds: fmt.Sprintf("there is a ticket %d", ticket.Key)}
			}
		}
	}
	for _, n := range sold {
		over.Count += max(0, n-p.Capacity)
	}
	for show, r := range told.Refused {
		if sold[show] < p.Capacity {
			unsold.Count += r.Count
			unsold.First = r.First.Witness(refusal(&r.First), fmt.Sprintf("show %d has %d of %d tickets left", show, p.Capacity-sold[show], p.Capacity))
		}
	}
	over.Message = fmt.Sprintf("%d ticket%s sold beyond the capacity", over.Count, were(over.Count))
	lost.Message = fmt.Sprintf("%d confirmed ticket%s missing from the database", lost.Count, are(lost.Count))
	stray.Message = fmt.Sprintf("%d ticket%s there that nobody was told of", stray.Count, are(stray.Count))
	unsold.Message = fmt.Sprintf("%d user%s told that a show was sold out which was not", unsold.Count, were(unsold.Count))
	var a bench.Audit
	a.Check("overbooked", over)
	a.Check("lost_updates", lost)
	a.Check("unexplained", stray)
	a.Check("undersold", unsold)
	return a
}
