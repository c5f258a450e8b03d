package postgres

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/bench/fleet"
)

// meeting is how one process meets the others of its run. Each way of meeting has a session of its own: one that waits for what is said
// can do nothing else, and one that stays in its transaction hears nothing.
type meeting struct {
	store *Store
	mouth *pgx.Conn
	ear   *pgx.Conn
	pulse *pgx.Conn // asks now and then, in one transaction, so that asking adds nothing to the server's counters
	says  string    // channel
	hears string    // channel
}

// runNames are short enough for the names of sessions and channels, and need no quotes.
var runNames = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`)

// CheckRun refuses what cannot name a run.
func CheckRun(id string) error {
	if runNames.MatchString(id) {
		return nil
	}
	return bench.Hintf("name it with up to 32 small letters, digits and hyphens, as nightly-3", "%q cannot name a run", id)
}

// Run is the name of the run that the store's sessions belong to.
func (s *Store) Run() string { return strings.TrimPrefix(s.name, sessionPrefix) }

const sessionPrefix = "lockbench-"

// Names of the sessions by which processes meet, after that of the racing ones.
const (
	coordinatorRole = " coordinator"
	workerRole      = " worker"
)

func (s *Store) meet(ctx context.Context, role, says, hears string) (*meeting, error) {
	if s.pooled {
		return nil, bench.Hintf("name PostgreSQL itself in --dsn, for the run and for its workers",
			"processes cannot meet through a transaction pooler: LISTEN needs a session that stays")
	}
	m := &meeting{store: s, says: sessionPrefix + s.Run() + says, hears: sessionPrefix + s.Run() + hears}
	var err error
	if m.mouth, err = s.session(ctx, role); err == nil {
		m.ear, err = s.session(ctx, role)
	}
	if err == nil {
		_, err = m.ear.Exec(ctx, "LISTEN "+pgx.Identifier{m.hears}.Sanitize())
	}
	if err != nil {
		m.Close()
		return nil, fmt.Errorf("opening the sessions in which processes meet: %w", err)
	}
	return m, nil
}

// Channels: orders go to all workers, answers to the coordinator.
const (
	toWorkers     = " orders"
	toCoordinator = " answers"
)

// session opens one that no time limit of the server's ends.
func (s *Store) session(ctx context.Context, role string) (*pgx.Conn, error) {
	cfg := s.admin.Config()
	cfg.OnNotification = nil // what comes is this session's, not the one's whose configuration it is
	cfg.RuntimeParams["application_name"] = s.name + role
	c, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, s.explain(err)
	}
	_, err = c.Exec(ctx, `SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN ('statement_timeout', 'lock_timeout',
		'idle_in_transaction_session_timeout', 'idle_session_timeout', 'transaction_timeout')`)
	if err != nil {
		_ = c.Close(ctx)
		return nil, err
	}
	return c, nil
}

// live opens the session that shows that this process is alive.
func (m *meeting) live(ctx context.Context, role string) (err error) {
	if m.pulse, err = m.store.session(ctx, role); err == nil {
		_, err = m.pulse.Exec(ctx, "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY")
	}
	return err
}

// Close ends the sessions.
func (m *meeting) Close() {
	ctx, cancel := context.WithTimeout(m.store.ctx, 5*time.Second)
	defer cancel()
	for _, c := range []*pgx.Conn{m.mouth, m.ear, m.pulse} {
		if c != nil {
			_ = c.Close(ctx)
		}
	}
}

// Send says something to the other end.
func (m *meeting) Send(ctx context.Context, text string) error {
	_, err := m.mouth.Exec(ctx, "SELECT pg_notify($1, $2)", m.says, text)
	return err
}

// publish makes the server count at once what the mouth has said, before a race whose transactions are counted. Notifications alone need
// none of it: a session that touched no table keeps its counts to itself.
func (m *meeting) publish(ctx context.Context) error {
	if !m.store.flushes() {
		return nil
	}
	_, err := m.mouth.Exec(ctx, "SELECT pg_stat_force_next_flush() FROM pg_class LIMIT 1")
	return err
}

// Receive waits until the other end says something.
func (m *meeting) Receive(ctx context.Context) (string, error) {
	n, err := m.ear.WaitForNotification(ctx)
	if err != nil {
		return "", err
	}
	return n.Payload, nil
}

// ages returns, of the sessions whose name begins so, how long ago each last asked for something, by the rest of their names.
func (m *meeting) ages(ctx context.Context, role string) (map[string]time.Duration, error) {
	if _, err := m.pulse.Exec(ctx, "SELECT pg_stat_clear_snapshot()"); err != nil { // a transaction keeps its view of the sessions otherwise
		return nil, err
	}
	// What a session of another role does may be hidden: that it is there is a sign of life then.
	rows, err := m.pulse.Query(ctx, `SELECT application_name, coalesce(extract(epoch FROM clock_timestamp() - state_change), 0)::float8
		FROM pg_stat_activity WHERE starts_with(application_name, $1)`, m.store.name+role)
	if err != nil {
		return nil, err
	}
	all := map[string]time.Duration{}
	var name string
	var seconds float64
	_, err = pgx.ForEachRow(rows, []any{&name, &seconds}, func() error {
		all[strings.TrimPrefix(name, m.store.name+role)] = time.Duration(seconds * float64(time.Second))
		return nil
	})
	return all, err
}

// Host is the meeting place as the coordinator has it.
type Host struct{ *meeting }

// Host opens the meeting place of the store's run.
func (s *Store) Host(ctx context.Context) (*Host, error) {
	m, err := s.meet(ctx, coordinatorRole, toWorkers, toCoordinator)
	if err != nil {
		return nil, err
	}
	if err := m.live(ctx, coordinatorRole+" pulse"); err != nil {
		m.Close()
		return nil, err
	}
	return &Host{m}, nil
}

// Announce makes the run known. Whatever other runs stand there have ended without a word, since this one holds the lock of a run.
func (h *Host) Announce(ctx context.Context, version string, workers int) error {
	if _, err := h.mouth.Exec(ctx, "DELETE FROM lockbench.runs"); err != nil {
		return err
	}
	_, err := h.mouth.Exec(ctx, "INSERT INTO lockbench.runs (id, lockbench, workers) VALUES ($1, $2, $3)", h.store.Run(), version, workers)
	return err
}

// Plan lays out what the workers read.
func (h *Host) Plan(ctx context.Context, plan []byte) error {
	_, err := h.mouth.Exec(ctx, "UPDATE lockbench.runs SET plan = $2 WHERE id = $1", h.store.Run(), string(plan))
	if err == nil {
		err = h.publish(ctx)
	}
	return err
}

// Flushed notes that racing sessions of other processes have published their statistics, each in a transaction of its own.
func (h *Host) Flushed(sessions int) { h.store.flushed.Add(int64(sessions)) }

// Members returns who has joined.
func (h *Host) Members(ctx context.Context) ([]fleet.Member, error) {
	rows, err := h.mouth.Query(ctx, "SELECT number, name, host, coalesce(failed, '') FROM lockbench.workers WHERE run = $1 ORDER BY number", h.store.Run())
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[fleet.Member])
}

// Ages returns for every worker how long ago it showed a sign of life.
func (h *Host) Ages(ctx context.Context) (map[int]time.Duration, error) {
	named, err := h.ages(ctx, workerRole+" pulse ")
	all := map[int]time.Duration{}
	for number, age := range named {
		if n, err := strconv.Atoi(number); err == nil {
			all[n] = age
		}
	}
	return all, err
}

// Shares returns what the workers have handed over, and takes it away.
func (h *Host) Shares(ctx context.Context) (map[int][]byte, error) {
	rows, err := h.mouth.Query(ctx, "SELECT number, share FROM lockbench.workers WHERE run = $1 AND share IS NOT NULL", h.store.Run())
	if err != nil {
		return nil, err
	}
	all := map[int][]byte{}
	var number int
	var share []byte
	if _, err = pgx.ForEachRow(rows, []any{&number, &share}, func() error {
		all[number], share = share, nil
		return nil
	}); err == nil {
		_, err = h.mouth.Exec(ctx, "UPDATE lockbench.workers SET share = NULL WHERE run = $1", h.store.Run())
	}
	if err == nil {
		err = h.publish(ctx)
	}
	return all, err
}

// Terminate ends what the run's racing sessions still do, those of processes that the server believes to be there included.
func (h *Host) Terminate(ctx context.Context) error {
	return h.terminate(ctx, "application_name = $1")
}

// terminate ends the run's sessions that a condition fits, and waits until they are gone.
func (h *Host) terminate(ctx context.Context, which string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		var left int
		err := h.mouth.QueryRow(ctx, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE "+which, h.store.name).Scan(&left)
		if err != nil || left == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d sessions of the run do not end", left)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// ofWorkers are the sessions of a run that are not the coordinator's.
const ofWorkers = "(application_name = $1 OR starts_with(application_name, $1 || '" + workerRole + "'))"

// Dismiss ends the workers' sessions, which are given a moment to end by themselves, and removes every trace of the run.
func (h *Host) Dismiss(ctx context.Context) error {
	const moment, step = 3 * time.Second, 10 * time.Millisecond
	var err error
	for waited := time.Duration(0); waited < moment; waited += step {
		var left int
		if err = h.mouth.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE "+ofWorkers, h.store.name).Scan(&left); err != nil || left == 0 {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(step):
		}
	}
	if err == nil {
		err = h.terminate(ctx, ofWorkers)
	}
	_, gone := h.mouth.Exec(ctx, "DELETE FROM lockbench.runs WHERE id = $1", h.store.Run())
	if err = errors.Join(err, gone); err != nil {
		return fmt.Errorf("taking leave of the workers: %w", err)
	}
	return nil
}

// Guest is the meeting place as a worker has it.
type Guest struct {
	*meeting
	number int
}

// Guest opens the meeting place of the store's run.
func (s *Store) Guest(ctx context.Context) (*Guest, error) {
	m, err := s.meet(ctx, workerRole, toCoordinator, toWorkers)
	if err != nil {
		return nil, err
	}
	return &Guest{meeting: m}, nil
}

// errNotYet is that there is no such run, which may still come.
var errNotYet = errors.New("there is no such run")

// Join waits until the run is announced and takes a place in it.
func (g *Guest) Join(ctx context.Context, version, name, host string) (number, of int, err error) {
	const step = 100 * time.Millisecond
	for {
		number, of, err = g.join(ctx, version, name, host)
		if !errors.Is(err, errNotYet) {
			break
		}
		select {
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		case <-time.After(step):
		}
	}
	if err != nil {
		return 0, 0, err
	}
	g.number = number
	if err := g.live(ctx, fmt.Sprintf("%s pulse %d", workerRole, number)); err != nil {
		return 0, 0, err
	}
	return number, of, g.Send(ctx, "{}") // somebody has joined
}

// join takes the first free place. The row of the run is locked meanwhile, or two workers could take the same.
func (g *Guest) join(ctx context.Context, version, name, host string) (number, of int, err error) {
	tx, err := g.mouth.Begin(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	var theirs string
	err = tx.QueryRow(ctx, "SELECT lockbench, workers FROM lockbench.runs WHERE id = $1 FOR UPDATE", g.store.Run()).Scan(&theirs, &of)
	var pg *pgconn.PgError
	if errors.Is(err, pgx.ErrNoRows) || errors.As(err, &pg) && (pg.Code == undefinedTable || pg.Code == invalidSchema) {
		return 0, 0, errNotYet
	} else if err != nil {
		return 0, 0, err
	}
	var failed *string
	if theirs != version {
		text := fmt.Sprintf("it is lockbench %s, and the run is of lockbench %s", version, theirs)
		failed = &text
	}
	err = tx.QueryRow(ctx, `INSERT INTO lockbench.workers (run, number, name, host, failed)
		SELECT r.id, n, CASE WHEN EXISTS (SELECT FROM lockbench.workers w WHERE w.run = r.id AND w.name = $2) THEN $2 || ' #' || n ELSE $2 END, $3, $4
		FROM lockbench.runs r, generate_series(1, r.workers) n
		WHERE r.id = $1 AND NOT EXISTS (SELECT FROM lockbench.workers w WHERE w.run = r.id AND w.number = n)
		ORDER BY n LIMIT 1 RETURNING number`, g.store.Run(), name, host, failed).Scan(&number)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return 0, 0, bench.Hintf("start the run with more --workers", "run %q has all the %d workers it waited for", g.store.Run(), of)
	case err != nil:
		return 0, 0, err
	}
	if err := tx.Commit(ctx); err != nil {
		return 0, 0, err
	}
	if failed != nil {
		return 0, 0, errors.Join(bench.Hintf("run the same lockbench on every machine",
			"run %q is of lockbench %s, and this is lockbench %s", g.store.Run(), theirs, version), g.Send(ctx, "{}"))
	}
	return number, of, nil
}

// SQLSTATEs of a database in which no run was ever announced. Source: PostgreSQL 15, appendix A.
const (
	undefinedTable = "42P01"
	invalidSchema  = "3F000"
)

// Plan reads what the coordinator has laid out.
func (g *Guest) Plan(ctx context.Context) (plan []byte, err error) {
	err = g.mouth.QueryRow(ctx, "SELECT plan FROM lockbench.runs WHERE id = $1", g.store.Run()).Scan(&plan)
	if err == nil {
		err = g.publish(ctx)
	}
	return plan, err
}

// Hand hands over what was measured.
func (g *Guest) Hand(ctx context.Context, share []byte) error {
	tag, err := g.mouth.Exec(ctx, "UPDATE lockbench.workers SET share = $3 WHERE run = $1 AND number = $2", g.store.Run(), g.number, share)
	if err == nil && tag.RowsAffected() != 1 {
		err = errors.New("the run has forgotten this worker")
	}
	if err == nil {
		err = g.publish(ctx)
	}
	return err
}

// Age returns how long ago the coordinator showed a sign of life; false when it is gone.
func (g *Guest) Age(ctx context.Context) (time.Duration, bool, error) {
	all, err := g.ages(ctx, coordinatorRole+" pulse")
	age, alive := all[""]
	return age, alive, err
}

// Forget removes every trace of the run.
func (g *Guest) Forget(ctx context.Context) error {
	_, err := g.mouth.Exec(ctx, "DELETE FROM lockbench.runs WHERE id = $1", g.store.Run())
	return err
}
