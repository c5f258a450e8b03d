package report

import (
	"fmt"
	"html"
	"image/color"
	"io"
	"strconv"
	"strings"

	"github.com/lockbench/lockbench/bench"
)

// svg is a canvas that writes SVG elements. Colours come from classes, so that a page can set them for light and dark.
type svg struct{ b strings.Builder }

func (s *svg) path(pts []point, closed bool, p pen) {
	s.b.WriteString(`<path d="`)
	for i, q := range pts {
		cmd := "L"
		if i == 0 {
			cmd = "M"
		}
		s.b.WriteString(cmd + coordinate(q.x) + " " + coordinate(q.y))
	}
	if closed {
		s.b.WriteString("Z")
	}
	fmt.Fprintf(&s.b, `" class="%s`, p.ink)
	if p.fill {
		s.b.WriteString(" fill")
	}
	if p.width > 0 {
		s.b.WriteString(` line" stroke-width="` + coordinate(p.width))
	}
	if p.dash {
		s.b.WriteString(`" stroke-dasharray="6 4`)
	}
	s.b.WriteString(`"`)
	if p.tip == "" {
		s.b.WriteString("/>\n")
		return
	}
	fmt.Fprintf(&s.b, "><title>%s</title></path>\n", html.EscapeString(p.tip))
}

func (s *svg) text(at point, text string, f face) {
	fmt.Fprintf(&s.b, `<text x="%s" y="%s" class="%s fill" font-size="%s"`, coordinate(at.x), coordinate(at.y), f.ink, coordinate(f.size))
	if f.anchor != "" && f.anchor != start {
		fmt.Fprintf(&s.b, ` text-anchor="%s"`, f.anchor)
	}
	if f.bold {
		s.b.WriteString(` font-weight="600"`)
	}
	fmt.Fprintf(&s.b, ">%s</text>\n", html.EscapeString(text))
}

// coordinate writes a length with a tenth of a pixel, which nobody sees.
func coordinate(v float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0")
}

// element is the picture as an svg element of a page.
func (p *plot) element() string {
	var s svg
	p.draw(&s)
	return svgElement(p.title, p.height, "", s.b.String())
}

func svgElement(title string, height float64, head, body string) string {
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %s %s" width="%s" height="%s" role="img" aria-label="%s">`+"\n%s%s</svg>\n",
		coordinate(plotWidth), coordinate(height), coordinate(plotWidth), coordinate(height), html.EscapeString(title), head, body)
}

// inkRules is the style sheet of the inks.
func inkRules() string {
	var light, dark strings.Builder
	for _, p := range palette() {
		inkRule(&light, p.ink, p.light)
		inkRule(&dark, p.ink, p.dark)
	}
	return "svg{font-family:system-ui,sans-serif}\npath{fill:none;stroke-linejoin:round}\n" + light.String() + "@media screen and (prefers-color-scheme: dark){\n" + dark.String() + "}\n"
}

func inkRule(b *strings.Builder, i ink, c color.RGBA) {
	fmt.Fprintf(b, ".%s.fill{fill:#%02x%02x%02x}.%s.line{stroke:#%02x%02x%02x}\n", i, c.R, c.G, c.B, i, c.R, c.G, c.B)
}

// writeSVG writes the plots alone, below each other.
func writeSVG(w io.Writer, r *bench.Report, _ Options) error {
	ps, err := plots(r)
	if err != nil {
		return err
	}
	return drawSVG(w, printable(r.Plan.Scenario), ps)
}

// drawSVG writes plots below each other.
func drawSVG(w io.Writer, about string, ps []plot) error {
	if len(ps) == 0 {
		return nothingToPlot()
	}
	height, draw := stack(ps)
	var s svg
	box(&s, 0, 0, plotWidth, height, pen{ink: paper, fill: true})
	draw(&s)
	_, err := io.WriteString(w, svgElement("lockbench: "+about, height, "<style>\n"+inkRules()+"</style>\n", s.b.String()))
	return err
}
