package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/bench/trace"
)

// sight asks the server about its processes on a connection of its own, so that it gets an answer while all others wait.
type sight struct {
	conn *pgx.Conn
	end  context.Context // for closing, which must not be cut short
}

// Sight connects to watch who waits for whom. Behind a pooler nobody can tell which server process works for which session.
func (s *Store) Sight(ctx context.Context) (trace.Sight, error) {
	if s.pooled {
		return nil, bench.Hintf("name PostgreSQL itself in --dsn", "through a transaction pooler nobody can tell who waits for whom")
	}
	conn, err := pgx.ConnectConfig(ctx, s.admin.Config())
	if err != nil {
		return nil, fmt.Errorf("connecting to watch the sessions: %w", s.explain(err))
	}
	return &sight{conn: conn, end: s.ctx}, nil
}

// looks reads what the processes do. The wait event says what kind of lock one waits for; it is set a moment after the wait begins.
const looks = `SELECT pid, pg_blocking_pids(pid), coalesce(wait_event, ''), coalesce(wait_event_type, ''), coalesce(query, '')
	FROM pg_stat_activity WHERE pid = ANY ($1)`

// Look asks what the processes do at this moment.
func (s *sight) Look(ctx context.Context, pids []int64) (map[int64]trace.Backend, error) {
	// A context that ends in the middle would cost the connection, and the answer comes at once.
	rows, err := s.conn.Query(context.WithoutCancel(ctx), looks, pids)
	if err != nil {
		return nil, err
	}
	all := map[int64]trace.Backend{}
	var pid int64
	var blockers []int64
	var event, kind string
	var b trace.Backend
	_, err = pgx.ForEachRow(rows, []any{&pid, &blockers, &event, &kind, &b.Query}, func() error {
		b.Blockers, b.On = append([]int64(nil), blockers...), ""
		if kind == "Lock" {
			b.On = event
		}
		all[pid] = b
		return nil
	})
	return all, err
}

// Close ends the connection.
func (s *sight) Close() { _ = s.conn.Close(s.end) }
