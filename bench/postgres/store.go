// Package postgres is the engine's Store on PostgreSQL: it connects, lays out and restores the marked schema, reads the final state
// for the audit, and watches the server's side.
package postgres

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockbench/lockbench"
	"github.com/lockbench/lockbench/bench"
)

// Options say what is known of a server before it is asked.
type Options struct {
	Embedded    bool   // lockbench started it
	Description string // how it was had, for the report
	Run         string // names the run in which the store's sessions take part; empty: a random one
	Worker      bool   // the run is another process's
}

// Store is a database under test. Its methods are for one goroutine at a time; those of its pools and observations are their own.
type Store struct {
	config       *pgconn.Config
	opts         Options
	admin        *pgx.Conn       // seeds, restores, audits
	ctx          context.Context // for closing, which must not be cut short
	name         string          // application_name of the racing connections
	version      int             // server_version_num
	standby      bool            // it follows another server and takes no writes
	pooled       bool
	locked       bool         // holds the lock of a run
	noCheckpoint bool         // the role may not CHECKPOINT
	prepared     int64        // transactions that were prepared before the run
	flushed      atomic.Int64 // transactions spent on publishing statistics
}

// ParseDSN reads a DSN. The error keeps its password.
func ParseDSN(dsn string) (*pgx.ConnConfig, error) {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, bench.Hintf("write it as postgres://user@host:5432/database or as host=… dbname=…", "the DSN cannot be read: %v", redact(err))
	}
	return cfg, nil
}

// Connect reaches the database. The error of a server that cannot be reached carries a hint.
func Connect(ctx context.Context, dsn string, o Options) (*Store, error) {
	cfg, err := ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	// Simple protocol: the admin connection must work through a pooler that knows no prepared statements.
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	cfg.RuntimeParams["application_name"] = "lockbench admin"
	run := o.Run
	if run == "" {
		run = randomHex(4)
	}
	s := &Store{ctx: context.WithoutCancel(ctx), opts: o, name: sessionPrefix + run, config: cfg.Config.Copy()}
	if o.Worker {
		cfg.RuntimeParams["application_name"] = s.name + workerRole + " admin"
	}
	if s.config.ConnectTimeout == 0 {
		s.config.ConnectTimeout = 10 * time.Second
		cfg.ConnectTimeout = s.config.ConnectTimeout
	}
	if s.admin, err = pgx.ConnectConfig(ctx, cfg); err != nil {
		return nil, s.explain(err)
	}
	var pid int64
	if err := s.admin.QueryRow(ctx, "SELECT pg_backend_pid(), current_setting('server_version_num')::int, pg_is_in_recovery()").Scan(&pid, &s.version, &s.standby); err != nil {
		s.Close()
		return nil, fmt.Errorf("asking the server for its version: %w", err)
	}
	// A pooler answers the connection with a process number of its own making.
	s.pooled = pid != int64(s.admin.PgConn().PID())
	if !s.pooled { // limits of the role are for its queries, not for filling a table
		if _, err := s.admin.Exec(ctx, "SET statement_timeout = 0"); err != nil {
			s.Close()
			return nil, fmt.Errorf("lifting the time limit of statements: %w", err)
		}
	}
	return s, nil
}

// passwords finds them in both forms of a DSN, also in pieces of one that a message quotes.
var passwords = regexp.MustCompile(`(?i)(password\s*=\s*)(?:'(?:[^'\\]|\\.)*'|[^\s&]+)|(://[^:@/\s]*:)[^@\s]+(@)`)

// redact keeps passwords out of messages: pgx quotes the DSN, and masks the password only where it can parse it.
func redact(err error) string {
	msg := passwords.ReplaceAllString(err.Error(), "${1}${2}xxxxx${3}")
	if i := strings.LastIndex(msg, "`: "); i >= 0 {
		return msg[i+3:]
	}
	if i := strings.Index(msg, "`"); i >= 0 {
		return strings.TrimSpace(msg[:i])
	}
	return msg
}

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails: see crypto/rand
	return hex.EncodeToString(b)
}

// Close ends the connection that seeds and audits.
func (s *Store) Close() {
	ctx, cancel := context.WithTimeout(s.ctx, 5*time.Second)
	defer cancel()
	_ = s.admin.Close(ctx)
}

