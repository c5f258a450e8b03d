package scenarios

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lockbench/lockbench/bench"
)

// Payment debits accounts. Each payment has a key and may be delivered several times at once.
type Payment struct{}

// The columns of charges and of idempotency keys.
const (
	chargePayment = 0
	chargeAccount = 1
	chargeAmount  = 2

	keyCharge = 0
)

var (
	chargesTable = bench.Table{Name: "charges", Key: "id", Columns: []string{"payment", "account", "amount"}, Version: "version", Inserts: true}
	keysTable    = bench.Table{Name: "idempotency_keys", Key: "id", Columns: []string{"charge"}, Version: "version", Inserts: true}
)

// storeResult writes a payment's result beside its key.
var storeResult = bench.Change{
	Table: &keysTable, Guard: bench.Cond{Column: "charge", Relation: bench.IsNull},
	Steps: []bench.Step{{Column: "charge", Action: bench.Set}}, Operands: 1,
}

// Stored results of payments that were not charged.
const (
	refusedCharge = 0
	unknownCharge = -1 // there is no such account
)

// The flags of payments.
const (
	duplicates = "duplicates"
	callInTx   = "call-in-tx"
	resend     = "resend"

	mostResent = 3
)

var paymentCall = call{p50: 2 * time.Millisecond, p99: 20 * time.Millisecond}

// Info describes the scenario.
func (Payment) Info() bench.ScenarioInfo {
	return bench.ScenarioInfo{
		Name: "payment", Unit: "accounts",
		Summary: "payments that are delivered --duplicates times debit --rows accounts of --capacity each",
		Story: "A payment asks another system (--call), reads the account, checks that it holds enough, and writes the balance and a charge. The same payment arrives several times at once, and again when a client loses patience (--resend). " +
			"Without idempotency each delivery charges. With idempotency=on the payment's key is inserted first: of several deliveries one inserts it, and the others wait for it and return its stored result. " +
			"With --call-in-tx the transaction stays open during the call.",
		Invariant: "a payment is charged once, each account holds what its charges leave, nothing is below 0, and who was told that he paid has a charge",
		Anomalies: []bench.Anomaly{bench.DoubleCharge, bench.LostUpdate, bench.Negative, bench.FalseSoldOut},
		Options: []bench.OptionDoc{
			{Name: duplicates, Values: []string{"N"}, Doc: "deliveries of each payment (default 5)"},
			callDoc(paymentCall),
			{Name: callInTx, Values: []string{"on", "off"}, Doc: "make the call inside the transaction (default off)"},
			{Name: resend, Values: []string{"DURATION"}, Doc: fmt.Sprintf("clients without an answer send again after it, up to %d times (default never)", mostResent)},
		},
		Variants: []bench.Options{{callInTx: "on"}},
	}
}

// Fit sets a hundred accounts that can pay for everything.
func (Payment) Fit(p bench.Params) (bench.Params, error) {
	if p.Rows == 0 {
		p.Rows = 100
	}
	if p.Capacity == 0 {
		p.Capacity = int64(p.Users) * amount * (mostResent + 1)
		if p.Endless {
			p.Capacity = 1_000_000_000_000
		}
	}
	_, err := count(p, duplicates, 5, 1, 1000)
	if err != nil {
		return p, err
	}
	if _, err = readCall(p, paymentCall); err != nil {
		return p, err
	}
	_, err = span(p, resend, 0)
	return p, err
}

// Tables returns the accounts, the charges and the keys.
func (Payment) Tables() []*bench.Table {
	return []*bench.Table{&keysTable, &accountsTable, &chargesTable}
}

// Changes returns the debit and the storing of its result.
func (Payment) Changes() []*bench.Change { return []*bench.Change{&debit, &storeResult} }

// SingleWrite is false: a payment writes a balance, a charge and perhaps a key.
func (Payment) SingleWrite() bool { return false }

