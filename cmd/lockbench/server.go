package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/bench/postgres/embedded"
)

func (a *app) serverCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Keep a PostgreSQL between runs",
		Long: `Keep a PostgreSQL running between runs. Each run then saves the second or two of starting one; lockbench run finds it by itself if its
version and durability are those asked for.`,
		Example: `  lockbench server start
  lockbench run
  lockbench server psql
  lockbench server stop`,
		Args: cobra.ArbitraryArgs,
		RunE: a.group,
	}
	cmd.AddCommand(a.serverStart(), a.serverStatus(), a.serverStop(), a.serverPsql())
	return cmd
}

// keptConnections is what a kept server is sized for unless told otherwise: runs of several sizes use the same one.
const keptConnections = 100

func (a *app) serverStart() *cobra.Command {
	s := &source{}
	connections := 0
	cmd := &cobra.Command{
		Use:   "start",
		Short: "Start a server that stays",
		Long:  "Start a server that stays until lockbench server stop. It lives in a directory of its own and is reached through a unix socket only.",
		Example: `  lockbench server start
  lockbench server start --no-durable --connections 200`,
		Args: a.words(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s.checkServer(a, cmd.Flags())
			if connections > bench.MostConnections {
				a.problem(bench.Hintf("PostgreSQL forks a process for each", "--connections: must be at most %d, got %d", bench.MostConnections, connections))
			}
			if err := a.usage(); err != nil {
				return err
			}
			return a.interruptibly(cmd.Context(), func(ctx context.Context) error { return a.keep(ctx, s, connections) })
		},
	}
	fs := flagSet{a: a, fs: cmd.Flags()}
	fs.fs.SortFlags = false
	s.addServer(fs)
	count(fs, &connections, "connections", keptConnections, "connections a run may open")
	return cmd
}

func (a *app) keep(ctx context.Context, s *source, connections int) error {
	kept, already, err := embedded.StartDetached(ctx, s.config(connections, a.say(false)))
	if err != nil {
		return err
	}
	if already {
		if misfit := s.misfit(kept.Facts, connections); misfit != "" {
			return bench.Hintf("lockbench server stop", "a server is kept already, but %s", misfit)
		}
		fmt.Fprintln(a.stderr, "it is running already")
	}
	a.printKept(kept)
	return nil
}

// interruptibly runs f with a context that the first signal ends, and exits with the signal's code then.
func (a *app) interruptibly(ctx context.Context, f func(context.Context) error) error {
	sig := interruptible(ctx, a.say(false))
	defer sig.end()
	err := f(sig.ctx)
	if code := sig.code(); code != 0 {
		return &exitError{code}
	}
	return err
}

func (a *app) printKept(k embedded.Kept) {
	fmt.Fprintf(a.stdout, "PostgreSQL %s, %s, running since %s\n", k.Version, durability(k.Durable), k.Started.Local().Format(time.DateTime))
	fmt.Fprintf(a.stdout, "dsn:         %s\n", k.DSN)
	fmt.Fprintf(a.stdout, "connections: %d\n", k.Slots)
	fmt.Fprintf(a.stdout, "directory:   %s\n", k.Dir)
	fmt.Fprintf(a.stdout, "binaries:    %s, running as %s\n", k.BinDir, k.RunsAs)
}

func (a *app) serverStatus() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say whether a server is kept, and where",
		Long:  "Say whether a server is kept, and where. Exit code 1 if there is none.",
		Example: `  lockbench server status
  lockbench server status --format json`,
		Args: a.words(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			if err := a.usage(); err != nil {
				return err
			}
			kept, found, err := embedded.FindDetached()
			switch {
			case err != nil:
				return err
			case !found:
				return noServer()
			case format == formatJSON:
				return a.printJSON(kept)
			}
			a.printKept(kept)
			return nil
		},
	}
	flagSet{a: a, fs: cmd.Flags()}.oneOf(&format, "format", "text", []string{"text", formatJSON}, "how to print it")
	completeWords(cmd, "format", "text", formatJSON)
	return cmd
}

func (a *app) serverStop() *cobra.Command {
	return &cobra.Command{
		Use:     "stop",
		Short:   "Stop the kept server and remove what it left",
		Long:    "Stop the kept server and remove its directory. Without one there is nothing to do, which is no error.",
		Example: `  lockbench server stop`,
		Args:    a.words(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.usage(); err != nil {
				return err
			}
			return a.interruptibly(cmd.Context(), func(ctx context.Context) error {
				stopped, err := embedded.StopDetached(ctx)
				switch {
				case err != nil:
					return err
				case stopped:
					fmt.Fprintln(a.stderr, "stopped")
				default:
					fmt.Fprintln(a.stderr, "no server is kept running")
				}
				return nil
			})
		},
	}
}

func (a *app) serverPsql() *cobra.Command {
	return &cobra.Command{
		Use:   "psql [ARGUMENT…]",
		Short: "Open psql on the kept server",
		Long:  "Open psql on the kept server. Every argument is psql's, and so is the exit code.",
		Example: `  lockbench server psql
  lockbench server psql -c 'SELECT * FROM lockbench.seats LIMIT 5'`,
		Args:               cobra.ArbitraryArgs,
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				switch args[0] {
				case "--help", "-h": // psql's own -h is followed by a host, which is not the user's to choose
					return cmd.Help()
				case "--":
					args = args[1:]
				}
			}
			kept, found, err := embedded.FindDetached()
			if err != nil {
				return err
			}
			if !found {
				return noServer()
			}
			return a.psql(cmd.Context(), kept, args)
		},
	}
}

// psql runs the one that belongs to the server, else the one in PATH.
func (a *app) psql(ctx context.Context, kept embedded.Kept, args []string) error {
	program := filepath.Join(kept.BinDir, "psql")
	if _, err := os.Stat(program); err != nil {
		if program, err = exec.LookPath("psql"); err != nil {
			return bench.Hintf("install the PostgreSQL client, or connect with "+kept.DSN, "there is no psql in %s or in PATH", kept.BinDir)
		}
	}
	cmd := exec.CommandContext(ctx, program, append([]string{"--dbname", kept.DSN}, args...)...) //nolint:gosec // the user's own psql
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.stdin, bare(a.stdout), a.stderr                        // psql is to see the terminal itself
	cmd.Env = append(os.Environ(), "PGOPTIONS="+strings.TrimSpace(a.env("PGOPTIONS")+" -csearch_path=lockbench,public"))
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return &exitError{exit.ExitCode()}
	}
	return err
}
