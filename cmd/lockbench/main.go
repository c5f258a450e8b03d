// Command lockbench races users for the same rows of a PostgreSQL database under different ways of locking, audits what they were
// told against what the database holds, and prints correctness and cost in one table.
package main

import (
	"context"
	"io"
	"os"

	"github.com/lockbench/lockbench/bench/postgres/embedded"
)

func main() {
	// A server of lockbench's own is looked after by this program under another first argument; that process must not reach the
	// command line.
	if code, yes := embedded.Supervised(); yes {
		os.Exit(code)
	}
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv))
}

// run is the whole program with its surroundings passed in. It returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, env func(string) string) int {
	a := &app{stdin: stdin, stdout: &output{Writer: stdout}, stderr: stderr, env: env, args: args}
	root := a.root()
	root.SetArgs(a.sift(root, args))
	return a.exit(root.ExecuteContext(ctx))
}
