package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/bench/report"
	"github.com/lockbench/lockbench/bench/sweep"
)

// reportFlags are the flags of report.
type reportFlags struct {
	formats []string
	outputs []string
	groupBy []string
	noColor bool
}

func (a *app) reportCommand() *cobra.Command {
	f := &reportFlags{}
	cmd := &cobra.Command{
		Use:   "report FILE...",
		Short: "Render saved reports as tables, pages, plots and for other programs",
		Long: `Render reports that run and sweep saved with --output FILE.json; - reads one from stdin. Nothing is run.

html is one file that needs no network; svg and png are its plots alone. benchstat is for golang.org/x/perf's benchstat, junit for CI
servers, hgrm for HdrHistogram's plotter: --output 'latency-*.hgrm' writes a file for each cell. github prints annotations for GitHub
Actions, and appends the table to the page that GITHUB_STEP_SUMMARY names if it is set.

Several files are printed one after the other, in formats where that makes sense. With --group-by their cells stand in one table
(table, markdown, csv): those that are alike in what it names stand together.

Exit codes: 0 ok, 1 trouble, 2 usage. What the reports say does not change them.`,
		Example: `  lockbench report race.json
  lockbench report race.json --format markdown
  lockbench report race.json --output race.html --output race.png
  lockbench report old.json new.json --format benchstat > both.bench
  lockbench report old.json new.json --group-by strategy          each strategy's cells side by side
  lockbench report race.json --format github                      in a step of GitHub Actions`,
		Args: a.words(1, maxReports, "the FILE of a report"),
		RunE: func(cmd *cobra.Command, files []string) error {
			return a.render(files, f, cmd.Flags().Changed("format"))
		},
	}
	fs := flagSet{a: a, fs: cmd.Flags()}
	fs.list(&f.formats, "format", "list", []string{"table"}, true, "formats on stdout: "+strings.Join(report.Formats(), ", "))
	fs.list(&f.outputs, "output", "file", nil, false, "save to a file instead, in the format of its extension; may be repeated")
	fs.list(&f.groupBy, "group-by", "list", nil, true, "one table of all cells, grouped by "+strings.Join(report.GroupKeys(), ", "))
	fs.onOff(&f.noColor, "no-color", true, "no colours (as with NO_COLOR)")
	completeList(cmd, "format", report.Formats()...)
	completeList(cmd, "group-by", report.GroupKeys()...)
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return []string{"json"}, cobra.ShellCompDirectiveFilterFileExt
	}
	return cmd
}

// maxReports is a bound that a shell's * is not meant to reach.
const maxReports = 1000

// render checks everything, then writes the files, and prints unless only files were asked for.
func (a *app) render(files []string, f *reportFlags, printing bool) error {
	printing = printing || len(f.outputs) == 0
	formats := f.formats
	if !printing {
		formats = nil
	}
	for _, name := range formats {
		a.problem(knownFormat(name))
		a.problem(a.printable(name))
	}
	outputs := a.outputFiles(f.outputs)
	a.checkGroups(f.groupBy, formats, outputs)
	if len(files) > 1 && f.groupBy == nil {
		for _, name := range formats {
			a.problem(oneOnly(name, "--format "+name))
		}
		for _, o := range outputs {
			a.problem(oneOnly(o.format, "--output "+o.path))
			if o.each {
				a.problem(bench.Hintf("name one FILE", "--output %s takes one report", o.path))
			}
		}
	}
	reports := a.readReports(files)
	if err := a.usage(); err != nil {
		return err
	}
	if f.groupBy != nil {
		return a.renderGrouped(f, formats, outputs, reports)
	}
	var races []*bench.Report
	for _, r := range reports {
		races = append(races, r.races())
	}
	return errors.Join(a.save(outputs, asDocuments(reports), races), a.print(formats, reports, f.noColor))
}

// renderGrouped writes all cells into one table.
func (a *app) renderGrouped(f *reportFlags, formats []string, outputs []outputFile, reports []document) error {
	var sources []report.Source
	for _, d := range reports {
		sources = append(sources, report.Source{Name: d.name, Report: d.races()})
	}
	err := a.save(outputs, func(w io.Writer, format string) error {
		return report.WriteGrouped(w, format, sources, f.groupBy, report.Options{})
	}, nil)
	errs := []error{err}
	for i, name := range formats {
		if i > 0 {
			fmt.Fprintln(a.stdout)
		}
		errs = append(errs, report.WriteGrouped(a.stdout, name, sources, f.groupBy, report.Options{Width: a.width(), Color: a.color(f.noColor)}))
	}
	return errors.Join(errs...)
}

