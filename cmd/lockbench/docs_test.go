package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, file := range append(files, "../../README.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts[filepath.Base(file)] = string(text)
	}
	t.Chdir(t.TempDir()) // some examples save their report
	seen := 0
	for file, text := range texts {
		for line := range strings.Lines(text) {
			args, found := documented(line)
			if !found {
				continue
			}
			seen++
			var out, complaint bytes.Buffer
			if code := run(t.Context(), args, strings.NewReader(""), &out, &complaint, nowhere); code == 2 {
				t.Errorf("%s: %q is refused:\n%s", file, args, complaint.String())
			}
		}
	}
	if seen < 10 {
		t.Errorf("%d commands were found, the README alone has ten", seen)
	}
}

// documented returns the arguments of a line that is an example. Starting and stopping a kept server has scripts of its own, and is
// nothing to be done on the reader's machine by the way.
func documented(line string) (args []string, found bool) {
	line, found = strings.CutPrefix(strings.TrimSpace(line), "go run ./cmd/lockbench ")
	if !found {
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
