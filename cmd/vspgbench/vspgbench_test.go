package main

import (
	"strings"
	"testing"
	"time"
)

// Every cell's script holds the strategy's statements with nothing left unbound.
func TestScripts(t *testing.T) {
	for _, c := range cells(true) {
		race, err := c.race(time.Second)
		if err != nil {
			t.Fatalf("%s: %v", c, err)
		}
		stmts := race.Cells[0].Discipline.Statements()
		text, err := script(c, stmts)
		if err != nil {
			t.Fatalf("%s: %v", c, err)
		}
		if strings.Contains(text, "$") {
			t.Errorf("%s: a parameter is left:\n%s", c, text)
		}
		for _, s := range stmts {
			if verb, _, _ := strings.Cut(s.SQL, " "); s.Name != "why not" && !strings.Contains(text, verb) {
				t.Errorf("%s: %q is missing:\n%s", c, s.SQL, text)
			}
		}
	}
}

func TestBindRefusesWhatItDoesNotKnow(t *testing.T) {
	if got, err := bind("UPDATE t SET a = $2 WHERE id = $1", ":key", ":less"); err != nil || got != "UPDATE t SET a = :less WHERE id = :key" {
		t.Errorf("bind = %q, %v", got, err)
	}
	if _, err := bind("UPDATE t SET a = $2 WHERE id = $1", ":key"); err == nil {
		t.Error("a parameter without a value was accepted")
	}
}

func TestChosen(t *testing.T) {
	c := cell{Strategy: "atomic", Rows: plenty}
	for only, want := range map[string]bool{"": true, "atomic": true, "10000 rows, not durable": true, "durable": false, "atom": false} {
		if c.chosen(only) != want {
			t.Errorf("%s chosen by %q: %v", c, only, !want)
		}
	}
}

func TestJudge(t *testing.T) {
	at := func(speed, cost float64, c cell) *result {
		return &result{cell: c, pairs: []pair{{own: sample{Attempts: int64(1000 * speed), Seconds: 1, Cost: cost}, pgbench: sample{Attempts: 1000, Seconds: 1, Cost: 1}}}}
	}
	got := judge([]*result{
		at(0.8, 1, cell{Strategy: "a", Rows: plenty}), at(0.9, 3, cell{Strategy: "b", Rows: plenty}), at(1, 2, cell{Strategy: "c", Rows: plenty}),
		at(0.1, 9, cell{Strategy: "hot", Rows: 1}),
	})
	want := []struct {
		median, extent float64
		worst, word    string
	}{{0.9, 0.8, "a", "met"}, {0.9, 0.8, "a", "not met"}, {2, 3, "b", "met"}}
	if len(got) != len(want) {
		t.Fatalf("%d goals judged, not %d", len(got), len(want))
	}
	for i, w := range want {
		if v := got[i]; v.median != w.median || v.extent != w.extent || v.worst.Strategy != w.worst || v.word() != w.word {
			t.Errorf("%s: median %v, worst %v of %s: %s", v.text, v.median, v.extent, v.worst.Strategy, v.word())
		}
	}
}
