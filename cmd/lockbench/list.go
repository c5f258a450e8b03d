package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/scenarios"
	"github.com/lockbench/lockbench/strategies"
)

// catalogue is what can be raced.
type catalogue struct {
	Strategies []bench.StrategyInfo `json:"strategies,omitempty"`
	Scenarios  []bench.ScenarioInfo `json:"scenarios,omitempty"`
}

func allStrategies() []bench.StrategyInfo {
	var all []bench.StrategyInfo
	for _, s := range strategies.All() {
		all = append(all, s.Info())
	}
	return all
}

func allScenarios() []bench.ScenarioInfo {
	var all []bench.ScenarioInfo
	for _, s := range scenarios.All() {
		all = append(all, s.Info())
	}
	return all
}

func (a *app) listCommand() *cobra.Command {
	var format string
	kinds := []string{"strategies", "scenarios"}
	cmd := &cobra.Command{
		Use:   "list [strategies|scenarios]",
		Short: "List strategies and scenarios",
		Long:  "List the strategies that can be raced, with what they claim to prevent, and the scenarios they race on.",
		Example: `  lockbench list
  lockbench list strategies
  lockbench list scenarios --format json`,
		Args:      a.words(0, 1, ""),
		ValidArgs: kinds,
		RunE: func(_ *cobra.Command, args []string) error {
			all := catalogue{Strategies: allStrategies(), Scenarios: allScenarios()}
			switch {
			case len(args) == 0:
			case args[0] == kinds[0]:
				all.Scenarios = nil
			case args[0] == kinds[1]:
				all.Strategies = nil
			default:
				a.problem(bench.Hintf(didYouMean("lockbench list", args[0], kinds), "cannot list %q", args[0]))
			}
			if err := a.usage(); err != nil {
				return err
			}
			if format == formatJSON {
				return a.printJSON(all)
			}
			a.printCatalogue(all)
			return nil
		},
	}
	flagSet{a: a, fs: cmd.Flags()}.oneOf(&format, "format", "table", []string{"table", formatJSON}, "how to print it")
	completeWords(cmd, "format", "table", formatJSON)
	return cmd
}

// didYouMean is a hint with the nearest of some words, or all of them.
func didYouMean(before, word string, words []string) string {
	if n := bench.Nearest(word, words); n != "" {
		return "did you mean " + before + " " + n + "?"
	}
	return "there are " + strings.Join(words, ", ")
}

func (a *app) printCatalogue(c catalogue) {
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	if len(c.Strategies) > 0 {
		fmt.Fprintln(w, "STRATEGY\tWHAT IT DOES\tPREVENTS")
		for _, s := range c.Strategies {
			fmt.Fprintf(w, "%s\t%s\t%s\n", s.Name, s.Summary, claim(s.Prevents, s.Scope))
		}
	}
	if len(c.Strategies) > 0 && len(c.Scenarios) > 0 {
		_ = w.Flush()
		fmt.Fprintln(w)
	}
	if len(c.Scenarios) > 0 {
		fmt.Fprintln(w, "SCENARIO\tWHAT USERS RACE FOR")
		for _, s := range c.Scenarios {
			fmt.Fprintf(w, "%s\t%s\n", s.Name, s.Summary)
		}
	}
	_ = w.Flush()
}

// claim says what a strategy prevents, and where.
func claim(prevents []bench.Anomaly, scope string) string {
	if len(prevents) == 0 {
		return "nothing"
	}
	var all []string
	for _, p := range prevents {
		all = append(all, string(p))
	}
	s := strings.Join(all, ", ")
	if scope != "" {
		s += " (" + scope + ")"
	}
	return s
}
