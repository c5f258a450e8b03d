package bench

import (
	"reflect"
	"testing"
	"time"
)

func TestJudge(t *testing.T) {
	claim := []Anomaly{LostUpdate}
	for _, tc := range []struct {
		name                 string
		claims               []Anomaly
		violated             bool
		contended, confirmed int64
		want                 Verdict
	}{
		{"all is there", claim, false, 50, 1, Sound},
		{"nobody met", claim, false, 0, 1, Undetermined},
		{"hardly anybody met", claim, false, 49, 1, Undetermined},
		{"nobody was confirmed", claim, false, 50, 0, Undetermined},
		{"nothing is claimed", nil, false, 50, 1, Undetermined},
		{"found", claim, true, 10, 1, Violated},
		{"found without a claim", nil, true, 10, 1, Violated},
		{"found though nobody met", claim, true, 0, 0, Violated},
	} {
		if got := judge(tc.claims, tc.violated, tc.contended, tc.confirmed); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
	var zero Verdict
	if zero != Undetermined {
		t.Errorf("the zero value is %v", zero)
	}
}

func TestBroken(t *testing.T) {
	for _, tc := range []struct {
		claims []Anomaly
		found  Anomaly
		want   bool
	}{
		{[]Anomaly{LostUpdate}, LostUpdate, true},
		{[]Anomaly{LostUpdate}, WriteSkew, false}, // it never said so
		{nil, LostUpdate, false},
		{nil, Leak, true}, // nobody may leave locks behind
	} {
		if got := broken(tc.claims, []Finding{{Anomaly: tc.found, Count: 1}}); got != tc.want {
			t.Errorf("%v and a claim of %v: %v, want %v", tc.found, tc.claims, got, tc.want)
		}
	}
	if broken([]Anomaly{LostUpdate}, nil) {
		t.Error("broken by nothing")
	}
}

func TestCheckKeepsWhatWasFound(t *testing.T) {
	var a Audit
	a.Check("overbooked", Finding{Anomaly: Overbooking})
	a.Check("negative", Finding{Anomaly: Negative, Count: 2})
	a.Check("negative", Finding{Anomaly: Negative, Count: 3})
	same(t, a.Counts, map[string]int64{"overbooked": 0, "negative": 5}) // 0 was checked, absent was not
	if len(a.Findings) != 2 || a.Findings[0].Check != "negative" {
		t.Errorf("findings %v", a.Findings)
	}
}

// told makes an answer.
func told(o Outcome, user, key int64, end time.Duration) Told {
	return Told{Request: Request{User: user, Key: key}, Answer: Answer{Outcome: o}, End: end}
}

func TestLedger(t *testing.T) {
	a, b := newLedger(), newLedger()
	a.add(told(Confirmed, 1, 7, 30))
	a.add(told(Rejected, 2, 7, 20))
	a.add(told(Busy, 3, 7, 10))
	a.add(told(Failed, 4, 7, 10))
	b.add(told(Confirmed, 5, 7, 10))
	b.add(told(Indeterminate, 6, 7, 40))
	b.add(told(NotFound, 7, 7, 15))
	b.add(told(Rejected, 8, 7, 5))
	b.add(told(Rejected, 9, 8, 1))
	all := newLedger()
	all.merge(a)
	all.merge(b)
	all.sort()
	want := &Ledger{
		Confirmed:     []Told{told(Confirmed, 5, 7, 10), told(Confirmed, 1, 7, 30)},
		Indeterminate: []Told{told(Indeterminate, 6, 7, 40)},
		Refused:       map[int64]Refusals{7: {Count: 3, Missing: 1, First: told(Rejected, 8, 7, 5)}, 8: {Count: 1, First: told(Rejected, 9, 8, 1)}},
	}
	if !reflect.DeepEqual(all, want) {
		t.Errorf("got  %+v\nwant %+v", all, want)
	}
}

// TestRowIsTheOneAnswered: whoever takes any row asked for another.
func TestRowIsTheOneAnswered(t *testing.T) {
	x := told(Confirmed, 1, 7, 0)
	if x.Row() != 7 {
		t.Errorf("row %d, want the one asked for", x.Row())
	}
	x.Answer.Key = 9
	if x.Row() != 9 || x.Witness("a", "b").Row != 9 {
		t.Errorf("row %d, want the one given", x.Row())
	}
}

func TestWitness(t *testing.T) {
	x := Told{Request: Request{Op: 3, User: 4, Key: 5}, Attempts: 2, Start: 1500 * time.Microsecond, End: 2 * time.Second}
	want := Witness{User: 4, Op: 3, Attempts: 2, Row: 5, StartMS: 1.5, EndMS: 2000, Told: "yes", Holds: "nothing"}
	if got := x.Witness("yes", "nothing"); *got != want {
		t.Errorf("%+v, want %+v", *got, want)
	}
}

func TestSnapshotFind(t *testing.T) {
	s := Snapshot{"stock": {{Key: 1, Version: 10}, {Key: 2, Version: 20}, {Key: 5, Version: 50}}}
	for key, want := range map[int64]int64{1: 10, 2: 20, 5: 50} { // 5 is not where its key would put it
		if r, ok := s.Find("stock", key); !ok || r.Version != want {
			t.Errorf("row %d: %+v, %v", key, r, ok)
		}
	}
	for _, key := range []int64{0, -1, 3, 6} {
		if r, ok := s.Find("stock", key); ok {
			t.Errorf("row %d: %+v", key, r)
		}
	}
	if _, ok := s.Find("nowhere", 1); ok {
		t.Error("a row of a table that is not there")
	}
}

func TestTableIndex(t *testing.T) {
	tb := Table{Name: "x", Columns: []string{"a", "b"}}
	if tb.Index("b") != 1 {
		t.Errorf("column b is at %d", tb.Index("b"))
	}
	defer func() {
		if recover() != "table x has no column c" {
			t.Error("no panic for a column that is not there")
		}
	}()
	tb.Index("c")
}

func TestRows(t *testing.T) {
	r := Rows{Width: 2, Data: []int64{1, 2, 3, 4}}
	if r.Len() != 2 || r.At(1)[0] != 3 || len(r.At(1)) != 2 {
		t.Errorf("%d rows, the second is %v", r.Len(), r.At(1))
	}
	if (&Rows{}).Len() != 0 {
		t.Error("rows without columns")
	}
}

func TestLends(t *testing.T) {
	l := LendsRow | LendsAny
	for want, has := range map[Lends]bool{LendsRow: true, LendsAny: true, LendsRow | LendsAny: true, LendsChange: false, LendsRow | LendsChange: false} {
		if l.Has(want) != has {
			t.Errorf("%b lends %b: %v", l, want, !has)
		}
	}
}
