// Command lockdocs makes those parts of docs that rest on measurements: measured.json, from which the page of each strategy and scenario
// takes what was seen. Make calls it; the pages themselves are written by a test of internal/reference.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/lockbench/lockbench/bench/postgres"
	"github.com/lockbench/lockbench/bench/postgres/embedded"
	"github.com/lockbench/lockbench/internal/reference"
	"github.com/lockbench/lockbench/strategies"
)

func main() {
	if code, yes := embedded.Supervised(); yes {
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// run carries out the command and returns the exit code.
func run(ctx context.Context, args []string) int {
	fs := flag.NewFlagSet("lockdocs measure", flag.ContinueOnError)
	fs.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: lockdocs measure [-anew] FILE")
		fs.PrintDefaults()
	}
	anew := fs.Bool("anew", false, "measure everything, not only what the file lacks")
	if len(args) == 0 || args[0] != "measure" {
		fs.Usage()
		return 2
	}
	if err := fs.Parse(args[1:]); err != nil || fs.NArg() != 1 {
		fs.Usage()
		return 2
	}
	if err := measure(ctx, fs.Arg(0), *anew); err != nil {
		fmt.Fprintf(os.Stderr, "lockdocs: error: %v\n", err)
		var h interface{ Hint() string }
		if errors.As(err, &h) {
			fmt.Fprintf(os.Stderr, "hint: %s\n", h.Hint())
		}
		return 1
	}
	return 0
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// services are the addresses of lock services, from the variables that the command line of lockbench knows too.
func services() map[string]string {
	at := map[string]string{}
	for _, st := range strategies.All() {
		if info := st.Info(); info.External {
			if address := os.Getenv("LOCKBENCH_" + strings.ToUpper(info.Name)); address != "" {
				at[info.Name] = address
			}
		}
	}
	return at
}

// measure races what a file lacks, or everything, and records it there.
func measure(ctx context.Context, file string, anew bool) error {
	began := time.Now()
	var known *reference.Measured
	text, err := os.ReadFile(file) //nolint:gosec // the caller names the file
	if err == nil && !anew {
		known, err = reference.ReadMeasured(text)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	own, err := embedded.Start(ctx, embedded.Config{Durable: true, Connections: 40, Log: say})
	if err != nil {
		return err
	}
	defer func() { _ = own.Stop() }()
	store, err := postgres.Connect(ctx, own.DSN(), postgres.Options{Embedded: true})
	if err != nil {
		return err
	}
	defer store.Close()
	m, err := reference.Measure(ctx, store, services(), known, say)
	if err != nil {
		return err
	}
	text, err = json.MarshalIndent(m, "", " ")
	if err != nil {
		return err
	}
	say("took %s", time.Since(began).Round(time.Second))
	return os.WriteFile(file, append(text, '\n'), 0o644) //nolint:gosec // it is for everybody to read
}