// Pooled reports whether a transaction pooler stands in front.
func (s *Store) Pooled() bool { return s.pooled }

// flushes reports whether sessions can be asked to publish their statistics.
func (s *Store) flushes() bool { return s.version >= 150000 }

// telling are the settings that change figures.
var telling = []string{
	"fsync", "synchronous_commit", "full_page_writes", "wal_level", "wal_sync_method", "shared_buffers", "max_connections",
	"deadlock_timeout", "default_transaction_isolation", "jit", "autovacuum", "random_page_cost", "commit_delay",
}

// Describe asks for the facts that a report carries.
func (s *Store) Describe(ctx context.Context) (bench.Server, error) {
	srv := bench.Server{
		Version: version(s.version), Major: s.version / 10000, Embedded: s.opts.Embedded, Description: s.opts.Description,
		Address: s.address(), Pooler: s.pooled, ExecMode: "prepared", Settings: map[string]string{},
	}
	if s.pooled {
		srv.ExecMode = "unprepared"
	}
	rows, err := s.admin.Query(ctx, "SELECT name, current_setting(name) FROM pg_settings WHERE name = ANY ($1)", telling)
	if err != nil {
		return srv, fmt.Errorf("reading the server's settings: %w", err)
	}
	var name, value string
	if _, err := pgx.ForEachRow(rows, []any{&name, &value}, func() error {
		srv.Settings[name] = value
		return nil
	}); err != nil {
		return srv, fmt.Errorf("reading the server's settings: %w", err)
	}
	srv.Durable = srv.Settings["fsync"] == "on" && srv.Settings["synchronous_commit"] != "off"
	var deadlock float64
	if err := s.admin.QueryRow(ctx, "SELECT setting::float8 FROM pg_settings WHERE name = 'deadlock_timeout'").Scan(&deadlock); err == nil {
		srv.DeadlockMS = &deadlock
	}
	if s.pooled {
		srv.PoolerCost = s.parseCost(ctx)
	}
	return srv, nil
}

// version writes a server_version_num as people do.
func version(num int) string {
	if num >= 100000 {
		return fmt.Sprintf("%d.%d", num/10000, num%10000)
	}
	return fmt.Sprintf("%d.%d.%d", num/10000, num/100%100, num%100)
}

// address names the server without user or password.
func (s *Store) address() string {
	if strings.HasPrefix(s.config.Host, "/") {
		return s.config.Host + " " + s.config.Database
	}
	return net.JoinHostPort(s.config.Host, strconv.Itoa(int(s.config.Port))) + "/" + s.config.Database
}

// mark begins the comment on everything that lockbench made.
const mark = "lockbench:v1 "

// Prepare creates the schema, or checks that the one it finds is lockbench's own and whole.
func (s *Store) Prepare(ctx context.Context) error {
	if err := s.Alone(ctx); err != nil {
		return err
	}
	return s.advise(s.layOut(ctx))
}

func (s *Store) layOut(ctx context.Context) error {
	if err := s.admin.QueryRow(ctx, "SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()").Scan(&s.prepared); err != nil {
		return fmt.Errorf("looking for prepared transactions: %w", err)
	}
	sum := sha256.Sum256([]byte(lockbench.SchemaSQL))
	want := mark + hex.EncodeToString(sum[:8])
	var have *string
	err := s.admin.QueryRow(ctx, "SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = 'lockbench'").Scan(&have)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return s.create(ctx, want)
	case err != nil:
		return fmt.Errorf("looking for the schema lockbench: %w", err)
	}
	tables, err := s.owned(ctx, have)
	if err != nil || (*have == want && slices.Equal(tables, laidOut())) {
		return err
	}
	// It is lockbench's, of another release or with a table missing: nothing in it outlives a trial.
	if len(tables) > 0 {
		if _, err := s.admin.Exec(ctx, "DROP TABLE "+strings.Join(tables, ", ")+" RESTRICT"); err != nil {
			return fmt.Errorf("replacing the tables of an older lockbench: %w", err)
		}
	}
	if _, err := s.admin.Exec(ctx, "DROP SCHEMA lockbench RESTRICT"); err != nil {
		return fmt.Errorf("replacing the schema of an older lockbench: %w", err)
	}
	return s.create(ctx, want)
}

