// Package reference says what each strategy and each scenario is, with the SQL of every combination: for "lockbench show", and for a page
// each in docs, which also hold what was measured.
package reference

import (
	"errors"
	"slices"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/scenarios"
	"github.com/lockbench/lockbench/strategies"
)

// DefaultScenario is the one that is raced when nothing else is said.
const DefaultScenario = "seats"

// Statement is one SQL statement as it is sent.
type Statement struct {
	Name string `json:"name"`
	SQL  string `json:"sql"`
}

// Binding is a strategy on a scenario: what it sends, or why the two make no sense together.
type Binding struct {
	Strategy   string          `json:"strategy"`
	Scenario   string          `json:"scenario"`
	Isolation  string          `json:"isolation,omitempty"`
	Prevents   []bench.Anomaly `json:"prevents"`
	Statements []Statement     `json:"statements,omitempty"`
	NA         string          `json:"na,omitempty"`
	Instead    string          `json:"instead,omitempty"`
}

// Entry is everything that is said of one name; either Strategy or Scenario is set.
type Entry struct {
	Strategy *bench.StrategyInfo `json:"strategy,omitempty"`
	Scenario *bench.ScenarioInfo `json:"scenario,omitempty"`
	Shared   []bench.OptionDoc   `json:"shared_options,omitempty"`
	Bindings []Binding           `json:"bindings"`
	Try      string              `json:"try,omitempty"` // a run that shows it, if there is one
}

// OfStrategy describes a strategy with its options on each of the scenarios. The error is about the options.
func OfStrategy(st bench.Strategy, spec bench.Spec, on []bench.Scenario) (Entry, error) {
	info := st.Info()
	e := Entry{Strategy: &info, Shared: bench.SharedOptions()}
	for _, sc := range on {
		b, err := Bind(spec.Label, sc, nil)
		if err != nil {
			return e, err // a bad option is as bad on the next scenario
		}
		e.Bindings = append(e.Bindings, b)
	}
	if i := slices.IndexFunc(e.Bindings, func(b Binding) bool { return b.NA == "" }); i >= 0 {
		e.Try = "lockbench run --strategy none," + spec.Label
		if name := e.Bindings[i].Scenario; len(on) == 1 || name != DefaultScenario {
			e.Try += " --scenario " + name
		}
	}
	return e, nil
}

// OfScenario describes a scenario under every strategy.
func OfScenario(sc bench.Scenario) (Entry, error) {
	info := sc.Info()
	e := Entry{Scenario: &info, Try: "lockbench run --scenario " + info.Name}
	for _, st := range strategies.All() {
		b, err := Bind(st.Info().Name, sc, nil)
		if err != nil {
			return e, err
		}
		e.Bindings = append(e.Bindings, b)
	}
	return e, nil
}

// Bind writes a strategy's SQL for a scenario under some of its options. It goes the way of a run, so that what is said is what is sent.
func Bind(label string, sc bench.Scenario, o bench.Options) (Binding, error) {
	b := Binding{Strategy: label, Scenario: sc.Info().Name, Prevents: []bench.Anomaly{}}
	race, err := bench.Compile(bench.Settings{
		Strategies: []string{label}, Scenario: b.Scenario, Options: o, Mode: bench.Burst,
		Users: 1, Connections: 1, Trials: 1, Skew: "uniform", Backoff: "none",
	}, strategies.All(), scenarios.All(), bench.Connecting{})
	if err != nil {
		var na *bench.NotApplicable
		if errors.As(err, &na) {
			b.NA, b.Instead = na.Reason, na.Remedy
			return b, nil
		}
		return b, err
	}
	e := race.Cells[0]
	b.Isolation = e.Discipline.Isolation()
	b.Prevents = append(b.Prevents, e.Claims...)
	for _, s := range e.Discipline.Statements() {
		b.Statements = append(b.Statements, Statement{Name: s.Name, SQL: s.SQL})
	}
	return b, nil
}
