package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/scenarios"
	"github.com/lockbench/lockbench/strategies"
)

// statement is one SQL statement as show prints it.
type statement struct {
	Name string `json:"name"`
	SQL  string `json:"sql"`
}

// binding is a strategy on a scenario: what it sends, or why the two make no sense together.
type binding struct {
	Strategy   string          `json:"strategy"`
	Scenario   string          `json:"scenario"`
	Isolation  string          `json:"isolation,omitempty"`
	Prevents   []bench.Anomaly `json:"prevents"`
	Statements []statement     `json:"statements,omitempty"`
	NA         string          `json:"na,omitempty"`
	Instead    string          `json:"instead,omitempty"`
}

// shown is everything show says about one name; either Strategy or Scenario is set.
type shown struct {
	Strategy *bench.StrategyInfo `json:"strategy,omitempty"`
	Scenario *bench.ScenarioInfo `json:"scenario,omitempty"`
	Shared   []bench.OptionDoc   `json:"shared_options,omitempty"`
	Bindings []binding           `json:"bindings"`
	Try      string              `json:"try,omitempty"` // a run that shows it, if there is one
}

type showFlags struct{ scenario, format string }

func (a *app) showCommand() *cobra.Command {
	f := &showFlags{}
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Explain a strategy or a scenario, with the exact SQL",
		Long: `Explain a strategy: what it does, the exact SQL it sends on each scenario, its isolation level, what it claims to prevent, what the
loser of a race sees, when to use it and what people get wrong. Or explain a scenario: the story, the invariant that is audited, and
the SQL of every strategy on it. A strategy may carry options, as in --strategy.`,
		Example: `  lockbench show pessimistic
  lockbench show pessimistic:wait=nowait --scenario inventory
  lockbench show seats
  lockbench show serializable --format json`,
		Args: a.words(1, 1, "the name of a strategy or scenario"),
		ValidArgsFunction: func(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			words, d := strategyWords(typed)
			return append(words, scenarioWords()...), d
		},
		RunE: func(_ *cobra.Command, args []string) error {
			var s shown
			if len(args) > 0 {
				var err error
				s, err = look(args[0], f.scenario)
				a.problem(err)
			}
			if err := a.usage(); err != nil {
				return err
			}
			if f.format == formatJSON {
				return a.printJSON(s)
			}
			a.printShown(s)
			return nil
		},
	}
	fs := flagSet{a: a, fs: cmd.Flags()}
	fs.text(&f.scenario, "scenario", "name", "", "show the SQL on this scenario only")
	fs.oneOf(&f.format, "format", "text", []string{"text", formatJSON}, "how to print it")
	complete(cmd, "scenario", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return scenarioWords(), cobra.ShellCompDirectiveNoFileComp
	})
	completeWords(cmd, "format", "text", formatJSON)
	return cmd
}

// look finds what a name stands for.
func look(name, scenario string) (shown, error) {
	for _, sc := range scenarios.All() {
		if info := sc.Info(); info.Name == name {
			return lookScenario(sc, scenario)
		}
	}
	specs, err := bench.ParseSpecs(name)
	if err != nil {
		return shown{}, err
	}
	if len(specs) > 1 {
		return shown{}, bench.Hintf("lockbench show "+specs[0].Label, "show takes one name at a time, got %q", name)
	}
	st, err := bench.Lookup(specs[0].Name, strategies.All())
	if err != nil {
		return shown{}, unknownName(specs[0].Name)
	}
	info := st.Info()
	out := shown{Strategy: &info, Shared: bench.SharedOptions()}
	var errs []error
	for _, sc := range scenarios.All() {
		if scenario != "" && sc.Info().Name != scenario {
			continue
		}
		b, err := bindTo(specs[0], sc)
		if err != nil {
			errs = append(errs, err)
			break // a bad option is as bad on the next scenario
		}
		out.Bindings = append(out.Bindings, b)
	}
	if len(out.Bindings) == 0 && len(errs) == 0 {
		errs = append(errs, unknownScenario(scenario))
	}
	if i := slices.IndexFunc(out.Bindings, func(b binding) bool { return b.NA == "" }); i >= 0 {
		out.Try = "lockbench run --strategy none," + specs[0].Label
		if on := out.Bindings[i].Scenario; scenario != "" || on != defaultScenario {
			out.Try += " --scenario " + on
		}
	}
	return out, errors.Join(errs...)
}

func lookScenario(sc bench.Scenario, other string) (shown, error) {
	info := sc.Info()
	out := shown{Scenario: &info, Try: "lockbench run --scenario " + info.Name}
	if other != "" && other != info.Name {
		return out, bench.Hintf("leave --scenario out", "%q is a scenario itself", info.Name)
	}
	for _, st := range strategies.All() {
		name := st.Info().Name
		b, err := bindTo(bench.Spec{Name: name, Options: bench.Options{}, Label: name}, sc)
		if err != nil {
			return out, err
		}
		out.Bindings = append(out.Bindings, b)
	}
	return out, nil
}