// laidOut lists the tables that schema.sql makes, sorted.
func laidOut() (tables []string) {
	for _, m := range regexp.MustCompile(`(?m)^CREATE (?:UNLOGGED )?TABLE lockbench\.(\w+)`).FindAllStringSubmatch(lockbench.SchemaSQL, -1) {
		tables = append(tables, pgx.Identifier{"lockbench", m[1]}.Sanitize())
	}
	slices.Sort(tables)
	return tables
}

// aloneKey is the advisory lock of a run; the number is the ASCII of "lockb".
const aloneKey = 0x6c6f636b62

// ErrBusy is the error of a database in which another lockbench is at work.
var ErrBusy = bench.Hintf("wait for it to end, or name another database in --dsn", "another lockbench is at work in this database")

// Alone makes sure that no other lockbench is at work in this database, or returns [ErrBusy]. One that has just ended keeps its lock until the server notices,
// so there is a short grace. Through a pooler no lock can be kept, so nothing is checked.
func (s *Store) Alone(ctx context.Context) error {
	if s.pooled || s.locked {
		return nil
	}
	const grace, step = 2 * time.Second, 20 * time.Millisecond
	for waited := time.Duration(0); ; waited += step {
		if err := s.admin.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", int64(aloneKey)).Scan(&s.locked); err != nil {
			return fmt.Errorf("taking the lock of a run: %w", err)
		}
		if s.locked {
			return nil
		}
		if waited >= grace {
			return ErrBusy
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(step):
		}
	}
}

// owned returns the schema's tables, sorted, or refuses what lockbench did not make.
func (s *Store) owned(ctx context.Context, comment *string) ([]string, error) {
	const hint = "rename it, or name another database in --dsn: lockbench only touches what it made itself"
	if comment == nil || !strings.HasPrefix(*comment, mark) {
		return nil, bench.Hintf(hint, "the schema lockbench in this database was not made by lockbench")
	}
	rows, err := s.admin.Query(ctx, `SELECT c.relname, coalesce(obj_description(c.oid, 'pg_class'), '') FROM pg_class c
		WHERE c.relnamespace = 'lockbench'::regnamespace AND c.relkind NOT IN ('i', 'I', 't', 'c')`)
	if err != nil {
		return nil, fmt.Errorf("looking into the schema lockbench: %w", err)
	}
	var tables []string
	var name, note string
	_, err = pgx.ForEachRow(rows, []any{&name, &note}, func() error {
		if !strings.HasPrefix(note, mark) {
			return bench.Hintf(hint, "the schema lockbench holds %q, which lockbench did not make", name)
		}
		tables = append(tables, pgx.Identifier{"lockbench", name}.Sanitize())
		return nil
	})
	slices.Sort(tables)
	return tables, err
}

// create lays out the schema and marks everything in it, in one transaction.
func (s *Store) create(ctx context.Context, want string) error {
	sql := lockbench.SchemaSQL + fmt.Sprintf(`
		DO $$ DECLARE t regclass; BEGIN
			FOR t IN SELECT oid::regclass FROM pg_class WHERE relnamespace = 'lockbench'::regnamespace AND relkind = 'r' LOOP
				EXECUTE format('COMMENT ON TABLE %%s IS %%L', t, '%[1]s');
			END LOOP;
		END $$;
		COMMENT ON SCHEMA lockbench IS '%[1]s';`, want)
	// One simple query is one transaction.
	if _, err := s.admin.PgConn().Exec(ctx, sql).ReadAll(); err != nil {
		var pg *pgconn.PgError
		if errors.As(err, &pg) && pg.Code == insufficientPrivilege {
			return bench.Hintf("grant CREATE on the database to this role, or name another role in --dsn", "the schema lockbench cannot be created: %s", pg.Message)
		}
		return fmt.Errorf("creating the schema lockbench: %w", err)
	}
	return nil
}

// Restore lays the tables anew.
func (s *Store) Restore(ctx context.Context, fills []bench.Fill) error {
	return s.advise(s.restore(ctx, fills))
}

