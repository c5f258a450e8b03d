package postgres

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/lockbench/lockbench/bench"
)

// replay answers every round trip with the same messages.
type replay struct {
	answer []byte
	at     int
}

func (r *replay) Read(p []byte) (int, error) {
	n := copy(p, r.answer[r.at:])
	r.at = (r.at + n) % len(r.answer)
	return n, nil
}

// offline is a connection whose server always says the same.
func offline(b *testing.B, answer ...pgproto3.BackendMessage) *conn {
	b.Helper()
	var buf []byte
	for _, m := range append(answer, &pgproto3.ReadyForQuery{TxStatus: 'I'}) {
		var err error
		if buf, err = m.Encode(buf); err != nil {
			b.Fatal(err)
		}
	}
	return &conn{
		fe: pgproto3.NewFrontend(&replay{answer: buf}, io.Discard), status: 'I',
		names: map[*bench.Stmt]string{}, prepared: map[string]string{},
	}
}

func row(values ...uint64) *pgproto3.DataRow {
	r := &pgproto3.DataRow{}
	for _, v := range values {
		r.Values = append(r.Values, binary.BigEndian.AppendUint64(nil, v))
	}
	return r
}

func conflict() *pgproto3.ErrorResponse {
	return &pgproto3.ErrorResponse{
		Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: serializationFailure, Message: "could not serialize access due to concurrent update",
		File: "nodeModifyTable.c", Line: 2073, Routine: "ExecUpdate",
	}
}

func BenchmarkQuery(b *testing.B) {
	c := offline(b, &pgproto3.BindComplete{}, row(100, 0, 7), &pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")})
	s := &bench.Stmt{Name: "read", SQL: "SELECT available, reserved, version FROM lockbench.stock WHERE id = $1", Columns: 3}
	c.names[s] = "lb1"
	var rows bench.Rows
	args := []int64{1}
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Query(s, args, &rows); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkExec(b *testing.B) {
	c := offline(b, &pgproto3.BindComplete{}, &pgproto3.CommandComplete{CommandTag: []byte("UPDATE 1")})
	s := &bench.Stmt{Name: "write", SQL: "UPDATE lockbench.stock SET available = $2, reserved = $3 WHERE id = $1"}
	c.names[s] = "lb1"
	args := []int64{1, 99, 1}
	b.ReportAllocs()
	for b.Loop() {
		if n, err := c.Exec(s, args); n != 1 || err != nil {
			b.Fatal(n, err)
		}
	}
}

func BenchmarkExecPipelined(b *testing.B) {
	c := offline(b, &pgproto3.BindComplete{}, &pgproto3.CommandComplete{CommandTag: []byte("UPDATE 1")},
		&pgproto3.BindComplete{}, &pgproto3.CommandComplete{CommandTag: []byte("COMMIT")})
	c.pipeline = true
	s := &bench.Stmt{Name: "write", SQL: "UPDATE lockbench.stock SET available = $2, reserved = $3 WHERE id = $1"}
	c.names[s], c.prepared[commitSQL] = "lb1", "lb2"
	args := []int64{1, 99, 1}
	b.ReportAllocs()
	for b.Loop() {
		if n, err := c.Last(s, args); n != 1 || err != nil {
			b.Fatal(n, err)
		}
	}
}

// The retry loop of a hot row is full of these.
func BenchmarkExecConflict(b *testing.B) {
	c := offline(b, &pgproto3.BindComplete{}, conflict())
	s := &bench.Stmt{Name: "write", SQL: "UPDATE lockbench.stock SET available = $2, reserved = $3 WHERE id = $1"}
	c.names[s] = "lb1"
	args := []int64{1, 99, 1}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Exec(s, args); err == nil {
			b.Fatal("no conflict")
		}
	}
}

func BenchmarkCommand(b *testing.B) {
	c := offline(b, &pgproto3.CommandComplete{CommandTag: []byte("COMMIT")})
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Commit(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkClassify(b *testing.B) {
	for name, err := range map[string]error{
		"serialization": pgconn.ErrorResponseToPgError(conflict()),
		"fault":         &bench.Fault{Class: bench.ClassContention, Kind: bench.Version},
		"lost":          io.ErrUnexpectedEOF,
		"canceled":      context.Canceled,
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if classify(err, true) == nil {
					b.Fatal("no fault")
				}
			}
		})
	}
}

func BenchmarkAffectedRows(b *testing.B) {
	tags := bytes.Fields([]byte("UPDATE_1 SELECT_10000 COMMIT"))
	b.ReportAllocs()
	for b.Loop() {
		for _, t := range tags {
			affectedRows(t)
		}
	}
}
