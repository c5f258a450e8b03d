package scenarios

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lockbench/lockbench/bench"
)

// Checkout sells a unit of stock: stock, payment and order belong together, and the payment is another system's.
type Checkout struct{}

// The order's columns and states.
const (
	orderItem  = 0
	orderState = 1

	orderReserved = 1
	orderPlaced   = 2
	orderUndone   = 3
)

var ordersTable = bench.Table{Name: "orders", Key: "id", Columns: []string{"item", "state"}, Version: "version", Inserts: true}

var (
	takeStock = bench.Change{
		Table: &stockTable, Guard: bench.Cond{Column: "available", Relation: bench.AtLeast},
		Steps: []bench.Step{{Column: "available", Action: bench.Subtract}}, Operands: 1,
	}
	// The local transactions of a saga. takeUnits, the reservation, is inventory's.
	reserveUnits = bench.Change{Table: takeUnits.Table, Guard: takeUnits.Guard, Steps: takeUnits.Steps, Operands: 1, Saga: true}
	shipUnits    = bench.Change{
		Table: &stockTable, Guard: bench.Cond{Relation: bench.Always},
		Steps: []bench.Step{{Column: "reserved", Action: bench.Subtract}}, Operands: 1, Saga: true,
	}
	putBack = bench.Change{
		Table: &stockTable, Guard: bench.Cond{Relation: bench.Always},
		Steps: []bench.Step{{Column: "available", Action: bench.Add}, {Column: "reserved", Action: bench.Subtract}}, Operands: 1, Saga: true,
	}
	placeOrder = bench.Change{
		Table: &ordersTable, Guard: bench.Cond{Column: "state", Relation: bench.Equal},
		Steps: []bench.Step{{Column: "state", Action: bench.Set, Operand: 1}}, Operands: 2, Saga: true,
	}
	undoOrder = bench.Change{Table: placeOrder.Table, Guard: placeOrder.Guard, Steps: placeOrder.Steps, Operands: 2, Saga: true, Once: true}
	refund    = bench.Change{
		Table: &chargesTable, Guard: bench.Cond{Column: "amount", Relation: bench.AtLeast},
		Steps: []bench.Step{{Column: "amount", Action: bench.Set, Operand: 1}}, Operands: 2, Saga: true,
	}
)

// Declined rejects a checkout whose payment or delivery was refused.
const Declined bench.Reason = "declined"

// The flags of checkouts.
const (
	failCall  = "fail-call"
	crash     = "crash"
	undoTwice = "duplicate-compensation"
)

var checkoutCall = call{p50: 2 * time.Millisecond, p99: 20 * time.Millisecond}

// fate is what will happen to a checkout, as drawn: where it fails, and where its process is killed.
type fate struct{ failAt, crashAt int64 }

const (
	atPayment  = 1
	atDelivery = 2

	afterReserving = 1
	afterCharging  = 2
	whileUndoing   = 3
)

func (f fate) mark() int64         { return f.failAt*10 + f.crashAt }
func fateOf(r *bench.Request) fate { return fate{r.Mark / 10, r.Mark % 10} }

// Info describes the scenario.
func (Checkout) Info() bench.ScenarioInfo {
	return bench.ScenarioInfo{
		Name: "checkout", Unit: "stock items",
		Summary: "a unit of stock, a payment and an order, with a call to another system in the middle",
		Story: "A checkout takes a unit from stock, asks another system for the money (--call), and records charge and order. In one transaction the stock's row stays locked, or its version at risk, while the other system works. " +
			"As a saga it is three short transactions, and what fails half-way is undone by compensations; what a crash left half done, a recovery pass finishes or undoes.",
		Invariant: "available + reserved + ordered units are what there was, nothing is reserved without an order under way once recovery has run, and charges and orders belong together",
		Anomalies: []bench.Anomaly{bench.Overbooking, bench.LostUpdate, bench.Negative, bench.Stuck, bench.DoubleUndo, bench.DoubleCharge},
		Options: []bench.OptionDoc{
			callDoc(checkoutCall),
			{Name: failCall, Values: []string{"N%"}, Doc: "checkouts whose payment or delivery is refused (default 0%)"},
			{Name: crash, Values: []string{"N%"}, Doc: "checkouts whose process is killed between two steps (default 0%)"},
			{Name: undoTwice, Values: []string{"on", "off"}, Doc: "deliver every compensation twice (default off)"},
		},
		Variants: []bench.Options{{failCall: "20%", crash: "2%", undoTwice: "on"}},
	}
}

// Fit sets one item of a hundred units, and stock that lasts when users come back for more.
func (Checkout) Fit(p bench.Params) (bench.Params, error) {
	p, err := Inventory{}.Fit(p)
	if err != nil {
		return p, err
	}
	if _, err := readCall(p, checkoutCall); err != nil {
		return p, err
	}
	if _, err := share(p, failCall, 0); err != nil {
		return p, err
	}
	_, err = share(p, crash, 0)
	return p, err
}

