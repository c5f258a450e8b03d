// Command vspgbench holds lockbench's engine against pgbench: the same statements, connections, rows and durability, run in turns on
// servers of its own. It prints ratios, never absolute promises, because the machine is rarely idle; it judges nothing by its exit
// code, which says only whether the comparison could be made.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/lockbench/lockbench/bench/postgres/embedded"
)

// clients is the number of users, of connections, and of pgbench's clients.
const clients = 16

// plenty is the number of rows of the cells that the goals are for; the others have one hot row.
const plenty = 10_000

func main() {
	if code, yes := embedded.Supervised(); yes {
		os.Exit(code)
	}
	if len(os.Args) == 3 && os.Args[1] == childWord {
		if err := child(os.Args[2], os.Stdout); err != nil {
			fail(err)
		}
		return
	}
	var o options
	flag.IntVar(&o.pairs, "pairs", 5, "interleaved pairs of runs in each cell")
	flag.IntVar(&o.seconds, "seconds", 2, "measured seconds of a run; the hot row takes one")
	flag.BoolVar(&o.quick, "quick", false, "two pairs of a second, and no hot row: a look, not a measurement")
	flag.StringVar(&o.bin, "pg-bin", "", "directory with postgres, initdb and pgbench (default the newest found)")
	flag.StringVar(&o.only, "only", "", "run the cells whose name contains this, as \"10000 rows, not durable\"")
	flag.StringVar(&o.profile, "cpuprofile", "", "write a CPU profile of lockbench's last run to this file")
	flag.Parse()
	if o.quick {
		o.pairs, o.seconds = 2, 1
	}
	if flag.NArg() > 0 || o.pairs < 1 || o.seconds < 1 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := compare(ctx, o); err != nil {
		stop()
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintf(os.Stderr, "vspgbench: error: %v\n", err)
	var h interface{ Hint() string }
	if errors.As(err, &h) {
		fmt.Fprintf(os.Stderr, "hint: %s\n", h.Hint())
	}
	os.Exit(1)
}

type options struct {
	pairs, seconds     int
	quick              bool
	bin, only, profile string
}

// compare runs every cell, first on a server that makes commits durable, then on one that does not.
func compare(ctx context.Context, o options) error {
	began := time.Now()
	var results []*result
	for _, durable := range []bool{true, false} {
		more, err := onServer(ctx, o, durable)
		if err != nil {
			return err
		}
		results = append(results, more...)
	}
	if len(results) == 0 {
		return fmt.Errorf("no cell's name contains %q", o.only)
	}
	printTable(os.Stdout, o, results)
	printDoubt(os.Stdout, results)
	if judged := judge(results); len(judged) > 0 {
		printGoals(os.Stdout, judged)
	}
	fmt.Fprintf(os.Stderr, "took %s\n", time.Since(began).Round(time.Second))
	return nil
}

func onServer(ctx context.Context, o options, durable bool) ([]*result, error) {
	var chosen []cell
	for _, c := range cells(durable) {
		if c.chosen(o.only) && (!o.quick || c.Rows == plenty) {
			chosen = append(chosen, c)
		}
	}
	if len(chosen) == 0 {
		return nil, nil
	}
	srv, err := start(ctx, o, durable)
	if err != nil {
		return nil, err
	}
	defer srv.stop()
	var results []*result
	for _, c := range chosen {
		r, err := srv.run(ctx, o, c)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c, err)
		}
		fmt.Fprintln(os.Stderr, r.line())
		results = append(results, r)
	}
	return results, nil
}
