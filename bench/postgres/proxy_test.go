package postgres_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/bench/postgres/pgtest"
	"github.com/lockbench/lockbench/scenarios"
)

// proxy stands between lockbench and the server and cuts the connection of the first COMMIT.
type proxy struct {
	network, server string
	forward         bool // the server gets the COMMIT, and only its answer is lost
	cut             atomic.Bool
	lines           sync.WaitGroup
}

// startProxy returns the proxy and how to reach the database through it. It listens on a socket, as the server does.
func startProxy(t *testing.T, dsn string, forward bool) (*proxy, string) {
	t.Helper()
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "lb-proxy-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	const port = 5432 // names the socket
	l, err := net.Listen("unix", filepath.Join(dir, fmt.Sprintf(".s.PGSQL.%d", port)))
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{forward: forward}
	p.network, p.server = pgconn.NetworkAddress(cfg.Host, cfg.Port)
	p.lines.Add(1)
	go func() {
		defer p.lines.Done()
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			p.lines.Add(1)
			go p.serve(client)
		}
	}()
	t.Cleanup(p.lines.Wait)
	t.Cleanup(func() { _ = l.Close() })
	through := fmt.Sprintf("host=%s port=%d user=%s dbname=%s sslmode=disable", dir, port, cfg.User, cfg.Database)
	if cfg.Password != "" {
		through += " password=" + cfg.Password
	}
	return p, through
}

// serve passes one connection on, until either side ends it or its COMMIT is the one to lose.
func (p *proxy) serve(client net.Conn) {
	defer p.lines.Done()
	server, err := net.Dial(p.network, p.server)
	if err != nil {
		_ = client.Close()
		return
	}
	var mute atomic.Bool // what the server says is dropped
	p.lines.Add(1)
	go func() {
		defer p.lines.Done()
		defer client.Close()
		buf := make([]byte, 1<<16)
		for {
			n, err := server.Read(buf)
			if err != nil || mute.Load() {
				return
			}
			if _, err := client.Write(buf[:n]); err != nil {
				return
			}
		}
	}()
	defer server.Close()
	buf := make([]byte, 1<<16)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		if bytes.Contains(buf[:n], []byte("COMMIT\x00")) && p.cut.CompareAndSwap(false, true) {
			if !p.forward {
				return
			}
			mute.Store(true)
		}
		if _, err := server.Write(buf[:n]); err != nil {
			return
		}
	}
}

// TestCommitWithoutAnswer: the answer to COMMIT is lost, and only the server knows what it was. The user is told neither yes nor no,
// and the audit accepts both.
func TestCommitWithoutAnswer(t *testing.T) {
	for name, committed := range map[string]bool{"committed": true, "not committed": false} {
		t.Run(name, func(t *testing.T) {
			dsn := pgtest.DSN(t)
			p, through := startProxy(t, dsn, committed)
			rep := pgtest.Run(t, compile(t, func(s *bench.Settings) { s.Users = 20 }, "pessimistic"), pgtest.Store(t, through))
			if !p.cut.Load() {
				t.Fatal("no COMMIT went through the proxy")
			}
			cell := rep.Cells[0]
			sold := int64(1) // by the next user, since the first one's COMMIT never arrived
			if committed {
				sold = 0
			}
			told := cell.Outcomes
			if told["indeterminate"] != 1 || told["confirmed"] != sold || told["failed"] != 0 || told["rejected"] != 19-sold {
				t.Errorf("users were told %v; errors %v", told, cell.Errors)
			}
			if len(cell.Findings) > 0 || cell.ClaimBroken {
				t.Errorf("findings %+v", cell.Findings)
			}
			holders := pgtest.Number(t, pgtest.Connect(t, dsn), "SELECT count(holder) FROM lockbench.seats")
			if holders != 1 {
				t.Errorf("%d seats are held", holders)
			}
		})
	}
}

// TestLostAnswerIsIndeterminate: what the connection itself says of a COMMIT, of a write that commits by itself, and of a read.
func TestLostAnswerIsIndeterminate(t *testing.T) {
	for name, committed := range map[string]bool{"committed": true, "not committed": false} {
		t.Run(name, func(t *testing.T) {
			dsn := pgtest.DSN(t)
			_, through := startProxy(t, dsn, committed)
			ready(t, dsn)
			c := open(t, pgtest.Store(t, through), 1, false, bench.SessionConfig{})[0]
			p := &play{t: t, a: c, side: pgtest.Connect(t, dsn)}
			p.must(c.Begin(begin))
			p.must(p.exec(c, take, 1))
			p.fault(c.Commit(), bench.Fault{Class: bench.ClassIndeterminate, Broken: true})
			want := int64(0)
			if committed {
				want = 1
			}
			// Without the COMMIT the server rolls back once it sees the connection gone.
			pgtest.WaitFor(t, p.side, nil, "the transaction to end", "SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name LIKE 'lockbench-%' AND datname = current_database()")
			if n := pgtest.Number(t, p.side, "SELECT count(holder) FROM lockbench.seats"); n != want {
				t.Errorf("%d seats are held, not %d", n, want)
			}
			// Both ways the audit has nothing to say.
			snap, err := pgtest.Store(t, dsn).Snapshot(t.Context(), scenarios.Seats{}.Tables())
			p.must(err)
			lost := bench.Told{Request: bench.Request{User: 1, Key: 1}, Answer: bench.Answer{Outcome: bench.Indeterminate}}
			a := scenarios.Seats{}.Audit(bench.Params{Rows: 3, Capacity: 1}, &bench.Ledger{Indeterminate: []bench.Told{lost}}, snap)
			if len(a.Findings) > 0 {
				t.Errorf("the audit finds %+v", a.Findings)
			}
		})
	}
}
