package scenarios

import (
	"fmt"
	"math/rand/v2"

	"github.com/lockbench/lockbench/bench"
)

// ForeignKey changes parents while children are inserted under them.
type ForeignKey struct{}

// The columns of parents and children.
const (
	touched     = 0
	childParent = 0
)

var (
	parentsTable  = bench.Table{Name: "parents", Key: "id", Columns: []string{"touched"}, Version: "version"}
	childrenTable = bench.Table{Name: "children", Key: "id", Columns: []string{"parent"}, Version: "version", Inserts: true}
)

// touch changes a parent as one statement.
var touch = bench.Change{
	Table: &parentsTable, Guard: bench.Cond{Relation: bench.Always},
	Steps: []bench.Step{{Column: "touched", Action: bench.Add}}, Operands: 1,
}

// childShare is the flag for how many users insert children.
const (
	childShare    = "children"
	usualChildren = 0.5
)

// The kinds of users, as places in Classes.
const (
	changesParent = 0
	insertsChild  = 1
)

// Info describes the scenario.
func (ForeignKey) Info() bench.ScenarioInfo {
	return bench.ScenarioInfo{
		Name: "foreign-key", Unit: "parents",
		Summary:   "children are inserted under parents that others lock and change",
		Story:     "Some users read a parent under the strategy, work on it for --hold, and write it. The others insert a child, whose foreign key makes the server lock the parent FOR KEY SHARE until they commit. FOR UPDATE excludes that lock, so inserts wait for whoever merely changes the parent; FOR NO KEY UPDATE, which is what an UPDATE of other columns takes by itself, does not.",
		Invariant: "each parent was changed as often as was confirmed, and every child that was confirmed is there",
		Anomalies: []bench.Anomaly{bench.LostUpdate, bench.FalseSoldOut},
		Options: []bench.OptionDoc{
			{Name: childShare, Values: []string{"N%"}, Doc: "users who insert a child (default 50%)"},
			{Name: hold, Values: []string{"DURATION"}, Doc: "how long a parent is worked on (default 20ms)"},
		},
	}
}

// Fit sets five parents.
func (ForeignKey) Fit(p bench.Params) (bench.Params, error) {
	if p.Rows == 0 {
		p.Rows = 5
	}
	if p.Capacity != 0 {
		return p, bench.Hintf("leave --capacity out", "parents have no capacity")
	}
	if _, err := share(p, childShare, usualChildren); err != nil {
		return p, err
	}
	_, err := span(p, hold, usualHold)
	return p, err
}

// Tables returns parents and children.
func (ForeignKey) Tables() []*bench.Table { return []*bench.Table{&parentsTable, &childrenTable} }

// Changes returns the change of a parent.
func (ForeignKey) Changes() []*bench.Change { return []*bench.Change{&touch} }

// SingleWrite is false: an insert and an update are different transactions, and neither may wait for COMMIT.
func (ForeignKey) SingleWrite() bool { return false }

// Fill makes parents without children.
func (ForeignKey) Fill(p bench.Params) []bench.Fill {
	return []bench.Fill{
		{Table: &parentsTable, Rows: p.Rows, Row: func(key int64) bench.Row { return bench.Row{Key: key} }},
		{Table: &childrenTable},
	}
}

// Classes tells who changes parents from who inserts children.
func (ForeignKey) Classes() []string { return []string{"parents", "children"} }

// Draw decides who does which.
func (ForeignKey) Draw(p bench.Params, rng *rand.Rand, r *bench.Request) {
	n, _ := share(p, childShare, usualChildren) // Fit has read both
	r.Class = changesParent
	if rng.Float64() < n {
		r.Class = insertsChild
	} else {
		r.Call, _ = span(p, hold, usualHold)
	}
}

// Operation changes a parent or inserts a child.
func (ForeignKey) Operation(l bench.Lends, _ bench.Params) (bench.Operation, error) {
	change := changeParent
	switch {
	case !l.Has(bench.LendsInsert):
		return nil, &bench.NotApplicable{Reason: "children are inserted, and this strategy writes no other row than the one it protects", Remedy: "use pessimistic"}
	case l.Has(bench.LendsChange):
		change = changeParentAtOnce
	}
	return func(u *bench.User, r *bench.Request) bench.Answer {
		if r.Class == insertsChild {
			return u.Transact(insertChild, r)
		}
		return u.Transact(func(tx bench.Tx, r *bench.Request) (bench.Answer, error) {
			return change(tx, r, func() { u.Spend(r.Call) })
		}, r)
	}, nil
}

