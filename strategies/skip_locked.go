package strategies

import (
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
		Prevents: []bench.Anomaly{bench.LostUpdate, bench.Overbooking},
		LoserIs:  "given another row, or told that there is none",
		Use:      "for queues, batches, and wherever one free row is as good as another",
		Mistakes: "using it for a certain row; ORDER BY without LIMIT, which locks everything; IN (… LIMIT 1 SKIP LOCKED), which may claim many rows",
	}
}

// Bind writes the SQL.
func (SkipLocked) Bind(b bench.Binding) (bench.Discipline, error) {
	t := b.Tables[0]
	if t.Free == nil {
		return nil, &bench.NotApplicable{
			Reason: "SKIP LOCKED hands out any free row, and users of this scenario want a certain one: a busy row would look like one that is gone",
			Remedy: "use pessimistic:wait=nowait to be told at once that the row is busy",
		}
	}
	d, err := bindRows(b, rowwise{})
	if err != nil {
		return nil, err
	}
	row := d.(*rowwise)
	s := &anyRow{rowwise: row, lends: bench.LendsAny}
	if t.Batched {
		row.tables[t].claim.SQL += " FOR UPDATE SKIP LOCKED"
		s.lends = bench.LendsBatch
		return s, nil
	}
	row.tables[t].read.SQL = "SELECT " + t.Key + ", " + selectSQL(t, "")[len("SELECT "):] +
		" WHERE " + condSQL(t.Free) + " ORDER BY " + t.Key + " LIMIT 1 FOR UPDATE SKIP LOCKED"
	row.tables[t].read.Columns = len(t.Columns) + 1
	return s, nil
}

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
