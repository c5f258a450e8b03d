package main

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/internal/reference"
	"github.com/lockbench/lockbench/scenarios"
	"github.com/lockbench/lockbench/strategies"
)

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
			var s reference.Entry
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
func look(name, scenario string) (reference.Entry, error) {
	for _, sc := range scenarios.All() {
		if sc.Info().Name != name {
			continue
		}
		if scenario != "" && scenario != name {
			return reference.Entry{}, bench.Hintf("leave --scenario out", "%q is a scenario itself", name)
		}
		return reference.OfScenario(sc)
	}
	specs, err := bench.ParseSpecs(name)
	if err != nil {
		return reference.Entry{}, err
	}
	if len(specs) > 1 {
		return reference.Entry{}, bench.Hintf("lockbench show "+specs[0].Label, "show takes one name at a time, got %q", name)
	}
	st, err := bench.Lookup(specs[0].Name, strategies.All())
	if err != nil {
		return reference.Entry{}, unknownName(specs[0].Name)
	}
	on := scenarios.All()
	if scenario != "" {
		on = slices.DeleteFunc(on, func(sc bench.Scenario) bool { return sc.Info().Name != scenario })
		if len(on) == 0 {
			return reference.Entry{}, unknownScenario(scenario)
		}
	}
	return reference.OfStrategy(st, specs[0], on)
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

func (a *app) printShown(s reference.Entry) {
	if s.Strategy != nil {
		a.printStrategy(s)
	} else {
		a.printScenario(s)
	}
	a.section("See it", s.Try)
}

func (a *app) printStrategy(s reference.Entry) {
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

func (a *app) printScenario(s reference.Entry) {
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

func (a *app) printBinding(title string, b reference.Binding) {
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
