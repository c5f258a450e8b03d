package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/lockbench/lockbench/bench"
)

// int8OID is the type of every parameter and of every column read.
const int8OID = 20

// conn is a connection as the strategies use it. It speaks the extended protocol over pgx's message layer itself, because that is
// where statements can share a round trip, and because a statement then costs no allocation; connecting, authentication, TLS and
// preparing are pgconn's.
//
// Not safe for concurrent use, except abort.
type conn struct {
	pg       *pgconn.PgConn
	fe       *pgproto3.Frontend
	wire     *wire // nil where there is no socket to hold a request back on
	pipeline bool
	pooled   bool   // no statement can stay prepared, no setting can stay set
	local    string // SET LOCAL commands that a pooled BEGIN carries
	names    map[*bench.Stmt]string
	prepared map[string]string // name by SQL: cells share statements
	begin    *bench.Stmt       // BEGIN not sent yet
	status   byte              // of the transaction, as of the last ReadyForQuery: I, T or E
	aborted  atomic.Bool

	// Scratch space of a statement, kept so that sending one allocates nothing.
	bind    pgproto3.Bind
	parse   pgproto3.Parse
	execute pgproto3.Execute
	sync    pgproto3.Sync
	query   pgproto3.Query
	values  [maxArgs][]byte
	bytes   [maxArgs][8]byte
}

const maxArgs = 2*bench.MaxColumns + 2

var binaryFormat = []int16{1} // for all parameters, or all columns

func newConn(pg *pgconn.PgConn, w *wire, pipeline, pooled bool) *conn {
	return &conn{
		pg: pg, fe: pg.Frontend(), wire: w, pipeline: pipeline, pooled: pooled, status: 'I',
		names: map[*bench.Stmt]string{}, prepared: map[string]string{},
	}
}

// settle takes the connection over from pgconn, which reads in the background once a write of its own has been slow, and may still be
// doing so afterwards: that reader would wait for the answer to a request which this side writes only when it reads itself. It must
// follow everything that pgconn does on the connection.
func (c *conn) settle(ctx context.Context) error { return c.pg.SyncConn(ctx) }

// prepare makes the statements ready; pooled connections parse at every execution instead.
func (c *conn) prepare(ctx context.Context, stmts []*bench.Stmt) error {
	for _, s := range stmts {
		if _, known := c.names[s]; known || c.pooled || isControl(s.SQL) && !c.pipeline {
			continue
		}
		for _, part := range c.parts(s) {
			if err := c.prepareOne(ctx, part); err != nil {
				return fmt.Errorf("preparing %q: %w", part, err)
			}
		}
		c.names[s] = c.prepared[s.SQL]
	}
	if c.pipeline && !c.pooled {
		return c.prepareOne(ctx, commitSQL)
	}
	return nil
}

func (c *conn) prepareOne(ctx context.Context, sql string) error {
	if c.prepared[sql] != "" {
		return nil
	}
	name := fmt.Sprintf("lb%d", len(c.prepared)+1)
	d, err := c.pg.Prepare(ctx, name, sql, nil)
	if err != nil {
		return err
	}
	for i, oid := range d.ParamOIDs {
		if oid != int8OID {
			return fmt.Errorf("parameter %d is of type %d, not bigint", i+1, oid)
		}
	}
	c.prepared[sql] = name
	return nil
}

const commitSQL = "COMMIT"

// isControl reports whether a statement begins or ends a transaction.
func isControl(sql string) bool {
	return strings.HasPrefix(sql, "BEGIN") || sql == commitSQL || sql == "ROLLBACK"
}

// parts splits a BEGIN from the settings that ride with it: a prepared statement is one command.
func (c *conn) parts(s *bench.Stmt) []string {
	if !isControl(s.SQL) {
		return []string{s.SQL}
	}
	return strings.Split(s.SQL, "; ")
}

// Begin opens a transaction.
func (c *conn) Begin(b *bench.Stmt) error {
	if c.pipeline {
		c.begin = b
		return nil
	}
	return c.command(c.opening(b), false)
}

// opening is BEGIN. Where the connection has no session of its own, what a session would hold rides along: its isolation level, its
// limits, and then the strategy's own settings, which count more.
func (c *conn) opening(b *bench.Stmt) string {
	if !c.pooled {
		return b.SQL
	}
	begin, settings, more := strings.Cut(b.SQL, "; ")
	if begin == "BEGIN" {
		begin = "BEGIN ISOLATION LEVEL READ COMMITTED"
	}
	if more {
		settings = "; " + settings
	}
	return begin + c.local + settings
}

// Commit ends the transaction.
func (c *conn) Commit() error {
	if c.begin != nil { // nothing was ever sent
		c.begin = nil
		return nil
	}
	return c.command(commitSQL, true)
}

// Rollback ends the transaction, if there is one.
func (c *conn) Rollback() error {
	c.begin = nil
	if c.status == 'I' {
		return nil
	}
	return c.command("ROLLBACK", false)
}

// Query runs a statement and stores its rows.
func (c *conn) Query(s *bench.Stmt, args []int64, into *bench.Rows) error {
	into.Width, into.Data = s.Columns, into.Data[:0]
	c.sendBegin()
	c.send(s, args)
	_, err := c.roundTrip(into, false)
	return err
}

// Exec runs a statement and returns the number of rows it affected.
func (c *conn) Exec(s *bench.Stmt, args []int64) (int64, error) {
	// Outside a transaction a write commits by itself; a SELECT, as of a lock, commits nothing.
	alone := c.begin == nil && c.status == 'I' && !strings.HasPrefix(s.SQL, "SELECT")
	c.sendBegin()
	c.send(s, args)
	return c.roundTrip(nil, alone)
}

