package reference

import (
	"fmt"
	"strings"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/strategies"
)

// shown says where an anomaly is put to the test.
type shown struct {
	anomaly  bench.Anomaly
	as       string // its column, where its name does not say it
	scenario string
	options  bench.Options
}

// exhibits are the columns of the matrix.
var exhibits = []shown{
	{bench.LostUpdate, "", "inventory", nil},
	{bench.Overbooking, "", "seats", nil},
	{bench.WriteSkew, "", "on-call", nil},
	{bench.Phantom, "", "seats", bench.Options{"count-capacity": "on"}},
	{bench.DoubleCharge, "", "payment", nil},
	{bench.LostUpdate, "lost update beside others who ignore the rule", "mixed", nil},
}

// Matrix is the table of strategies and anomalies, as measured, for the README.
func Matrix(m *Measured) string {
	b := &page{}
	rows := [][]string{{""}}
	for _, e := range exhibits {
		as := e.as
		if as == "" {
			as = string(e.anomaly)
		}
		rows[0] = append(rows[0], as)
	}
	for _, st := range strategies.All() {
		row := []string{"`" + st.Info().Name + "`"}
		raced := false
		for _, e := range exhibits {
			c := m.Find(e.scenario, e.options, st.Info().Name)
			raced = raced || c != nil && c.NA == "" && c.Skipped == ""
			row = append(row, e.cell(c))
		}
		if raced {
			rows = append(rows, row)
		}
	}
	b.table(rows)
	b.p("%s", "Bold: seen, so often in the worst trial. no: users met on the rows, and it did not happen. (no): nor did it, but the strategy does not claim to prevent it. –: the strategy cannot do this operation. Double charges are what idempotency keys are for (`:idempotency=on`), whatever the locking.")
	b.p("%s", strings.TrimSuffix(recorded(m), " `make measured` records it anew.")+" The pages in [docs](docs/README.md) have every scenario; `make measured` records them anew.")
	return b.String()
}

func (e *shown) cell(c *Cell) string {
	switch {
	case c == nil || c.NA != "":
		return "–"
	case c.Skipped != "":
		return "not measured"
	case c.Found[e.anomaly] > 0:
		return fmt.Sprintf("**%d**", c.Found[e.anomaly])
	case c.Verdict == bench.Sound:
		return "no"
	}
	return "(no)"
}
