package postgres

import (
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockbench/lockbench/bench"
)

// TestSeverityIsNotTranslated: a FATAL error in another language ends the connection all the same.
func TestSeverityIsNotTranslated(t *testing.T) {
	f := classify(&pgconn.PgError{Severity: "FATALE", SeverityUnlocalized: "FATAL", Code: "57P01"}, true)
	if !f.Broken || f.Class != bench.ClassIndeterminate {
		t.Errorf("%+v", f)
	}
}

// TestOpeningThroughAPooler: what a session would hold rides with BEGIN, and the strategy's own setting comes last, so that it counts.
func TestOpeningThroughAPooler(t *testing.T) {
	c := &conn{pooled: true, local: "; SET LOCAL lock_timeout = 400"}
	for sql, want := range map[string]string{
		"BEGIN":                              "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = 400",
		"BEGIN; SET LOCAL lock_timeout = 50": "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = 400; SET LOCAL lock_timeout = 50",
		"BEGIN ISOLATION LEVEL SERIALIZABLE": "BEGIN ISOLATION LEVEL SERIALIZABLE; SET LOCAL lock_timeout = 400",
	} {
		if got := c.opening(&bench.Stmt{SQL: sql}); got != want {
			t.Errorf("%q opens with %q, want %q", sql, got, want)
		}
	}
}
