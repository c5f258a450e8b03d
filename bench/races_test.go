package bench

import (
	"encoding/json"
	"reflect"
	"testing"
)

// raced is the report of one race with two trials.
func raced(users int, warned ...Warning) *Report {
	return &Report{
		Schema: Schema, Plan: Settings{Users: users, Scenario: "seats"}, Warnings: append([]Warning{}, warned...),
		Cells: []Cell{{Strategy: "atomic", Trials: []Trial{{Number: 1, Order: 1}, {Number: 2, Order: 2}}}},
		Gate:  []Assertion{{Strategy: "atomic", Text: "overbooked>0"}},
	}
}

func TestJoinAndParts(t *testing.T) {
	few, many := raced(10), raced(500, Warning{Code: "failed"})
	many.Partial = true
	all := Join([]Part{{"few", few}, {"many", many}})
	if !all.Partial || len(all.Cells) != 2 || len(all.Races) != 2 || len(all.Gate) != 2 {
		t.Fatalf("joined: %+v", all)
	}
	if got := all.Cells[1].Trials[1].Order; got != 4 {
		t.Errorf("the last of four trials is number %d of the run", got)
	}
	if few.Cells[0].Race != "" || many.Cells[0].Trials[0].Order != 1 {
		t.Error("joining changed what it joined")
	}
	for i := range all.Cells {
		if got, want := all.PlanOf(&all.Cells[i]).Users, []int{10, 500}[i]; got != want {
			t.Errorf("cell %d was raced with %d users, its plan says %d", i, want, got)
		}
	}
	parts := all.Parts()
	for i, want := range []*Report{few, many} {
		p := parts[i]
		if p.Name != []string{"few", "many"}[i] || !reflect.DeepEqual(p.Plan, want.Plan) || len(p.Races) > 0 {
			t.Errorf("part %d: %+v", i, p)
		}
		if len(p.Cells) != 1 || len(p.Warnings) != len(want.Warnings) || len(p.Gate) != 1 {
			t.Errorf("part %d holds what is not its own: %+v", i, p)
		}
	}
	if again := Join(parts); len(again.Cells) != 2 || again.Cells[1].Race != "many" || again.Races[0].Name != "few" {
		t.Errorf("joined again: %+v", again)
	}
}

// TestPartsOfOneRace: a report of one race is its own part, and its JSON form says nothing of races.
func TestPartsOfOneRace(t *testing.T) {
	r := raced(10)
	if parts := r.Parts(); len(parts) != 1 || parts[0].Report != r || parts[0].Name != "" {
		t.Errorf("parts: %+v", parts)
	}
	if r.PlanOf(&r.Cells[0]) != &r.Plan {
		t.Error("the plan of its cells is another")
	}
	for _, tc := range []struct {
		r    *Report
		plan bool
	}{{r, true}, {Join([]Part{{"a", r}}), false}} {
		b, err := json.Marshal(tc.r)
		if err != nil {
			t.Fatal(err)
		}
		var top map[string]any
		if err := json.Unmarshal(b, &top); err != nil {
			t.Fatal(err)
		}
		if _, has := top["plan"]; has != tc.plan {
			t.Errorf("plan stands in the JSON: %v, want %v", has, tc.plan)
		}
		if _, has := top["races"]; has == tc.plan {
			t.Errorf("races stand in the JSON: %v, want %v", has, !tc.plan)
		}
	}
}
