package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// root returns the command tree.
func (a *app) root() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lockbench",
		Short: "Which way of locking should I use, and is it right?",
		Long: `Which way of locking should I use, and is it right?

lockbench lets many users race for the same rows of a PostgreSQL database under different ways of locking, audits what they were
told against what the database holds, and prints correctness and cost in one table. Without --dsn it starts a PostgreSQL of its own.

Exit codes: 0 ok, 1 trouble, 2 usage, 3 a strategy broke its claim, 4 a --fail-on threshold failed, 5 regression,
6 inconclusive (with --strict), 129, 130 and 143 stopped by a signal (what was measured is reported).`,
		Example: `  lockbench run                                       every strategy, 500 users, 50 seats
  lockbench run --strategy optimistic,pessimistic     two of them
  lockbench show pessimistic                          what it does, with its SQL
  lockbench doctor                                    can this machine run it?`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE:          a.group,
	}
	cmd.SetIn(a.stdin)
	cmd.SetOut(a.stdout)
	cmd.SetErr(a.stderr)
	cmd.SetFlagErrorFunc(a.unreadable)
	cmd.SetHelpFunc(func(c *cobra.Command, _ []string) {
		if words := c.Flags().Args(); c.HasAvailableSubCommands() && len(words) > 0 {
			a.misled = usageError{unknownCommand(c, words[0])}
			return
		}
		writeHelp(a.stdout, c)
	})
	cmd.SetHelpCommand(a.helpCommand())
	cmd.AddCommand(a.runCommand(), a.claimsCommand(), a.sweepCommand(), a.compareCommand(), a.reportCommand(), a.listCommand(), a.doctorCommand(), a.serverCommand(), a.showCommand(), a.suiteCommand(), a.traceCommand(), a.versionCommand(), a.workerCommand())
	cmd.InitDefaultHelpCmd()
	cmd.InitDefaultCompletionCmd()
	for _, c := range cmd.Commands() {
		if c.Name() == "completion" {
			c.Short = "Print a completion script for bash, zsh, fish or powershell"
		}
	}
	return cmd
}

// group is what a command does that only holds others.
func (a *app) group(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		a.problem(unknownCommand(cmd, args[0]))
	}
	if err := a.usage(); err != nil {
		return err
	}
	return cmd.Help()
}

func (a *app) helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Help about a command",
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				a.problem(unknownCommand(cmd.Root(), args[0]))
				return a.usage()
			}
			return about.Help()
		},
	}
}

// writeHelp prints what a command does, examples first: they are what most readers came for.
func writeHelp(w io.Writer, cmd *cobra.Command) {
	about := cmd.Long
	if about == "" {
		about = cmd.Short
	}
	fmt.Fprintf(w, "%s\n", strings.TrimSpace(about))
	if cmd.Example != "" {
		fmt.Fprintf(w, "\nExamples:\n%s\n", strings.TrimRight(cmd.Example, "\n"))
	}
	fmt.Fprintf(w, "\nUsage:\n  %s\n", strings.TrimSuffix(usageLine(cmd), "\n"))
	if cmd.HasAvailableSubCommands() {
		fmt.Fprint(w, "\nCommands:\n")
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				fmt.Fprintf(w, "  %-12s %s\n", c.Name(), c.Short)
			}
		}
	}
	cmd.InitDefaultHelpFlag()
	for _, g := range groups(cmd.LocalFlags()) {
		fmt.Fprintf(w, "\n%s:\n%s", g.title, g.flags.FlagUsagesWrapped(110))
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\n%s COMMAND --help says more about each.\n", cmd.CommandPath())
	}
}

func usageLine(cmd *cobra.Command) string {
	if cmd.HasAvailableSubCommands() {
		return cmd.CommandPath() + " COMMAND"
	}
	return cmd.UseLine()
}

type helpGroup struct {
	title string
	flags *pflag.FlagSet
}

// groups sorts flags under their headings, in the order in which they were added.
func groups(flags *pflag.FlagSet) []helpGroup {
	var all []helpGroup
	flags.SortFlags = false
	flags.VisitAll(func(f *pflag.Flag) {
		title := "Flags"
		if g := f.Annotations[groupKey]; len(g) > 0 {
			title = g[0]
		}
		if f.Hidden {
			return
		}
		for _, g := range all {
			if g.title == title {
				g.flags.AddFlag(f)
				return
			}
		}
		fs := pflag.NewFlagSet(title, pflag.ContinueOnError)
		fs.SortFlags = false
		fs.AddFlag(f)
		all = append(all, helpGroup{title, fs})
	})
	return all
}
