package report

import (
	"fmt"
	"io"

	"github.com/lockbench/lockbench/bench"
)

// ticks is how many percentiles are listed between one half of what remains and the next, as HdrHistogram's own tools do.
const ticks = 5

// writeHGRM writes the latencies of confirmed operations as HdrHistogram's percentile text, in ms, over all trials: a block a cell,
// each under a comment that names it. A file of one block can be given to HdrHistogram's plotter as it is.
func writeHGRM(w io.Writer, r *bench.Report, _ Options) error {
	first := true
	for i := range r.Cells {
		c := &r.Cells[i]
		h, err := distribution(c, bench.Confirmed)
		if err != nil {
			return err
		}
		if h == nil {
			continue
		}
		if !first {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		first = false
		if _, err := fmt.Fprintf(w, "#[%s: latency of %s, ms]\n", printable(cellName(c)),
			plural(h.TotalCount(), "confirmed operation", "confirmed operations")); err != nil {
			return err
		}
		if _, err := h.PercentilesPrint(w, ticks, 1000); err != nil {
			return err
		}
	}
	if first {
		return bench.Hintf("take a report that lockbench run saved with --output FILE.json", "this report holds no histograms of confirmed operations")
	}
	return nil
}

// cellName tells a cell from all others of its report.
func cellName(c *bench.Cell) string {
	name := c.Scenario + ", " + c.Strategy
	if c.Race != "" {
		name = c.Race + ", " + name
	}
	return name
}
