package scenarios

import (
	"fmt"
	"math/rand/v2"

	"github.com/lockbench/lockbench/bench"
)

// Transfer moves an amount between two accounts. Two rows are written, so the order in which they are locked matters.
type Transfer struct{}

// The account's columns.
const balance = 0

// amount is what every transfer moves.
const amount = 10

var accountsTable = bench.Table{Name: "accounts", Key: "id", Columns: []string{"balance"}, Version: "version", Fence: "fence"}

// debit and credit are the two halves as one statement each; the rule stands in the first.
var (
	debit = bench.Change{
		Table: &accountsTable, Guard: bench.Cond{Column: "balance", Relation: bench.AtLeast},
		Steps: []bench.Step{{Column: "balance", Action: bench.Subtract}}, Operands: 1,
	}
	credit = bench.Change{
		Table: &accountsTable, Guard: bench.Cond{Relation: bench.Always},
		Steps: []bench.Step{{Column: "balance", Action: bench.Add}}, Operands: 1,
	}
)

// InsufficientFunds rejects a transfer that would leave the account below zero.
const InsufficientFunds bench.Reason = "insufficient funds"

// lockOrder is the flag that decides in which order the two accounts are read and written.
const lockOrder = "lock-order"

// Info describes the scenario.
func (Transfer) Info() bench.ScenarioInfo {
	return bench.ScenarioInfo{
		Name: "transfer", Unit: "accounts",
		Summary:   "an amount moves between two of --rows accounts of --capacity each",
		Story:     "The service reads both accounts, checks that the first has enough, and writes both. Read and written in the order in which the user named them, two users with opposite transfers lock each other out; sorted by id they do not.",
		Invariant: "the sum of all balances is constant, none is below 0, and each account holds what its confirmed transfers say",
		Anomalies: []bench.Anomaly{bench.LostUpdate, bench.Negative, bench.FalseSoldOut},
		Options:   []bench.OptionDoc{{Name: lockOrder, Values: []string{"random", "sorted"}, Doc: "order in which the two accounts are locked: as drawn (default), or by id"}},
		Variants:  []bench.Options{{lockOrder: "sorted"}},
	}
}

// Fit sets a hundred accounts with a hundred transfers' worth each: few enough for deadlocks, many enough to get through them.
func (Transfer) Fit(p bench.Params) (bench.Params, error) {
	if p.Rows == 0 {
		p.Rows = 100
	}
	if p.Capacity == 0 {
		p.Capacity = 100 * amount
	}
	if p.Rows < 2 {
		return p, bench.About("rows", "", bench.Hintf("use --rows 2 or more", "a transfer needs two accounts, there is %d", p.Rows))
	}
	return p, nil
}

// Tables returns the accounts.
func (Transfer) Tables() []*bench.Table { return []*bench.Table{&accountsTable} }

// Changes returns both halves.
func (Transfer) Changes() []*bench.Change { return []*bench.Change{&debit, &credit} }

// SingleWrite is false: two rows are written, together or not at all.
func (Transfer) SingleWrite() bool { return false }

// Fill gives every account its --capacity.
func (Transfer) Fill(p bench.Params) []bench.Fill {
	return []bench.Fill{{Table: &accountsTable, Rows: p.Rows, Row: func(key int64) bench.Row {
		return bench.Row{Key: key, Values: [bench.MaxColumns]int64{balance: p.Capacity}}
	}}}
}

// Draw picks another account to pay into. Sorted order is settled here: it only swaps which account is touched first.
func (Transfer) Draw(p bench.Params, rng *rand.Rand, r *bench.Request) {
	r.To = 1 + rng.Int64N(p.Rows-1)
	if r.To >= r.Key {
		r.To++
	}
	r.Quantity = amount
	r.Sorted = p.Options[lockOrder] == "sorted"
}

// Operation transfers.
func (Transfer) Operation(l bench.Lends, _ bench.Params) (bench.Operation, error) {
	switch {
	case l.Has(bench.LendsChange):
		return bench.ThinkFirst(transferAtOnce), nil
	case l.Has(bench.LendsRow):
		return bench.Single(transfer), nil
	}
	return nil, &bench.NotApplicable{Reason: "a transfer is between two certain accounts, not any two", Remedy: "use pessimistic or atomic"}
}

// transfer reads both accounts in the order in which they are to be locked, decides, and writes them in the same order.
func transfer(tx bench.Tx, r *bench.Request) (bench.Answer, error) {
	var before [2]bench.Row
	keys := inOrder(r)
	for i, key := range keys {
		row, found, err := tx.Get(&accountsTable, key)
		if err != nil {
			return bench.Answer{}, err
		}
		if !found {
			return bench.Unknown(), nil
		}
		before[i] = row
	}
	after := before
	for i := range after {
		if after[i].Key == r.Key {
			after[i].Values[balance] -= r.Quantity
		} else {
			after[i].Values[balance] += r.Quantity
		}
		if after[i].Values[balance] < 0 {
			return bench.No(InsufficientFunds), nil
		}
	}
	tx.Think()
	for i := range after {
		if err := tx.Put(&accountsTable, before[i], after[i]); err != nil {
			return bench.Answer{}, err
		}
	}
	return bench.Yes(), nil
}

