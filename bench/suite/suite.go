// Package suite reads suite files: races with their parameters, limits and expectations, which a team keeps beside its code. It knows
// the form of such a file and where everything in it stands; what a parameter means is its caller's business.
package suite

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lockbench/lockbench/bench"
)

// Suite is a file that was read.
type Suite struct {
	File  string
	Races []Race
}

// Race is one race of a suite, defaults included.
type Race struct {
	Name     Text
	Settings []Setting
	FailOn   []Text
	Expect   []Expectation
}

// Setting is a parameter with its value, or its values.
type Setting struct {
	Name   Text
	Values []Text
	List   bool // written as a list
}

// Expectation is the verdict that a strategy is expected to get: by its label, its name, or [bench.All] for those not named.
type Expectation struct {
	Strategy Text
	Verdict  bench.Verdict
}

// Text is what stands at a place of the file.
type Text struct {
	Text string
	Place
	Default bool // it stands under defaults
}

// Place is a place in the file; lines and columns count from 1.
type Place struct{ Line, Column int }

// Problem is a mistake at a place.
type Problem struct {
	File string
	Place
	Err error
}

func (p *Problem) Error() string { return fmt.Sprintf("%s:%d:%d: %v", p.File, p.Line, p.Column, p.Err) }

func (p *Problem) Unwrap() error { return p.Err }

// Join makes one error of problems in the order of the file. What defaults hold is wrong once, however many races it is wrong in.
func Join(problems []*Problem) error {
	slices.SortStableFunc(problems, func(a, b *Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	var all []error
	seen := map[string]bool{}
	for _, p := range problems {
		if text := p.Error(); !seen[text] {
			seen[text] = true
			all = append(all, p)
		}
	}
	return errors.Join(all...)
}

// Find returns the place of a setting's value, for a problem with it: the value that is meant if there are several, else the setting
// itself, else the race.
func (r *Race) Find(setting, value string) Place {
	for _, s := range r.Settings {
		if s.Name.Text != setting {
			continue
		}
		if len(s.Values) == 1 {
			return s.Values[0].Place
		}
		for _, v := range s.Values { // one value may itself be a list with commas
			if value != "" && strings.Contains(","+strings.ReplaceAll(v.Text, " ", "")+",", ","+value+",") {
				return v.Place
			}
		}
		return s.Name.Place
	}
	return r.Name.Place
}
