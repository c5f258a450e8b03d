package strategies

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockbench/lockbench/bench"
)

// Atomic leaves rule and write to one guarded statement.
type Atomic struct{}

// Info describes the strategy.
func (Atomic) Info() bench.StrategyInfo {
	return bench.StrategyInfo{
		Name:     "atomic",
		Summary:  "one guarded UPDATE: the rule stands in its WHERE clause",
		How:      "A single statement checks the rule and writes, relative to what the row holds when its lock is had. No transaction stays open; a plain read afterwards tells why 0 rows matched. The time of --think is spent before the statement, without a connection: there is no gap between read and write to spend it in.",
		Prevents: noLostUpdate(),
		LoserIs:  "made to wait for the winner's COMMIT, then judged on the fresh row",
		Use:      "wherever the rule fits into the WHERE clause of one statement: it is the cheapest that is right",
		Options:  []bench.OptionDoc{{Name: "bump", Doc: "count the version up as well, for optimistic writers beside it"}},
		Mistakes: "a guard that looks at another row, or in a subselect, which is not checked again after a wait; writing an absolute value computed earlier",
	}
}

// Bind writes the SQL.
func (Atomic) Bind(b bench.Binding) (bench.Discipline, error) {
	if !slices.ContainsFunc(b.Changes, alone) {
		return nil, &bench.NotApplicable{Reason: "the rule does not fit into the WHERE clause of one statement", Remedy: "use pessimistic or serializable"}
	}
	d := bindChanges(b, alone)
	if _, bump := b.Options["bump"]; bump {
		for c, q := range d.changes {
			q.SQL = strings.Replace(q.SQL, " WHERE ", fmt.Sprintf(", %[1]s = %[1]s + 1 WHERE ", c.Table.Version), 1)
		}
	}
	return d, nil
}

// alone reports whether an operation of one transaction makes the change.
func alone(c *bench.Change) bool { return !c.Saga }

// bindChanges writes the SQL of those changes that are wanted.
func bindChanges(b bench.Binding, wanted func(*bench.Change) bool) *guarded {
	d := &guarded{changes: map[*bench.Change]*bench.Stmt{}, peeks: map[*bench.Table]*bench.Stmt{}, inserts: map[*bench.Table]*bench.Stmt{}}
	if !b.SingleWrite { // several changes hold together or not at all
		d.begin = beginStmt(readCommitted, "")
		d.list = append(d.list, d.begin)
	}
	for _, t := range b.Tables {
		if t.Inserts {
			d.inserts[t] = insertStmt(t)
			d.list = append(d.list, d.inserts[t])
		}
	}
	for _, c := range b.Changes {
		if !wanted(c) {
			continue
		}
		q := &bench.Stmt{Name: "change", SQL: changeSQL(c)}
		d.changes[c] = q
		d.list = append(d.list, q)
		if d.peeks[c.Table] == nil {
			p := &bench.Stmt{Name: "why not", SQL: selectSQL(c.Table, "") + " WHERE " + c.Table.Key + " = $1", Columns: len(c.Table.Columns)}
			d.peeks[c.Table] = p
			d.list = append(d.list, p)
		}
	}
	if d.begin != nil {
		d.list = append(d.list, &bench.Stmt{Name: "commit", SQL: "COMMIT"})
	}
	return d
}

// changeSQL writes a guarded change; $1 is the key, $2 the first operand.
func changeSQL(c *bench.Change) string {
	var set []string
	for _, s := range c.Steps {
		value := fmt.Sprintf("$%d", s.Operand+2)
		switch s.Action {
		case bench.Set:
		case bench.Add:
			value = s.Column + " + " + value
		case bench.Subtract:
			value = s.Column + " - " + value
		}
		set = append(set, s.Column+" = "+value)
	}
	return fmt.Sprintf("UPDATE %s%s SET %s WHERE %s = $1 AND %s", schema, c.Table.Name, strings.Join(set, ", "), c.Table.Key, condSQL(&c.Guard))
}

// condSQL writes a condition; alternatives stand in parentheses.
func condSQL(c *bench.Cond) string {
	var alternatives []string
	for ; c != nil; c = c.Or {
		alternatives = append(alternatives, relationSQL(c))
	}
	if len(alternatives) == 1 {
		return alternatives[0]
	}
	return "(" + strings.Join(alternatives, " OR ") + ")"
}

func relationSQL(c *bench.Cond) string {
	switch c.Relation {
	case bench.Equal:
		return fmt.Sprintf("%s = $%d", c.Column, c.Operand+2)
	case bench.AtLeast:
		return fmt.Sprintf("%s >= $%d", c.Column, c.Operand+2)
	case bench.Always:
		return "true"
	case bench.IsNull:
	}
	return c.Column + " IS NULL"
}

// guarded is the discipline of atomic. A single change needs no transaction block: its statement commits by itself.
type guarded struct {
	begin   *bench.Stmt // nil: autocommit
	changes map[*bench.Change]*bench.Stmt
	peeks   map[*bench.Table]*bench.Stmt
	inserts map[*bench.Table]*bench.Stmt
	list    []*bench.Stmt
}

func (d *guarded) Lends() bench.Lends        { return bench.LendsChange | bench.LendsInsert | bench.LendsUndo }
func (d *guarded) Statements() []*bench.Stmt { return d.list }
func (d *guarded) Isolation() string         { return readCommitted }

func (d *guarded) Open(c bench.Conn, think func()) bench.Session {
	return &guardedSession{session: session{conn: c, think: think, begin: d.begin}, d: d}
}

type guardedSession struct {
	session
	d *guarded
}

func (s *guardedSession) Begin(r *bench.Request) error {
	if s.begin != nil {
		return s.session.Begin(r)
	}
	s.wrote = false
	return nil
}

func (s *guardedSession) Commit() error {
	if s.begin != nil {
		return s.session.Commit()
	}
	return nil
}

func (s *guardedSession) Apply(c *bench.Change, key int64, operands ...int64) (bool, error) {
	s.args[0] = key
	n := 1 + copy(s.args[1:], operands)
	affected, err := s.conn.Exec(s.d.changes[c], s.args[:n])
	s.wrote = s.wrote || affected > 0
	return affected > 0, err
}

func (s *guardedSession) Insert(t *bench.Table, row bench.Row) (bool, error) {
	return s.insert(s.d.inserts[t], t, row)
}

func (s *guardedSession) Peek(t *bench.Table, key int64) (bench.Row, bool, error) {
	return s.one(s.d.peeks[t], t, key)
}
