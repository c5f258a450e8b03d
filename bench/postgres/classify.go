package postgres

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockbench/lockbench/bench"
)

// SQLSTATEs that mean a lost race or a passed deadline. Source: PostgreSQL 15, appendix A.
const (
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	lockNotAvailable     = "55P03"
	uniqueViolation      = "23505"
	queryCanceled        = "57014"
)

// classify turns an error of a connection into the engine's terms. It is the only place that looks at SQLSTATEs. committing says that
// the statement would have made its work durable, so that a lost answer means nobody knows.
func classify(err error, committing bool) *bench.Fault {
	var f *bench.Fault
	if errors.As(err, &f) {
		return f
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return classifyState(pg, committing)
	}
	f = &bench.Fault{Class: bench.ClassFailed, Broken: true, Err: err}
	if committing && !pgconn.SafeToRetry(err) {
		f.Class = bench.ClassIndeterminate
	}
	return f
}

func classifyState(pg *pgconn.PgError, committing bool) *bench.Fault {
	f := &bench.Fault{Class: bench.ClassContention, SQLState: pg.Code, Err: pg}
	switch pg.Code {
	case serializationFailure:
		f.Kind = bench.Serialization
	case deadlockDetected:
		f.Kind = bench.Deadlock
	case lockNotAvailable:
		// NOWAIT and lock_timeout share the SQLSTATE. The server's routine tells them apart; its message is translated, so it must not.
		f.Kind = bench.Nowait
		if pg.Routine == "ProcessInterrupts" {
			f.Kind = bench.LockTimeout
		}
	case uniqueViolation:
		f.Kind = bench.Unique
	case queryCanceled:
		f.Class = bench.ClassTimeout
	default:
		f.Class = bench.ClassFailed
		if s := severity(pg); s == "FATAL" || s == "PANIC" {
			f.Broken = true
			if committing { // the server may have committed before it was told to go
				f.Class = bench.ClassIndeterminate
			}
		}
	}
	return f
}

// severity is how bad an error is in the protocol's own words: Severity itself is translated.
func severity(pg *pgconn.PgError) string {
	if pg.SeverityUnlocalized != "" {
		return pg.SeverityUnlocalized
	}
	return pg.Severity // a server before 9.6
}
