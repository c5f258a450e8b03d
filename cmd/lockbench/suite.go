package main

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/bench/gate"
	"github.com/lockbench/lockbench/bench/suite"
	"github.com/lockbench/lockbench/scenarios/suites"
)

// suiteTemplate is a suite with comments, but for the list of keys.
//
//go:embed suite.yaml
var suiteTemplate string

// suiteToBeginWith is what suite init writes. Its keys are listed from the flags, so that none is forgotten.
func (a *app) suiteToBeginWith() string {
	var lines []string
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	(&raceFlags{}).add(flagSet{a: a, fs: fs})
	for _, g := range groups(fs) {
		var names []string
		g.flags.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		lines = append(lines, fmt.Sprintf("#   %-16s %s", strings.ToLower(g.title)+":", strings.Join(names, ", ")))
	}
	return strings.Replace(suiteTemplate, "KEYS", strings.Join(lines, "\n"), 1)
}

func (a *app) suiteCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "suite",
		Short: "Write and check suites, which run --suite races",
		Long: `A suite is a file of races that a team keeps beside its code: each with a name and the parameters that are flags of run, with limits
(fail-on) and expectations (expect). lockbench run --suite FILE races them one after the other on one server, into one report.

Built in, by name or to be read in scenarios/suites: ` + strings.Join(suites.Names(), ", ") + `.`,
		Example: `  lockbench suite init
  lockbench suite check lockbench.yaml
  lockbench run --suite lockbench.yaml
  lockbench run --suite smoke`,
		Args: cobra.ArbitraryArgs,
		RunE: a.group,
	}
	init := &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write a suite with comments to begin with",
		Long:  "Write a suite with comments to begin with; without FILE to " + newSuite + ". A file that exists is left as it is.",
		Args:  a.words(0, 1, ""),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.suiteInit(append(args, newSuite)[0])
		},
	}
	check := &cobra.Command{
		Use:   "check FILE",
		Short: "Say what is wrong with a suite, or what it would race",
		Long:  "Report everything that is wrong with a suite, each with its line and column, or what it would race. Nothing is run.",
		Args:  a.words(1, 1, "the FILE of a suite"),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.suiteCheck(args[0])
		},
	}
	for _, c := range []*cobra.Command{init, check} {
		c.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
		}
		cmd.AddCommand(c)
	}
	return cmd
}

// newSuite is the file that suite init writes unless it is told another.
const newSuite = "lockbench.yaml"

func (a *app) suiteInit(file string) error {
	out, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666) //nolint:gosec // the user names the file
	if err != nil {
		hint := "name a file in a directory that exists and can be written to"
		if errors.Is(err, os.ErrExist) {
			hint = "lockbench suite check " + file
		}
		return usageError{bench.Hintf(hint, "cannot write %q: %v", file, reason(err))}
	}
	_, err = out.WriteString(a.suiteToBeginWith())
	if err = errors.Join(err, out.Close()); err == nil {
		fmt.Fprintf(a.stderr, "wrote %s; lockbench run --suite %s races it\n", file, file)
	}
	return err
}

func (a *app) suiteCheck(name string) error {
	races := a.suiteRaces(name, pflag.NewFlagSet("", pflag.ContinueOnError))
	if err := a.usage(); err != nil {
		return err
	}
	for _, r := range races {
		s, cells := &r.race.Settings, 0
		for _, c := range r.race.Cells {
			if c.NA == "" {
				cells++
			}
		}
		fmt.Fprintf(a.stdout, "%s: %s, %s, %d users on %d connections, %d strategies, %d trials each\n",
			r.name, s.Scenario, s.Mode, s.Users, s.Connections, cells, s.Trials)
	}
	return nil
}

func completeSuites(cmd *cobra.Command) {
	complete(cmd, "suite", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return suites.Names(), cobra.ShellCompDirectiveDefault
	})
}

// readSuite returns a suite's file and its text: of one that is built in, by its name alone, else of a file.
func readSuite(name string) (file string, text []byte, err error) {
	if file, text, ok := suites.Read(name); ok {
		return file, text, nil
	}
	text, err = os.ReadFile(name) //nolint:gosec // the user names the file
	if err == nil {
		return name, text, nil
	}
	hint := "lockbench suite init writes one; built in are " + strings.Join(suites.Names(), ", ")
	if filepath.Ext(name) == "" && !strings.ContainsRune(name, filepath.Separator) {
		if n := bench.Nearest(name, suites.Names()); n != "" {
			hint = "did you mean --suite " + n + "?"
		}
	}
	return "", nil, bench.Hintf(hint, "cannot read the suite %q: %v", name, reason(err))
}

