package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/bench"
)

// TestDocumentedCommands holds the commands in README and docs to the program: each must be one that it takes. They are run against a
// database that does not exist, so that a command line without mistakes ends in trouble (1) or well (0), and one with a mistake in 2.
func TestDocumentedCommands(t *testing.T) {
	nowhere := func(name string) string {
		if name == "LOCKBENCH_DSN" {
			return "host=/nowhere dbname=none"
		}
		return ""
	}
	var files []string
	for _, folder := range []string{"", "strategies/", "scenarios/"} {
		pages, err := filepath.Glob("../../docs/" + folder + "*.md")
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, pages...)
	}
	texts := map[string]string{}
	for _, file := range append(files, "../../README.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts[file] = string(text)
	}
	t.Chdir(t.TempDir()) // some examples save their report
	seen := 0
	for file, text := range texts {
		for line := range strings.Lines(text) {
			args, found := documented(line)
			if !found || dials(line) {
				continue
			}
			seen++
			var out, complaint bytes.Buffer
			if code := run(t.Context(), args, strings.NewReader(""), &out, &complaint, nowhere); code == 2 {
				t.Errorf("%s: %q is refused:\n%s", file, args, complaint.String())
			}
		}
	}
	if seen < 50 {
		t.Errorf("%d commands were found, the README alone has ten and every page has one", seen)
	}
}

// dials reports whether a command would look for a lock service, whose client may outlive the test for a second.
func dials(line string) bool {
	return slices.ContainsFunc(allStrategies(), func(s bench.StrategyInfo) bool {
		return s.External && strings.Contains(line, s.Name)
	})
}

// documented returns the arguments of a line that is an example: of the command from a clone, or of the program where the line is code,
// indented or with flags. Starting and stopping a kept server has scripts of its own, and is
// nothing to be done on the reader's machine by the way.
func documented(line string) (args []string, found bool) {
	code := strings.HasPrefix(line, "    ") || strings.Contains(line, " --")
	line, found = strings.CutPrefix(strings.TrimSpace(line), "go run ./cmd/lockbench ")
	if !found {
		line, found = strings.CutPrefix(line, "lockbench ")
	}
	if !found || !code {
		return nil, false
	}
	line, _, _ = strings.Cut(line, " # ")
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 { // what stands between quotes is one word
			args = append(args, part)
			continue
		}
		args = append(args, strings.Fields(part)...)
	}
	if args[0] == "server" {
		return nil, false
	}
	return args, true
}
