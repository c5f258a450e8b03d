package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/bench/report"
)

// outputFile is a file the report is saved to.
type outputFile struct {
	path   string
	format string
	direct bool // not a regular file, such as /dev/null: written in place
	each   bool // path has a * that each cell's name takes the place of: HdrHistogram's tools take one distribution a file
}

// outputFiles checks every --output before anything starts: a race of minutes must not end in "permission denied".
func (a *app) outputFiles(paths []string) []outputFile {
	var files []outputFile
	seen := map[string]bool{}
	for _, path := range paths {
		if seen[filepath.Clean(path)] {
			a.problem(bench.Hintf("give it once", "--output: %q is given twice", path))
			continue
		}
		seen[filepath.Clean(path)] = true
		format, err := report.FormatOf(path)
		if err != nil {
			a.problem(fmt.Errorf("--output: %w", err))
			continue
		}
		f := outputFile{path: path, format: format}
		if f.each = format == "hgrm" && strings.Count(filepath.Base(path), "*") == 1; f.each {
			f.path = filepath.Join(filepath.Dir(path), strings.Replace(filepath.Base(path), "*", "cell", 1))
			a.problem(f.probe())
			f.path = path
			files = append(files, f)
			continue
		}
		if target, err := filepath.EvalSymlinks(path); err == nil && target != filepath.Clean(path) {
			f.path = target // the link stays, what it points to is replaced
		}
		a.problem(f.probe())
		files = append(files, f)
	}
	return files
}

// probe finds out whether the file can be written, and leaves nothing behind.
func (f *outputFile) probe() error {
	info, err := os.Stat(f.path)
	switch {
	case err == nil && info.IsDir():
		return bench.Hintf("name a file in it, as "+filepath.Join(f.path, "race.json"), "--output: %q is a directory", f.path)
	case err == nil && !info.Mode().IsRegular():
		f.direct = true
		return nil
	}
	tmp, err := f.temp()
	if err != nil {
		return bench.Hintf("name a file in a directory that exists and can be written to", "--output: cannot write %q: %v", f.path, reason(err))
	}
	return errors.Join(tmp.Close(), os.Remove(tmp.Name()))
}

// temp creates a file beside the wanted one, so that a rename replaces it at once and as a whole.
func (f *outputFile) temp() (*os.File, error) {
	mode := fs.FileMode(0o666)
	if info, err := os.Stat(f.path); err == nil {
		mode = info.Mode().Perm()
	}
	name := filepath.Join(filepath.Dir(f.path), "."+filepath.Base(f.path)+"."+rand.Text()[:8])
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode) //nolint:gosec // a report is as public as the user's umask
}

// write saves data under the file's name.
func (f *outputFile) write(data []byte) error {
	if f.direct {
		return os.WriteFile(f.path, data, 0o600)
	}
	tmp, err := f.temp()
	if err != nil {
		return err
	}
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), f.path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
	}
	return err
}

// reason is the cause of a file error without the name of a temporary file.
func reason(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// save writes every file; one that fails does not keep the others from being written.
func (a *app) save(files []outputFile, write func(w io.Writer, format string) error, reports []*bench.Report) error {
	var errs []error
	for _, f := range files {
		var err error
		if f.each {
			err = f.writeEach(reports)
		} else {
			var buf bytes.Buffer
			if err = write(&buf, f.format); err == nil {
				err = f.write(buf.Bytes())
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("saving %q: %w", f.path, reason(err)))
		}
	}
	return errors.Join(errs...)
}

// writeEach writes a file for each cell of a report.
func (f *outputFile) writeEach(reports []*bench.Report) error {
	for _, r := range reports {
		blocks, err := report.HGRM(r)
		if err != nil {
			return err
		}
		for _, b := range blocks {
			one := outputFile{path: strings.Replace(f.path, "*", b.Name, 1)}
			if err := one.write(b.Text); err != nil {
				return err
			}
		}
	}
	return nil
}

// width is how many columns a table may take: what COLUMNS says, else the terminal's, else 0 for no limit.
func (a *app) width() int {
	if n, err := strconv.Atoi(a.env("COLUMNS")); err == nil && n > 0 {
		return n
	}
	width, _ := terminal(a.stdout)
	return width
}

// within is how many columns text may take that is set at most so wide.
func (a *app) within(most int) int {
	const least = 40 // narrower would be a word a line
	if width := a.width(); width > 0 {
		return max(least, min(most, width))
	}
	return most
}

// color reports whether stdout takes colours. Source: https://no-color.org
func (a *app) color(off bool) bool {
	_, tty := terminal(a.stdout)
	return tty && !off && a.env("NO_COLOR") == "" && a.env("TERM") != "dumb"
}