func insertChild(tx bench.Tx, r *bench.Request) (bench.Answer, error) {
	id := r.Op + 1
	_, err := tx.Insert(&childrenTable, bench.Row{Key: id, Values: [bench.MaxColumns]int64{childParent: r.Key}})
	return bench.Answer{Outcome: bench.Confirmed, Key: id}, err
}

func changeParent(tx bench.Tx, r *bench.Request, work func()) (bench.Answer, error) {
	parent, found, err := tx.Get(&parentsTable, r.Key)
	switch {
	case err != nil:
		return bench.Answer{}, err
	case !found:
		return bench.Unknown(), nil
	}
	tx.Think()
	work()
	more := parent
	more.Values[touched]++
	return bench.Yes(), tx.Put(&parentsTable, parent, more)
}

// changeParentAtOnce works after the statement, whose lock lasts as long.
func changeParentAtOnce(tx bench.Tx, r *bench.Request, work func()) (bench.Answer, error) {
	done, err := tx.Apply(&touch, r.Key, 1)
	switch {
	case err != nil:
		return bench.Answer{}, err
	case !done:
		return bench.Unknown(), nil
	}
	work()
	return bench.Yes(), nil
}

// Audit counts changes and children.
func (ForeignKey) Audit(_ bench.Params, told *bench.Ledger, db bench.Snapshot) bench.Audit {
	lost := bench.Finding{Anomaly: bench.LostUpdate}
	stray := bench.Finding{Anomaly: bench.LostUpdate}
	changes, unsure := map[int64]int64{}, map[int64]int64{}
	known := map[int64]bool{}
	for i := range told.Confirmed {
		t := &told.Confirmed[i]
		if t.Class == changesParent {
			changes[t.Request.Key]++
			continue
		}
		known[t.Row()] = true
		if c, found := db.Find(childrenTable.Name, t.Row()); !found || c.Values[childParent] != t.Request.Key {
			lost.Count++
			if lost.First == nil {
				lost.First = t.Witness("your child is there", fmt.Sprintf("parent %d has no child %d", t.Request.Key, t.Row()))
			}
		}
	}
	for i := range told.Indeterminate {
		t := &told.Indeterminate[i]
		if t.Class == changesParent {
			unsure[t.Request.Key]++
		} else {
			known[t.Op+1] = true
		}
	}
	for _, parent := range db[parentsTable.Name] {
		has, want := parent.Values[touched], changes[parent.Key]
		w := &bench.Witness{Row: parent.Key, Told: fmt.Sprintf("%d changes of parent %d were confirmed", want, parent.Key), Holds: fmt.Sprintf("it was changed %d times", has)}
		if n := want - has; n > 0 {
			lost.Count += n
			if lost.First == nil {
				lost.First = w
			}
		}
		if n := has - want - unsure[parent.Key]; n > 0 {
			stray.Count += n
			if stray.First == nil {
				stray.First = w
			}
		}
	}
	for _, c := range db[childrenTable.Name] {
		if !known[c.Key] {
			stray.Count++
			if stray.First == nil {
				stray.First = &bench.Witness{Row: c.Key, Told: "nothing", Holds: fmt.Sprintf("there is a child %d", c.Key)}
			}
		}
	}
	missing := bench.Finding{Anomaly: bench.FalseSoldOut}
	for key, r := range told.Refused {
		if _, found := db.Find(parentsTable.Name, key); found {
			missing.Count += r.Missing
			missing.First = r.First.Witness(refusal(&r.First), fmt.Sprintf("there is a parent %d", key))
		}
	}
	lost.Message = fmt.Sprintf("%d confirmed change%s missing from the database", lost.Count, are(lost.Count))
	stray.Message = fmt.Sprintf("%d change%s made that nobody was told of", stray.Count, were(stray.Count))
	missing.Message = fmt.Sprintf("%d user%s told that a parent does not exist, and it does", missing.Count, were(missing.Count))
	var a bench.Audit
	a.Check("lost_updates", lost)
	a.Check("unexplained", stray)
	a.Check("undersold", missing)
	return a
}