// Fill gives every account its --capacity.
func (Payment) Fill(p bench.Params) []bench.Fill {
	return append(Transfer{}.Fill(p), bench.Fill{Table: &chargesTable}, bench.Fill{Table: &keysTable})
}

// Deliveries is --duplicates.
func (Payment) Deliveries(p bench.Params) int64 {
	n, _ := count(p, duplicates, 5, 1, 1000) // Fit has read it
	return n
}

// Resend is --resend.
func (Payment) Resend(p bench.Params) (time.Duration, int) {
	after, _ := span(p, resend, 0)
	return after, mostResent
}

// Draw numbers the payment and asks how long the other system will take.
func (s Payment) Draw(p bench.Params, rng *rand.Rand, r *bench.Request) {
	c, _ := readCall(p, paymentCall)
	r.Quantity, r.Call = amount, c.draw(rng)
	r.Mark = r.Op/s.Deliveries(p) + 1
}

// Operation pays.
func (Payment) Operation(l bench.Lends, p bench.Params) (bench.Operation, error) {
	c := cashier{idempotent: p.Idempotent, pay: payByRows, read: bench.Tx.Get, store: storeByRow}
	switch {
	case !l.Has(bench.LendsInsert):
		return nil, &bench.NotApplicable{Reason: "a payment writes a balance and a charge, and this strategy writes one row", Remedy: "use pessimistic or atomic"}
	case l.Has(bench.LendsChange):
		c.pay, c.read, c.store, c.thinks = payAtOnce, bench.Tx.Peek, storeAtOnce, true
	}
	switch {
	case on(p, callInTx):
		return c.inOne, nil
	case p.Idempotent:
		return c.inSteps, nil
	}
	return c.callFirst, nil
}

// cashier is the operation as it suits what a strategy lends.
type cashier struct {
	idempotent bool
	thinks     bool // the strategy has no gap between read and write to think in
	pay        func(tx bench.Tx, r *bench.Request, call func()) (bench.Answer, error)
	read       func(tx bench.Tx, t *bench.Table, key int64) (bench.Row, bool, error)
	store      func(tx bench.Tx, payment, charge int64) error
}

// inOne holds the transaction open while the other system works.
func (c cashier) inOne(u *bench.User, r *bench.Request) bench.Answer {
	c.think(u)
	return u.Transact(func(tx bench.Tx, r *bench.Request) (bench.Answer, error) {
		if c.idempotent {
			if mine, ans, err := c.begin(tx, r, r.Op+1); !mine {
				return ans, err
			}
		}
		return c.pay(tx, r, func() { u.Spend(r.Call) })
	}, r)
}

// callFirst asks the other system, then pays in one transaction.
func (c cashier) callFirst(u *bench.User, r *bench.Request) bench.Answer {
	c.think(u)
	u.Spend(r.Call)
	return u.Transact(c.payNow, r)
}

func (c cashier) payNow(tx bench.Tx, r *bench.Request) (bench.Answer, error) {
	return c.pay(tx, r, func() {})
}

// inSteps makes the call between two transactions: the first inserts the key, the second pays and stores the result beside it.
func (c cashier) inSteps(u *bench.User, r *bench.Request) bench.Answer {
	c.think(u)
	mine := false
	ans := u.Transact(func(tx bench.Tx, r *bench.Request) (ans bench.Answer, err error) {
		if mine, ans, err = c.begin(tx, r, bench.Null); mine {
			ans = bench.Yes()
		}
		return ans, err
	}, r)
	if !mine || ans.Outcome != bench.Confirmed {
		return ans
	}
	u.Spend(r.Call)
	ans = u.Transact(func(tx bench.Tx, r *bench.Request) (bench.Answer, error) {
		ans, err := c.payNow(tx, r)
		if err == nil && ans.Outcome == bench.Confirmed {
			err = c.store(tx, r.Mark, ans.Key)
		}
		return ans, err
	}, r)
	result := int64(refusedCharge)
	switch ans.Outcome {
	case bench.NotFound:
		result = unknownCharge
	case bench.Rejected:
	default:
		return ans
	}
	// A refusal rolls back what its transaction wrote, so its result is stored by itself.
	u.Transact(func(tx bench.Tx, r *bench.Request) (bench.Answer, error) {
		return bench.Yes(), c.store(tx, r.Mark, result)
	}, r)
	return ans
}