// Tables returns the stock, the charges and the orders.
func (Checkout) Tables() []*bench.Table {
	return []*bench.Table{&stockTable, &chargesTable, &ordersTable}
}

// Changes returns the taking of a unit, and the steps of a saga.
func (Checkout) Changes() []*bench.Change {
	return []*bench.Change{&takeStock, &reserveUnits, &shipUnits, &putBack, &placeOrder, &undoOrder, &refund}
}

// SingleWrite is false: three tables are written.
func (Checkout) SingleWrite() bool { return false }

// Fill puts --capacity units of each item on the shelf.
func (Checkout) Fill(p bench.Params) []bench.Fill {
	return append(Inventory{}.Fill(p), bench.Fill{Table: &chargesTable}, bench.Fill{Table: &ordersTable})
}

// Draw decides how long the other system takes, and what goes wrong.
func (Checkout) Draw(p bench.Params, rng *rand.Rand, r *bench.Request) {
	c, _ := readCall(p, checkoutCall) // Fit has read them all
	fail, _ := share(p, failCall, 0)
	kill, _ := share(p, crash, 0)
	r.Call = c.draw(rng)
	var f fate
	if rng.Float64() < fail {
		f.failAt = 1 + rng.Int64N(atDelivery)
	}
	if rng.Float64() < kill {
		f.crashAt = 1 + rng.Int64N(whileUndoing)
	}
	r.Mark = f.mark()
}

// Operation checks out.
func (Checkout) Operation(l bench.Lends, p bench.Params) (bench.Operation, error) {
	switch {
	case l.Has(bench.LendsSteps):
		return saga{twice: on(p, undoTwice)}.checkOut, nil
	case !l.Has(bench.LendsInsert):
		return nil, &bench.NotApplicable{Reason: "a checkout writes stock, charge and order, and this strategy writes one row", Remedy: "use pessimistic or saga"}
	case l.Has(bench.LendsChange):
		return func(u *bench.User, r *bench.Request) bench.Answer {
			u.Think()
			return u.Transact(func(tx bench.Tx, r *bench.Request) (bench.Answer, error) { return buyAtOnce(u, tx, r) }, r)
		}, nil
	}
	return func(u *bench.User, r *bench.Request) bench.Answer {
		return u.Transact(func(tx bench.Tx, r *bench.Request) (bench.Answer, error) { return buyByRows(u, tx, r) }, r)
	}, nil
}

// buyByRows keeps what protects the stock over the call.
func buyByRows(u *bench.User, tx bench.Tx, r *bench.Request) (bench.Answer, error) {
	item, found, err := tx.Get(&stockTable, r.Key)
	switch {
	case err != nil:
		return bench.Answer{}, err
	case !found:
		return bench.Unknown(), nil
	case item.Values[available] < r.Quantity:
		return bench.No(bench.SoldOut), nil
	}
	tx.Think()
	return pay(u, tx, r, func() error {
		less := item
		less.Values[available] -= r.Quantity
		return tx.Put(&stockTable, item, less)
	})
}

// buyAtOnce takes the unit by a guarded statement, whose lock lasts over the call too.
func buyAtOnce(u *bench.User, tx bench.Tx, r *bench.Request) (bench.Answer, error) {
	done, err := tx.Apply(&takeStock, r.Key, r.Quantity)
	switch {
	case err != nil:
		return bench.Answer{}, err
	case !done:
		return soldOutOrUnknown(tx, r)
	}
	return pay(u, tx, r, func() error { return nil })
}

func soldOutOrUnknown(tx bench.Tx, r *bench.Request) (bench.Answer, error) {
	_, found, err := tx.Peek(&stockTable, r.Key)
	switch {
	case err != nil:
		return bench.Answer{}, err
	case !found:
		return bench.Unknown(), nil
	}
	return bench.No(bench.SoldOut), nil
}

// pay makes the call and writes the rest of a checkout in one transaction.
func pay(u *bench.User, tx bench.Tx, r *bench.Request, take func() error) (bench.Answer, error) {
	f := fateOf(r)
	if f.crashAt == afterReserving {
		return bench.Answer{}, bench.Crash()
	}
	u.Spend(r.Call)
	if f.failAt > 0 {
		return bench.No(Declined), nil
	}
	if err := take(); err != nil {
		return bench.Answer{}, err
	}
	if f.crashAt == afterCharging {
		return bench.Answer{}, bench.Crash()
	}
	if err := insertCharge(tx, r); err != nil {
		return bench.Answer{}, err
	}
	if err := insertOrder(tx, r, orderPlaced); err != nil {
		return bench.Answer{}, err
	}
	if f.crashAt == whileUndoing {
		return bench.Answer{}, bench.Crash()
	}
	return bench.Answer{Outcome: bench.Confirmed, Key: orderID(r)}, nil
}

