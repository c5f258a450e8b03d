package scenarios_test

import (
	"maps"
	"reflect"
	"testing"
	"time"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/scenarios"
)

// told is one answer; the order of answers is that of their end.
func told(op, user, row, units int64, a bench.Answer) bench.Told {
	return bench.Told{
		Request: bench.Request{Op: op, User: user, Key: row, Quantity: units}, Answer: a, Attempts: 1,
		Start: time.Duration(op) * time.Millisecond, End: time.Duration(op+1) * time.Millisecond,
	}
}

// ledger sorts answers as the engine does.
func ledger(answers ...bench.Told) *bench.Ledger {
	l := &bench.Ledger{Refused: map[int64]bench.Refusals{}}
	for _, t := range answers {
		switch t.Outcome {
		case bench.Confirmed:
			l.Confirmed = append(l.Confirmed, t)
		case bench.Indeterminate:
			l.Indeterminate = append(l.Indeterminate, t)
		default:
			r, seen := l.Refused[t.Row()]
			if !seen {
				r.First = t
			}
			r.Count++
			if t.Outcome == bench.NotFound {
				r.Missing++
			}
			l.Refused[t.Row()] = r
			l.Refusals = append(l.Refusals, t)
		}
	}
	return l
}

var (
	yes     = bench.Yes()
	unknown = bench.Answer{Outcome: bench.Indeterminate}
	taken   = bench.No(bench.AlreadyAssigned)
	soldOut = bench.No(bench.SoldOut)
	missing = bench.Unknown()
)

// seat answers a user's request for a seat.
func seat(user, row int64, a bench.Answer) bench.Told { return told(user, user, row, 1, a) }

// anySeat answers a user who took whatever was free.
func anySeat(user, row int64) bench.Told {
	return told(user, user, 1, 1, bench.Answer{Outcome: bench.Confirmed, Key: row})
}

// hall is a seat map with these holders, 0 for a free seat.
func hall(holders ...int64) bench.Snapshot {
	var rows []bench.Row
	for i, h := range holders {
		if h == 0 {
			h = bench.Null
		}
		rows = append(rows, bench.Row{Key: int64(i) + 1, Values: [bench.MaxColumns]int64{h}})
	}
	return bench.Snapshot{"seats": rows}
}

// counts are the checks that found something; every other must be there and 0.
type counts map[string]int64

