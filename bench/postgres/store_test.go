package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/bench/postgres"
	"github.com/lockbench/lockbench/bench/postgres/pgtest"
	"github.com/lockbench/lockbench/scenarios"
)

// marked counts the schema and the tables that carry lockbench's mark.
const marked = `SELECT (SELECT count(*) FROM pg_namespace WHERE nspname = 'lockbench' AND obj_description(oid) LIKE 'lockbench:v1 %')
	+ (SELECT 100 * count(*) FROM pg_class WHERE relnamespace = 'lockbench'::regnamespace AND relkind = 'r'
		AND obj_description(oid) = (SELECT obj_description(oid) FROM pg_namespace WHERE nspname = 'lockbench'))`

func TestPrepareCreatesAndMarks(t *testing.T) {
	dsn := pgtest.DSN(t)
	s, side := pgtest.Store(t, dsn), pgtest.Connect(t, dsn)
	if err := s.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	tables := pgtest.Number(t, side, "SELECT count(*) FROM pg_class WHERE relnamespace = 'lockbench'::regnamespace AND relkind = 'r'")
	if n := pgtest.Number(t, side, marked); tables < 3 || n != 1+100*tables {
		t.Errorf("%d tables, and the marks count %d", tables, n)
	}
	oid := "SELECT oid::bigint FROM pg_namespace WHERE nspname = 'lockbench'"
	before := pgtest.Number(t, side, oid)
	if err := s.Prepare(t.Context()); err != nil {
		t.Errorf("the second time: %v", err)
	}
	if pgtest.Number(t, side, oid) != before {
		t.Error("a schema that is as it should be was made again")
	}
}

// TestPrepareMendsWhatSomebodyDropped: the schema's mark says which release made it, not that it is whole.
func TestPrepareMendsWhatSomebodyDropped(t *testing.T) {
	dsn := pgtest.DSN(t)
	s := ready(t, dsn)
	pgtest.Exec(t, dsn, "DROP TABLE lockbench.seats CASCADE")
	if err := s.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Restore(t.Context(), scenarios.Seats{}.Fill(bench.Params{Rows: 3})); err != nil {
		t.Error(err)
	}
}

