package report

import (
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"math"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"
	"golang.org/x/image/vector"

	"github.com/lockbench/lockbench/bench"
)

// pixelRatio is how many pixels a CSS pixel takes: two, for today's screens and for print.
const pixelRatio = 2

// dashOn and dashOff are the lengths of a dashed line, as in the SVG.
const (
	dashOn  = 6.0
	dashOff = 4.0
)

// pixels is a canvas of pixels, in the colours of a light page.
type pixels struct {
	img           *image.RGBA
	regular, bold *opentype.Font
	colors        map[ink]color.RGBA
	err           error
}

func newPixels(width, height float64) (*pixels, error) {
	regular, err := opentype.Parse(goregular.TTF)
	if err != nil {
		return nil, err
	}
	bold, err := opentype.Parse(gobold.TTF)
	if err != nil {
		return nil, err
	}
	p := &pixels{
		img:     image.NewRGBA(image.Rect(0, 0, int(math.Ceil(width*pixelRatio)), int(math.Ceil(height*pixelRatio)))),
		regular: regular, bold: bold, colors: map[ink]color.RGBA{},
	}
	for _, c := range palette() {
		p.colors[c.ink] = c.light
	}
	draw.Draw(p.img, p.img.Bounds(), image.NewUniform(p.colors[paper]), image.Point{}, draw.Src)
	return p, nil
}

func (p *pixels) path(pts []point, closed bool, pn pen) {
	if pn.fill {
		p.polygons(p.colors[pn.ink], pts)
	}
	if pn.width == 0 {
		return
	}
	if closed {
		pts = append(append([]point{}, pts...), pts[0])
	}
	runs := [][]point{pts}
	if pn.dash {
		runs = dashes(pts)
	}
	var all [][]point
	for _, run := range runs {
		all = append(all, stroke(run, pn.width)...)
	}
	p.polygons(p.colors[pn.ink], all...)
}

// polygons fills several shapes in one go, so that where they overlap nothing shows.
func (p *pixels) polygons(c color.RGBA, shapes ...[]point) {
	within := p.around(shapes)
	r := vector.NewRasterizer(within.Dx(), within.Dy())
	left, top := float32(within.Min.X), float32(within.Min.Y)
	for _, s := range shapes {
		for i, q := range clockwise(s) {
			x, y := float32(q.x*pixelRatio)-left, float32(q.y*pixelRatio)-top
			if i == 0 {
				r.MoveTo(x, y)
			} else {
				r.LineTo(x, y)
			}
		}
		r.ClosePath()
	}
	r.Draw(p.img, within, image.NewUniform(c), image.Point{})
}

// around is the part of the picture that shapes lie in: to look at all of it for every mark would take seconds.
func (p *pixels) around(shapes [][]point) image.Rectangle {
	low, high := point{math.Inf(1), math.Inf(1)}, point{math.Inf(-1), math.Inf(-1)}
	for _, s := range shapes {
		for _, q := range s {
			low = point{min(low.x, q.x), min(low.y, q.y)}
			high = point{max(high.x, q.x), max(high.y, q.y)}
		}
	}
	r := image.Rect(int(math.Floor(low.x*pixelRatio)), int(math.Floor(low.y*pixelRatio)), int(math.Ceil(high.x*pixelRatio)), int(math.Ceil(high.y*pixelRatio)))
	return r.Intersect(p.img.Bounds())
}

// clockwise turns a shape round if need be: shapes of opposite directions would cut holes into each other.
func clockwise(s []point) []point {
	var area float64
	for i, q := range s {
		next := s[(i+1)%len(s)]
		area += q.x*next.y - next.x*q.y
	}
	if area >= 0 {
		return s
	}
	turned := make([]point, len(s))
	for i, q := range s {
		turned[len(s)-1-i] = q
	}
	return turned
}

// stroke turns a line into shapes: a bar a segment, and a disc where two meet.
func stroke(pts []point, width float64) [][]point {
	var all [][]point
	r := width / 2
	for i := 0; i+1 < len(pts); i++ {
		a, b := pts[i], pts[i+1]
		length := math.Hypot(b.x-a.x, b.y-a.y)
		if length == 0 {
			continue
		}
		dx, dy := -(b.y-a.y)/length*r, (b.x-a.x)/length*r
		all = append(all, []point{{a.x + dx, a.y + dy}, {b.x + dx, b.y + dy}, {b.x - dx, b.y - dy}, {a.x - dx, a.y - dy}})
		if i > 0 && width > 1 {
			var disc []point
			for k := range 12 {
				t := 2 * math.Pi * float64(k) / 12
				disc = append(disc, point{a.x + r*math.Cos(t), a.y + r*math.Sin(t)})
			}
			all = append(all, disc)
		}
	}
	return all
}

// dashes cuts a line into the parts that are drawn.
func dashes(pts []point) [][]point {
	var all [][]point
	run := []point{pts[0]}
	left, on := dashOn, true
	for i := 0; i+1 < len(pts); i++ {
		a, b := pts[i], pts[i+1]
		for length := math.Hypot(b.x-a.x, b.y-a.y); length > left; length = math.Hypot(b.x-a.x, b.y-a.y) {
			a = point{a.x + (b.x-a.x)*left/length, a.y + (b.y-a.y)*left/length}
			if on {
				all = append(all, append(run, a))
				left = dashOff
			} else {
				left = dashOn
			}
			run, on = []point{a}, !on
		}
		left -= math.Hypot(b.x-a.x, b.y-a.y)
		run = append(run, b)
	}
	if on && len(run) > 1 {
		all = append(all, run)
	}
	return all
}

func (p *pixels) text(at point, text string, f face) {
	of := p.regular
	if f.bold {
		of = p.bold
	}
	drawn, err := opentype.NewFace(of, &opentype.FaceOptions{Size: f.size * pixelRatio, DPI: 72})
	if err != nil {
		p.err = err
		return
	}
	d := font.Drawer{Dst: p.img, Src: image.NewUniform(p.colors[f.ink]), Face: drawn}
	width := d.MeasureString(text)
	x := fixed.Int26_6(at.x * pixelRatio * 64)
	switch f.anchor {
	case middle:
		x -= width / 2
	case end:
		x -= width
	case start:
	}
	d.Dot = fixed.Point26_6{X: x, Y: fixed.Int26_6(at.y * pixelRatio * 64)}
	d.DrawString(text)
	if err := drawn.Close(); err != nil {
		p.err = err
	}
}

// writePNG writes the plots alone, below each other.
func writePNG(w io.Writer, r *bench.Report, _ Options) error {
	ps, err := plots(r)
	if err != nil {
		return err
	}
	return drawPNG(w, ps)
}

// drawPNG writes plots below each other.
func drawPNG(w io.Writer, ps []plot) error {
	if len(ps) == 0 {
		return nothingToPlot()
	}
	height, drawAll := stack(ps)
	p, err := newPixels(plotWidth, height)
	if err != nil {
		return err
	}
	drawAll(p)
	if p.err != nil {
		return p.err
	}
	return png.Encode(w, p.img)
}
