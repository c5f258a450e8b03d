package strategies

import (
	"fmt"
	"slices"

	"github.com/lockbench/lockbench/bench"
)

// SkipLocked takes any free row that nobody else is looking at.
type SkipLocked struct{}

// Info describes the strategy.
func (SkipLocked) Info() bench.StrategyInfo {
	return bench.StrategyInfo{
		Name:     "skip-locked",
		Summary:  "any free row: FOR UPDATE SKIP LOCKED",
		How:      "The read asks for the first free row that is not locked and locks it. Nobody waits: who comes next gets the next row. The result shrinks by what others hold, so \"none\" may mean \"none that is not being sold right now\".",
		Prevents: []bench.Anomaly{bench.LostUpdate, bench.Overbooking, bench.OverLimit},
		LoserIs:  "given another row, or told that there is none",
		Use:      "for queues, batches, and wherever one free row is as good as another",
		Mistakes: "using it for a certain row; ORDER BY without LIMIT, which locks everything; IN (… LIMIT n SKIP LOCKED), which claims more than n where the plan carries the subquery out again for each row",
		Options: []bench.OptionDoc{
			{Name: "claim", Values: []string{"select", "equals", "cte", "in"}, Doc: "how a batch is claimed: SELECT, then an UPDATE for each row (default); UPDATE … WHERE id = (SELECT … LIMIT 1), once for each row; UPDATE … FROM a MATERIALIZED CTE; or UPDATE … WHERE id IN (SELECT … LIMIT n), which no plan keeps from claiming more than n"},
			{Name: "plan", Values: []string{"auto", "nested-loop"}, Doc: "keep the server to nested loops, which it also takes by itself where its statistics say that next to nothing is free (default auto)"},
		},
		Variants: []string{"skip-locked:claim=equals", "skip-locked:claim=cte"},
	}
}

// nestedLoops are the settings under which the planner has no other way to join, nor a way to keep what a subquery found.
const nestedLoops = "; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_hashagg = off" +
	"; SET LOCAL enable_sort = off; SET LOCAL enable_material = off"

// Bind writes the SQL.
func (SkipLocked) Bind(b bench.Binding) (bench.Discipline, error) {
	t := b.Tables[0]
	if t.Free == nil {
		return nil, &bench.NotApplicable{
			Reason: "SKIP LOCKED hands out any free row, and users of this scenario want a certain one: a busy row would look like one that is gone",
			Remedy: "use pessimistic:wait=nowait to be told at once that the row is busy",
		}
	}
	form, how := b.Options["claim"], rowwise{}
	if b.Options["plan"] == "nested-loop" {
		how.settings = nestedLoops
	}
	if !t.Batched && form != "" && form != "select" {
		return nil, &bench.NotApplicable{Reason: "claim says how a batch is claimed, and here a user takes one row", Remedy: "use skip-locked, or --scenario queue"}
	}
	d, err := bindRows(b, how)
	if err != nil {
		return nil, err
	}
	row := d.(*rowwise)
	switch {
	case t.Batched && form != "" && form != "select":
		return &grabbing{rowwise: row, form: form, grab: grabStmt(t, form)}, nil
	case t.Batched:
		row.tables[t].claim.SQL += skipLocked
		return &anyRow{rowwise: row, lends: bench.LendsBatch}, nil
	}
	row.tables[t].read.SQL = "SELECT " + t.Key + ", " + selectSQL(t, "")[len("SELECT "):] +
		" WHERE " + condSQL(t.Free) + " ORDER BY " + t.Key + " LIMIT 1" + skipLocked
	row.tables[t].read.Columns = len(t.Columns) + 1
	return &anyRow{rowwise: row, lends: bench.LendsAny}, nil
}

const skipLocked = " FOR UPDATE SKIP LOCKED"

// anyRow is the discipline of skip-locked.
type anyRow struct {
	*rowwise
	lends bench.Lends
}

func (d *anyRow) Lends() bench.Lends { return d.lends }