// Last runs a transaction's only write together with COMMIT.
func (c *conn) Last(s *bench.Stmt, args []int64) (int64, error) {
	c.sendBegin()
	c.send(s, args)
	c.sendSQL(commitSQL, c.prepared[commitSQL], nil)
	return c.roundTrip(nil, true)
}

func (c *conn) sendBegin() {
	if c.begin == nil {
		return
	}
	for _, sql := range strings.Split(c.opening(c.begin), "; ") {
		c.sendSQL(sql, c.prepared[sql], nil)
	}
	c.begin = nil
}

func (c *conn) send(s *bench.Stmt, args []int64) { c.sendSQL(s.SQL, c.names[s], args) }

// sendSQL queues one statement: by its name, or with its text where nothing stays prepared.
func (c *conn) sendSQL(sql, name string, args []int64) {
	for i, v := range args {
		if v == bench.Null {
			c.values[i] = nil
			continue
		}
		binary.BigEndian.PutUint64(c.bytes[i][:], uint64(v))
		c.values[i] = c.bytes[i][:]
	}
	if name == "" {
		c.parse = pgproto3.Parse{Query: sql, ParameterOIDs: int8s[:len(args)]}
		c.fe.SendParse(&c.parse)
	}
	c.bind = pgproto3.Bind{
		PreparedStatement: name, Parameters: c.values[:len(args)],
		ParameterFormatCodes: binaryFormat, ResultFormatCodes: binaryFormat,
	}
	c.fe.SendBind(&c.bind)
	c.fe.SendExecute(&c.execute)
}

// int8s are the parameter types of an unprepared statement.
var int8s = func() (oids [maxArgs]uint32) {
	for i := range oids {
		oids[i] = int8OID
	}
	return oids
}()

// command runs SQL without parameters through the simple protocol, as a client without prepared statements would: one message, and
// several commands may share it.
func (c *conn) command(sql string, committing bool) error {
	c.query.String = sql
	c.fe.SendQuery(&c.query)
	c.wire.hold()
	if err := c.fe.Flush(); err != nil {
		return c.lost(err, committing)
	}
	_, err := c.receive(nil, committing)
	return err
}

// roundTrip sends what is queued and waits for its end.
func (c *conn) roundTrip(into *bench.Rows, committing bool) (int64, error) {
	c.fe.SendSync(&c.sync)
	c.wire.hold()
	if err := c.fe.Flush(); err != nil {
		return 0, c.lost(err, committing)
	}
	return c.receive(into, committing)
}

// receive reads until the server is ready again. The number of affected rows is that of the last statement that is no control
// statement. An error is that of the first statement that failed; the server skips the rest.
func (c *conn) receive(into *bench.Rows, committing bool) (affected int64, err error) {
	for {
		msg, rerr := c.fe.Receive()
		if rerr != nil {
			if err == nil { // after a FATAL error the end of the connection is no news
				err = c.lost(rerr, committing)
			}
			return 0, err
		}
		switch m := msg.(type) {
		case *pgproto3.DataRow:
			if into != nil && err == nil {
				err = appendRow(into, m.Values)
			}
		case *pgproto3.CommandComplete:
			n, rolledBack := affectedRows(m.CommandTag)
			if n >= 0 {
				affected = n
			}
			if rolledBack && committing && err == nil {
				err = &bench.Fault{Class: bench.ClassFailed, Err: errRolledBack}
			}
		case *pgproto3.ErrorResponse:
			if err == nil {
				err = classify(pgconn.ErrorResponseToPgError(m), committing)
			}
		case *pgproto3.ReadyForQuery:
			c.status = m.TxStatus
			return affected, err
		}
	}
}

// errRolledBack is COMMIT of a transaction that an error had already ended, which the server answers with ROLLBACK.
var errRolledBack = errors.New("the server answered COMMIT with ROLLBACK")

// affectedRows reads a command tag; -1 for a tag without a number.
func affectedRows(tag []byte) (n int64, rolledBack bool) {
	n = -1
	if len(tag) == 0 || tag[len(tag)-1] < '0' || tag[len(tag)-1] > '9' {
		return n, string(tag) == "ROLLBACK"
	}
	n = 0
	scale := int64(1)
	for i := len(tag) - 1; i >= 0 && tag[i] >= '0' && tag[i] <= '9'; i-- {
		n += int64(tag[i]-'0') * scale
		scale *= 10
	}
	return n, false
}

func appendRow(into *bench.Rows, values [][]byte) error {
	if len(values) != into.Width {
		return &bench.Fault{Class: bench.ClassFailed, Err: fmt.Errorf("a row has %d columns, not %d", len(values), into.Width)}
	}
	for _, v := range values {
		switch len(v) {
		case 8:
			into.Data = append(into.Data, int64(binary.BigEndian.Uint64(v)))
		case 4:
			into.Data = append(into.Data, int64(int32(binary.BigEndian.Uint32(v))))
		case 1:
			into.Data = append(into.Data, int64(v[0]))
		case 0:
			into.Data = append(into.Data, bench.Null)
		default:
			return &bench.Fault{Class: bench.ClassFailed, Err: fmt.Errorf("a column of %d bytes is no number", len(v))}
		}
	}
	return nil
}

// lost is the error of a connection that broke.
func (c *conn) lost(err error, committing bool) error {
	c.status = 'I'
	f := classify(err, committing)
	if f.Aborted = c.aborted.Load(); f.Aborted && f.Class == bench.ClassFailed {
		f.Class = bench.ClassAborted
	}
	return f
}

// abort closes the connection under whatever is running on it.
func (c *conn) abort() {
	c.aborted.Store(true)
	_ = c.pg.Conn().Close()
}