func (s *Store) restore(ctx context.Context, fills []bench.Fill) error {
	var names []string
	for _, f := range fills {
		names = append(names, "lockbench."+f.Table.Name)
		if f.Table.Claim != nil {
			names = append(names, "lockbench."+f.Table.Claim.Table)
		}
	}
	if err := s.evict(ctx); err != nil {
		return fmt.Errorf("ending sessions that hold something: %w", err)
	}
	if _, err := s.admin.Exec(ctx, "TRUNCATE "+strings.Join(names, ", ")); err != nil {
		return fmt.Errorf("emptying the tables: %w", err)
	}
	for _, f := range fills {
		if err := s.spread(ctx, f); err != nil {
			return fmt.Errorf("setting how full the pages of %s get: %w", f.Table.Name, err)
		}
		if err := s.fill(ctx, f); err != nil {
			return fmt.Errorf("filling %s: %w", f.Table.Name, err)
		}
	}
	if _, err := s.admin.Exec(ctx, "VACUUM (ANALYZE) "+strings.Join(names, ", ")); err != nil {
		return fmt.Errorf("vacuuming: %w", err)
	}
	return s.checkpoint(ctx)
}

// evict ends the racing sessions in which a strategy left something open: it would hold up the laying of the tables, or be found by the
// audit of whoever races next.
func (s *Store) evict(ctx context.Context) error {
	_, err := s.admin.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity a WHERE application_name = $1
		AND (state LIKE 'idle in transaction%' OR EXISTS (SELECT FROM pg_locks l WHERE l.pid = a.pid AND l.locktype = 'advisory'))`, s.name)
	return err
}

// spread sets how full pages get. schema.sql spreads a few rows over several pages, so that they are read through the index; a table
// of many rows needs no such help, and would only outgrow the server's memory.
func (s *Store) spread(ctx context.Context, f bench.Fill) error {
	const manyRows, sparse, usual = 20_000, 10, 80
	factor := sparse
	if f.Rows > manyRows {
		factor = usual
	}
	_, err := s.admin.Exec(ctx, fmt.Sprintf("ALTER TABLE lockbench.%s SET (fillfactor = %d)", f.Table.Name, factor))
	return err
}

func (s *Store) fill(ctx context.Context, f bench.Fill) error {
	columns := append([]string{f.Table.Key}, f.Table.Columns...)
	values := make([]any, len(columns))
	key := int64(0)
	_, err := s.admin.CopyFrom(ctx, pgx.Identifier{"lockbench", f.Table.Name}, columns, pgx.CopyFromFunc(func() ([]any, error) {
		if key++; key > f.Rows {
			return nil, nil
		}
		row := f.Row(key)
		values[0] = key
		for i := range f.Table.Columns {
			values[i+1] = row.Values[i]
			if row.Values[i] == bench.Null {
				values[i+1] = nil
			}
		}
		return values, nil
	}))
	return err
}

// checkpoint writes out what the restoring dirtied, so that the trial does not pay for it; a role that may not is not asked again.
func (s *Store) checkpoint(ctx context.Context) error {
	if s.noCheckpoint {
		return nil
	}
	_, err := s.admin.Exec(ctx, "CHECKPOINT")
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == insufficientPrivilege {
		s.noCheckpoint = true
		return nil
	}
	return err
}

// Snapshot reads the final state. A claimed column is read from the claims where there is one.
func (s *Store) Snapshot(ctx context.Context, tables []*bench.Table) (bench.Snapshot, error) {
	snap := bench.Snapshot{}
	for _, t := range tables {
		rows, err := s.admin.Query(ctx, snapshotSQL(t))
		if err != nil {
			return nil, err
		}
		var key int64
		values := make([]*int64, len(t.Columns))
		into := []any{&key}
		for i := range values {
			into = append(into, &values[i])
		}
		if _, err := pgx.ForEachRow(rows, into, func() error {
			r := bench.Row{Key: key}
			for i, v := range values {
				r.Values[i] = bench.Null
				if v != nil {
					r.Values[i] = *v
				}
			}
			snap[t.Name] = append(snap[t.Name], r)
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return snap, nil
}

func snapshotSQL(t *bench.Table) string {
	sql, join := "SELECT t."+t.Key, ""
	if t.Claim != nil {
		join = fmt.Sprintf(" LEFT JOIN lockbench.%s c ON c.%s = t.%s", t.Claim.Table, t.Claim.Key, t.Key)
	}
	for _, c := range t.Columns {
		if t.Claim != nil && c == t.Claim.Value {
			sql += fmt.Sprintf(", coalesce(t.%s, c.%s)", c, t.Claim.Column)
		} else {
			sql += ", t." + c
		}
	}
	return sql + " FROM lockbench." + t.Name + " t" + join + " ORDER BY 1"
}

// Plan prepares the statement as the racing sessions do, so that the server plans what it will carry out.
func (s *Store) Plan(ctx context.Context, begin, q *bench.Stmt, args []int64) (plan []string, err error) {
	if _, err := s.admin.PgConn().Exec(ctx, begin.SQL).ReadAll(); err != nil {
		return nil, err
	}
	defer func() {
		// The name outlives the transaction, and a failed transaction takes no other command.
		_, rerr := s.admin.PgConn().Exec(context.WithoutCancel(ctx), "ROLLBACK; DEALLOCATE ALL").ReadAll()
		err = errors.Join(err, rerr)
	}()
	const name = "lockbench_plan"
	values := make([]string, len(args))
	for i, v := range args {
		values[i] = strconv.FormatInt(v, 10)
	}
	if _, err := s.admin.PgConn().Exec(ctx, "PREPARE "+name+" AS "+q.SQL).ReadAll(); err != nil {
		return nil, err
	}
	rows, err := s.admin.PgConn().Exec(ctx, "EXPLAIN (COSTS OFF) EXECUTE "+name+"("+strings.Join(values, ", ")+")").ReadAll()
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		for _, line := range r.Rows {
			plan = append(plan, string(line[0]))
		}
	}
	return plan, nil
}

// Leaks counts advisory locks and open transactions of the racing sessions, and prepared transactions that were not there before.
func (s *Store) Leaks(ctx context.Context) (int64, error) {
	var n, prepared int64
	err := s.admin.QueryRow(ctx, `SELECT
		(SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.locktype = 'advisory' AND a.application_name = $1)
		+ (SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND state LIKE 'idle in transaction%'),
		(SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database())`, s.name).Scan(&n, &prepared)
	return n + max(0, prepared-s.prepared), err
}

// terminate ends the backends of connections that were closed, and waits until they are gone, so that none of them writes behind the
// audit's back.
func (s *Store) terminate(ctx context.Context, conns []*conn) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var pids []int32
	for _, c := range conns {
		pids = append(pids, int32(c.pg.PID()))
	}
	cfg := s.admin.Config() // the admin connection may be busy: this runs beside it
	side, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return s.explain(err)
	}
	defer side.Close(ctx)
	for {
		var left int
		err := side.QueryRow(ctx, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid = ANY ($1) AND application_name = $2`, pids, s.name).Scan(&left)
		if err != nil || left == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d sessions do not end: what they still do is not in the audit", left)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// parseCost measures what parsing at every execution adds to a statement on this very link, in µs: inside one transaction even a
