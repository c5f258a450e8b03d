package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/bench/compare"
)

// defaultNoise is how much worse a figure may look before it counts, as a share: docs/noise.md says why so much.
const defaultNoise = 0.40

// compareFlags are the flags of compare.
type compareFlags struct {
	noise  []string
	format string
	force  bool
	strict bool
}

func (a *app) compareCommand() *cobra.Command {
	f := &compareFlags{}
	cmd := &cobra.Command{
		Use:   "compare OLD NEW",
		Short: "Is anything worse than in an older report?",
		Long: `Hold a report that run saved as JSON against an older one of the same race; - reads one from stdin. Nothing is run.

A figure is a regression where its median became worse by more than --noise and a Mann-Whitney test over the trials shows it, at 5 %
for each figure over all cells (Holm). Worse by that much without being shown is inconclusive, and the trials that would show it are
estimated. conflict_rate is compared in points. A violation that is new, of a strategy that claims something, is a regression whatever
the noise. Three trials a side, the default of closed and open mode, cannot show any difference: use --trials 6 or more.

The default is for a busy machine, and lets a slow-down of 30 % pass: give less on a quiet one (docs/noise.md of the source).

Reports of different parameters, servers or machines are refused.

Exit codes: 0 ok, 1 trouble, 2 usage or reports that do not compare, 5 regression, 6 inconclusive (with --strict).`,
		Example: `  lockbench compare old.json new.json
  lockbench compare old.json new.json --noise 30% --noise p99=60%
  lockbench compare old.json new.json --format markdown`,
		Args: a.words(2, 2, "OLD or NEW"),
		RunE: func(_ *cobra.Command, files []string) error { return a.compare(files, f) },
	}
	fs := flagSet{a: a, fs: cmd.Flags()}
	fs.list(&f.noise, "noise", "share", nil, true, "how much worse is noise, as 30% or p99=60% (default 40%)")
	fs.oneOf(&f.format, "format", "table", compare.Formats(), "how to print it")
	fs.onOff(&f.force, "force", true, "compare what differs in parameters, and say what")
	fs.onOff(&f.strict, "strict", true, "exit 6 if anything is inconclusive")
	completeWords(cmd, "format", compare.Formats()...)
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return []string{"json"}, cobra.ShellCompDirectiveFilterFileExt
	}
	return cmd
}

func (a *app) compare(files []string, f *compareFlags) error {
	noise := a.noise(f.noise)
	docs := a.readReports(files)
	if err := a.usage(); err != nil {
		return err
	}
	older, newer := docs[0].races(), docs[1].races()
	differ, err := compare.Differences(older, newer)
	if err != nil {
		return err
	}
	if !f.force {
		for _, d := range differ {
			a.problem(bench.Hintf("--force compares them all the same", "%q and %q differ in %s", files[0], files[1], d))
		}
	}
	if err := a.usage(); err != nil {
		return err
	}
	c := compare.Compare(older, newer, noise)
	c.Difference = append(c.Difference, differ...)
	if err := c.Write(a.stdout, f.format); err != nil {
		return fmt.Errorf("printing %s: %w", f.format, err)
	}
	switch {
	case c.Regressed():
		return &exitError{exitRegression}
	case f.strict && !c.Conclusive():
		return &exitError{exitInconclusive}
	}
	return nil
}

// noise reads thresholds: 30% for all figures, p99=60% for one.
func (a *app) noise(given []string) compare.Noise {
	all := compare.Noise{"": defaultNoise}
	for _, text := range given {
		name, value, named := strings.Cut(text, "=")
		if !named {
			name, value = "", text
		}
		if named && !slices.Contains(compare.Figures(), name) {
			a.problem(bench.Hintf(didYouMean("--noise", name, compare.Figures()), "--noise: nothing goes by the name %q", name))
		}
		v, err := share(value)
		if err != nil {
			a.problem(bench.Hintf("--noise 30% or --noise p99=60%", "--noise: %q %v", text, err))
		}
		all[name] = v
	}
	return all
}

// share reads a percentage.
func share(text string) (float64, error) {
	digits, ok := strings.CutSuffix(text, "%")
	v, err := strconv.ParseFloat(digits, 64)
	if !ok || err != nil || !(v >= 0 && v <= 1000) {
		return 0, errors.New("is not a percentage from 0% to 1000%")
	}
	return v / 100, nil
}
