package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/scenarios"
	"github.com/lockbench/lockbench/strategies"
)

type completion = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective)

// complete offers values for a flag; the flag exists, or the program would not pass its first test.
func complete(cmd *cobra.Command, flag string, f completion) {
	if err := cmd.RegisterFlagCompletionFunc(flag, f); err != nil {
		panic(err)
	}
}

func completeWords(cmd *cobra.Command, flag string, words ...string) {
	complete(cmd, flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return words, cobra.ShellCompDirectiveNoFileComp
	})
}

// completeList offers words one after the other, separated by commas.
func completeList(cmd *cobra.Command, flag string, words ...string) {
	complete(cmd, flag, func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		done := typed[:strings.LastIndex(typed, ",")+1]
		var out []string
		for _, w := range words {
			out = append(out, done+w)
		}
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	})
}

// strategyWords offers strategies, and after a colon their options with values; done is what stands before the last comma.
func strategyWords(typed string) ([]string, cobra.ShellCompDirective) {
	done, current := "", typed
	if i := strings.LastIndex(typed, ","); i >= 0 {
		done, current = typed[:i+1], typed[i+1:]
	}
	more := cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	colon := strings.LastIndex(current, ":")
	if colon < 0 {
		var out []string
		if done == "" {
			out = append(out, "all\tevery strategy that needs nothing but the database")
		}
		for _, s := range strategies.All() {
			info := s.Info()
			out = append(out, done+info.Name+"\t"+info.Summary)
		}
		return out, more
	}
	name, _, _ := strings.Cut(current, ":")
	s, err := bench.Lookup(name, strategies.All())
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	info := s.Info()
	var out []string
	for _, o := range append(info.Options, bench.SharedOptions()...) {
		before := done + current[:colon+1] + o.Name
		if len(o.Values) == 0 {
			out = append(out, before+"\t"+o.Doc)
		}
		for _, v := range o.Values {
			out = append(out, before+"="+example(v)+"\t"+o.Doc)
		}
	}
	return out, more
}

// example replaces the words that stand for a value by one.
func example(v string) string {
	switch v {
	case "N":
		return "3"
	case "exp=DURATION..DURATION":
		return "exp=1ms..50ms"
	}
	return strings.ReplaceAll(v, "DURATION", "50ms")
}

func completeStrategies(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	return strategyWords(typed)
}

func scenarioWords() []string {
	var out []string
	for _, s := range scenarios.All() {
		info := s.Info()
		out = append(out, info.Name+"\t"+info.Summary)
	}
	return out
}
