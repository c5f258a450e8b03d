package main

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/claims"
	"github.com/lockbench/lockbench/strategies"
)

func noEnv(string) string { return "" }

// TestClaimsAreCommands: every command of a claim is one that lockbench takes, and every cell that is looked at is raced.
func TestClaimsAreCommands(t *testing.T) {
	for _, c := range claims.All() {
		for _, line := range c.Commands {
			if _, err := (&app{env: noEnv}).claimStep(line, compileAll); err != nil {
				t.Errorf("%s: %v", c.ID, err)
			}
		}
	}
	for line, says := range map[string]string{
		"run --users many":                       `"run --users many": --users`,
		"run --strategy nothing":                 "nothing",
		"race --users 2":                         `"race"`,
		"trace --users 99":                       "2 to 9",
		"run --call-in-tx on --scenario payment": `"on"`,
		"run --frobnicate":                       "unknown flag",
		"run --scenario queue --rows 0x":         "--rows",
	} {
		if _, err := (&app{env: noEnv}).claimStep(line, compileAll); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", line, err)
		}
	}
}

// worse is a strategy whose SQL somebody has changed.
type worse struct {
	bench.Strategy
	find    *regexp.Regexp
	replace string
	changed *int
}

// Bind changes the SQL that the strategy wrote. Statements are what its sessions send.
func (w worse) Bind(b bench.Binding) (bench.Discipline, error) {
	d, err := w.Strategy.Bind(b)
	if err != nil {
		return d, err
	}
	for _, s := range d.Statements() {
		if sql := w.find.ReplaceAllString(s.SQL, w.replace); sql != s.SQL {
			s.SQL = sql
			*w.changed++
		}
	}
	return d, nil
}

// TestBrokenStrategiesRefuteClaims: what a claim rests on is taken away, and the claim is refuted; as it is, it is confirmed.
func TestBrokenStrategiesRefuteClaims(t *testing.T) {
	dsn, err := freshDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	asIs := compiler(compileAll)
	breaking := func(name, find, replace string, changed *int) compiler {
		all := strategies.All()
		for i, st := range all {
			if st.Info().Name == name {
				all[i] = worse{st, regexp.MustCompile(find), replace, changed}
			}
		}
		return compileWith(all)
	}
	for _, c := range []struct {
		what, id, strategy, find, replace string
	}{
		{"the lock clause of pessimistic", "A4", "pessimistic", ` FOR (NO KEY )?UPDATE`, ""},
		{"the version of optimistic", "A5", "optimistic", ` AND version = (\$\d)`, ` AND ($1::bigint IS NULL OR true)`},
		{"the level of serializable", "A6", "serializable", `SERIALIZABLE`, "REPEATABLE READ"},
		{"the level of repeatable-read", "A6", "repeatable-read", ` ISOLATION LEVEL REPEATABLE READ`, ""},
		{"the lock clause of skip-locked", "B4", "skip-locked", ` FOR UPDATE SKIP LOCKED`, ""},
		{"the guard of atomic", "A1", "atomic", ` AND \(holder IS NULL OR holder = \$2\)`, ""},
		{"the values read in cas", "C1", "cas", ` AND \w+ IS NOT DISTINCT FROM (\$\d)`, ` AND ($1::bigint IS NULL OR true)`},
	} {
		t.Run(c.what, func(t *testing.T) {
			changed := 0
			with := breaking(c.strategy, c.find, strings.ReplaceAll(c.replace, "$1", "${1}"), &changed)
			if v := judged(t, dsn, c.id, with); v != claims.Refuted {
				t.Errorf("%s is %s without %s", c.id, v, c.what)
			}
			if changed == 0 {
				t.Error("nothing was changed")
			}
		})
	}
	t.Run("retrying", func(t *testing.T) {
		never := func(s bench.Settings) (*bench.Race, error) {
			s.Retries = 0
			return asIs(s)
		}
		if v := judged(t, dsn, "D6", never); v != claims.Refuted {
			t.Errorf("D6 is %s without retries", v)
		}
	})
	for _, id := range []string{"A4", "B4", "D6"} { // else the above would prove nothing
		t.Run("as it is/"+id, func(t *testing.T) {
			if v := judged(t, dsn, id, asIs); v != claims.Confirmed {
				t.Errorf("%s is %s", id, v)
			}
		})
	}
}

// judged runs a claim with races made by compile.
func judged(t *testing.T, dsn, id string, compile compiler) claims.Verdict {
	t.Helper()
	a := &app{env: noEnv, stderr: t.Output()}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	db, err := (&source{dsn: dsn, dsnFrom: "--dsn"}).open(ctx, 40, a.say(false))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.close() }()
	some, _ := claims.Select(claims.All(), []string{id})
	todo := claimed{Claim: some[0]}
	for _, line := range todo.Commands {
		s, err := a.claimStep(line, compile)
		if err != nil {
			t.Fatal(err)
		}
		todo.steps = append(todo.steps, s)
	}
	sig := interruptible(ctx, a.say(false))
	defer sig.end()
	doc, _, err := a.claimAll(db, []claimed{todo}, sig, a.say(false))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range doc.Claims[0].Findings {
		t.Logf("%s: %s (%s)", f.Expect, f.Measured, f.Verdict)
	}
	return doc.Claims[0].Verdict
}
