package conformance

import (
	"testing"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/bench/postgres/pgtest"
)

// TestDefaultsOfTheDatabaseChangeNothing: a database whose default isolation level is another still races what the strategy says.
func TestDefaultsOfTheDatabaseChangeNothing(t *testing.T) {
	dsn := pgtest.DSN(t)
	pgtest.Exec(t, dsn, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = serializable', current_database()); END $$`)
	cells := pgtest.Run(t, compile(t, plan(2, "none", "atomic"), bench.Connecting{}), pgtest.Store(t, dsn)).Cells
	for _, c := range cells {
		if n := c.Contention["serialization"]; n != 0 {
			t.Errorf("%s had %d serialization failures at read committed", c.Strategy, n)
		}
	}
}