// checkGroups notes what is wrong with --group-by.
func (a *app) checkGroups(by, formats []string, outputs []outputFile) {
	if by == nil {
		return
	}
	seen := map[string]bool{}
	for _, key := range by {
		switch {
		case !slices.Contains(report.GroupKeys(), key):
			a.problem(bench.Hintf(didYouMean("--group-by", key, report.GroupKeys()), "--group-by: nothing goes by the name %q", key))
		case seen[key]:
			a.problem(bench.Hintf("give it once", "--group-by: %q is given twice", key))
		}
		seen[key] = true
	}
	for _, name := range formats {
		if err := report.CanGroup(name); err != nil && slices.Contains(report.Formats(), name) {
			a.problem(fmt.Errorf("--format: %w", err))
		}
	}
	for _, o := range outputs {
		if err := report.CanGroup(o.format); err != nil {
			a.problem(fmt.Errorf("--output %s: %w", o.path, err))
		}
	}
}

// printable refuses to throw pixels at a terminal.
func (a *app) printable(format string) error {
	if _, tty := terminal(a.stdout); tty && format == "png" {
		return bench.Hintf("--output plot.png", "--format: a terminal cannot show png")
	}
	return nil
}

// oneOnly refuses several reports in a format of which two in a row are none.
func oneOnly(format, flag string) error {
	joined := []string{"table", "markdown", "benchstat", "github", "hgrm"}
	if slices.Contains(joined, format) || !slices.Contains(report.Formats(), format) {
		return nil
	}
	return bench.Hintf("name one FILE, or use "+strings.Join(joined, ", "), "%s takes one report", flag)
}

// document is what a saved file holds: a report or a sweep.
type document struct {
	name  string
	race  *bench.Report
	swept *sweep.Sweep
}

// races is the report of a sweep's races, or of a run's.
func (d document) races() *bench.Report {
	if d.swept != nil {
		return d.swept.Report
	}
	return d.race
}

func (d document) write(w io.Writer, format string, o report.Options) error {
	if d.swept != nil {
		return report.WriteSweep(w, format, d.swept, o)
	}
	return report.Write(w, format, d.race, o)
}

// readReports reads every file, and notes those that are no reports.
func (a *app) readReports(files []string) []document {
	var all []document
	for _, name := range files {
		r, err := a.readReport(name)
		if err != nil {
			a.problem(fmt.Errorf("%q: %w", name, err))
			continue
		}
		all = append(all, r)
	}
	return all
}

func (a *app) readReport(name string) (document, error) {
	data, err := a.readFile(name)
	if err != nil {
		return document{}, bench.Hintf("lockbench run --output race.json saves one", "cannot read it: %v", reason(err))
	}
	d := document{name: name}
	var head struct {
		Schema string `json:"schema"`
	}
	// What is no JSON is refused by Read, which says why.
	if json.Unmarshal(data, &head) == nil && strings.HasPrefix(head.Schema, "lockbench.sweep/") {
		d.swept, err = sweep.Read(bytes.NewReader(data))
	} else {
		d.race, err = report.Read(bytes.NewReader(data))
	}
	return d, err
}

func (a *app) readFile(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(a.stdin)
	}
	return os.ReadFile(name) //nolint:gosec // the user names the file
}

// asDocuments returns a function that writes reports one after the other.
func asDocuments(reports []document) func(io.Writer, string) error {
	return func(w io.Writer, format string) error { return writeReports(w, format, reports, report.Options{}) }
}

// writeReports writes reports one after the other.
func writeReports(w io.Writer, format string, reports []document, o report.Options) error {
	for i, r := range reports {
		if i > 0 {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		if err := r.write(w, format, o); err != nil {
			return err
		}
	}
	return nil
}

// print writes reports to stdout in every format asked for. In a step of GitHub Actions the table of format github goes to the job's
// page, and only annotations to the log.
func (a *app) print(formats []string, reports []document, noColor bool) error {
	for i, format := range formats {
		if i > 0 {
			fmt.Fprintln(a.stdout)
		}
		var err error
		if page := a.env("GITHUB_STEP_SUMMARY"); format == "github" && page != "" {
			for _, r := range reports {
				err = errors.Join(err, appendSummary(page, r.races()), report.Annotations(a.stdout, r.races()))
			}
		} else {
			err = writeReports(a.stdout, format, reports, report.Options{Width: a.width(), Color: a.color(noColor)})
		}
		if err != nil {
			return fmt.Errorf("printing %s: %w", format, err)
		}
	}
	return nil
}

// tellGitHub gives a step of GitHub Actions its page and annotations where no format was asked for: the table stays on stdout, and
// annotations go to stderr, which GitHub reads as well.
func (a *app) tellGitHub(p plan, rep *bench.Report) error {
	page := a.env("GITHUB_STEP_SUMMARY")
	if !p.plain || a.env("GITHUB_ACTIONS") != "true" || page == "" {
		return nil
	}
	return errors.Join(appendSummary(page, rep), report.Annotations(a.stderr, rep))
}

// appendSummary adds a report to the page of a job.
func appendSummary(page string, r *bench.Report) error {
	file, err := os.OpenFile(page, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600) //nolint:gosec // the runner names the file
	if err != nil {
		return fmt.Errorf("the summary of the job: %w", err)
	}
	return errors.Join(report.Summary(file, r, report.Options{}), file.Close())
}
