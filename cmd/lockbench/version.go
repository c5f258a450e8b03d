package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/lockbench/lockbench/bench"
)

// build says which program this is, as far as the Go tool recorded it.
func build() bench.Build {
	b := bench.Build{Version: "devel", Go: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.Version = v
	}
	modified := false
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			modified = s.Value == "true"
		}
	}
	if modified && b.Commit != "" {
		b.Commit += "+modified"
	}
	return b
}

func (a *app) versionCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long:  "Print the version of lockbench, the commit it was built from, and the Go version.",
		Example: `  lockbench version
  lockbench version --format json`,
		Args: a.words(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			if err := a.usage(); err != nil {
				return err
			}
			b := build()
			if format == formatJSON {
				return a.printJSON(b)
			}
			fmt.Fprintf(a.stdout, "lockbench %s", b.Version)
			if b.Commit != "" {
				fmt.Fprintf(a.stdout, " (%s)", b.Commit)
			}
			fmt.Fprintf(a.stdout, ", %s %s/%s\n", b.Go, runtime.GOOS, runtime.GOARCH)
			return nil
		},
	}
	flagSet{a: a, fs: cmd.Flags()}.oneOf(&format, "format", "text", []string{"text", formatJSON}, "how to print it")
	completeWords(cmd, "format", "text", formatJSON)
	return cmd
}

const formatJSON = "json"

// printJSON prints v for other programs.
func (a *app) printJSON(v any) error {
	e := json.NewEncoder(a.stdout)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
