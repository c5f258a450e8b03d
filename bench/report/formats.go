// Package report renders a report of package bench for people and for programs. Every format is a pure function of the report.
package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/lockbench/lockbench/bench"
)

// Options say where a report will be read.
type Options struct {
	Width int  // columns of the terminal; 0: as wide as it gets
	Color bool // ANSI colours
}

// format is one way to write a report.
type format struct {
	name       string
	extensions []string
	write      func(w io.Writer, r *bench.Report, o Options) error
}

// formats lists them in the order in which help shows them; a format is a line here and a file.
func formats() []format {
	return []format{
		{"table", []string{".txt", ".table"}, writeTable},
		{"markdown", []string{".md", ".markdown"}, writeMarkdown},
		{"csv", []string{".csv"}, writeCSV},
		{"json", []string{".json"}, writeJSON},
		{"html", []string{".html", ".htm"}, writeHTML},
		{"svg", []string{".svg"}, writeSVG},
		{"png", []string{".png"}, writePNG},
		{"benchstat", []string{".bench"}, writeBenchstat},
		{"junit", []string{".xml"}, writeJUnit},
		{"github", nil, writeGitHub},
		{"hgrm", []string{".hgrm"}, writeHGRM},
	}
}

// Formats lists the names of all formats.
func Formats() []string {
	var names []string
	for _, f := range formats() {
		names = append(names, f.name)
	}
	return names
}

// FormatOf returns the format that a file's extension stands for.
func FormatOf(file string) (string, error) {
	ext := strings.ToLower(filepath.Ext(file))
	var all []string
	for _, f := range formats() {
		for _, e := range f.extensions {
			if e == ext {
				return f.name, nil
			}
		}
		if len(f.extensions) > 0 {
			all = append(all, f.extensions[0])
		}
	}
	return "", bench.Hintf("end it in "+strings.Join(all, ", "), "no format goes by the extension of %q", file)
}

// Write writes the report in a format.
func Write(w io.Writer, name string, r *bench.Report, o Options) error {
	for _, f := range formats() {
		if f.name == name {
			return f.write(w, r, o)
		}
	}
	hint := "there are " + strings.Join(Formats(), ", ")
	if n := bench.Nearest(name, Formats()); n != "" {
		hint = "did you mean " + n + "? (" + hint + ")"
	}
	return bench.Hintf(hint, "unknown format %q", name)
}

// writeJSON writes the model itself, which is what every other tool reads.
func writeJSON(w io.Writer, r *bench.Report, _ Options) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(r)
}

// saveOne is the hint for what is no report.
const saveOne = "save one with --output FILE.json"

// Read reads a report in its JSON form.
func Read(rd io.Reader) (*bench.Report, error) {
	var r bench.Report
	dec := json.NewDecoder(rd)
	err := dec.Decode(&r)
	switch {
	case errors.Is(err, io.EOF):
		return nil, bench.Hintf(saveOne, "this is no report: it is empty")
	case err != nil:
		return nil, bench.Hintf(saveOne, "this is no report: %v", err)
	}
	if r.Schema != bench.Schema {
		return nil, bench.Hintf("use the lockbench that wrote it", "this report is of schema %q, not %q", r.Schema, bench.Schema)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, bench.Hintf("keep one report a file", "something follows the report")
	}
	return &r, nil
}

// number writes a figure with three significant digits, without exponents, and with its thousands set apart.
func number(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 0:
		return "-" + number(-v)
	case v >= 99.95:
		return grouped(fmt.Sprintf("%.0f", v))
	case v >= 9.995:
		return fmt.Sprintf("%.1f", v)
	case v >= 0.9995:
		return fmt.Sprintf("%.2f", v)
	}
	// What is not 0 never reads as 0.
	if v < 0.001 {
		return "<0.001"
	}
	return strconv.FormatFloat(v, 'f', 2-int(math.Floor(math.Log10(v))), 64)
}

// grouped sets the thousands of a whole number apart, where there are so many digits that they would have to be counted.
func grouped(digits string) string {
	if len(digits) < 5 {
		return digits
	}
	head := (len(digits)-1)%3 + 1
	s := digits[:head]
	for i := head; i < len(digits); i += 3 {
		s += "," + digits[i:i+3]
	}
	return s
}

// dash stands for what was not measured.
const dash = "–"
