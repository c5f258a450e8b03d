package main

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/bench/trace"
	"github.com/lockbench/lockbench/claims"
	"github.com/lockbench/lockbench/scenarios"
)

// claimsFlags are the flags of claims.
type claimsFlags struct {
	where   source
	format  string
	outputs []string
	list    bool
	quiet   bool
}

func (a *app) claimsCommand() *cobra.Command {
	f := &claimsFlags{}
	cmd := &cobra.Command{
		Use:   "claims [CLAIM...]",
		Short: "Run what people say about locking: confirmed or refuted?",
		Long: `Run every claim about locking, or those that are named (D* names all that begin with D): the commands that show it, what they must
show, what was measured, and whether that confirms or refutes it. All of them take about three minutes.

A claim that needs a lock service which is not there is not run, and said so; where it was asked for by name, that is inconclusive.

Exit codes: 0 all confirmed, 1 trouble, 2 usage, 3 a claim was refuted, 6 a claim stayed inconclusive, 129, 130 and 143 stopped by a
signal.`,
		Example: `  lockbench claims
  lockbench claims A2 B6 'D*'
  lockbench claims --list
  lockbench claims --format markdown --output claims.json`,
		RunE: func(cmd *cobra.Command, ids []string) error { return a.claims(cmd.Context(), cmd.Flags(), ids, f) },
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var ids []string
			for _, c := range claims.All() {
				ids = append(ids, c.ID+"\t"+c.Text)
			}
			return ids, cobra.ShellCompDirectiveNoFileComp
		},
	}
	fs := flagSet{a: a, fs: cmd.Flags()}
	cmd.Flags().SortFlags = false
	fs.onOff(&f.list, "list", true, "name the claims and their commands, run nothing")
	f.where.add(fs.in("Database"))
	g := fs.in("Output")
	g.oneOf(&f.format, "format", "table", claims.Formats(), "how to print them")
	g.list(&f.outputs, "output", "file", nil, false, "save them to a file too, in the format of its extension: .txt, .md, .json")
	g.onOff(&f.quiet, "quiet", true, "no progress, errors only")
	completeWords(cmd, "format", claims.Formats()...)
	return cmd
}

// claims checks everything, then runs one claim after the other on one server.
func (a *app) claims(ctx context.Context, given *pflag.FlagSet, ids []string, f *claimsFlags) error {
	chosen, unknown := claims.Select(claims.All(), ids)
	for _, id := range unknown {
		a.problem(bench.Hintf("lockbench claims --list names them", "no claim goes by the name %q", id))
	}
	f.where.check(a, given)
	files := a.claimsFiles(f.outputs)
	var todo []claimed
	connections := 0
	for _, c := range chosen {
		t := claimed{Claim: c, byName: slices.ContainsFunc(ids, func(id string) bool { return strings.EqualFold(id, c.ID) })}
		for _, line := range c.Commands {
			s, err := a.claimStep(line, compileAll)
			a.problem(err)
			t.steps = append(t.steps, s)
			connections = max(connections, sessions(&s.race.Settings))
		}
		todo = append(todo, t)
	}
	if err := a.usage(); err != nil {
		return err
	}
	if f.list {
		return a.listClaims(chosen)
	}
	say := a.say(f.quiet)
	sig := interruptible(ctx, say)
	defer sig.end()
	db, err := f.where.open(sig.ctx, connections, say)
	if err != nil {
		if code := sig.code(); code != 0 {
			return &exitError{code}
		}
		return err
	}
	a.share(ctx, db, &fleetFlags{wait: bench.Duration(time.Minute)}, say)
	doc, missed, err := a.claimAll(db, todo, sig, say)
	if stopping := db.close(); stopping != nil {
		a.complain(fmt.Errorf("stopping the server: %w", stopping))
	}
	if printed := a.printClaims(doc, f.format, files); err == nil {
		err = printed
	}
	switch code := sig.code(); {
	case code != 0:
		return &exitError{code}
	case err != nil:
		return err
	case doc.Count(claims.Refuted) > 0:
		return &exitError{exitBroken}
	case doc.Count(claims.Inconclusive) > 0 || missed:
		return &exitError{exitInconclusive}
	}
	return nil
}

// claimed is a claim whose commands have been read.
type claimed struct {
	claims.Claim
	byName bool // it was asked for by its name, not by a pattern
	steps  []claimStep
}

// claimStep is one command of a claim: a race, or a race in slow motion.
type claimStep struct {
	race *bench.Race
	slow bool
}

// compiler makes a race of a run's settings.
type compiler func(s bench.Settings) (*bench.Race, error)

func compileAll(s bench.Settings) (*bench.Race, error) { return compile(s, false) }

// claimStep reads a command as the command line would. Claims are written without quotes.
func (a *app) claimStep(line string, compile compiler) (claimStep, error) {
	words := strings.Fields(line)
	sub := &app{env: a.env}
	fs := pflag.NewFlagSet(words[0], pflag.ContinueOnError)
	var s claimStep
	var err error
	switch words[0] {
	case "run":
		f := &runFlags{}
		f.add(flagSet{a: sub, fs: fs})
		if err = fs.Parse(words[1:]); err == nil {
			s.race, err = compile(f.settle(fs))
		}
	case "trace":
		f := &traceFlags{}
		f.add(flagSet{a: sub, fs: fs})
		if err = fs.Parse(words[1:]); err == nil {
			s.slow, s.race = true, sub.checkTrace(fs, f)
		}
	default:
		err = fmt.Errorf("no command of a claim goes by the name %q", words[0])
	}
	if err == nil && fs.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if err == nil {
		err = sub.usage()
	}
	if err != nil {
		return claimStep{race: &bench.Race{}}, fmt.Errorf("%q: %w", line, err)
	}
	return s, nil
}