// suiteRaces reads a suite and returns its races; whatever is wrong with it is noted. Parameters given beside --suite hold for all of its
// races, but what they race is the suite's to say.
func (a *app) suiteRaces(name string, given *pflag.FlagSet) []planned {
	keys := a.raceKeys()
	options := map[string]bool{"strategy": true, "scenario": true, "mode": true}
	for _, sc := range allScenarios() {
		for _, o := range sc.Options {
			options[o.Name] = true
		}
	}
	var over []*pflag.Flag
	given.Visit(func(f *pflag.Flag) {
		switch {
		case options[f.Name]:
			a.problem(bench.Hintf("leave it out, or write it into a suite of your own", "--%s cannot be given beside --suite, which says what is raced", f.Name))
		case slices.Contains(keys, f.Name):
			over = append(over, f)
		}
	})
	file, text, err := readSuite(name)
	if err != nil {
		a.problem(err)
		return nil
	}
	s, problems := suite.Parse(file, text, keys)
	b := &binder{a: a, suite: s, over: over, keys: keys, problems: problems, used: map[suite.Place]bool{}}
	var races []planned
	for i := range s.Races {
		races = append(races, b.bind(&s.Races[i]))
	}
	b.unused()
	a.problem(suite.Join(b.problems))
	return races
}

// raceKeys are the names of the parameters that a race of a suite may have.
func (a *app) raceKeys() (names []string) {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	(&raceFlags{}).add(flagSet{a: a, fs: fs})
	fs.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}

// binder compiles a suite's races, reading parameters as the command line reads its flags.
type binder struct {
	a        *app
	suite    *suite.Suite
	over     []*pflag.Flag // given on the command line
	keys     []string
	problems []*suite.Problem
	used     map[suite.Place]bool // defaults that concern some race
}

func (b *binder) problem(at suite.Place, err error) {
	for _, e := range flatten(err) {
		b.problems = append(b.problems, &suite.Problem{File: b.suite.File, Place: at, Err: inFile(e, b.keys)})
	}
}

// bind compiles a race.
func (b *binder) bind(r *suite.Race) planned {
	sub := &app{env: b.a.env} // gathers what the flags complain of
	f := &raceFlags{}
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.add(flagSet{a: sub, fs: fs})
	for _, s := range r.Settings {
		flag := fs.Lookup(s.Name.Text)
		if _, many := flag.Value.(*list); s.List && !many {
			b.problem(s.Values[0].Place, bench.Hintf("write it without brackets or dashes", "%s takes one value, not a list", s.Name.Text))
			continue
		}
		for _, v := range s.Values {
			sub.problem(fs.Set(s.Name.Text, v.Text))
			b.problem(v.Place, errors.Join(sub.problems...))
			sub.problems = nil
		}
	}
	for _, o := range b.over {
		for _, text := range o.Value.(giver).given() {
			sub.problem(fs.Set(o.Name, text))
		}
		sub.problems = nil // the command line has said so itself
	}
	race, err := compile(f.settle(fs), false)
	for _, e := range flatten(err) {
		at := r.Name.Place
		var of *bench.SettingError
		if errors.As(e, &of) {
			at = r.Find(of.Setting, of.Value)
		}
		if of != nil && slices.ContainsFunc(b.over, func(f *pflag.Flag) bool { return f.Name == of.Setting }) {
			b.a.problem(e) // the file is not to blame
			continue
		}
		b.problem(at, e)
		if of != nil && of.Setting == "strategy" {
			race.Cells = nil // who else races is not known
		}
	}
	p := planned{name: r.Name.Text, race: race}
	b.gate(r, &p)
	return p
}

// gate reads what the race's report is held to. A default for a strategy that does not race here holds elsewhere.
func (b *binder) gate(r *suite.Race, p *planned) {
	for _, t := range r.FailOn {
		l, err := gate.Parse(t.Text)
		if err == nil {
			err = concerned(l, p.race.Cells)
		}
		if b.holds(t, err) {
			p.limits = append(p.limits, l)
		}
	}
	for _, e := range r.Expect {
		x := gate.Expectation{Strategy: e.Strategy.Text, Verdict: e.Verdict}
		var err error
		if x.Strategy != bench.All {
			err = racing(x.Concerns, x.Strategy, p.race.Cells, fmt.Sprintf("expect: strategy %q does not race", x.Strategy))
		}
		if b.holds(e.Strategy, err) {
			p.expect = append(p.expect, x)
		}
	}
}

// holds notes a problem with a limit or an expectation, and reports whether there is none.
func (b *binder) holds(t suite.Text, err error) bool {
	var absent *absentError
	switch {
	case err == nil:
		b.used[t.Place] = true
	case t.Default && errors.As(err, &absent):
		if _, known := b.used[t.Place]; !known {
			b.used[t.Place] = false
		}
	default:
		b.problem(t.Place, err)
	}
	return err == nil
}

// unused notes defaults for strategies that race nowhere.
func (b *binder) unused() {
	for at, used := range b.used {
		if !used {
			b.problem(at, bench.Hintf("leave it out, or race the strategy", "this concerns a strategy that no race has"))
		}
	}
}

// flagName finds what would be a flag on the command line.
var flagName = regexp.MustCompile(`--([a-z][a-z-]*)`)

// inFile words a problem of the command line for a file, where parameters have no dashes before them.
func inFile(err error, keys []string) error {
	plain := func(text string) string {
		return flagName.ReplaceAllStringFunc(text, func(flag string) string {
			if name := strings.TrimPrefix(flag, "--"); name == "fail-on" || slices.Contains(keys, name) {
				return name
			}
			return flag
		})
	}
	return bench.Hintf(plain(hintOf(err)), "%s", plain(err.Error()))
}
