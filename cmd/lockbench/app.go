package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/lockbench/lockbench/bench"
)

// Exit codes, as documented in the help of the root command.
const (
	exitOK           = 0
	exitTrouble      = 1
	exitUsage        = 2
	exitBroken       = 3 // a strategy broke its claim
	exitThreshold    = 4 // a --fail-on threshold failed
	exitRegression   = 5 // worse than an older report
	exitInconclusive = 6 // with --strict
	exitHungUp       = 129
	exitInterrupted  = 130
	exitTerminated   = 143
)

// app is one invocation: its streams, its environment, and the problems found in its command line so far.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	env            func(string) string
	args           []string // the command line, without the program's name
	problems       []error
	misled         error // what was wrong with a line that asks for help
}

// output is a stream that remembers its first failed write: what could not be printed must not look like success. What the commands
// print is text, so they do not look at every write themselves.
type output struct {
	io.Writer
	err error
}

func (o *output) Write(b []byte) (int, error) {
	n, err := o.Writer.Write(b)
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// bare is the stream itself.
func bare(w io.Writer) io.Writer {
	if o, ok := w.(*output); ok {
		return o.Writer
	}
	return w
}

// exitError ends the program with a code; its message, if any, has been printed.
type exitError struct{ code int }

func (e *exitError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// usageError marks problems of the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// problem notes something wrong with the command line, so that all of it can be reported at once.
func (a *app) problem(err error) {
	if err != nil {
		a.problems = append(a.problems, err)
	}
}

// usage returns the problems noted so far as one error.
func (a *app) usage() error {
	if len(a.problems) == 0 {
		return nil
	}
	return usageError{errors.Join(a.problems...)}
}

// exit prints an error and returns the exit code for it.
func (a *app) exit(err error) int {
	var code *exitError
	var usage usageError
	if err == nil {
		err = a.misled
	}
	if out, ok := a.stdout.(*output); ok && err == nil && out.err != nil {
		err = fmt.Errorf("writing to standard output: %w", reason(out.err))
	}
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return code.code
	case errors.As(err, &usage):
		a.complain(err)
		return exitUsage
	}
	a.complain(err)
	return exitTrouble
}

// complain prints every error that err stands for, each with what was probably meant.
func (a *app) complain(err error) {
	seen := map[string]bool{}
	say := func(format, text string) {
		if text != "" && !seen[text] {
			seen[text] = true
			fmt.Fprintf(a.stderr, format, text)
		}
	}
	for _, e := range flatten(err) {
		say("lockbench: error: %s\n", e.Error())
		say("hint: %s\n", hintOf(e))
	}
}

// flatten takes joined errors apart, also where a join was wrapped in an error without words of its own.
func flatten(err error) []error {
	if err == nil {
		return nil
	}
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, e := range j.Unwrap() {
			all = append(all, flatten(e)...)
		}
		return all
	}
	if u, ok := err.(usageError); ok {
		return flatten(u.error)
	}
	return []error{err}
}

func hintOf(err error) string {
	var h interface{ Hint() string }
	if errors.As(err, &h) {
		return h.Hint()
	}
	return ""
}

// sift notes every unknown flag and returns the arguments without them, so that the rest of the line is read and checked as well.
func (a *app) sift(root *cobra.Command, args []string) []string {
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		return args // what is being completed is not finished
	}
	cmd, _, err := root.Find(args)
	if err != nil || cmd.DisableFlagParsing {
		return args
	}
	cmd.InitDefaultHelpFlag()
	kept := []string{} // never nil: cobra would take the arguments of the process instead
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			return append(kept, args[i:]...)
		}
		name, long := strings.CutPrefix(arg, "--")
		if !long {
			kept = append(kept, arg)
			continue
		}
		name, _, hasValue := strings.Cut(name, "=")
		f := cmd.Flag(name)
		if f != nil {
			kept = append(kept, arg)
		} else {
			var err error
			f, err = unknownFlag(root, cmd, name)
			a.problem(err)
		}
		if hasValue || f == nil || f.NoOptDefVal != "" {
			continue
		}
		if i+1 == len(args) {
			if cmd.Flag(name) != nil { // pflag would stop here, and what else is wrong would go unsaid
				a.problem(missingValue(cmd, name))
				kept = kept[:len(kept)-1]
			}
			break
		}
		// The next argument is the flag's value, or that of the flag which was meant.
		i++
		if cmd.Flag(name) != nil {
			kept = append(kept, args[i])
		}
	}
	return kept
}

func unknownCommand(parent *cobra.Command, word string) error {
	var names []string
	for _, c := range parent.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	hint := parent.CommandPath() + " --help"
	if n := bench.Nearest(word, names); n != "" {
		hint = "did you mean " + parent.CommandPath() + " " + n + "?"
	}
	return bench.Hintf(hint, "unknown command %q", word)
}

// unknownFlag returns the flag that was probably meant, nil if there is none, and the error to print.
func unknownFlag(root, cmd *cobra.Command, name string) (*pflag.Flag, error) {
	if cmd == root {
		if run, _, err := root.Find([]string{"run"}); err == nil && run.Flag(name) != nil {
			return run.Flag(name), bench.Hintf("lockbench run --"+name, "flag %q belongs to a command", "--"+name)
		}
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	hint := cmd.CommandPath() + " --help"
	n := bench.Nearest(name, names)
	if n != "" {
		hint = "did you mean --" + n + "?"
	}
	return cmd.Flag(n), bench.Hintf(hint, "unknown flag %q", "--"+name)
}

func missingValue(cmd *cobra.Command, name string) error {
	return bench.Hintf(cmd.CommandPath()+" --help", "flag %q needs a value", "--"+name)
}

// unreadable turns pflag's errors into ours; whatever was wrong with the line before is reported with it.
func (a *app) unreadable(cmd *cobra.Command, err error) error {
	hint := cmd.CommandPath() + " --help"
	var missing *pflag.ValueRequiredError
	var unknown *pflag.NotExistError
	switch {
	case errors.As(err, &missing):
		a.problem(missingValue(cmd, missing.GetSpecifiedName()))
	case errors.As(err, &unknown):
		a.problem(bench.Hintf(hint, "unknown flag %q", "-"+unknown.GetSpecifiedName()))
	default:
		a.problem(bench.Hintf(hint, "%s", err))
	}
	return a.usage()
}

// words checks how many arguments a command was given; names says what they are, for the error.
func (a *app) words(least, most int, names string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) > most:
			a.problem(bench.Hintf(cmd.CommandPath()+" --help", "unexpected argument %q", args[most]))
		case len(args) < least:
			a.problem(bench.Hintf(cmd.CommandPath()+" --help", "%s is missing", names))
		}
		return nil
	}
}

// terminal returns the width of a stream that is a terminal.
func terminal(w io.Writer) (width int, ok bool) {
	f, isFile := bare(w).(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) {
		return 0, false
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil || width <= 0 {
		width = 80
	}
	return width, true
}
