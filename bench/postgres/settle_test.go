package postgres

import (
	"context"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/lockbench/lockbench/bench"
)

// slowSocket does not return from its first Write until a second Read has begun. That is the worst a busy machine can do to pgconn: it
// takes the write for one that blocks, starts reading in the background, and is left with a reader that waits for more.
type slowSocket struct {
	*net.UnixConn
	reads  atomic.Int32
	second chan struct{}
	wrote  atomic.Bool
}

func (s *slowSocket) Read(p []byte) (int, error) {
	if s.reads.Add(1) == 2 {
		close(s.second)
	}
	return s.UnixConn.Read(p)
}

func (s *slowSocket) Write(p []byte) (int, error) {
	n, err := s.UnixConn.Write(p)
	if !s.wrote.Swap(true) {
		<-s.second
	}
	return n, err
}

// answers is a server that lets anybody in and answers every simple query with nothing.
func answers(l net.Listener) {
	c, err := l.Accept()
	if err != nil {
		return
	}
	defer c.Close()
	b := pgproto3.NewBackend(c, c)
	if _, err := b.ReceiveStartupMessage(); err != nil {
		return
	}
	b.Send(&pgproto3.AuthenticationOk{})
	b.Send(&pgproto3.BackendKeyData{ProcessID: 1, SecretKey: []byte{0, 0, 0, 1}})
	b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	for b.Flush() == nil {
		msg, err := b.Receive()
		if err != nil {
			return
		}
		if _, query := msg.(*pgproto3.Query); query {
			b.Send(&pgproto3.EmptyQueryResponse{})
			b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		}
	}
}

// A slow start of a connection must not leave anybody behind who reads the answers to its statements.
func TestDialSettlesBackgroundReader(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go answers(l)

	cfg, err := pgconn.ParseConfig("host=localhost user=u dbname=d sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	cfg.LookupFunc = func(context.Context, string) ([]string, error) { return []string{"127.0.0.1"}, nil }
	cfg.DialFunc = func(context.Context, string, string) (net.Conn, error) {
		c, err := net.Dial("unix", l.Addr().String())
		if err != nil {
			return nil, err
		}
		return &slowSocket{UnixConn: c.(*net.UnixConn), second: make(chan struct{})}, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	p := &pool{store: &Store{config: cfg, name: "test"}, ctx: ctx, cfg: bench.PoolConfig{Connections: 1}}
	c, err := p.dial(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.pg.Close(ctx) }()
	stuck := time.AfterFunc(10*time.Second, c.abort) // so that a failure is one, and no hang
	defer stuck.Stop()
	for range 3 {
		if err := c.command("SELECT", false); err != nil {
			t.Fatalf("a statement after a slow start: %v", err)
		}
	}
}