func (d *anyRow) Open(c bench.Conn, think func()) bench.Session {
	return &anySession{rowSession{session: session{conn: c, think: think, begin: d.begin}, d: d.rowwise}}
}

type anySession struct{ rowSession }

// Take reads and locks the first free row that nobody holds.
func (s *anySession) Take(t *bench.Table) (bench.Row, bool, error) {
	if err := s.conn.Query(s.d.tables[t].read, nil, &s.rows); err != nil || s.rows.Len() == 0 {
		return bench.Row{}, false, err
	}
	got := s.rows.At(0)
	row := bench.Row{Key: got[0]}
	copy(row.Values[:], got[1:])
	return row, true, nil
}

// grabStmt finds free rows and claims them; $1 is who claims, and $2, but for equals, how many at the most.
func grabStmt(t *bench.Table, form string) *bench.Stmt {
	free := func(limit string) string {
		return fmt.Sprintf("SELECT %[1]s FROM %[2]s%[3]s WHERE %[4]s ORDER BY %[1]s LIMIT %[5]s%[6]s", t.Key, schema, t.Name, condSQL(t.Free), limit, skipLocked)
	}
	claim := fmt.Sprintf("UPDATE %s%s SET %s = $1", schema, t.Name, t.Free.Column)
	sql := ""
	switch form {
	case "equals":
		sql = fmt.Sprintf("%s WHERE %s = (%s) RETURNING %[2]s", claim, t.Key, free("1"))
	case "cte":
		sql = fmt.Sprintf("WITH picked AS MATERIALIZED (%[1]s) %[2]s FROM picked WHERE %[3]s.%[4]s = picked.%[4]s RETURNING %[3]s.%[4]s", free("$2"), claim, t.Name, t.Key)
	case "in":
		sql = fmt.Sprintf("%s WHERE %s IN (%s) RETURNING %[2]s", claim, t.Key, free("$2"))
	}
	return &bench.Stmt{Name: "claim", SQL: sql, Columns: 1}
}

// grabbing claims a batch without reading it first.
type grabbing struct {
	*rowwise
	form string
	grab *bench.Stmt
}

func (d *grabbing) Lends() bench.Lends        { return bench.LendsGrab }
func (d *grabbing) Statements() []*bench.Stmt { return []*bench.Stmt{d.begin, d.grab, d.commit} }

// Prevents leaves out what IN does not keep: its LIMIT bounds one execution of the subquery, of which a plan may have several.
func (d *grabbing) Prevents() []bench.Anomaly {
	all := SkipLocked{}.Info().Prevents
	if d.form != "in" {
		return all
	}
	return slices.DeleteFunc(all, func(a bench.Anomaly) bool { return a == bench.OverLimit })
}

// Explain is of the claim.
func (d *grabbing) Explain(r *bench.Request) (*bench.Stmt, []int64) {
	args := []int64{r.User, r.Quantity}
	if d.form == "equals" {
		args = args[:1]
	}
	return d.grab, args
}

func (d *grabbing) Open(c bench.Conn, think func()) bench.Session {
	return &grabSession{session: session{conn: c, think: think, begin: d.begin}, d: d}
}

type grabSession struct {
	session
	d    *grabbing
	keys []int64 // as last grabbed
}

// Grab claims a batch in one statement, or row by row where a statement can claim one only.
func (s *grabSession) Grab(_ *bench.Table, n, by int64) ([]int64, error) {
	s.args[0], s.args[1] = by, n
	s.keys = s.keys[:0]
	if s.d.form != "equals" {
		err := s.once(2)
		return s.keys, err
	}
	for range n {
		before := len(s.keys)
		if err := s.once(1); err != nil || len(s.keys) == before {
			return s.keys, err
		}
	}
	return s.keys, nil
}

// once runs the statement and keeps what it claimed.
func (s *grabSession) once(args int) error {
	if err := s.conn.Query(s.d.grab, s.args[:args], &s.rows); err != nil {
		return err
	}
	s.keys = append(s.keys, s.rows.Data...)
	s.wrote = s.wrote || s.rows.Len() > 0
	return nil
}