func (c cashier) think(u *bench.User) {
	if c.thinks {
		u.Think()
	}
}

// begin inserts the payment's key with its result, as far as it is known. If somebody else has inserted it, mine is false and the answer
// is his result; one that is still under way is looked at again later.
func (c cashier) begin(tx bench.Tx, r *bench.Request, charge int64) (mine bool, ans bench.Answer, err error) {
	mine, err = tx.Insert(&keysTable, bench.Row{Key: r.Mark, Values: [bench.MaxColumns]int64{keyCharge: charge}})
	if err != nil || mine {
		return mine && err == nil, ans, err
	}
	key, found, err := c.read(tx, &keysTable, r.Mark)
	switch {
	case err != nil:
		return false, ans, err
	case !found || key.Values[keyCharge] == bench.Null:
		return false, ans, bench.Lost(bench.Version)
	case key.Values[keyCharge] == refusedCharge:
		return false, bench.No(InsufficientFunds), nil
	case key.Values[keyCharge] == unknownCharge:
		return false, bench.Unknown(), nil
	}
	return false, bench.Answer{Outcome: bench.Confirmed, Key: key.Values[keyCharge]}, nil
}

// payByRows reads the account, decides, and writes balance and charge.
func payByRows(tx bench.Tx, r *bench.Request, call func()) (bench.Answer, error) {
	account, found, err := tx.Get(&accountsTable, r.Key)
	switch {
	case err != nil:
		return bench.Answer{}, err
	case !found:
		return bench.Unknown(), nil
	case account.Values[balance] < r.Quantity:
		return bench.No(InsufficientFunds), nil
	}
	tx.Think()
	call()
	less := account
	less.Values[balance] -= r.Quantity
	if err := tx.Put(&accountsTable, account, less); err != nil {
		return bench.Answer{}, err
	}
	return charge(tx, r)
}

// payAtOnce leaves rule and debit to one statement.
func payAtOnce(tx bench.Tx, r *bench.Request, call func()) (bench.Answer, error) {
	call()
	done, err := tx.Apply(&debit, r.Key, r.Quantity)
	switch {
	case err != nil:
		return bench.Answer{}, err
	case !done:
		return whyNot(tx, r.Key)
	}
	return charge(tx, r)
}

// charge records the execution under a number of its own, so that a second one is seen.
func charge(tx bench.Tx, r *bench.Request) (bench.Answer, error) {
	id := r.Op + 1
	_, err := tx.Insert(&chargesTable, bench.Row{Key: id, Values: [bench.MaxColumns]int64{chargePayment: r.Mark, chargeAccount: r.Key, chargeAmount: r.Quantity}})
	return bench.Answer{Outcome: bench.Confirmed, Key: id}, err
}

func storeByRow(tx bench.Tx, payment, charge int64) error {
	key, _, err := tx.Get(&keysTable, payment)
	if err != nil {
		return err
	}
	done := key
	done.Values[keyCharge] = charge
	return tx.Put(&keysTable, key, done)
}

func storeAtOnce(tx bench.Tx, payment, charge int64) error {
	_, err := tx.Apply(&storeResult, payment, charge)
	return err
}

