package bench

import "slices"

// Planned is one of several races of a report.
type Planned struct {
	Name string   `json:"name"`
	Plan Settings `json:"plan"`
}

// Part is what a report holds of one race: its plan, cells, warnings and assertions. What all races share stands in each part.
type Part struct {
	Name string // empty in a report of one race
	*Report
}

// PlanOf returns the parameters a cell was raced with, which in a report of several races are those of its race.
func (r *Report) PlanOf(c *Cell) *Settings {
	for i := range r.Races {
		if r.Races[i].Name == c.Race {
			return &r.Races[i].Plan
		}
	}
	return &r.Plan
}

// Expected reports whether a cell's verdict is what somebody expected of it.
func (r *Report) Expected(c *Cell) bool {
	return slices.ContainsFunc(r.Gate, func(a Assertion) bool {
		return a.Figure == FigureVerdict && !a.Failed && a.Race == c.Race && a.Scenario == c.Scenario && a.Strategy == c.Strategy
	})
}

// Parts takes a report of several races apart, in their order. A report of one race is its own and only part.
func (r *Report) Parts() []Part {
	if len(r.Races) == 0 {
		return []Part{{Report: r}}
	}
	var parts []Part
	for _, race := range r.Races {
		one := *r
		one.Plan, one.Races = race.Plan, nil
		one.Cells, one.Warnings, one.Gate = []Cell{}, []Warning{}, nil
		for _, c := range r.Cells {
			if c.Race == race.Name {
				one.Cells = append(one.Cells, c)
			}
		}
		for _, w := range r.Warnings {
			if w.Race == race.Name {
				one.Warnings = append(one.Warnings, w)
			}
		}
		for _, a := range r.Gate {
			if a.Race == race.Name {
				one.Gate = append(one.Gate, a)
			}
		}
		parts = append(parts, Part{race.Name, &one})
	}
	return parts
}

// Join makes one report of races that were run one after the other, on one server, by one lockbench. Names must differ.
func Join(parts []Part) *Report {
	var all Report
	before := 0 // trials of the races before
	for i, p := range parts {
		if i == 0 {
			all = *p.Report
			all.Plan, all.Cells, all.Warnings, all.Gate = Settings{}, []Cell{}, []Warning{}, nil
		}
		all.Partial = all.Partial || p.Partial
		all.Races = append(all.Races, Planned{p.Name, p.Plan})
		trials := 0
		for _, c := range p.Cells {
			c.Race = p.Name
			c.Trials = slices.Clone(c.Trials)
			trials += len(c.Trials)
			for j := range c.Trials {
				c.Trials[j].Order += before
			}
			all.Cells = append(all.Cells, c)
		}
		before += trials
		for _, w := range p.Warnings {
			w.Race = p.Name
			all.Warnings = append(all.Warnings, w)
		}
		for _, a := range p.Gate {
			a.Race = p.Name
			all.Gate = append(all.Gate, a)
		}
	}
	return &all
}
