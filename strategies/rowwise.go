package strategies

import (
	"fmt"
	"strings"

	"github.com/lockbench/lockbench/bench"
)

// schema is where every table stands.
const schema = "lockbench."

// rowwise is the discipline of reading a row, deciding, and writing it, in one transaction. A strategy fills in what sets it apart.
type rowwise struct {
	isolation string                           // as a person writes it; it goes into BEGIN unless it is the default
	settings  string                           // SET LOCAL commands that ride in the same round trip as BEGIN
	lock      string                           // clause after the SELECT
	versioned bool                             // the read returns the version, the write counts it up
	guard     guard                            // what the UPDATE's WHERE clause says besides the key
	before    func(t *bench.Table) *bench.Stmt // a statement of its own before the read, with the key as argument
	between   func(t *bench.Table) *bench.Stmt // re-reads the version before the write, for the application to compare

	begin, commit *bench.Stmt
	tables        map[*bench.Table]*tableSQL
	list          []*bench.Stmt
	deferWrite    bool
}

// guard is the predicate of the UPDATE that makes a lost race visible as 0 rows.
type guard int

const (
	byKey     guard = iota // no predicate
	byVersion              // AND version = …
	byValues               // AND every column still holds what was read
	byToken                // AND nobody with a later fencing token was there; see [bench.Table.Fence]
)

// tableSQL holds a table's statements.
type tableSQL struct {
	before, read, claim, between, write, insert *bench.Stmt
	written                                     []int // the columns that write sets, as places in [bench.Row.Values]
}

// bindRows writes the SQL.
func bindRows(b bench.Binding, d rowwise) (bench.Discipline, error) {
	if d.isolation == "" {
		d.isolation = readCommitted
	}
	d.begin = beginStmt(d.isolation, d.settings)
	d.commit = &bench.Stmt{Name: "commit", SQL: "COMMIT"}
	d.deferWrite = b.Pipeline && b.SingleWrite
	d.tables = map[*bench.Table]*tableSQL{}
	d.list = append(d.list, d.begin)
	for _, t := range b.Tables {
		q := &tableSQL{read: d.readStmt(t), write: &bench.Stmt{Name: "write", SQL: d.updateSQL(t)}, written: written(t)}
		if d.before != nil {
			q.before = d.before(t)
			d.list = append(d.list, q.before)
		}
		if t.Free != nil && t.Batched {
			q.read, q.claim = nil, d.claimStmt(t)
			d.list = append(d.list, q.claim)
		} else {
			d.list = append(d.list, q.read)
		}
		if d.between != nil {
			q.between = d.between(t)
			d.list = append(d.list, q.between)
		}
		d.list = append(d.list, q.write)
		if t.Inserts {
			q.insert = insertStmt(t)
			d.list = append(d.list, q.insert)
		}
		d.tables[t] = q
	}
	d.list = append(d.list, d.commit)
	return &d, nil
}

// readStmt reads one row, or the rows of a group: in the order of their keys, so that whoever locks them does so in one order.
func (d *rowwise) readStmt(t *bench.Table) *bench.Stmt {
	if t.Group == "" {
		return &bench.Stmt{Name: "read", SQL: selectSQL(t, d.stamp(t)) + " WHERE " + t.Key + " = $1" + d.lock, Columns: width(t, d.stamp(t))}
	}
	sql := "SELECT " + t.Key + ", " + strings.TrimPrefix(selectSQL(t, d.stamp(t)), "SELECT ") + " WHERE " + t.Group + " = $1 ORDER BY " + t.Key + d.lock
	return &bench.Stmt{Name: "read", SQL: sql, Columns: width(t, d.stamp(t)) + 1}
}

// insertStmt adds a row with its key and its columns. A key that is taken is no error, which would end the transaction: the statement
// waits for whoever is inserting it, and then affects no row.
func insertStmt(t *bench.Table) *bench.Stmt {
	columns, values := t.Key, "$1"
	for i, c := range t.Columns {
		columns += ", " + c
		values += fmt.Sprintf(", $%d", i+2)
	}
	return &bench.Stmt{Name: "insert", SQL: fmt.Sprintf("INSERT INTO %s%s (%s) VALUES (%s) ON CONFLICT (%s) DO NOTHING", schema, t.Name, columns, values, t.Key)}
}

// claimStmt reads the first free rows.
func (d *rowwise) claimStmt(t *bench.Table) *bench.Stmt {
	sql := "SELECT " + t.Key + ", " + strings.TrimPrefix(selectSQL(t, d.stamp(t)), "SELECT ") +
		" WHERE " + condSQL(t.Free) + " ORDER BY " + t.Key + " LIMIT $1" + d.lock
	return &bench.Stmt{Name: "claim", SQL: sql, Columns: width(t, d.stamp(t)) + 1}
}

// written are the columns that an operation may change: a row stays in its group.
func written(t *bench.Table) (places []int) {
	for i, c := range t.Columns {
		if c != t.Group {
			places = append(places, i)
		}
	}
	return places
}

const readCommitted = "read committed"

