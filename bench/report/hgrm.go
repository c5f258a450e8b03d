package report

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"github.com/lockbench/lockbench/bench"
)

// ticks is how many percentiles are listed between one half of what remains and the next, as HdrHistogram's own tools do.
const ticks = 5

// writeHGRM writes the latencies of confirmed operations as HdrHistogram's percentile text, in ms, over all trials: a block a cell,
// each under a comment that names it. A file of one block can be given to HdrHistogram's plotter as it is.
func writeHGRM(w io.Writer, r *bench.Report, _ Options) error {
	blocks, err := HGRM(r)
	for i, b := range blocks {
		if i > 0 && err == nil {
			_, err = fmt.Fprintln(w)
		}
		if err == nil {
			_, err = w.Write(b.Text)
		}
	}
	return err
}

// Block is the latency distribution of one cell as HdrHistogram's percentile text.
type Block struct {
	Name string // a word that tells the cell from others, fit for a file's name
	Text []byte
}

// HGRM returns the distribution of each cell that has confirmed anything.
func HGRM(r *bench.Report) ([]Block, error) {
	var all []Block
	for i := range r.Cells {
		c := &r.Cells[i]
		h, err := distribution(c, bench.Confirmed)
		if err != nil {
			return nil, err
		}
		if h == nil {
			continue
		}
		var b bytes.Buffer
		fmt.Fprintf(&b, "#[%s: latency of %s, ms]\n", printable(cellName(c)), plural(h.TotalCount(), "confirmed operation", "confirmed operations"))
		if _, err := h.PercentilesPrint(&b, ticks, 1000); err != nil {
			return nil, err
		}
		name := fileWord(cellName(c))
		if slices.ContainsFunc(all, func(b Block) bool { return b.Name == name }) {
			name += fmt.Sprintf("-%d", i+1)
		}
		all = append(all, Block{name, b.Bytes()})
	}
	if len(all) == 0 {
		return nil, bench.Hintf("take a report that lockbench run saved with --output FILE.json", "this report holds no histograms of confirmed operations")
	}
	return all, nil
}

// fileWord keeps letters and digits, as in "seats-optimistic-retries-3".
func fileWord(name string) string {
	words := strings.FieldsFunc(name, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '.' && r != '_' })
	return strings.Join(words, "-")
}

// cellName tells a cell from all others of its report.
func cellName(c *bench.Cell) string {
	name := c.Scenario + ", " + c.Strategy
	if c.Race != "" {
		name = c.Race + ", " + name
	}
	return name
}