// claimAll runs the claims and returns what they showed. missed is whether one that was asked for by name could not be run.
func (a *app) claimAll(db *database, todo []claimed, sig *interruption, say func(string, ...any)) (doc *claims.Document, missed bool, err error) {
	doc = &claims.Document{
		Schema: claims.Schema, Lockbench: build(), Claims: []claims.Result{},
		Host: bench.Host{OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU()},
	}
	began := time.Now()
	defer func() { doc.TookS = float64(time.Since(began).Milliseconds()) / 1000 }()
	required := a.env("LOCKBENCH_REQUIRE_SERVICES") == "1"
	for i := range todo {
		t := &todo[i]
		if sig.stop.Softly() {
			doc.Partial = true
			return doc, missed, nil
		}
		if why := t.unreachable(sig.ctx, db); why != "" {
			say("%s not run: %s", t.ID, why)
			doc.Claims = append(doc.Claims, t.Skip(why))
			missed = missed || t.byName || required
			continue
		}
		from := time.Now()
		o, err := t.observe(sig, db)
		if err != nil || sig.stop.Softly() {
			doc.Partial = true
			return doc, missed, db.blame(sig.ctx, err)
		}
		if len(o.Reports) > 0 && o.Reports[0] != nil {
			doc.Server = o.Reports[0].Environment.Server
		} else if len(o.Traces) > 0 && doc.Server.Version == "" {
			doc.Server = o.Traces[len(o.Traces)-1].Server
		}
		r := t.Judge(o)
		r.TookS = float64(time.Since(from).Milliseconds()) / 1000
		doc.Claims = append(doc.Claims, r)
		say("%s %s (%d of %d, %.1f s)", t.ID, r.Verdict, i+1, len(todo), r.TookS)
	}
	return doc, missed, nil
}

// unreachable says why a claim cannot be run here; "" if it can.
func (t *claimed) unreachable(ctx context.Context, db *database) string {
	for _, s := range t.steps {
		if err := s.race.Reach(ctx); err != nil {
			return err.Error()
		}
		if db.pooled {
			if _, err := compile(s.race.Settings, true); err != nil {
				return err.Error()
			}
		}
	}
	return ""
}

// observe runs the commands of a claim.
func (t *claimed) observe(sig *interruption, db *database) (*claims.Observed, error) {
	o := &claims.Observed{Reports: make([]*bench.Report, len(t.steps)), Traces: make([]*trace.Trace, len(t.steps))}
	for i, s := range t.steps {
		var err error
		if s.slow {
			store, ok := db.store.(trace.Store)
			if !ok {
				return o, fmt.Errorf("this database cannot be watched")
			}
			o.Traces[i], err = trace.Run(sig.ctx, s.race, store, sig.stop)
		} else {
			o.Reports[i], err = s.race.Execute(sig.ctx, db.store, sig.stop, silent{})
		}
		if err != nil || sig.stop.Softly() {
			return o, err
		}
	}
	return o, nil
}

func (a *app) listClaims(all []claims.Claim) error {
	for _, c := range all {
		fmt.Fprintf(a.stdout, "%s  %s\n", c.ID, c.Text)
		for _, line := range c.Commands {
			fmt.Fprintf(a.stdout, "    lockbench %s\n", line)
		}
	}
	return nil
}

// claimsFiles checks every --output before anything starts.
func (a *app) claimsFiles(paths []string) (files []outputFile) {
	for _, p := range paths {
		format, ok := map[string]string{".txt": "table", ".md": "markdown", ".json": formatJSON}[filepath.Ext(p)]
		if !ok {
			a.problem(bench.Hintf("end it in .txt, .md or .json", "--output: no format goes by the extension of %q", p))
			continue
		}
		f := outputFile{path: p, format: format}
		a.problem(f.probe())
		files = append(files, f)
	}
	return files
}

// printClaims saves first, then prints: what was measured must not be lost to a closed terminal.
func (a *app) printClaims(doc *claims.Document, format string, files []outputFile) error {
	var failed error
	for _, f := range files {
		var b strings.Builder
		err := doc.Write(&b, f.format)
		if err == nil {
			err = f.write([]byte(b.String()))
		}
		if err != nil && failed == nil {
			failed = fmt.Errorf("saving %q: %w", f.path, err)
		}
	}
	if err := doc.Write(a.stdout, format); err != nil {
		return fmt.Errorf("printing %s: %w", format, err)
	}
	return failed
}

// compileWith makes races of other strategies than those of the registry.
func compileWith(strategies []bench.Strategy) compiler {
	return func(s bench.Settings) (*bench.Race, error) {
		return bench.Compile(s, strategies, scenarios.All(), bench.Connecting{})
	}
}
