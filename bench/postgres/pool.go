package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/errgroup"

	"github.com/lockbench/lockbench/bench"
)

// dialling is how many connections are opened at once: each costs the server a fork and a warm-up.
const dialling = 16

// pool is a fixed set of open connections. Handing them to users is the engine's, which measures the wait.
type pool struct {
	store *Store
	cfg   bench.PoolConfig
	ctx   context.Context // of statements outside the measured path

	mu      sync.Mutex // guards conns against Abort
	conns   []*conn
	session bench.SessionConfig
	aborted bool
}

// Open opens and warms the connections in parallel.
func (s *Store) Open(ctx context.Context, cfg bench.PoolConfig) (bench.Pool, error) {
	p := &pool{store: s, cfg: cfg, ctx: ctx, conns: make([]*conn, cfg.Connections)}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(dialling)
	for i := range p.conns {
		g.Go(func() error {
			c, err := p.dial(gctx)
			p.conns[i] = c
			return err
		})
	}
	if err := g.Wait(); err != nil {
		for _, c := range p.conns {
			if c != nil {
				c.abort() // at once: a stop must not wait for a server that is busy with a thousand others
			}
		}
		return nil, fmt.Errorf("opening %d connections: %w", cfg.Connections, p.store.explain(err))
	}
	return p, nil
}

func (p *pool) dial(ctx context.Context) (*conn, error) {
	cfg := p.store.config.Copy()
	cfg.RuntimeParams["application_name"] = p.store.name
	var w *wire
	cfg.AfterNetConnect = func(_ context.Context, _ *pgconn.Config, c net.Conn) (net.Conn, error) {
		if w = newWire(c); w == nil {
			return c, nil
		}
		return w, nil
	}
	pg, err := pgconn.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	c := newConn(pg, w, p.cfg.Pipeline, p.store.pooled)
	if err := c.settle(ctx); err != nil {
		_ = pg.Close(ctx)
		return nil, err
	}
	return c, nil
}

// Prepare makes statements and time limits ready on every connection; one that is gone, as [Store.Restore] may have ended it, is opened
// again.
func (p *pool) Prepare(ctx context.Context, cfg bench.SessionConfig) error {
	p.session = cfg
	return p.each(func(c *conn) error {
		err := c.setUp(ctx, cfg)
		var f *bench.Fault
		if errors.As(err, &f) && f.Broken && !f.Aborted {
			_, err = p.Replace(ctx, c)
		}
		return err
	})
}

func (p *pool) each(f func(*conn) error) error {
	var g errgroup.Group
	for _, c := range p.conns {
		g.Go(func() error { return f(c) })
	}
	return g.Wait()
}

// setUp prepares statements and limits. A pooled connection keeps no settings, so they ride with each BEGIN.
func (c *conn) setUp(ctx context.Context, cfg bench.SessionConfig) error {
	if c.pooled {
		c.local = ""
		if cfg.Deadline > 0 {
			c.local += fmt.Sprintf("; SET LOCAL statement_timeout = %d", millis(cfg.Deadline))
		}
		if cfg.LockTimeout > 0 {
			c.local += fmt.Sprintf("; SET LOCAL lock_timeout = %d", millis(cfg.LockTimeout))
		}
		return nil
	}
	// What the strategy before leaked is not this one's. The limits are for operations, not for making ready; and no default of the database or the role may change what a strategy is.
	if err := c.command("SELECT pg_advisory_unlock_all(); SET default_transaction_isolation = 'read committed'; SET statement_timeout = 0; SET lock_timeout = 0", false); err != nil {
		return err
	}
	if err := c.prepare(ctx, cfg.Statements); err != nil {
		return err
	}
	if err := c.settle(ctx); err != nil {
		return err
	}
	return c.command(fmt.Sprintf("SET statement_timeout = %d; SET lock_timeout = %d", millis(cfg.Deadline), millis(cfg.LockTimeout)), false)
}

// millis rounds up: a limit below a millisecond is still a limit, and 0 means none.
func millis(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

// Conns returns the connections.
func (p *pool) Conns() []bench.Conn {
	all := make([]bench.Conn, len(p.conns))
	for i, c := range p.conns {
		all[i] = c
	}
	return all
}

// Replace opens a connection in the place of a broken one.
func (p *pool) Replace(ctx context.Context, broken bench.Conn) (bench.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	fresh, err := p.dial(ctx)
	if err != nil {
		return nil, p.store.explain(err)
	}
	if err := fresh.setUp(ctx, p.session); err != nil {
		_ = fresh.pg.Close(ctx)
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, c := range p.conns {
		if bench.Conn(c) == broken {
			_ = c.pg.Conn().Close()
			p.conns[i] = fresh
		}
	}
	if p.aborted {
		fresh.abort()
	}
	return fresh, nil
}

// Flush makes the server publish the statistics of every session; servers before 15 cannot be asked to. The statement reads a table
// because a session that touched none since its last report keeps its counts to itself. A session whose transaction a strategy left
// open publishes nothing before that ends, and is left as it is for the audit to find.
func (p *pool) Flush(context.Context) error {
	if p.store.pooled || !p.store.flushes() {
		return nil
	}
	return p.each(func(c *conn) error {
		if c.status != 'I' {
			return nil
		}
		p.store.flushed.Add(1)
		return c.command("SELECT pg_stat_force_next_flush() FROM pg_class LIMIT 1", false)
	})
}

// Abort closes every connection and ends what the server still runs for them: a backend that waits for a lock does not notice that
// its client is gone.
func (p *pool) Abort() error {
	p.mu.Lock()
	p.aborted = true
	conns := slices.Clone(p.conns)
	p.mu.Unlock()
	for _, c := range conns {
		c.abort()
	}
	if p.store.pooled {
		return nil
	}
	return p.store.terminate(context.WithoutCancel(p.ctx), conns)
}

// Close ends the connections in order.
func (p *pool) Close() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), 5*time.Second)
	defer cancel()
	_ = p.each(func(c *conn) error { return c.pg.Close(ctx) })
}
