package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/lockbench/lockbench/bench"
)

// script writes the strategy's own statements as a pgbench script, so that the two sides cannot drift apart. A statement that this
// program does not know how to give arguments is an error, not a guess.
func script(c cell, stmts []*bench.Stmt) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "\\set key random(1, %d)\n", c.Rows)
	for _, s := range stmts {
		switch s.Name {
		case "begin", "commit":
			fmt.Fprintf(&b, "%s;\n", s.SQL)
		case "read":
			sql, err := bind(s.SQL, ":key")
			if err != nil {
				return "", err
			}
			fmt.Fprintf(&b, "%s \\gset\n\\set less :available - 1\n\\set more :reserved + 1\n", sql)
		case "write":
			sql, err := bind(s.SQL, ":key", ":less", ":more", ":version")
			if err != nil {
				return "", err
			}
			fmt.Fprintf(&b, "%s;\n", sql)
		case "change":
			sql, err := bind(s.SQL, ":key", "1")
			if err != nil {
				return "", err
			}
			fmt.Fprintf(&b, "%s;\n", sql)
		case "why not": // the stock lasts
		default:
			return "", fmt.Errorf("no pgbench script is known for the statement %q", s.Name)
		}
	}
	return b.String(), nil
}

var placeholder = regexp.MustCompile(`\$\d+`)

// bind puts pgbench's variables in the place of a statement's parameters.
func bind(sql string, vars ...string) (string, error) {
	var err error
	out := placeholder.ReplaceAllStringFunc(sql, func(p string) string {
		n, _ := strconv.Atoi(p[1:])
		if n < 1 || n > len(vars) {
			err = fmt.Errorf("no value is known for %s of %q", p, sql)
			return p
		}
		return vars[n-1]
	})
	return out, err
}

// pgbench runs one script.
type pgbench struct {
	program string
	dir     string
	dsn     string
	idle    float64 // processor seconds of a run that does next to nothing
}

// run runs pgbench once. An attempt that fails with 40001 or 40P01 is tried again, as lockbench does; one that matches no row
// is a lost race to lockbench and a transaction like any other to pgbench, so attempts are what both are compared by.
func (p *pgbench) run(ctx context.Context, text string, seconds int) (s sample, err error) {
	file := filepath.Join(p.dir, "script.sql")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return s, err
	}
	args := []string{"-n", "-M", "prepared", "-c", strconv.Itoa(clients), "-j", "2", "-f", file}
	if seconds > 0 {
		args = append(args, "-T", strconv.Itoa(seconds), "--max-tries=0")
	} else {
		args = append(args, "-t", "1", "--max-tries=2")
	}
	cmd := exec.CommandContext(ctx, p.program, append(args, p.dsn)...)
	cmd.Env = append(os.Environ(), "LC_ALL=C") // its report is read
	out, err := cmd.CombinedOutput()
	if err != nil {
		return s, fmt.Errorf("pgbench: %w\n%s", err, out)
	}
	cpu := (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	done, err := figure(out, `number of transactions actually processed: (\d+)`)
	if err != nil {
		return s, err
	}
	failed, err := figure(out, `number of failed transactions: (\d+)`)
	if err != nil {
		return s, err
	}
	retries, err := figure(out, `total number of retries: (\d+)`)
	if err != nil {
		return s, err
	}
	tps, err := figure(out, `tps = ([\d.]+)`)
	if err != nil {
		return s, err
	}
	s.Attempts = int64(done + failed + retries)
	s.Seconds, s.Cost = done/tps, max(0, cpu-p.idle)/float64(s.Attempts)
	return s, nil
}

// figure finds a number in pgbench's report.
func figure(out []byte, pattern string) (float64, error) {
	m := regexp.MustCompile(pattern).FindSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("pgbench's report has no %q:\n%s", pattern, out)
	}
	return strconv.ParseFloat(string(m[1]), 64)
}
