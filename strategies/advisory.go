package strategies

import (
	"fmt"
	"hash/fnv"

	"github.com/lockbench/lockbench/bench"
)

// Advisory takes a lock on a number that stands for the row.
type Advisory struct{}

// Info describes the strategy.
func (Advisory) Info() bench.StrategyInfo {
	return bench.StrategyInfo{
		Name:     "advisory",
		Summary:  "pg_advisory_xact_lock on the row's number, before the read",
		How:      "A statement of its own locks a number made of table and key until the transaction ends; then a plain read and write. In the same statement as the read it would be useless: the statement's snapshot is older than the lock.",
		Prevents: append(noLostUpdate(), bench.WriteSkew, bench.Phantom), // the lock stands for all that is read
		LoserIs:  "made to wait for the lock, then shown the winner's row",
		Use:      "where what must be locked is no row (yet), or several rows at once under one name",
		Mistakes: "taking the lock in the same statement as the read; a session lock through a connection pool, where it outlives its user; two parts of a program using the same numbers; a writer that does not ask",
		Options: []bench.OptionDoc{
			{Name: "session", Doc: "pg_advisory_lock and pg_advisory_unlock around the transaction, instead of a lock that ends with it"},
			{Name: "leak", Doc: "with session: forget to unlock where a user is refused, as an early return would"},
			{Name: "inline", Doc: "take the lock in the same statement as the read, whose snapshot is then older than the lock"},
		},
		Variants: []string{"advisory:session"},
	}
}

// Bind writes the SQL.
func (Advisory) Bind(b bench.Binding) (bench.Discipline, error) {
	_, session := b.Options["session"]
	_, leak := b.Options["leak"]
	_, inline := b.Options["inline"]
	switch {
	case leak && !session, inline && session:
		return nil, bench.Hintf("write advisory:session:leak, or advisory:inline", "leak goes with session, and inline goes without")
	case session:
		return bindSessionLock(b, leak)
	case inline:
		return bindInline(b)
	}
	return bindRows(b, rowwise{before: func(t *bench.Table) *bench.Stmt {
		return &bench.Stmt{Name: "lock", SQL: lockCall("pg_advisory_xact_lock", t)}
	}})
}

// lockCall locks a number that no other table's key shares: the table's name, hashed, in the upper half.
func lockCall(function string, t *bench.Table) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(t.Name))
	return fmt.Sprintf("SELECT %s(%d + $1)", function, int64(h.Sum32()&0x7fffffff)<<32)
}

// sessionLocked takes the lock before BEGIN and gives it back after the transaction's end.
type sessionLocked struct {
	*rowwise
	lock, unlock *bench.Stmt
	leak         bool
}

// Leaks reports whether it forgets to unlock.
func (d *sessionLocked) Leaks() bool { return d.leak }

func bindSessionLock(b bench.Binding, leak bool) (bench.Discipline, error) {
	if b.Pooled {
		return nil, &bench.NotApplicable{
			Reason: "a session lock belongs to a server connection, and a transaction pooler hands that to somebody else after each transaction",
			Remedy: "use advisory, whose lock ends with the transaction, or connect to PostgreSQL itself",
		}
	}
	d, err := bindRows(b, rowwise{})
	if err != nil {
		return nil, err
	}
	t := b.Tables[0]
	return &sessionLocked{
		rowwise: d.(*rowwise),
		lock:    &bench.Stmt{Name: "lock", SQL: lockCall("pg_advisory_lock", t)},
		unlock:  &bench.Stmt{Name: "unlock", SQL: lockCall("pg_advisory_unlock", t), Columns: 1},
		leak:    leak,
	}, nil
}

func (d *sessionLocked) Statements() []*bench.Stmt {
	return append(append([]*bench.Stmt{d.lock}, d.rowwise.Statements()...), d.unlock)
}

func (d *sessionLocked) Open(c bench.Conn, think func()) bench.Session {
	return &lockedSession{Session: d.rowwise.Open(c, think), d: d, conn: c}
}

// lockedSession wraps a transaction in a session lock.
type lockedSession struct {
	bench.Session
	d    *sessionLocked
	conn bench.Conn
	held []int64 // keys locked, in order
	args [1]int64
}

func (s *lockedSession) Begin(r *bench.Request) error {
	keys := []int64{r.Key}
	if r.To > 0 && r.To != r.Key {
		keys = []int64{min(r.Key, r.To), max(r.Key, r.To)} // one order for all, against deadlocks
	}
	for _, key := range keys {
		s.args[0] = key
		if _, err := s.conn.Exec(s.d.lock, s.args[:]); err != nil {
			return err
		}
		s.held = append(s.held, key)
	}
	return s.Session.Begin(r)
}

// Commit gives the lock back only when the transaction is over; after a failed COMMIT Rollback does.
func (s *lockedSession) Commit() error {
	if err := s.Session.Commit(); err != nil {
		return err
	}
	return s.release()
}

func (s *lockedSession) Rollback() error {
	if err := s.Session.Rollback(); err != nil {
		return err
	}
	return s.release()
}

func (s *lockedSession) release() error {
	if s.d.leak && !s.Wrote() {
		s.held = s.held[:0]
		return nil
	}
	for len(s.held) > 0 {
		s.args[0] = s.held[len(s.held)-1]
		s.held = s.held[:len(s.held)-1]
		if _, err := s.conn.Exec(s.d.unlock, s.args[:]); err != nil {
			return err
		}
	}
	return nil
}