// transferAtOnce makes two guarded changes in one transaction.
func transferAtOnce(tx bench.Tx, r *bench.Request) (bench.Answer, error) {
	for _, key := range inOrder(r) {
		change := &credit
		if key == r.Key {
			change = &debit
		}
		done, err := tx.Apply(change, key, r.Quantity)
		if err != nil {
			return bench.Answer{}, err
		}
		if !done {
			return whyNot(tx, key)
		}
	}
	return bench.Yes(), nil
}

// whyNot tells an account without funds from one that does not exist.
func whyNot(tx bench.Tx, key int64) (bench.Answer, error) {
	_, found, err := tx.Peek(&accountsTable, key)
	switch {
	case err != nil:
		return bench.Answer{}, err
	case !found:
		return bench.Unknown(), nil
	}
	return bench.No(InsufficientFunds), nil
}

// inOrder returns the two accounts in the order in which they are locked.
func inOrder(r *bench.Request) [2]int64 {
	if r.Sorted && r.To < r.Key {
		return [2]int64{r.To, r.Key}
	}
	return [2]int64{r.Key, r.To}
}

// Audit holds every account against its confirmed transfers, and the sum against what it was. Transfers whose COMMIT went unanswered
// may or may not be in a balance.
func (Transfer) Audit(p bench.Params, told *bench.Ledger, db bench.Snapshot) bench.Audit {
	due := map[int64]int64{}
	low, high := map[int64]int64{}, map[int64]int64{} // what unanswered transfers may have taken or brought
	for i := range told.Confirmed {
		t := &told.Confirmed[i]
		due[t.Request.Key] -= t.Quantity
		due[t.To] += t.Quantity
	}
	for i := range told.Indeterminate {
		t := &told.Indeterminate[i]
		low[t.Request.Key] -= t.Quantity
		high[t.To] += t.Quantity
	}
	lost := bench.Finding{Anomaly: bench.LostUpdate}
	below := bench.Finding{Anomaly: bench.Negative}
	var sum, worst int64
	for _, row := range db[accountsTable.Name] {
		sum += row.Values[balance]
		want := p.Capacity + due[row.Key]
		off := max(row.Values[balance]-(want+high[row.Key]), want+low[row.Key]-row.Values[balance])
		w := &bench.Witness{
			Row: row.Key, Told: fmt.Sprintf("confirmed transfers leave account %d with %d", row.Key, want),
			Holds: fmt.Sprintf("it holds %d", row.Values[balance]),
		}
		if off > 0 {
			lost.Count += (off + amount - 1) / amount
			if lost.First == nil {
				lost.First = w
			}
			if off > worst {
				worst, lost.Worst = off, w
			}
		}
		if row.Values[balance] < 0 {
			below.Count++
			if below.First == nil {
				below.First = w
			}
		}
	}
	missing := bench.Finding{Anomaly: bench.FalseSoldOut}
	for key, r := range told.Refused {
		_, from := db.Find(accountsTable.Name, key)
		_, to := db.Find(accountsTable.Name, r.First.To)
		if from && to && r.Missing > 0 {
			missing.Count += r.Missing
			missing.First = r.First.Witness(refusal(&r.First), fmt.Sprintf("there are accounts %d and %d", key, r.First.To))
		}
	}
	missing.Message = fmt.Sprintf("%d user%s told that an account does not exist, and it does", missing.Count, were(missing.Count))
	// Lost debits and lost credits of one account cancel: what its balance is off by is the least that was lost.
	lost.Message = fmt.Sprintf("at least %d half transfer%s missing from, or twice in, the balances", lost.Count, are(lost.Count))
	below.Message = fmt.Sprintf("%d account%s below zero", below.Count, are(below.Count))
	drift := bench.Finding{Anomaly: bench.LostUpdate, Count: (abs(sum-p.Capacity*p.Rows) + amount - 1) / amount}
	drift.Message = fmt.Sprintf("the sum of all balances is %d, not %d", sum, p.Capacity*p.Rows)
	drift.First = &bench.Witness{Told: fmt.Sprintf("%d accounts began with %d each", p.Rows, p.Capacity), Holds: drift.Message}
	var a bench.Audit
	a.Check("lost_updates", lost)
	a.Check("negative", below)
	a.Check("sum_drift", drift)
	a.Check("undersold", missing)
	return a
}

func abs(n int64) int64 { return max(n, -n) }