func TestPrepareRefusesWhatIsNotItsOwn(t *testing.T) {
	for _, c := range []struct {
		name string
		sql  string // makes what somebody else owns
		says string
		kept string // still there afterwards
	}{
		{"a schema", "CREATE SCHEMA lockbench; CREATE TABLE lockbench.seats (id int)", "schema lockbench in this database was not made by lockbench", "lockbench.seats"},
		{
			"a schema with a comment of its own", "CREATE SCHEMA lockbench; COMMENT ON SCHEMA lockbench IS 'mine'; CREATE TABLE lockbench.t (id int)",
			"not made by lockbench", "lockbench.t",
		},
		{
			"a table in lockbench's schema", "CREATE TABLE lockbench.customers (id int)",
			`"customers"`, "lockbench.customers",
		},
		{
			"a view in lockbench's schema", "CREATE VIEW lockbench.report AS SELECT 1 AS one",
			`"report"`, "lockbench.report",
		},
		{
			"a table in an older lockbench's schema", "CREATE TABLE lockbench.customers (id int); COMMENT ON SCHEMA lockbench IS 'lockbench:v1 older'",
			`"customers"`, "lockbench.customers",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			dsn := pgtest.DSN(t)
			if !strings.HasPrefix(c.sql, "CREATE SCHEMA") {
				s, err := postgres.Connect(t.Context(), dsn, postgres.Options{})
				if err == nil {
					err = s.Prepare(t.Context())
					s.Close()
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			pgtest.Exec(t, dsn, "DO $do$ BEGIN "+c.sql+"; END $do$")
			before := layout(t, dsn)
			hinted(t, pgtest.Store(t, dsn).Prepare(t.Context()), c.says, "rename it, or name another database")
			if after := layout(t, dsn); after != before {
				t.Errorf("something was changed: %s became %s", before, after)
			}
			if !strings.Contains(before, strings.TrimPrefix(c.kept, "lockbench.")) {
				t.Errorf("%s is not there: %s", c.kept, before)
			}
		})
	}
}

// layout writes down every relation and comment of the schema.
func layout(t *testing.T, dsn string) (all string) {
	t.Helper()
	err := pgtest.Connect(t, dsn).QueryRow(t.Context(), `SELECT obj_description('lockbench'::regnamespace) IS NULL || ' ' ||
		string_agg(oid || ' ' || relname || ' ' || coalesce(obj_description(oid), ''), ', ' ORDER BY oid)
		FROM pg_class WHERE relnamespace = 'lockbench'::regnamespace`).Scan(&all)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestPrepareReplacesAnOlderSchema(t *testing.T) {
	dsn := pgtest.DSN(t)
	pgtest.Exec(t, dsn, `DO $$ BEGIN
		CREATE SCHEMA lockbench;
		CREATE TABLE lockbench.seats (id int PRIMARY KEY);
		CREATE TABLE lockbench.former (seat int REFERENCES lockbench.seats);
		COMMENT ON SCHEMA lockbench IS 'lockbench:v1 0123456789abcdef';
		COMMENT ON TABLE lockbench.seats IS 'lockbench:v1 0123456789abcdef';
		COMMENT ON TABLE lockbench.former IS 'lockbench:v1 0123456789abcdef';
	END $$`)
	ready(t, dsn)
	side := pgtest.Connect(t, dsn)
	if n := pgtest.Number(t, side, "SELECT count(*) FROM pg_class WHERE relnamespace = 'lockbench'::regnamespace AND relname = 'former'"); n != 0 {
		t.Error("the former table is still there")
	}
	tables := pgtest.Number(t, side, "SELECT count(*) FROM pg_class WHERE relnamespace = 'lockbench'::regnamespace AND relkind = 'r'")
	if n := pgtest.Number(t, side, marked); n != 1+100*tables {
		t.Errorf("%d tables, and the marks count %d", tables, n)
	}
}

// TestOlderSchemaInUseStays: what somebody built upon lockbench's tables is not dropped with them.
func TestOlderSchemaInUseStays(t *testing.T) {
	dsn := pgtest.DSN(t)
	pgtest.Exec(t, dsn, `DO $$ BEGIN
		CREATE SCHEMA lockbench;
		CREATE TABLE lockbench.seats (id int PRIMARY KEY);
		CREATE VIEW public.mine AS SELECT * FROM lockbench.seats;
		COMMENT ON SCHEMA lockbench IS 'lockbench:v1 0123456789abcdef';
		COMMENT ON TABLE lockbench.seats IS 'lockbench:v1 0123456789abcdef';
	END $$`)
	err := pgtest.Store(t, dsn).Prepare(t.Context())
	if err == nil || !strings.Contains(err.Error(), "older lockbench") {
		t.Errorf("the error is %v", err)
	}
	pgtest.Number(t, pgtest.Connect(t, dsn), "SELECT count(*) FROM public.mine")
}

func TestTwoRunsInOneDatabase(t *testing.T) {
	dsn := pgtest.DSN(t)
	first, err := postgres.Connect(t.Context(), dsn, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if err := first.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := pgtest.Store(t, dsn)
	hinted(t, second.Prepare(t.Context()), "another lockbench is at work", "wait for it to end")
	if err := pgtest.Store(t, pgtest.DSN(t)).Prepare(t.Context()); err != nil {
		t.Errorf("in another database: %v", err)
	}
	first.Close()
	if err := second.Prepare(t.Context()); err != nil {
		t.Errorf("the first has ended, and the second is refused: %v", err)
	}
}

// role makes a role that may log in and is granted what is said. It goes with the test.
func role(t *testing.T, dsn, options, grant string) string {
	t.Helper()
	name := fmt.Sprintf("lockbench_test_%d_%s", os.Getpid(), strings.ToLower(filepath.Base(t.Name())))
	pgtest.Exec(t, dsn, "CREATE ROLE "+name+" LOGIN "+options)
	t.Cleanup(func() {
		pgtest.Exec(t, dsn, "DROP OWNED BY "+name)
		pgtest.Exec(t, dsn, "DROP ROLE "+name)
	})
	if grant != "" {
		pgtest.Exec(t, dsn, strings.ReplaceAll(grant, "ROLE", name))
	}
	return pgtest.With(dsn, "user", name)
}

func TestRoleWithoutCreate(t *testing.T) {
	dsn := role(t, pgtest.DSN(t), "", "")
	hinted(t, pgtest.Store(t, dsn).Prepare(t.Context()), "schema lockbench cannot be created", "grant CREATE on the database")
}

// TestOrdinaryRole: who may create a schema may do all the rest; CHECKPOINT, which he may not, is left out.
func TestOrdinaryRole(t *testing.T) {
	dsn := role(t, pgtest.DSN(t), "", "DO $$ BEGIN EXECUTE format('GRANT CREATE ON DATABASE %I TO ROLE', current_database()); END $$")
	cell := pgtest.Run(t, compile(t, nil, "pessimistic"), pgtest.Store(t, dsn)).Cells[0]
	if cell.Verdict != bench.Sound {
		t.Errorf("verdict %s, findings %+v", cell.Verdict, cell.Findings)
	}
	if cell.Server == nil || cell.Server.Commits == nil || *cell.Server.Commits != cell.Operations {
		t.Errorf("the server's side is %+v", cell.Server)
	}
}

// secret must not stand in any message.
const secret = "hunter2-s3cret"

func TestConnectErrors(t *testing.T) {
	dsn := pgtest.DSN(t)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := closed.Addr().(*net.TCPAddr).Port
	_ = closed.Close()
	for _, c := range []struct{ name, dsn, says, hint string }{
		{"unknown database", pgtest.With(dsn, "dbname", "no_such_database"), `"no_such_database" does not exist`, "createdb"},
		{"unknown role", pgtest.With(dsn, "user", "no_such_role"), `"no_such_role"`, "user and password"},
		{"nobody listens", fmt.Sprintf("host=127.0.0.1 port=%d dbname=x", port), fmt.Sprintf("cannot reach the server at 127.0.0.1:%d", port), "is the server running"},
		{"nobody listens, URL", fmt.Sprintf("postgres://me:%s@127.0.0.1:%d/x", secret, port), fmt.Sprintf("127.0.0.1:%d", port), "is the server running"},
		{"no such socket", "host=/nowhere port=5432 dbname=x", "cannot reach the server at /nowhere/.s.PGSQL.5432", "is the server running"},
		{"unknown host", "host=no-such-host.invalid dbname=x", "cannot reach the server at no-such-host.invalid", "check the host"},
		{"no DSN at all", "postgres//x", "the DSN cannot be read", "postgres://user@host"},
		{"bad port", "host=localhost port=high", "the DSN cannot be read", "postgres://user@host"},
		{"bad port, URL", "postgres://me:" + secret + "@localhost:high/x", "the DSN cannot be read", "postgres://user@host"},
		{"bad escape, URL", "postgres://me:" + secret + "%zz@localhost/x", "the DSN cannot be read", "postgres://user@host"},
		{"two forms mixed", "postgres://me@localhost/x password='" + secret + "'", "the DSN cannot be read", "postgres://user@host"},
		{"bad option", "postgres://me:" + secret + "@localhost/x?sslmode=perhaps", "the DSN cannot be read", "postgres://user@host"},
		{"silent server", "host=127.0.0.1 dbname=x connect_timeout=1 port=" + listen(t, func(net.Conn) {}), "did not answer within 1s", "connect_timeout"},
		{"something else", "host=127.0.0.1 dbname=x port=" + listen(t, func(c net.Conn) { _, _ = c.Write([]byte("SSH-2.0-OpenSSH_9\r\n")) }), "is not PostgreSQL", "host and port"},
		{"no TLS there", "host=127.0.0.1 dbname=x sslmode=require port=" + listen(t, func(c net.Conn) { _, _ = c.Write([]byte("N")) }), "takes no TLS connections", "sslmode=prefer"},
		{"no role may connect", role(t, dsn, "CONNECTION LIMIT 0", ""), "no free connection slot", "lower --connections"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dsn := c.dsn
			if !strings.Contains(dsn, secret) {
				dsn = pgtest.With(dsn, "password", secret)
			}
			s, err := postgres.Connect(t.Context(), dsn, postgres.Options{})
			if err == nil {
				s.Close()
				t.Fatal("no error")
			}
			hinted(t, err, c.says, c.hint)
			silent(t, err)
		})
	}
}

// listen answers every connection in a way that PostgreSQL does not, and returns the port.
func listen(t *testing.T, answer func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var open []net.Conn
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			open = append(open, c)
			answer(c)
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
		for _, c := range open {
			_ = c.Close()
		}
	})
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// TestReadOnly: a server that takes no writes is told from one that is told not to.
func TestReadOnly(t *testing.T) {
	dsn := role(t, pgtest.DSN(t), "SUPERUSER", "ALTER USER ROLE SET default_transaction_read_only = on")
	hinted(t, pgtest.Store(t, dsn).Prepare(t.Context()), "read-only transaction", "default_transaction_read_only off")
}

// TestSomebodyElsesTables: a role that may read them cannot empty them.
func TestSomebodyElsesTables(t *testing.T) {
	owner := pgtest.DSN(t)
	s := ready(t, owner)
	s.Close()
	dsn := role(t, owner, "", "GRANT USAGE ON SCHEMA lockbench TO ROLE")
	err := pgtest.Store(t, dsn).Restore(t.Context(), scenarios.Seats{}.Fill(bench.Params{Rows: 3}))
	hinted(t, err, "permission denied for table seats", "connect as the role that owns the schema")
	hinted(t, pgtest.Store(t, dsn).Rehearse(t.Context()), "must be owner of table", "connect as the role that owns the schema")
}

// TestRehearsalLeavesNothingBehind: in an empty database, and in one whose tables somebody may still want to look at.
func TestRehearsalLeavesNothingBehind(t *testing.T) {
	dsn := pgtest.DSN(t)
	side := pgtest.Connect(t, dsn)
	rehearse := func() {
		s, err := postgres.Connect(t.Context(), dsn, postgres.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.Rehearse(t.Context()); err != nil {
			t.Error(err)
		}
	}
	rehearse()
	if n := pgtest.Number(t, side, "SELECT count(*) FROM pg_namespace WHERE nspname = 'lockbench'"); n != 0 {
		t.Error("the schema was left behind")
	}
	s := ready(t, dsn)
	s.Close()
	before := layout(t, dsn)
	rehearse()
	if after := layout(t, dsn); after != before {
		t.Errorf("%s became %s", before, after)
	}
	if n := pgtest.Number(t, side, "SELECT count(*) FROM lockbench.seats"); n != 3 {
		t.Errorf("%d seats are left of 3", n)
	}
}

// silent checks that an error, and everything it wraps, keeps the password.
func silent(t *testing.T, err error) {
	t.Helper()
	for e := err; e != nil; e = errors.Unwrap(e) {
		if strings.Contains(fmt.Sprintf("%v %+v", e, e), secret) {
			t.Errorf("the password stands in %q", e)
		}
	}
}

func TestTooManyConnections(t *testing.T) {
	dsn := role(t, pgtest.DSN(t), "CONNECTION LIMIT 3", "")
	s := pgtest.Store(t, dsn)
	p, err := s.Open(t.Context(), bench.PoolConfig{Connections: 8})
	if err == nil {
		p.Close()
		t.Fatal("no error")
	}
	hinted(t, err, "no free connection slot", "lower --connections")
	if !strings.Contains(err.Error(), "opening 8 connections") {
		t.Errorf("the error is %q", err)
	}
}

// TestWrongPassword needs a server that asks for one.
func TestWrongPassword(t *testing.T) {
	dir, err := os.MkdirTemp("", "lb-hba-") // the server's user must be able to enter, as it cannot a test's own directory
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	hba := filepath.Join(dir, "hba")
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(hba, []byte("local all postgres trust\nlocal all all scram-sha-256\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	dsn := pgtest.Start(t, map[string]string{"hba_file": hba}).DSN()
	pgtest.Exec(t, dsn, "CREATE ROLE guest LOGIN PASSWORD 'right'")
	_, err = postgres.Connect(t.Context(), pgtest.With(pgtest.With(dsn, "user", "guest"), "password", secret), postgres.Options{})
	if err == nil {
		t.Fatal("no error")
	}
	hinted(t, err, "the server refused the login", "user and password")
	silent(t, err)
	pgtest.Store(t, pgtest.With(pgtest.With(dsn, "user", "guest"), "password", "right"))
}

func TestDescribe(t *testing.T) {
	dsn := pgtest.With(pgtest.DSN(t), "password", secret)
	s, err := postgres.Connect(t.Context(), dsn, postgres.Options{Embedded: true, Description: "how it was had"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	srv, err := s.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	side := pgtest.Connect(t, dsn)
	num := pgtest.Number(t, side, "SELECT current_setting('server_version_num')::bigint")
	if srv.Major != int(num/10000) || srv.Version != fmt.Sprintf("%d.%d", num/10000, num%10000) {
		t.Errorf("version %q, major %d of %d", srv.Version, srv.Major, num)
	}
	if !srv.Embedded || srv.Description != "how it was had" || srv.Pooler || srv.ExecMode != "prepared" || srv.PoolerCost != nil {
		t.Errorf("the facts are %+v", srv)
	}
	if ms := pgtest.Number(t, side, "SELECT setting::bigint FROM pg_settings WHERE name = 'deadlock_timeout'"); srv.DeadlockMS == nil || int64(*srv.DeadlockMS) != ms {
		t.Errorf("deadlock_timeout is %v, not %d", srv.DeadlockMS, ms)
	}
	durable := pgtest.Number(t, side, "SELECT (current_setting('fsync') = 'on' AND current_setting('synchronous_commit') <> 'off')::int::bigint") == 1
	if srv.Durable != durable || srv.Settings["fsync"] == "" || srv.Settings["shared_buffers"] == "" {
		t.Errorf("durable %v, settings %v", srv.Durable, srv.Settings)
	}
	if strings.Contains(fmt.Sprintf("%+v", srv), secret) || strings.Contains(srv.Address, "postgres@") {
		t.Errorf("the address is %q", srv.Address)
	}
}

// TestRestore: a trial begins with what the scenario says, whatever the one before left.
func TestRestore(t *testing.T) {
	dsn := pgtest.DSN(t)
	s := ready(t, dsn)
	pgtest.Exec(t, dsn, "UPDATE lockbench.seats SET holder = 7, version = 3 WHERE id = 1")
	pgtest.Exec(t, dsn, "INSERT INTO lockbench.bookings VALUES (2, 8)")
	pgtest.Exec(t, dsn, "DELETE FROM lockbench.seats WHERE id = 3")
	sc := scenarios.Seats{}
	held := func() (all []int64) {
		snap, err := s.Snapshot(t.Context(), sc.Tables())
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range snap["seats"] {
			all = append(all, r.Key, r.Values[0])
		}
		return all
	}
	if got, want := fmt.Sprint(held()), fmt.Sprint([]int64{1, 7, 2, 8}); got != want {
		t.Errorf("the snapshot is %s, not %s", got, want)
	}
	if err := s.Restore(t.Context(), sc.Fill(bench.Params{Rows: 2})); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(held()), fmt.Sprint([]int64{1, bench.Null, 2, bench.Null}); got != want {
		t.Errorf("after the restoring there is %s, not %s", got, want)
	}
	if n := pgtest.Number(t, pgtest.Connect(t, dsn), "SELECT sum(version)::bigint FROM lockbench.seats"); n != 0 {
		t.Errorf("the versions add up to %d", n)
	}
}

// TestCanceledContext: whoever gives up while connecting gets his error at once.
func TestCanceledContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := postgres.Connect(ctx, pgtest.DSN(t), postgres.Options{}); err == nil {
		t.Error("no error")
	}
}
