package report

import (
	"encoding/xml"
	"errors"
	"html"
	"image"
	"image/color"
	"image/png"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/bench"
)

func htmlHolds(t *testing.T, r *bench.Report) {
	tags := regexp.MustCompile(`<[^>]*>`)
	texts := func(s, tag string) (all []string) {
		for _, m := range regexp.MustCompile(`(?s)<(?:`+tag+`)\b[^>]*>(.*?)</(?:`+tag+`)>`).FindAllStringSubmatch(s, -1) {
			all = append(all, strings.TrimSpace(html.UnescapeString(tags.ReplaceAllString(m[1], ""))))
		}
		return all
	}
	ofRaces(t, r, rendered(t, "html", r, Options{}), `<h2 class="race" id="%[1]s">%[1]s</h2>`, func(text string, cells []map[string]any) {
		table := regexp.MustCompile(`(?s)<table class="results">.*?</table>`).FindString(text)
		head, body, _ := strings.Cut(table, "</thead>")
		var rows [][]string
		for _, m := range regexp.MustCompile(`(?s)<tr.*?</tr>`).FindAllString(body, -1) {
			rows = append(rows, texts(m, "th|td"))
		}
		checkRows(t, texts(head, "th"), rows, cells)
	})
}

// svgHolds: every bar stands beside its figure, and tells it when it is pointed at.
func svgHolds(t *testing.T, r *bench.Report) {
	if nothingRan(r) {
		return
	}
	text := html.UnescapeString(rendered(t, "svg", r, Options{}))
	for _, c := range jsonCells(t, r) {
		want := map[string]string{}
		flatten(want, "", c)
		for _, f := range []struct {
			path, unit string
			by         float64
		}{{"goodput", "/s", 1}, {"conflict_rate", " %", 100}} {
			if exact, err := strconv.ParseFloat(want[f.path], 64); err != nil || exact == 0 {
				continue // a bar of no length has nothing to point at
			}
			right := false
			tip := regexp.MustCompile(regexp.QuoteMeta(want["strategy"]) + `: ([0-9.,<]+)` + f.unit + ` \(` + want["verdict"] + `\)`)
			for _, m := range tip.FindAllStringSubmatch(text, -1) { // other races may have a strategy of this name
				right = right || agrees(m[1], want[f.path], f.by, true) == nil
			}
			if !right {
				t.Errorf("%s of %s is not told: the JSON has %s", f.path, want["strategy"], want[f.path])
			}
		}
	}
}

// pngHolds looks at the drawing before it becomes pixels, which take seconds; TestPNGShowsEverySeries looks at those.
func pngHolds(t *testing.T, r *bench.Report) {
	ps, err := plots(r)
	if err != nil {
		t.Fatal(err)
	}
	var d drawn
	_, draw := stack(ps)
	draw(&d)
	for _, c := range r.Cells {
		for _, text := range []string{scaled(c.Goodput, 1, "/s"), scaled(c.ConflictRate, 100, " %")} {
			if len(c.Trials) > 0 && text != dash && !slices.Contains(d.texts, text) {
				t.Errorf("%s is not written at a bar of %s", text, c.Strategy)
			}
		}
	}
}

func nothingRan(r *bench.Report) bool {
	return !slices.ContainsFunc(r.Cells, func(c bench.Cell) bool { return len(c.Trials) > 0 })
}

func TestHTMLNeedsNothingElse(t *testing.T) {
	out := strings.ReplaceAll(rendered(t, "html", full(t), Options{}), `xmlns="http://www.w3.org/2000/svg"`, "")
	for _, p := range []string{`https?:`, `src=`, `@import`, `url\(`, `<link rel="stylesheet"`} {
		if m := regexp.MustCompile(p).FindString(out); m != "" {
			t.Errorf("%q would fetch something", m)
		}
	}
}

// TestMarkupOfAReportIsText also reads every picture as XML, which any stray character would break.
func TestMarkupOfAReportIsText(t *testing.T) {
	for name, r := range map[string]*bench.Report{"full": full(t), "hostile": hostileReport(t)} {
		page := rendered(t, "html", r, Options{})
		if strings.Contains(page, "<script>alert") || strings.ContainsAny(page, "\x1b\r\u202e") {
			t.Errorf("%s: markup or control characters come through", name)
		}
		pictures := regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(page, -1)
		for _, p := range append(pictures, rendered(t, "svg", r, Options{})) {
			dec := xml.NewDecoder(strings.NewReader(p))
			for {
				_, err := dec.Token()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatalf("%s: %v in %.200s", name, err, p)
				}
			}
		}
	}
}

// drawn is a canvas that remembers.
type drawn struct {
	paths []drawnPath
	texts []string
}

type drawnPath struct {
	pts []point
	pen pen
}

func (d *drawn) path(pts []point, _ bool, p pen) { d.paths = append(d.paths, drawnPath{pts, p}) }

func (d *drawn) text(_ point, s string, _ face) { d.texts = append(d.texts, s) }

