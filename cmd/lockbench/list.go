package main

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

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
	var rows [][]string
	for _, s := range c.Strategies {
		rows = append(rows, []string{s.Name, s.Summary, claim(s.Prevents, s.Scope)})
	}
	a.printColumns([]string{"STRATEGY", "WHAT IT DOES", "PREVENTS"}, rows)
	if len(c.Strategies) > 0 && len(c.Scenarios) > 0 {
		fmt.Fprintln(a.stdout)
	}
	rows = nil
	for _, s := range c.Scenarios {
		rows = append(rows, []string{s.Name, s.Summary})
	}
	a.printColumns([]string{"SCENARIO", "WHAT USERS RACE FOR"}, rows)
}

// printColumns prints text in columns; nothing without rows. Where they are wider than the terminal, the widest are broken into lines.
func (a *app) printColumns(heads []string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	const gap, narrowest = 2, 16
	rows = slices.Insert(rows, 0, heads)
	widths := make([]int, len(heads))
	total := -gap
	for j := range heads {
		for _, row := range rows {
			widths[j] = max(widths[j], utf8.RuneCountInString(row[j]))
		}
		total += widths[j] + gap
	}
	for limit := a.width(); limit > 0 && total > limit; total-- {
		widest := slices.Index(widths, slices.Max(widths))
		if widths[widest] <= narrowest {
			break
		}
		widths[widest]--
	}
	for _, row := range rows {
		cells := make([][]string, len(row))
		height := 0
		for j, text := range row {
			cells[j] = wrap(text, widths[j])
			height = max(height, len(cells[j]))
		}
		for i := range height {
			line := ""
			for j, lines := range cells {
				text := ""
				if i < len(lines) {
					text = lines[i]
				}
				line += text + strings.Repeat(" ", widths[j]-min(widths[j], utf8.RuneCountInString(text))+gap)
			}
			fmt.Fprintln(a.stdout, strings.TrimRight(line, " "))
		}
	}
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
