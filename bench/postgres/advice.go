package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockbench/lockbench/bench"
)

// SQLSTATEs that keep lockbench from working. Source: PostgreSQL 15, appendix A.
const (
	readOnlyTransaction   = "25006"
	insufficientPrivilege = "42501"
	tooManyConnections    = "53300"
	diskFull              = "53100"
	unknownDatabase       = "3D000"
	cannotConnectNow      = "57P03"
)

// explain says why the server could not be reached, with a hint.
func (s *Store) explain(err error) error {
	var pg *pgconn.PgError
	var op *net.OpError
	var dns *net.DNSError // pgx resolves names itself, so that it comes without an OpError around it
	where := s.address()
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE):
		return bench.Hintf("raise the limit (ulimit -n), or lower --connections", "too many open files to connect to the server at %s", where)
	case errors.As(err, &pg) && pg.Code == tooManyConnections:
		return bench.Hintf("lower --connections or raise max_connections", "the server has no free connection slot: %s", pg.Message)
	case errors.As(err, &pg) && strings.HasPrefix(pg.Code, "28"):
		return bench.Hintf("check user and password in --dsn, or PGUSER and PGPASSWORD", "the server refused the login: %s", pg.Message)
	case errors.As(err, &pg) && pg.Code == unknownDatabase:
		return bench.Hintf("create it with createdb, or name another in --dsn", "%s", pg.Message)
	case errors.As(err, &pg) && pg.Code == cannotConnectNow:
		return bench.Hintf("wait until it has started, or look into its log", "the server takes no connections now: %s", pg.Message)
	case errors.As(err, &pg):
		return fmt.Errorf("the server refused the connection: %s (SQLSTATE %s)", pg.Message, pg.Code)
	case s.opts.Embedded && errors.As(err, &op):
		return fmt.Errorf("lockbench's own server cannot be reached: %w", op.Err)
	case s.opts.Embedded:
		return fmt.Errorf("lockbench's own server cannot be reached: %w", err)
	case errors.As(err, &dns):
		return bench.Hintf("check the host in --dsn, or leave it out to let lockbench start a server", "cannot reach the server at %s: %s", dns.Name, dns.Err)
	case foreign(err):
		return bench.Hintf("check host and port in --dsn", "what listens at %s is not PostgreSQL", where)
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded):
		return bench.Hintf("check host and port in --dsn, and what stands between; connect_timeout in it waits longer",
			"the server at %s did not answer within %v", where, s.config.ConnectTimeout)
	case errors.As(err, &op):
		return bench.Hintf("is the server running there? leave --dsn out to let lockbench start one", "cannot reach the server at %s: %v", address(op), op.Err)
	case strings.Contains(err.Error(), "server refused TLS connection"):
		return bench.Hintf("write sslmode=prefer or sslmode=disable in --dsn, or turn ssl on in the server", "the server at %s takes no TLS connections, and sslmode asks for one", where)
	}
	return err
}

// foreign reports whether something answered that does not speak PostgreSQL's protocol. pgconn has no error value for it.
func foreign(err error) bool {
	text := err.Error()
	for _, said := range []string{"invalid body length", "unknown message type", "unexpected message", "does not look like a TLS handshake", "failed to receive message: unexpected EOF"} {
		if strings.Contains(text, said) {
			return true
		}
	}
	return false
}

func address(op *net.OpError) string {
	if op.Addr != nil {
		return op.Addr.String()
	}
	return "the given host"
}

// advise adds a hint to what the server answers where it does not let lockbench work.
func (s *Store) advise(err error) error {
	var pg *pgconn.PgError
	var hinted *bench.Hinted
	if !errors.As(err, &pg) || errors.As(err, &hinted) {
		return err
	}
	hint := ""
	switch pg.Code {
	case readOnlyTransaction:
		hint = "turn default_transaction_read_only off for this role or database, or name another in --dsn"
		if s.standby {
			hint = "the server is a standby, which follows another: name the primary in --dsn"
		}
	case insufficientPrivilege:
		hint = "connect as the role that owns the schema lockbench, or let that role drop it: DROP SCHEMA lockbench CASCADE"
	case diskFull:
		hint = "free some space where the server keeps its data, or lower --rows"
		if s.opts.Embedded {
			hint = "set TMPDIR to a folder with more space, or lower --rows"
		}
	default:
		return err
	}
	return &bench.Hinted{Msg: err.Error(), Advice: hint, Err: err}
}

// Rehearse does what a run does before it races, inside a transaction that is taken back: it leaves nothing behind. The error is that of
// the run.
func (s *Store) Rehearse(ctx context.Context) (err error) {
	if err := s.Alone(ctx); err != nil {
		return err
	}
	if _, err := s.admin.Exec(ctx, "BEGIN"); err != nil {
		return fmt.Errorf("beginning a transaction: %w", err)
	}
	defer func() {
		if _, rerr := s.admin.Exec(ctx, "ROLLBACK"); err == nil {
			err = rerr
		}
	}()
	// Somebody may be reading the tables, who must not hold a diagnosis up.
	if _, err := s.admin.Exec(ctx, "SET LOCAL lock_timeout = '2s'"); err != nil {
		return err
	}
	if err := s.layOut(ctx); err != nil {
		return s.advise(err)
	}
	for _, table := range laidOut() {
		if _, err := s.admin.Exec(ctx, "ALTER TABLE "+table+" SET (fillfactor = 10)"); err != nil {
			return s.advise(fmt.Errorf("changing the table %s: %w", table, err))
		}
	}
	if _, err := s.admin.Exec(ctx, "TRUNCATE "+strings.Join(laidOut(), ", ")); err != nil {
		return s.advise(fmt.Errorf("emptying the tables: %w", err))
	}
	return nil
}
