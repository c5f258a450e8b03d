package report

import (
	"fmt"
	"image/color"
	"math"
)

// canvas is what plots are drawn on: a page of SVG or the pixels of a PNG. Units are CSS pixels, y grows downwards.
type canvas interface {
	path(pts []point, closed bool, p pen)
	text(at point, s string, f face)
}

type point struct{ x, y float64 }

// pen is how a path is drawn.
type pen struct {
	ink   ink
	width float64 // of the line; 0: none
	dash  bool
	fill  bool
	tip   string // what a reader who points at it is told
}

// face is how a text is set.
type face struct {
	ink    ink
	size   float64
	anchor anchor
	bold   bool
}

type anchor string

// The anchors, as SVG names them.
const (
	start  anchor = "start"
	middle anchor = "middle"
	end    anchor = "end"
)

// ink is a role of colour; light and dark pages mix it differently. It is a CSS class too.
type ink string

const (
	paper ink = "paper"
	black ink = "ink"
	dim   ink = "dim"
	grey  ink = "grid"
)

// seriesInks is how many inks tell strategies apart before they repeat.
const seriesInks = 6

func seriesInk(i int) ink { return ink(fmt.Sprintf("s%d", i%seriesInks)) }

// pigment is an ink's colour on a light and on a dark page.
type pigment struct {
	ink         ink
	light, dark color.RGBA
}

// palette is that of Okabe and Ito, which people with any kind of colour blindness can tell apart, without its yellow and black, which
// a light or a dark page would swallow. Source: https://jfly.uni-koeln.de/color/
func palette() []pigment {
	hex := func(v uint32) color.RGBA { return color.RGBA{uint8(v >> 16), uint8(v >> 8), uint8(v), 0xff} }
	return []pigment{
		{paper, hex(0xffffff), hex(0x14171c)},
		{black, hex(0x1b1f24), hex(0xe6e9ed)},
		{dim, hex(0x59636e), hex(0x9aa4af)},
		{grey, hex(0xdde2e7), hex(0x333a42)},
		{seriesInk(0), hex(0x0072b2), hex(0x3d9bd6)},
		{seriesInk(1), hex(0xd55e00), hex(0xe8752a)},
		{seriesInk(2), hex(0x009e73), hex(0x18b88b)},
		{seriesInk(3), hex(0xcc79a7), hex(0xd78fb7)},
		{seriesInk(4), hex(0x56b4e9), hex(0x7cc7f2)},
		{seriesInk(5), hex(0xe69f00), hex(0xf0b429)},
	}
}

// mark is a strategy's symbol: shape and ink together are one of 24, so that neither has to be told apart alone.
func mark(cv canvas, series int, at point, size float64, tip string) {
	r := size / 2
	var pts []point
	switch (series + series/12) % 4 {
	case 0:
		for k := range 20 {
			a := 2 * math.Pi * float64(k) / 20
			pts = append(pts, point{at.x + r*math.Cos(a), at.y + r*math.Sin(a)})
		}
	case 1:
		r *= 0.88
		pts = []point{{at.x - r, at.y - r}, {at.x + r, at.y - r}, {at.x + r, at.y + r}, {at.x - r, at.y + r}}
	case 2:
		r *= 1.15
		pts = []point{{at.x, at.y - r}, {at.x + r, at.y + r*0.8}, {at.x - r, at.y + r*0.8}}
	case 3:
		r *= 1.2
		pts = []point{{at.x, at.y - r}, {at.x + r, at.y}, {at.x, at.y + r}, {at.x - r, at.y}}
	}
	cv.path(pts, true, pen{ink: seriesInk(series), fill: true, tip: tip})
}

func segment(cv canvas, a, b point, p pen) { cv.path([]point{a, b}, false, p) }

func box(cv canvas, x, y, w, h float64, p pen) {
	cv.path([]point{{x, y}, {x + w, y}, {x + w, y + h}, {x, y + h}}, true, p)
}

// shifted draws on a canvas further down.
type shifted struct {
	canvas
	down float64
}

func (s shifted) path(pts []point, closed bool, p pen) {
	moved := make([]point, len(pts))
	for i, q := range pts {
		moved[i] = point{q.x, q.y + s.down}
	}
	s.canvas.path(moved, closed, p)
}

func (s shifted) text(at point, text string, f face) {
	s.canvas.text(point{at.x, at.y + s.down}, text, f)
}
