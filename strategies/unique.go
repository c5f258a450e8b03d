package strategies

import (
	"fmt"

	"github.com/lockbench/lockbench/bench"
)

// Unique makes an INSERT under a unique constraint the claim.
type Unique struct{}

// Info describes the strategy.
func (Unique) Info() bench.StrategyInfo {
	return bench.StrategyInfo{
		Name:     "unique",
		Summary:  "INSERT under a unique constraint is the claim",
		How:      "The application looks for a booking of the seat and inserts its own if there is none. Of two who insert, the constraint lets one through; the other gets SQLSTATE 23505, which is a lost race: it looks again and finds the winner's booking.",
		Prevents: noLostUpdate(),
		LoserIs:  "made to wait for the winner's COMMIT, then given SQLSTATE 23505",
		Use:      "where claiming makes a row: bookings, idempotency keys, usernames",
		Mistakes: "taking 23505 for a fault of the system; checking first and trusting the check without the constraint; going on in the same transaction, which the error has ended",
	}
}

// Bind writes the SQL.
func (Unique) Bind(b bench.Binding) (bench.Discipline, error) {
	d := &rowwise{isolation: readCommitted, tables: map[*bench.Table]*tableSQL{}}
	d.begin, d.commit = beginStmt(readCommitted, ""), &bench.Stmt{Name: "commit", SQL: "COMMIT"}
	d.list = append(d.list, d.begin)
	for _, t := range b.Tables {
		if t.Claim == nil {
			return nil, &bench.NotApplicable{
				Reason: fmt.Sprintf("a claim to %s makes no row of its own that a unique constraint could guard", t.Name),
				Remedy: "use atomic: the rule fits into one guarded UPDATE",
			}
		}
		q := &tableSQL{
			read:  &bench.Stmt{Name: "read", SQL: claimedSQL(t) + " WHERE t." + t.Key + " = $1", Columns: len(t.Columns)},
			write: &bench.Stmt{Name: "claim", SQL: fmt.Sprintf("INSERT INTO %s%s (%s, %s) VALUES ($1, $2)", schema, t.Claim.Table, t.Claim.Key, t.Claim.Column)},
		}
		d.tables[t] = q
		d.list = append(d.list, q.read, q.write)
	}
	d.list = append(d.list, d.commit)
	d.deferWrite = b.Pipeline && b.SingleWrite
	return &claims{rowwise: d}, nil
}

// claimedSQL reads a table with the claimed column taken from the claims.
func claimedSQL(t *bench.Table) string {
	sql := "SELECT "
	for i, c := range t.Columns {
		if i > 0 {
			sql += ", "
		}
		if c == t.Claim.Value {
			sql += "c." + t.Claim.Column
		} else {
			sql += "t." + c
		}
	}
	return sql + fmt.Sprintf(" FROM %s%s t LEFT JOIN %s%s c ON c.%s = t.%s", schema, t.Name, schema, t.Claim.Table, t.Claim.Key, t.Key)
}

// claims is the discipline of unique.
type claims struct{ *rowwise }

// UniqueIsContention is true: the constraint is how a race is lost.
func (*claims) UniqueIsContention() bool { return true }

// Lends leaves groups out: a claim is to one row.
func (*claims) Lends() bench.Lends { return bench.LendsRow }

func (d *claims) Open(c bench.Conn, think func()) bench.Session {
	return &claimSession{rowSession{session: session{conn: c, think: think, begin: d.begin}, d: d.rowwise}}
}

type claimSession struct{ rowSession }

// Put inserts the claim that the row's new value stands for.
func (s *claimSession) Put(t *bench.Table, _, row bench.Row) error {
	s.args[0], s.args[1] = row.Key, row.Values[t.Index(t.Claim.Value)]
	s.wrote = true
	if s.d.deferWrite {
		s.pending, s.nargs = s.d.tables[t].write, 2
		return nil
	}
	affected, err := s.conn.Exec(s.d.tables[t].write, s.args[:2])
	return s.d.lostUnless(affected, err)
}