// beginStmt opens a transaction; settings ride along in one simple query, which costs no round trip.
func beginStmt(isolation, settings string) *bench.Stmt {
	sql := "BEGIN"
	if isolation != readCommitted {
		sql += " ISOLATION LEVEL " + strings.ToUpper(isolation)
	}
	return &bench.Stmt{Name: "begin", SQL: sql + settings}
}

// stamp is the column that tells whether somebody wrote since a row was read; "" if the strategy looks at none.
func (d *rowwise) stamp(t *bench.Table) string {
	switch {
	case d.guard == byToken:
		return t.Fence
	case d.versioned:
		return t.Version
	}
	return ""
}

func width(t *bench.Table, stamp string) int {
	if stamp != "" {
		return len(t.Columns) + 1
	}
	return len(t.Columns)
}

// selectSQL reads a table's columns, and the stamp last if there is one.
func selectSQL(t *bench.Table, stamp string) string {
	columns := strings.Join(t.Columns, ", ")
	if stamp != "" {
		columns += ", " + stamp
	}
	return "SELECT " + columns + " FROM " + schema + t.Name
}

// updateSQL writes every column as computed; $1 is the key, then the new values, then what the guard compares with.
func (d *rowwise) updateSQL(t *bench.Table) string {
	var set []string
	places := written(t)
	for i, place := range places {
		set = append(set, fmt.Sprintf("%s = $%d", t.Columns[place], i+2))
	}
	if d.versioned {
		set = append(set, fmt.Sprintf("%s = %s + 1", t.Version, t.Version))
	}
	next := len(places) + 2
	if d.guard == byToken {
		set = append(set, fmt.Sprintf("%s = $%d", t.Fence, next+1))
	}
	sql := "UPDATE " + schema + t.Name + " SET " + strings.Join(set, ", ") + " WHERE " + t.Key + " = $1"
	switch d.guard {
	case byKey:
	case byVersion:
		sql += fmt.Sprintf(" AND %s = $%d", t.Version, next)
	case byValues:
		for i, c := range t.Columns {
			sql += fmt.Sprintf(" AND %s IS NOT DISTINCT FROM $%d", c, next+i)
		}
	case byToken:
		sql += fmt.Sprintf(" AND %[1]s = $%[2]d AND %[1]s <= $%[3]d", t.Fence, next, next+1)
	}
	return sql
}

func (d *rowwise) Lends() bench.Lends {
	return bench.LendsRow | bench.LendsGroup | bench.LendsBatch | bench.LendsInsert | bench.LendsUndo
}
func (d *rowwise) Statements() []*bench.Stmt { return d.list }
func (d *rowwise) Isolation() string         { return d.isolation }

func (d *rowwise) Open(c bench.Conn, think func()) bench.Session {
	return &rowSession{session: session{conn: c, think: think, begin: d.begin}, d: d}
}

// session is what every session has: a connection and a transaction on it.
type session struct {
	refuse // strategies lend by overriding
	conn   bench.Conn
	think  func()
	begin  *bench.Stmt
	wrote  bool
	args   [2*bench.MaxColumns + 2]int64
	rows   bench.Rows
}

func (s *session) Think()      { s.think() }
func (s *session) Wrote() bool { return s.wrote }

func (s *session) Begin(*bench.Request) error {
	s.wrote = false
	return s.conn.Begin(s.begin)
}

func (s *session) Commit() error   { return s.conn.Commit() }
func (s *session) Rollback() error { return s.conn.Rollback() }

// one runs a statement that reads at most one row, whose columns are the table's and perhaps the version.
func (s *session) one(q *bench.Stmt, t *bench.Table, key int64) (bench.Row, bool, error) {
	s.args[0] = key
	if err := s.conn.Query(q, s.args[:1], &s.rows); err != nil {
		return bench.Row{}, false, err
	}
	if s.rows.Len() == 0 {
		return bench.Row{}, false, nil
	}
	row := bench.Row{Key: key}
	got := s.rows.At(0)
	n := copy(row.Values[:], got[:len(t.Columns)])
	if len(got) > n {
		row.Version = got[n]
	}
	return row, true, nil
}

// rowSession is rowwise at work.
type rowSession struct {
	session
	d       *rowwise
	group   []bench.Row // as last listed
	pending *bench.Stmt // the write that rides with COMMIT
	nargs   int
	request *bench.Request
	hold    *bench.Hold // the lock outside the database; nil if there is none
}

func (s *rowSession) Begin(r *bench.Request) error {
	s.pending, s.request = nil, r
	return s.session.Begin(r)
}

func (s *rowSession) Get(t *bench.Table, key int64) (bench.Row, bool, error) {
	q := s.d.tables[t]
	if err := s.lockFirst(q, key); err != nil {
		return bench.Row{}, false, err
	}
	return s.one(q.read, t, key)
}

func (s *rowSession) List(t *bench.Table, group int64) ([]bench.Row, error) {
	q := s.d.tables[t]
	if err := s.lockFirst(q, group); err != nil {
		return nil, err
	}
	return s.several(q.read, t, group)
}

