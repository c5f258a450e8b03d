package strategies

import "github.com/lockbench/lockbench/bench"

// lostLock reads and locks in one transaction and writes in the next. It is what becomes of a lock in a repository method that is a
// transaction of its own: gone before the write.
type lostLock struct{ *rowwise }

func newLostLock(d *rowwise) *lostLock {
	var list []*bench.Stmt
	for _, q := range d.list {
		if q.Name == "write" {
			list = append(list, d.commit, d.begin)
		}
		list = append(list, q)
	}
	d.list = list
	return &lostLock{d}
}

// Prevents is nothing.
func (*lostLock) Prevents() []bench.Anomaly { return nil }

func (d *lostLock) Open(c bench.Conn, think func()) bench.Session {
	return &lostSession{rowSession{session: session{conn: c, think: think, begin: d.begin}, d: d.rowwise}}
}

type lostSession struct{ rowSession }

// Put ends the transaction that holds the lock, and writes in another.
func (s *lostSession) Put(t *bench.Table, old, row bench.Row) error {
	if err := s.conn.Commit(); err != nil {
		return err
	}
	if err := s.conn.Begin(s.begin); err != nil {
		return err
	}
	return s.rowSession.Put(t, old, row)
}
