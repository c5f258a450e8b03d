package postgres_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/bench/postgres"
	"github.com/lockbench/lockbench/bench/postgres/pgtest"
	"github.com/lockbench/lockbench/scenarios"
	"github.com/lockbench/lockbench/strategies"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// compile binds strategies to the last seat, or to the scenario named.
func compile(t *testing.T, change func(*bench.Settings), specs ...string) *bench.Race {
	t.Helper()
	s := pgtest.Plan("seats", specs...)
	s.Rows = 1
	if change != nil {
		change(&s)
	}
	return pgtest.Compile(t, s, strategies.All(), scenarios.All(), bench.Connecting{})
}

// ready returns a store whose schema is there and filled with three free seats.
func ready(t *testing.T, dsn string) *postgres.Store {
	t.Helper()
	s := pgtest.Store(t, dsn)
	if err := s.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Restore(t.Context(), scenarios.Seats{}.Fill(bench.Params{Rows: 3})); err != nil {
		t.Fatal(err)
	}
	return s
}

// open returns connections as strategies get them.
func open(t *testing.T, s *postgres.Store, n int, pipeline bool, cfg bench.SessionConfig) []bench.Conn {
	t.Helper()
	p, err := s.Open(t.Context(), bench.PoolConfig{Connections: n, Pipeline: pipeline})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	if err := p.Prepare(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	return p.Conns()
}

// hinted checks that an error says something, and what to do; secrets must not be in it.
func hinted(t *testing.T, err error, says, hint string) {
	t.Helper()
	var h *bench.Hinted
	if !errors.As(err, &h) {
		t.Errorf("no hint in: %v", err)
		return
	}
	if !strings.Contains(err.Error(), says) {
		t.Errorf("the error is %q, which does not say %q", err, says)
	}
	if !strings.Contains(h.Hint(), hint) {
		t.Errorf("the hint is %q, which does not say %q", h.Hint(), hint)
	}
}
