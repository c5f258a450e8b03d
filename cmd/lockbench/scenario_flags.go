package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockbench/lockbench/bench"
)

// ofScenarios adds the flags that single scenarios have, and returns where their values go, by name. Scenarios may share one.
func (s flagSet) ofScenarios() map[string]*string {
	all := map[string]*string{}
	for _, sc := range allScenarios() {
		for _, o := range sc.Options {
			if all[o.Name] != nil {
				continue
			}
			all[o.Name] = new(string)
			s.text(all[o.Name], o.Name, strings.Join(o.Values, "|"), "", sc.Name+": "+o.Doc)
			if isSwitch(o) {
				s.fs.Lookup(o.Name).NoOptDefVal = "on"
			}
		}
	}
	return all
}

// isSwitch reports whether the flag alone means on.
func isSwitch(o bench.OptionDoc) bool { return slices.Equal(o.Values, []string{"on", "off"}) }

func completeOfScenarios(cmd *cobra.Command) {
	for _, sc := range allScenarios() {
		for _, o := range sc.Options {
			if _, done := cmd.GetFlagCompletionFunc(o.Name); !done {
				completeWords(cmd, o.Name, o.Values...)
			}
		}
	}
}

// givenOptions are the values of those flags that were given.
func givenOptions(all map[string]*string, given *pflag.FlagSet) bench.Options {
	var o bench.Options
	for name, value := range all {
		if given.Changed(name) {
			if o == nil {
				o = bench.Options{}
			}
			o[name] = *value
		}
	}
	return o
}
