package postgres

import (
	"context"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockbench/lockbench/bench"
)

// Underneath is the connection as pgconn has it.
func Underneath(c bench.Conn) *pgconn.PgConn { return c.(*conn).pg }

// Settle takes the connection over from pgconn again.
func Settle(ctx context.Context, c bench.Conn) error { return c.(*conn).settle(ctx) }

// Holds reports whether requests are held back until their answer is waited for.
func Holds(c bench.Conn) bool { return c.(*conn).wire != nil }