func orderID(r *bench.Request) int64 { return r.Op + 1 }

func insertCharge(tx bench.Tx, r *bench.Request) error {
	_, err := tx.Insert(&chargesTable, bench.Row{Key: orderID(r), Values: [bench.MaxColumns]int64{
		chargePayment: orderID(r), chargeAccount: r.Key, chargeAmount: r.Quantity,
	}})
	return err
}

func insertOrder(tx bench.Tx, r *bench.Request, state int64) error {
	_, err := tx.Insert(&ordersTable, bench.Row{Key: orderID(r), Values: [bench.MaxColumns]int64{orderItem: r.Key, orderState: state}})
	return err
}

// saga is a checkout in short transactions, each with its compensation.
type saga struct{ twice bool }

func (s saga) checkOut(u *bench.User, r *bench.Request) bench.Answer {
	f := fateOf(r)
	u.Think()
	switch ans := u.Transact(s.reserve, r); ans.Outcome {
	case bench.Confirmed:
	case bench.Indeterminate: // the reservation may be there or not; undoing it is right either way
		return s.undo(u, r, bench.Answer{Outcome: bench.Busy})
	default:
		return ans
	}
	if f.crashAt == afterReserving {
		return killed()
	}
	u.Spend(r.Call)
	if f.failAt == atPayment {
		return s.undo(u, r, bench.No(Declined))
	}
	if ans := u.Transact(s.charge, r); ans.Outcome != bench.Confirmed {
		return s.undo(u, r, bench.Answer{Outcome: bench.Busy})
	}
	if f.crashAt == afterCharging {
		return killed()
	}
	if f.failAt == atDelivery {
		return s.undo(u, r, bench.No(Declined))
	}
	ans := u.Transact(s.place, r)
	if ans.Outcome != bench.Confirmed { // whether or not it was placed, recovery will see: the money is there
		return ans
	}
	return bench.Answer{Outcome: bench.Confirmed, Key: orderID(r)}
}

// killed is the answer of a process that is no more.
func killed() bench.Answer { return bench.Answer{Outcome: bench.Indeterminate} }

func (saga) reserve(tx bench.Tx, r *bench.Request) (bench.Answer, error) {
	done, err := tx.Apply(&reserveUnits, r.Key, r.Quantity)
	switch {
	case err != nil:
		return bench.Answer{}, err
	case !done:
		return soldOutOrUnknown(tx, r)
	}
	return bench.Yes(), insertOrder(tx, r, orderReserved)
}

func (saga) charge(tx bench.Tx, r *bench.Request) (bench.Answer, error) {
	return bench.Yes(), insertCharge(tx, r)
}

// place makes the reservation an order. It does nothing to one that is no longer a reservation.
func (saga) place(tx bench.Tx, r *bench.Request) (bench.Answer, error) {
	done, err := tx.Apply(&placeOrder, orderID(r), orderReserved, orderPlaced)
	if err == nil && done {
		_, err = tx.Apply(&shipUnits, r.Key, r.Quantity)
	}
	return bench.Yes(), err
}

// undo compensates in the reverse order of the steps, and answers told once all is undone.
func (s saga) undo(u *bench.User, r *bench.Request, told bench.Answer) bench.Answer {
	times := 1
	if s.twice {
		times = 2
	}
	for range times {
		if ans := u.Transact(s.payBack, r); ans.Outcome != bench.Confirmed {
			return killed()
		}
	}
	if fateOf(r).crashAt == whileUndoing {
		return killed()
	}
	for range times {
		if ans := u.Transact(s.cancel, r); ans.Outcome != bench.Confirmed {
			return killed()
		}
	}
	return told
}

// payBack refunds the charge, if there is one that was not refunded.
func (saga) payBack(tx bench.Tx, r *bench.Request) (bench.Answer, error) {
	_, err := tx.Apply(&refund, orderID(r), 1, 0)
	return bench.Yes(), err
}

// cancel gives the units back, if they are still reserved.
func (saga) cancel(tx bench.Tx, r *bench.Request) (bench.Answer, error) {
	done, err := tx.Apply(&undoOrder, orderID(r), orderReserved, orderUndone)
	if err == nil && done {
		_, err = tx.Apply(&putBack, r.Key, r.Quantity)
	}
	return bench.Yes(), err
}

