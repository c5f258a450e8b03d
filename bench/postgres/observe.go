package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockbench/lockbench/bench"
)

// sampling is how often sessions are looked at: often enough for a burst of a fifth of a second, seldom enough to cost about one
// percent of a processor.
const sampling = 25 * time.Millisecond

// observation samples what the racing sessions wait for, and reads the server's counters before and after.
type observation struct {
	store  *Store
	conn   *pgx.Conn
	cancel context.CancelFunc
	done   chan struct{}
	before counters

	samples int64
	busy    int64 // sessions seen in a transaction or a statement, over all samples
	locked  int64 // of those, waiting for a lock
	events  map[string]int64
	waited  time.Duration // sessions waiting for a lock × time between samples
}

// counters are what the server counts for the whole database.
type counters struct {
	known                        bool
	commits, rollbacks, deadlock int64
	flushes                      int64 // transactions that published statistics, which are lockbench's own
	wal                          *float64
	scans                        map[string]int64
}

// Observe starts watching. All of it happens in one transaction, so that looking adds nothing to the counters.
func (s *Store) Observe(ctx context.Context) (bench.Observation, error) {
	conn, err := pgx.ConnectConfig(ctx, s.admin.Config())
	if err != nil {
		return nil, fmt.Errorf("connecting to observe the server: %w", s.explain(err))
	}
	o := &observation{store: s, conn: conn, done: make(chan struct{}), events: map[string]int64{}}
	if _, err = conn.Exec(ctx, "BEGIN"); err == nil {
		o.before, err = o.read(ctx)
	}
	if err != nil {
		_ = conn.Close(ctx)
		return nil, fmt.Errorf("starting to observe the server: %w", err)
	}
	watching, cancel := context.WithCancel(context.WithoutCancel(ctx))
	o.cancel = cancel
	go o.watch(watching)
	return o, nil
}

// watch samples until it is told to end. It asks without a context that could end in the middle, which would cost the connection.
func (o *observation) watch(ctx context.Context) {
	defer close(o.done)
	tick := time.NewTicker(sampling)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		if o.sample(context.WithoutCancel(ctx), now.Sub(last)) != nil {
			return
		}
		last = now
	}
}

func (o *observation) sample(ctx context.Context, since time.Duration) error {
	if err := o.refresh(ctx); err != nil {
		return err
	}
	rows, err := o.conn.Query(ctx, `SELECT coalesce(wait_event_type || ': ' || wait_event, 'running'), coalesce(wait_event_type, ''), count(*)
		FROM pg_stat_activity WHERE application_name = $1 AND state <> 'idle' GROUP BY 1, 2`, o.store.name)
	if err != nil {
		return err
	}
	var event, kind string
	var n int64
	_, err = pgx.ForEachRow(rows, []any{&event, &kind, &n}, func() error {
		o.busy += n
		o.events[event] += n
		if kind == "Lock" {
			o.locked += n
			o.waited += time.Duration(n) * since
		}
		return nil
	})
	o.samples++
	return err
}

// refresh drops the view of sessions and counters that a transaction otherwise keeps to its end.
func (o *observation) refresh(ctx context.Context) error {
	_, err := o.conn.Exec(ctx, "SELECT pg_stat_clear_snapshot()")
	return err
}

// read returns the counters; sessions must have published theirs.
func (o *observation) read(ctx context.Context) (c counters, err error) {
	if !o.store.flushes() || o.store.pooled {
		return c, nil
	}
	if err := o.refresh(ctx); err != nil {
		return c, err
	}
	c.known, c.flushes = true, o.store.flushed.Load()
	err = o.conn.QueryRow(ctx, `SELECT xact_commit, xact_rollback, deadlocks, pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8
		FROM pg_stat_database WHERE datname = current_database()`).Scan(&c.commits, &c.rollbacks, &c.deadlock, &c.wal)
	if err != nil {
		return c, fmt.Errorf("reading the server's counters: %w", err)
	}
	rows, err := o.conn.Query(ctx, "SELECT relname, seq_scan FROM pg_stat_user_tables WHERE schemaname = 'lockbench'")
	if err != nil {
		return c, fmt.Errorf("reading the tables' counters: %w", err)
	}
	c.scans = map[string]int64{}
	var table string
	var n int64
	_, err = pgx.ForEachRow(rows, []any{&table, &n}, func() error {
		c.scans[table] = n
		return nil
	})
	return c, err
}

// End stops sampling and returns the trial's share.
func (o *observation) End(ctx context.Context) (bench.ServerSide, error) {
	o.cancel()
	<-o.done
	defer o.conn.Close(ctx)
	side := bench.ServerSide{Samples: o.samples}
	if o.busy > 0 {
		share, total := float64(o.locked)/float64(o.busy), o.waited.Seconds()
		side.LockWaitShare, side.LockWaitTotal = &share, &total
		side.WaitEvents = map[string]float64{}
		for e, n := range o.events {
			side.WaitEvents[e] = float64(n) / float64(o.busy)
		}
	}
	if !o.before.known {
		return side, nil
	}
	after, err := o.read(ctx)
	if err != nil {
		return side, err
	}
	commits := after.commits - o.before.commits - (after.flushes - o.before.flushes)
	rollbacks, deadlocks := after.rollbacks-o.before.rollbacks, after.deadlock-o.before.deadlock
	side.Commits, side.Rollbacks, side.Deadlocks = &commits, &rollbacks, &deadlocks
	if after.wal != nil && o.before.wal != nil {
		wal := int64(*after.wal - *o.before.wal)
		side.WALBytes = &wal
	}
	side.SeqScans = map[string]int64{}
	for t, n := range after.scans {
		if d := n - o.before.scans[t]; d > 0 {
			side.SeqScans[t] = d
		}
	}
	return side, nil
}
