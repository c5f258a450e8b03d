package report

import (
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/lockbench/lockbench/bench"
)

// distribution merges a cell's latencies of one outcome over its trials, in µs. It is nil where the report holds none.
func distribution(c *bench.Cell, outcome bench.Outcome) (*hdrhistogram.Histogram, error) {
	var all *hdrhistogram.Histogram
	for i := range c.Trials {
		text, kept := c.Trials[i].Histograms[outcome.String()]
		if !kept {
			continue
		}
		h, err := hdrhistogram.Decode([]byte(text))
		if err != nil {
			return nil, bench.Hintf("run it again; other formats do without histograms",
				"the histogram of %s, trial %d, cannot be read: %v", c.Strategy, c.Trials[i].Number, err)
		}
		if all == nil {
			all = hdrhistogram.New(1, int64(time.Hour/time.Microsecond), 3)
		}
		if dropped := all.Merge(h); dropped > 0 {
			return nil, fmt.Errorf("the histogram of %s, trial %d, holds %d latencies beyond one hour", c.Strategy, c.Trials[i].Number, dropped)
		}
	}
	return all, nil
}