func TestBarsAreAsLongAsTheirFigures(t *testing.T) {
	all := seriesOf(full(t))
	for name, of := range map[string]func(c *bench.Cell) float64{
		"goodput":   func(c *bench.Cell) float64 { return *c.Goodput },
		"conflicts": func(c *bench.Cell) float64 { return *c.ConflictRate },
	} {
		var d drawn
		for _, p := range []plot{goodputPlot(all), conflictPlot(all)} {
			if p.name == name {
				p.draw(&d)
			}
		}
		unit := 0.0 // length of 1
		for _, s := range all {
			value := of(s.Cell)
			for _, p := range d.paths {
				if !strings.HasPrefix(p.pen.tip, s.Strategy+": ") {
					continue
				}
				length := p.pts[1].x - p.pts[0].x
				if unit == 0 {
					unit = length / value
				}
				if math.Abs(length-value*unit) > 1e-6 {
					t.Errorf("%s of %s: a bar of %.1f for %v", name, s.Strategy, length, value)
				}
				if p.pen.fill != s.sound {
					t.Errorf("%s of %s: filled %t, sound %t", name, s.Strategy, p.pen.fill, s.sound)
				}
			}
		}
		if unit == 0 {
			t.Errorf("%s: no bars", name)
		}
	}
}

func TestCurvesPassThroughTheirPercentiles(t *testing.T) {
	r := single(t)
	p, err := latencyPlot(seriesOf(r), bench.Burst)
	if err != nil {
		t.Fatal(err)
	}
	var d drawn
	p.draw(&d)
	tips := map[string]bool{}
	for _, q := range d.paths {
		tips[q.pen.tip] = true
	}
	for _, c := range r.Cells {
		l := c.Latency["confirmed"]
		for _, want := range []string{": p50 " + number(*l.P50) + " ms", ": p90 " + number(*l.P90) + " ms", ": p99 ~" + number(*l.P99) + " ms"} {
			if !tips[c.Strategy+want] {
				t.Errorf("no point says %s%s", c.Strategy, want)
			}
		}
	}
}

func TestTimelineLeavesOutASecondCutShort(t *testing.T) {
	r := single(t)
	for i := range r.Cells {
		tr := &r.Cells[i].Trials[0]
		tr.DurationS = 3.2
		tr.Timeline = []bench.Second{{Confirmed: 10}, {Confirmed: 20}, {Confirmed: 30}, {Confirmed: 1}}
	}
	p := timelinePlot(seriesOf(r))
	if p == nil {
		t.Fatal("no timeline")
	}
	var d drawn
	p.draw(&d)
	for _, q := range d.paths {
		if strings.Contains(q.pen.tip, "second 4") {
			t.Error("the last second is drawn though it is no whole one")
		}
	}
	if timelinePlot(seriesOf(full(t))) != nil {
		t.Error("a timeline of two seconds")
	}
}

func TestPNGShowsEverySeries(t *testing.T) {
	img, err := png.Decode(strings.NewReader(rendered(t, "png", full(t), Options{})))
	if err != nil {
		t.Fatal(err)
	}
	if img.Bounds().Dx() != int(plotWidth*pixelRatio) {
		t.Errorf("%d pixels wide", img.Bounds().Dx())
	}
	rgba, ok := img.(*image.RGBA)
	if !ok {
		t.Fatalf("pixels of type %T", img)
	}
	seen := map[color.RGBA]int{}
	for p := rgba.Pix; len(p) > 0; p = p[4:] {
		seen[color.RGBA{p[0], p[1], p[2], p[3]}]++
	}
	for _, p := range palette()[:4+len(seriesOf(full(t)))] {
		if seen[p.light] < 100 {
			t.Errorf("%s: %d pixels", p.ink, seen[p.light])
		}
	}
}

// TestPixelsArePaintedWhereTheyBelong: all of a shape, and nothing around it.
func TestPixelsArePaintedWhereTheyBelong(t *testing.T) {
	p, err := newPixels(60, 40)
	if err != nil {
		t.Fatal(err)
	}
	box(p, 30, 20, 10, 5, pen{ink: black, fill: true})
	box(p, 55, 35, 100, 100, pen{ink: black, fill: true}) // reaches out of the picture
	for x := range 120 {
		for y := range 80 {
			want := p.colors[paper]
			if x >= 60 && x < 80 && y >= 40 && y < 50 || x >= 110 && y >= 70 {
				want = p.colors[black]
			}
			if got := p.img.RGBAAt(x, y); got != want {
				t.Fatalf("pixel %d, %d is %v, want %v", x, y, got, want)
			}
		}
	}
}

func TestNothingToPlot(t *testing.T) {
	r := base()
	for _, format := range []string{"svg", "png"} {
		wantError(t, Write(io.Discard, format, r, Options{}), "this report holds nothing to plot", "take the report of a run")
	}
	if out := rendered(t, "html", r, Options{}); strings.Contains(out, "<figure") {
		t.Error("a picture of nothing")
	}
}

func TestScales(t *testing.T) {
	for _, high := range []float64{0, 0.003, 1, 7, 99, 100, 101, 12345.6} {
		s := linear(high, 6)
		if n := len(s.ticks); n < 2 || n > 8 || s.of(high) > 1.000001 || s.of(0) != 0 {
			t.Errorf("linear(%v): ticks %v, the highest at %v", high, s.ticks, s.of(high))
		}
	}
	for _, r := range [][2]float64{{1, 1}, {0.001, 3_600_000}, {4.7, 291}, {100, 101}, {1, 10}} {
		s := logarithmic(r[0], r[1])
		if a, b := s.of(r[0]), s.of(r[1]); a < -1e-9 || b > 1+1e-9 || len(s.ticks) < 2 {
			t.Errorf("logarithmic(%v): from %v to %v, ticks %v", r, a, b, s.ticks)
		}
	}
}

func TestMarksAreDifferent(t *testing.T) {
	seen := map[string]int{}
	for i := range 24 {
		m := string(symbol(i))
		if j, twice := seen[m]; twice {
			t.Errorf("strategies %d and %d look the same", j, i)
		}
		seen[m] = i
	}
}