// bindTo writes a strategy's SQL for a scenario. It goes the way of a run, so that what is shown is what is sent.
func bindTo(spec bench.Spec, sc bench.Scenario) (binding, error) {
	b := binding{Strategy: spec.Label, Scenario: sc.Info().Name, Prevents: []bench.Anomaly{}}
	race, err := bench.Compile(bench.Settings{
		Strategies: []string{spec.Label}, Scenario: sc.Info().Name, Mode: bench.Burst,
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
		b.Statements = append(b.Statements, statement{Name: s.Name, SQL: s.SQL})
	}
	return b, nil
}

func unknownScenario(name string) error {
	var names []string
	for _, s := range allScenarios() {
		names = append(names, s.Name)
	}
	return bench.Hintf(didYouMean("--scenario", name, names), "unknown scenario %q", name)
}

func unknownName(name string) error {
	var names []string
	for _, s := range allStrategies() {
		names = append(names, s.Name)
	}
	for _, s := range allScenarios() {
		names = append(names, s.Name)
	}
	return bench.Hintf(didYouMean("lockbench show", name, names), "neither a strategy nor a scenario is named %q", name)
}

func (a *app) printShown(s shown) {
	if s.Strategy != nil {
		a.printStrategy(s)
	} else {
		a.printScenario(s)
	}
	a.section("See it", s.Try)
}

func (a *app) printStrategy(s shown) {
	i := s.Strategy
	fmt.Fprintf(a.stdout, "%s: %s\n", i.Name, i.Summary)
	a.section("How it works", i.How)
	prevents := i.Prevents
	if len(s.Bindings) > 0 && s.Bindings[0].NA == "" {
		prevents = s.Bindings[0].Prevents // options may give a claim up
	}
	a.section("Claims to prevent", claim(prevents, i.Scope))
	a.section("The loser of a race is", i.LoserIs)
	a.section("Use it", i.Use)
	a.section("Common mistakes", i.Mistakes)
	a.options("Options", i.Name, i.Options)
	a.options("Options of every strategy", i.Name, s.Shared)
	for _, b := range s.Bindings {
		a.printBinding("SQL on "+b.Scenario, b)
	}
}

func (a *app) printScenario(s shown) {
	i := s.Scenario
	fmt.Fprintf(a.stdout, "%s: %s\n", i.Name, i.Summary)
	a.section("What happens", i.Story)
	a.section("The audit checks", i.Invariant)
	a.section("--rows counts", i.Unit)
	a.section("Can go wrong", claim(i.Anomalies, ""))
	for _, o := range i.Options {
		a.section("--"+o.Name+" "+strings.Join(o.Values, "|"), o.Doc)
	}
	for _, b := range s.Bindings {
		a.printBinding("SQL of "+b.Strategy, b)
	}
}

func (a *app) printBinding(title string, b binding) {
	if b.NA != "" {
		a.section(title, "n/a: "+b.NA+"\n"+b.Instead)
		return
	}
	fmt.Fprintf(a.stdout, "\n%s (%s):\n", title, b.Isolation)
	width := 0
	for _, s := range b.Statements {
		width = max(width, len(s.Name))
	}
	for _, s := range b.Statements {
		sql := strings.ReplaceAll(strings.TrimSpace(s.SQL), "\n", "\n"+strings.Repeat(" ", width+4))
		fmt.Fprintf(a.stdout, "  %-*s  %s\n", width, s.Name, sql)
	}
}

func (a *app) options(title, name string, docs []bench.OptionDoc) {
	if len(docs) == 0 {
		return
	}
	fmt.Fprintf(a.stdout, "\n%s:\n", title)
	for _, d := range docs {
		text := d.Name
		if len(d.Values) > 0 {
			text += "=" + strings.Join(d.Values, "|")
		}
		fmt.Fprintf(a.stdout, "  %s:%s\n      %s\n", name, text, d.Doc)
	}
}

// section prints a heading with text below it, broken into lines; nothing for an empty text.
func (a *app) section(title, text string) {
	if text == "" {
		return
	}
	fmt.Fprintf(a.stdout, "\n%s:\n", title)
	for _, line := range strings.Split(text, "\n") {
		for _, l := range wrap(line, a.within(102)-2) {
			fmt.Fprintf(a.stdout, "  %s\n", l)
		}
	}
}

// wrap breaks text between words into lines of at most width columns.
func wrap(text string, width int) []string {
	var out []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			out = append(out, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	if line != "" {
		out = append(out, line)
	}
	return out
}