// Claim reads the first free rows. What is locked beforehand is the queue as a whole.
func (s *rowSession) Claim(t *bench.Table, n int64) ([]bench.Row, error) {
	q := s.d.tables[t]
	if err := s.lockFirst(q, 0); err != nil {
		return nil, err
	}
	return s.several(q.claim, t, n)
}

// lockFirst runs the statement that goes before a read, where the strategy has one.
func (s *rowSession) lockFirst(q *tableSQL, key int64) error {
	if q.before == nil {
		return nil
	}
	s.args[0] = key
	_, err := s.conn.Exec(q.before, s.args[:1])
	return err
}

// several runs a statement that reads rows with their keys; arg is its one parameter.
func (s *rowSession) several(q *bench.Stmt, t *bench.Table, arg int64) ([]bench.Row, error) {
	s.args[0] = arg
	if err := s.conn.Query(q, s.args[:1], &s.rows); err != nil {
		return nil, err
	}
	s.group = s.group[:0]
	for i := range s.rows.Len() {
		got := s.rows.At(i)
		row := bench.Row{Key: got[0]}
		n := copy(row.Values[:], got[1:1+len(t.Columns)])
		if len(got) > n+1 {
			row.Version = got[n+1]
		}
		s.group = append(s.group, row)
	}
	return s.group, nil
}

func (s *rowSession) Put(t *bench.Table, old, row bench.Row) error {
	q := s.d.tables[t]
	if err := s.hold.Known(); err != nil {
		return err
	}
	if q.between != nil {
		if err := s.compare(q.between, old); err != nil {
			return err
		}
	}
	s.args[0] = row.Key
	n := 1
	for _, place := range q.written {
		s.args[n] = row.Values[place]
		n++
	}
	switch s.d.guard {
	case byKey:
	case byVersion:
		s.args[n] = old.Version
		n++
	case byValues:
		n += copy(s.args[n:], old.Values[:len(t.Columns)])
	case byToken:
		s.args[n], s.args[n+1] = old.Version, s.hold.Token(s.request, row.Key)
		n += 2
	}
	s.wrote = true
	if s.d.deferWrite {
		s.pending, s.nargs = q.write, n
		return nil
	}
	affected, err := s.conn.Exec(q.write, s.args[:n])
	return s.d.lostUnless(affected, err)
}

// compare is how an application compares versions by itself.
func (s *rowSession) compare(q *bench.Stmt, old bench.Row) error {
	s.args[0] = old.Key
	if err := s.conn.Query(q, s.args[:1], &s.rows); err != nil {
		return err
	}
	if s.rows.Len() == 0 || s.rows.At(0)[0] != old.Version {
		return bench.Lost(bench.Version)
	}
	return nil
}

func (s *rowSession) Commit() error {
	if s.pending == nil {
		return s.session.Commit()
	}
	q := s.pending
	s.pending = nil
	return s.d.lostUnless(s.conn.Last(q, s.args[:s.nargs]))
}

func (s *rowSession) Insert(t *bench.Table, row bench.Row) (bool, error) {
	return s.insert(s.d.tables[t].insert, t, row)
}

// insert runs an INSERT; it does so at once also where the last write rides with COMMIT, since more may follow.
func (s *session) insert(q *bench.Stmt, t *bench.Table, row bench.Row) (bool, error) {
	s.args[0] = row.Key
	n := 1 + copy(s.args[1:], row.Values[:len(t.Columns)])
	affected, err := s.conn.Exec(q, s.args[:n])
	s.wrote = s.wrote || affected > 0
	return affected > 0, err
}

// lostUnless makes a write that matched no row a lost race.
func (d *rowwise) lostUnless(affected int64, err error) error {
	switch {
	case err != nil || affected > 0:
		return err
	case d.guard == byToken:
		return bench.Lost(bench.Fenced)
	}
	return bench.Lost(bench.Version)
}

// refuse answers for everything a strategy does not lend. The engine checks before the run, so only a scenario that asks for
// more than it was lent meets it.
type refuse struct{}

type notLent struct{ what string }

func (e notLent) Error() string { return "the strategy does not lend " + e.what }

func (refuse) Get(*bench.Table, int64) (bench.Row, bool, error) {
	return bench.Row{}, false, notLent{"Get"}
}
func (refuse) List(*bench.Table, int64) ([]bench.Row, error) {
	return nil, notLent{"List"}
}
func (refuse) Claim(*bench.Table, int64) ([]bench.Row, error) {
	return nil, notLent{"Claim"}
}
func (refuse) Grab(*bench.Table, int64, int64) ([]int64, error) {
	return nil, notLent{"Grab"}
}
func (refuse) Insert(*bench.Table, bench.Row) (bool, error) { return false, notLent{"Insert"} }
func (refuse) Put(*bench.Table, bench.Row, bench.Row) error { return notLent{"Put"} }
func (refuse) Apply(*bench.Change, int64, ...int64) (bool, error) {
	return false, notLent{"Apply"}
}
func (refuse) Peek(*bench.Table, int64) (bench.Row, bool, error) {
	return bench.Row{}, false, notLent{"Peek"}
}
func (refuse) Take(*bench.Table) (bench.Row, bool, error) { return bench.Row{}, false, notLent{"Take"} }
