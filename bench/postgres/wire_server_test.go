package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/bench/postgres"
	"github.com/lockbench/lockbench/bench/postgres/pgtest"
)

// pgconn and the racing side take turns on one connection: long copies both ways, canceled statements, statements longer than what is
// held back, answers longer than a buffer.
func TestConnectionSharedWithPgconn(t *testing.T) {
	ctx := t.Context()
	store := ready(t, pgtest.DSN(t))
	pool, err := store.Open(ctx, bench.PoolConfig{Connections: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	c := pool.Conns()[0]
	if runtime.GOOS == "linux" && !postgres.Holds(c) {
		t.Fatal("the connection holds no requests back: nothing is tested")
	}
	pg := postgres.Underneath(c)
	exec := func(sql string) {
		t.Helper()
		if err := pg.Exec(ctx, sql).Close(); err != nil {
			t.Fatalf("%.40s: %v", sql, err)
		}
	}
	exec("CREATE TEMP TABLE big (line text)")
	megabyte := []byte(strings.Repeat(strings.Repeat("x", 1023)+"\n", 1024))
	series := &bench.Stmt{SQL: "SELECT n FROM generate_series(1, 10000) n" + strings.Repeat(" ", 5000), Columns: 1}
	var rows bench.Rows
	for round := range 5 {
		exec("TRUNCATE big")
		if tag, err := pg.CopyFrom(ctx, bytes.NewReader(megabyte), "COPY big FROM STDIN"); err != nil || tag.RowsAffected() != 1024 {
			t.Fatalf("round %d: copied %d lines in, %v", round, tag.RowsAffected(), err)
		}
		var back bytes.Buffer
		if _, err := pg.CopyTo(ctx, &back, "COPY big TO STDOUT"); err != nil || !bytes.Equal(back.Bytes(), megabyte) {
			t.Fatalf("round %d: copied %d bytes out, %v", round, back.Len(), err)
		}
		canceled(ctx, t, pg)
		if err := postgres.Settle(ctx, c); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if err := errors.Join(c.Begin(begin), c.Query(series, nil, &rows), c.Rollback()); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			if rows.Len() != 10000 || rows.At(9999)[0] != 10000 {
				t.Fatalf("round %d: %d rows, not 10000", round, rows.Len())
			}
		}
	}
}

// canceled sends a statement and has the server cancel it: a request that comes too early is lost, so it is repeated until one tells.
func canceled(ctx context.Context, t *testing.T, pg *pgconn.PgConn) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- pg.Exec(ctx, "SELECT pg_sleep(600)").Close() }()
	for {
		if err := pg.CancelRequest(ctx); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-done:
			var e *pgconn.PgError
			if !errors.As(err, &e) || e.Code != "57014" {
				t.Fatalf("a canceled statement ended with %v", err)
			}
			return
		default:
		}
	}
}