// pooler keeps the server connection, so that both ways can be compared there. nil if it cannot be told.
func (s *Store) parseCost(ctx context.Context) *float64 {
	const rounds, sql, name = 200, "SELECT $1::bigint", "lockbench_cost"
	pg := s.admin.PgConn()
	if pg.Exec(ctx, "BEGIN").Close() != nil {
		return nil
	}
	defer func() { _ = pg.Exec(ctx, "ROLLBACK").Close() }()
	if _, err := pg.Prepare(ctx, name, sql, nil); err != nil {
		return nil
	}
	defer func() { _ = pg.Exec(ctx, "DEALLOCATE ALL").Close() }()
	arg := [][]byte{[]byte("1")}
	var with, without []time.Duration
	for range rounds {
		t0 := time.Now()
		r := pg.ExecParams(ctx, sql, arg, nil, nil, nil).Read()
		t1 := time.Now()
		q := pg.ExecPrepared(ctx, name, arg, nil, nil).Read()
		if r.Err != nil || q.Err != nil {
			return nil
		}
		with, without = append(with, t1.Sub(t0)), append(without, time.Since(t1))
	}
	slices.Sort(with)
	slices.Sort(without)
	cost := float64((with[rounds/2] - without[rounds/2]).Nanoseconds()) / 1000 // medians: a busy machine has long outliers
	if cost <= 0 {                                                             // noise
		return nil
	}
	return &cost
}