// Audit counts executed charges against payments, and holds every account against its charges.
func (Payment) Audit(p bench.Params, told *bench.Ledger, db bench.Snapshot) bench.Audit {
	twice := bench.Finding{Anomaly: bench.DoubleCharge}
	executed := map[int64]int64{} // charges by payment
	spent := map[int64]int64{}    // by account
	for _, c := range db[chargesTable.Name] {
		executed[c.Values[chargePayment]]++
		spent[c.Values[chargeAccount]] += c.Values[chargeAmount]
	}
	for _, n := range executed {
		twice.Count += n - 1
	}
	lost := bench.Finding{Anomaly: bench.LostUpdate}
	owed := map[int64]bool{} // charges that somebody answers for
	for i := range told.Confirmed {
		t := &told.Confirmed[i]
		owed[t.Row()] = true
		c, found := db.Find(chargesTable.Name, t.Row())
		switch n := executed[t.Mark]; {
		case !found || c.Values[chargePayment] != t.Mark:
			lost.Count++
			if lost.First == nil {
				lost.First = t.Witness(fmt.Sprintf("payment %d is made, as charge %d", t.Mark, t.Row()), "there is no such charge of that payment")
			}
		case n > 1 && twice.First == nil:
			twice.First = t.Witness(fmt.Sprintf("payment %d is made", t.Mark), fmt.Sprintf("it was charged %d times", n))
		}
	}
	for i := range told.Indeterminate {
		owed[told.Indeterminate[i].Op+1] = true
	}
	stray := bench.Finding{Anomaly: bench.LostUpdate}
	for _, c := range db[chargesTable.Name] {
		if !owed[c.Key] {
			stray.Count++
			if stray.First == nil {
				stray.First = &bench.Witness{Row: c.Key, Told: "nothing", Holds: fmt.Sprintf("charge %d of payment %d", c.Key, c.Values[chargePayment])}
			}
		}
	}
	twice.Message = fmt.Sprintf("%d charges were executed for %d payments", int64(len(db[chargesTable.Name])), len(executed))
	lost.Message = fmt.Sprintf("%d confirmed payment%s without a charge", lost.Count, are(lost.Count))
	stray.Message = fmt.Sprintf("%d charge%s executed for nobody who was told so", stray.Count, were(stray.Count))
	off, below, refused := auditAccounts(p, told, db, spent)
	lost.Count += off.Count
	if lost.First == nil {
		lost.First, lost.Message = off.First, off.Message
	}
	var a bench.Audit
	a.Check("double_charged", twice)
	a.Check("lost_updates", lost)
	a.Check("unexplained", stray)
	a.Check("negative", below)
	a.Check("undersold", refused)
	return a
}

// auditAccounts holds balances against the charges, and refusals against balances, which only ever fall.
func auditAccounts(p bench.Params, told *bench.Ledger, db bench.Snapshot, spent map[int64]int64) (lost, below, refused bench.Finding) {
	lost.Anomaly, below.Anomaly, refused.Anomaly = bench.LostUpdate, bench.Negative, bench.FalseSoldOut
	for _, a := range db[accountsTable.Name] {
		want, has := p.Capacity-spent[a.Key], a.Values[balance]
		w := &bench.Witness{Row: a.Key, Told: fmt.Sprintf("its charges leave account %d with %d", a.Key, want), Holds: fmt.Sprintf("it holds %d", has)}
		if off := abs(want - has); off > 0 {
			lost.Count += (off + amount - 1) / amount
			if lost.First == nil {
				lost.First = w
			}
		}
		if has < 0 {
			below.Count++
			if below.First == nil {
				below.First = w
			}
		}
		if r := told.Refused[a.Key]; has >= amount && r.Count > 0 || r.Missing > 0 {
			refused.Count += max(r.Missing, r.Count)
			if refused.First == nil {
				refused.First = r.First.Witness(refusal(&r.First), w.Holds)
			}
		}
	}
	lost.Message = fmt.Sprintf("%d debit%s missing from the balances", lost.Count, are(lost.Count))
	below.Message = fmt.Sprintf("%d account%s below zero", below.Count, are(below.Count))
	refused.Message = fmt.Sprintf("%d user%s refused although the account had the money", refused.Count, were(refused.Count))
	return lost, below, refused
}