func check(t *testing.T, a bench.Audit, checks []string, want counts) {
	t.Helper()
	got := counts{}
	for _, name := range checks {
		n, checked := a.Counts[name]
		if !checked {
			t.Errorf("%s is not checked", name)
		}
		if n != 0 {
			got[name] = n
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("the audit counts %v, not %v", got, want)
	}
	if len(a.Counts) != len(checks) {
		t.Errorf("the audit checks %v", a.Counts)
	}
	if (len(a.Findings) > 0) != (len(want) > 0) {
		t.Errorf("the findings are %+v", a.Findings)
	}
	for _, f := range a.Findings {
		if f.Count <= 0 || f.Message == "" {
			t.Errorf("a finding says nothing: %+v", f)
		}
	}
}

func TestSeatsAudit(t *testing.T) {
	for _, c := range []struct {
		name  string
		told  *bench.Ledger
		holds bench.Snapshot
		want  counts
	}{
		{"nothing happened", ledger(), hall(0, 0), counts{}},
		{"one winner, one refused", ledger(seat(1, 1, yes), seat(2, 1, taken)), hall(1, 0), counts{}},
		{"the same confirmation twice", ledger(seat(1, 1, yes), seat(1, 1, yes)), hall(1), counts{}},
		{"two told yes", ledger(seat(1, 1, yes), seat(2, 1, yes)), hall(2), counts{"overbooked": 1, "lost_updates": 1}},
		{"two told yes, neither holds it", ledger(seat(1, 1, yes), seat(2, 1, yes)), hall(0), counts{"overbooked": 1, "lost_updates": 2}},
		{
			"two seats overbooked", ledger(seat(1, 1, yes), seat(2, 1, yes), seat(3, 1, yes), seat(4, 2, yes), seat(5, 2, yes)), hall(3, 5),
			counts{"overbooked": 3, "lost_updates": 3},
		},
		{"one user, two seats", ledger(seat(1, 1, yes), seat(1, 2, yes)), hall(1, 1), counts{}},
		{"a booking is missing", ledger(seat(1, 1, yes)), hall(0), counts{"lost_updates": 1}},
		{"a booking is missing, told twice", ledger(seat(1, 1, yes), seat(1, 1, yes)), hall(0), counts{"lost_updates": 1}},
		{"another holds it", ledger(seat(1, 1, yes)), hall(9), counts{"lost_updates": 1, "unexplained": 1}},
		{"the row is gone", ledger(seat(1, 1, yes)), hall(), counts{"lost_updates": 1}},
		{"a holder nobody told", ledger(), hall(9), counts{"unexplained": 1}},
		{"refused, and the seat is free", ledger(seat(1, 1, taken), seat(2, 1, taken)), hall(0), counts{"undersold": 2}},
		{"refused, and another seat is free", ledger(seat(1, 1, yes), seat(2, 1, taken)), hall(1, 0), counts{}},
		{"not found, and the seat is free", ledger(seat(1, 1, missing)), hall(0), counts{"undersold": 1}},
		{"not found, and there is none", ledger(seat(1, 9, missing)), hall(0), counts{}},
		{"sold out, and a seat is free", ledger(anySeat(1, 1), seat(2, 1, soldOut)), hall(1, 0), counts{"undersold": 1}},
		{"sold out, and it is", ledger(anySeat(1, 1), anySeat(2, 2), seat(3, 1, soldOut)), hall(1, 2), counts{}},
		{"any seat: the answer names it", ledger(anySeat(1, 2)), hall(0, 1), counts{}},
		{"any seat: one handed out twice", ledger(anySeat(1, 2), anySeat(2, 2)), hall(0, 2), counts{"overbooked": 1, "lost_updates": 1}},
		{"a lost answer, and it was committed", ledger(seat(1, 1, unknown)), hall(1), counts{}},
		{"a lost answer, and it was not", ledger(seat(1, 1, unknown)), hall(0), counts{}},
		{"a lost answer excuses only its user", ledger(seat(1, 1, unknown)), hall(2), counts{"unexplained": 1}},
		{"a lost answer does not excuse another's loss", ledger(seat(1, 1, yes), seat(2, 1, unknown)), hall(2), counts{"lost_updates": 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := scenarios.Seats{}.Audit(bench.Params{Rows: int64(len(c.holds["seats"])), Capacity: 1}, c.told, c.holds)
			check(t, a, []string{"overbooked", "lost_updates", "undersold", "unexplained"}, c.want)
		})
	}
}

// TestSeatsWitness: a finding names a case that a person can look up.
func TestSeatsWitness(t *testing.T) {
	a := scenarios.Seats{}.Audit(bench.Params{Rows: 2, Capacity: 1},
		ledger(seat(1, 1, yes), seat(2, 1, yes), seat(3, 2, yes), seat(4, 2, yes), seat(5, 2, yes)), hall(2, 5))
	f := a.Findings[0]
	if f.Anomaly != bench.Overbooking || f.Message != "5 users were told yes for 2 seats" {
		t.Errorf("the first finding is %s: %s", f.Anomaly, f.Message)
	}
	w := f.First
	if w == nil || w.User != 1 || w.Row != 1 || w.Op != 1 || w.Attempts != 1 || w.StartMS != 1 || w.EndMS != 2 ||
		w.Told != "the seat is yours" || w.Holds != "seat 1 names user 2; 2 users were told yes for it" {
		t.Errorf("the first witness is %+v", w)
	}
	if w := f.Worst; w == nil || w.Row != 2 || w.User != 3 {
		t.Errorf("the worst witness is %+v", w)
	}
}

// TestCancellingAudit: whether a refusal was right depends on when it was given, which between processes is known only so far.
func TestCancellingAudit(t *testing.T) {
	seats := scenarios.Seats{}.Variant(bench.Params{Options: bench.Options{"cancel": "20%"}})
	at := func(from, to int, a bench.Told) bench.Told {
		a.Start, a.End = time.Duration(from)*time.Millisecond, time.Duration(to)*time.Millisecond
		return a
	}
	back := yes
	back.Returned = true
	for _, c := range []struct {
		name  string
		apart time.Duration
		told  *bench.Ledger
		want  counts
	}{
		{"while somebody held it", 0, ledger(at(0, 9, seat(1, 1, back)), at(4, 5, seat(2, 1, taken))), counts{}},
		{"after it was given back", 0, ledger(at(0, 9, seat(1, 1, back)), at(10, 11, seat(2, 1, taken))), counts{"undersold": 1}},
		{"after it was given back, by a clock that may be off", time.Millisecond, ledger(at(0, 9, seat(1, 1, back)), at(10, 11, seat(2, 1, taken))), counts{}},
		{"before anybody asked for it", 0, ledger(at(5, 9, seat(1, 1, back)), at(1, 4, seat(2, 1, taken))), counts{"undersold": 1}},
		{"before anybody asked for it, by a clock that may be off", time.Millisecond, ledger(at(5, 9, seat(1, 1, back)), at(1, 4, seat(2, 1, taken))), counts{}},
		{"longer after than clocks are off", time.Millisecond, ledger(at(0, 9, seat(1, 1, back)), at(11, 12, seat(2, 1, taken))), counts{"undersold": 1}},
		{"not found, and there", time.Hour, ledger(at(0, 9, seat(1, 1, back)), at(4, 5, seat(2, 1, missing))), counts{"undersold": 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.told.Apart = c.apart
			check(t, seats.Audit(bench.Params{Rows: 1}, c.told, hall(0)), []string{"overbooked", "lost_updates", "unexplained", "undersold"}, c.want)
		})
	}
}

// units answers a user's request for units of item 1.
func units(user, n int64, a bench.Answer) bench.Told { return told(user, user, 1, n, a) }

// shelf is the stock's only item.
func shelf(available, reserved int64) bench.Snapshot {
	return bench.Snapshot{"stock": {{Key: 1, Values: [bench.MaxColumns]int64{available, reserved}}}}
}

func TestInventoryAudit(t *testing.T) {
	const capacity = 10
	for _, c := range []struct {
		name  string
		told  *bench.Ledger
		holds bench.Snapshot
		want  counts
	}{
		{"nothing happened", ledger(), shelf(10, 0), counts{}},
		{"four sold", ledger(units(1, 4, yes)), shelf(6, 4), counts{}},
		{"all sold, one refused", ledger(units(1, 4, yes), units(2, 6, yes), units(3, 1, soldOut)), shelf(0, 10), counts{}},
		{"both sold four, the row lost four", ledger(units(1, 4, yes), units(2, 4, yes)), shelf(6, 4), counts{"lost_updates": 4}},
		{"twelve sold of ten", ledger(units(1, 6, yes), units(2, 6, yes)), shelf(4, 6), counts{"overbooked": 2, "lost_updates": 6}},
		{"twelve sold of ten, below zero", ledger(units(1, 6, yes), units(2, 6, yes)), shelf(-2, 12), counts{"overbooked": 2, "negative": 1}},
		{"a unit put back", ledger(units(1, 4, yes)), shelf(7, 3), counts{"lost_updates": 1}},
		{"a unit put back in one number only", ledger(units(1, 4, yes)), shelf(7, 4), counts{"lost_updates": 1}},
		{"a unit gone that nobody has", ledger(units(1, 4, yes)), shelf(5, 5), counts{"unexplained": 1}},
		{"a unit gone in one number only", ledger(units(1, 4, yes)), shelf(6, 5), counts{"unexplained": 1}},
		{"below zero", ledger(), shelf(-1, 11), counts{"negative": 1, "unexplained": 11}},
		{"refused with units left", ledger(units(1, 4, yes), units(2, 1, soldOut), units(3, 1, missing)), shelf(6, 4), counts{"undersold": 2}},
		{"the row is gone with what was sold", ledger(units(1, 4, yes)), bench.Snapshot{}, counts{"lost_updates": 4}},
		{"a lost answer, and it was committed", ledger(units(1, 4, yes), units(2, 4, unknown)), shelf(2, 8), counts{}},
		{"a lost answer, and it was not", ledger(units(1, 4, yes), units(2, 4, unknown)), shelf(6, 4), counts{}},
		{"more than a lost answer explains", ledger(units(1, 4, yes), units(2, 4, unknown)), shelf(1, 9), counts{"unexplained": 1}},
		{"less than was confirmed beside a lost answer", ledger(units(1, 4, yes), units(2, 4, unknown)), shelf(7, 3), counts{"lost_updates": 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := scenarios.Inventory{}.Audit(bench.Params{Rows: 1, Capacity: capacity}, c.told, c.holds)
			check(t, a, []string{"overbooked", "lost_updates", "unexplained", "negative", "undersold"}, c.want)
		})
	}
}

// TestInventoryWitness: the first sale past the capacity is named.
func TestInventoryWitness(t *testing.T) {
	a := scenarios.Inventory{}.Audit(bench.Params{Rows: 1, Capacity: 10}, ledger(units(1, 6, yes), units(2, 4, yes), units(3, 2, yes)), shelf(-2, 12))
	f := a.Findings[0]
	if f.Anomaly != bench.Overbooking || f.Message != "2 units were confirmed beyond the capacity" {
		t.Errorf("the first finding is %s: %s", f.Anomaly, f.Message)
	}
	if w := f.First; w == nil || w.User != 3 || w.Row != 1 || w.Told != "a unit is yours" || w.Holds != "item 1 had 10 units" {
		t.Errorf("the witness is %+v", w)
	}
}

// TestFit: what the user left open is filled in, and what makes no sense is refused.
func TestFit(t *testing.T) {
	for _, c := range []struct {
		scenario bench.Scenario
		open     bench.Params
		fitted   bench.Params
	}{
		{scenarios.Seats{}, bench.Params{}, bench.Params{Rows: 50, Capacity: 1}},
		{scenarios.Seats{}, bench.Params{Rows: 1}, bench.Params{Rows: 1, Capacity: 1}},
		{scenarios.Seats{}, bench.Params{Endless: true}, bench.Params{Rows: 100_000, Capacity: 1, Endless: true}},
		{scenarios.Inventory{}, bench.Params{}, bench.Params{Rows: 1, Capacity: 100}},
		{scenarios.Inventory{}, bench.Params{Rows: 7, Capacity: 3}, bench.Params{Rows: 7, Capacity: 3}},
		{scenarios.Inventory{}, bench.Params{Endless: true}, bench.Params{Rows: 1, Capacity: 1_000_000_000, Endless: true}},
	} {
		if got, err := c.scenario.Fit(c.open); err != nil || !reflect.DeepEqual(got, c.fitted) {
			t.Errorf("%s: %+v is fitted to %+v, %v", c.scenario.Info().Name, c.open, got, err)
		}
	}
	if _, err := (scenarios.Seats{}).Fit(bench.Params{Capacity: 2}); err == nil {
		t.Error("a seat for two is not refused")
	}
}