// Recover finishes reservations that are paid for and undoes the others, as the service would when it comes up again.
func (Checkout) Recover(u *bench.User, p bench.Params, db bench.Snapshot) {
	s := saga{twice: on(p, undoTwice)}
	for _, order := range db[ordersTable.Name] {
		if order.Values[orderState] != orderReserved {
			continue
		}
		r := bench.Request{Op: order.Key - 1, Key: order.Values[orderItem], Quantity: 1}
		if c, charged := db.Find(chargesTable.Name, order.Key); charged && c.Values[chargeAmount] > 0 {
			u.Transact(s.place, &r)
		} else {
			s.undo(u, &r, bench.Answer{})
		}
	}
}

// Audit holds stock, charges and orders against each other, and against what users were told.
func (Checkout) Audit(p bench.Params, told *bench.Ledger, db bench.Snapshot) bench.Audit {
	over := bench.Finding{Anomaly: bench.Overbooking}
	lost := bench.Finding{Anomaly: bench.LostUpdate}
	stuck := bench.Finding{Anomaly: bench.Stuck}
	extra := bench.Finding{Anomaly: bench.DoubleUndo}
	below := bench.Finding{Anomaly: bench.Negative}
	unpaid := bench.Finding{Anomaly: bench.DoubleCharge}
	note := func(f *bench.Finding, n int64, w *bench.Witness) {
		if n > 0 {
			f.Count += n
			if f.First == nil {
				f.First = w
			}
		}
	}
	placed, held := map[int64]int64{}, map[int64]int64{} // units by item
	for _, o := range db[ordersTable.Name] {
		c, charged := db.Find(chargesTable.Name, o.Key)
		w := &bench.Witness{Row: o.Key, Told: fmt.Sprintf("order %d", o.Key), Holds: orderHolds(&o, c, charged)}
		paid := charged && c.Values[chargeAmount] > 0
		switch o.Values[orderState] {
		case orderPlaced:
			placed[o.Values[orderItem]]++
			if !paid {
				note(&unpaid, 1, w)
			}
		case orderReserved:
			held[o.Values[orderItem]]++
			note(&stuck, 1, w)
		default:
			if paid {
				note(&unpaid, 1, w)
			}
		}
	}
	sold := map[int64]int64{}
	for i := range told.Confirmed {
		t := &told.Confirmed[i]
		sold[t.Request.Key]++
		o, found := db.Find(ordersTable.Name, t.Row())
		if !found || o.Values[orderState] != orderPlaced {
			note(&lost, 1, t.Witness(fmt.Sprintf("order %d is placed", t.Row()), "there is no such order"))
		}
		if sold[t.Request.Key] > p.Capacity {
			note(&over, 1, t.Witness("a unit is yours", fmt.Sprintf("item %d had %d units", t.Request.Key, p.Capacity)))
		}
	}
	for _, item := range db[stockTable.Name] {
		there := item.Values[available] + placed[item.Key] + held[item.Key]
		w := &bench.Witness{Row: item.Key, Told: fmt.Sprintf("item %d began with %d units, and %d are ordered", item.Key, p.Capacity, placed[item.Key]), Holds: itemHolds(&item)}
		note(&extra, there-p.Capacity, w)
		note(&lost, p.Capacity-there, w)
		note(&stuck, item.Values[reserved]-held[item.Key], w)
		if item.Values[available] < 0 || item.Values[reserved] < 0 {
			note(&below, 1, w)
		}
	}
	over.Message = fmt.Sprintf("%d unit%s confirmed beyond the capacity", over.Count, were(over.Count))
	lost.Message = fmt.Sprintf("%d unit%s or orders missing", lost.Count, are(lost.Count))
	stuck.Message = fmt.Sprintf("%d reservation%s stuck after recovery", stuck.Count, are(stuck.Count))
	extra.Message = fmt.Sprintf("%d unit%s in stock or ordered beyond what there was", extra.Count, are(extra.Count))
	below.Message = fmt.Sprintf("%d item%s below zero", below.Count, are(below.Count))
	unpaid.Message = fmt.Sprintf("%d order%s placed without a charge, or charged without being placed", unpaid.Count, were(unpaid.Count))
	var a bench.Audit
	a.Check("overbooked", over)
	a.Check("lost_updates", lost)
	a.Check("stuck_reservations", stuck)
	a.Check("overstocked", extra)
	a.Check("negative", below)
	a.Check("mischarged", unpaid)
	return a
}

func orderHolds(o *bench.Row, c bench.Row, charged bool) string {
	state := map[int64]string{orderReserved: "reserved", orderPlaced: "placed", orderUndone: "undone"}[o.Values[orderState]]
	switch {
	case !charged:
		return fmt.Sprintf("order %d is %s and not charged", o.Key, state)
	case c.Values[chargeAmount] == 0:
		return fmt.Sprintf("order %d is %s and refunded", o.Key, state)
	}
	return fmt.Sprintf("order %d is %s and charged", o.Key, state)
}
