package strategies

import (
	"strings"

	"github.com/lockbench/lockbench/bench"
)

// lockedTooLate is the advisory lock in the statement that reads: by the time it is had, the statement's snapshot is old.
type lockedTooLate struct{ *rowwise }

func bindInline(b bench.Binding) (bench.Discipline, error) {
	d, err := bindRows(b, rowwise{})
	if err != nil {
		return nil, err
	}
	for t, q := range d.(*rowwise).tables {
		if q.read == nil {
			return nil, &bench.NotApplicable{Reason: "any row will do, so there is no number to lock in the statement that finds one", Remedy: "use advisory"}
		}
		lock := strings.TrimPrefix(lockCall("pg_advisory_xact_lock", t), "SELECT ")
		q.read.SQL = strings.Replace(q.read.SQL, " FROM ", ", "+lock+" FROM ", 1)
		q.read.Columns++
	}
	return lockedTooLate{d.(*rowwise)}, nil
}

// Prevents is nothing.
func (lockedTooLate) Prevents() []bench.Anomaly { return nil }
