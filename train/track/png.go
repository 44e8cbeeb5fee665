package track

import (
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"math"
)

var (
	ink     = color.RGBA{0x20, 0x24, 0x2b, 0xff}
	grid    = color.RGBA{0xe3, 0xe6, 0xea, 0xff}
	palette = []color.RGBA{{0x1f, 0x6f, 0xd6, 0xff}, {0xd9, 0x4f, 0x2b, 0xff}, {0x2c, 0x9a, 0x5b, 0xff}, {0x8a, 0x4f, 0xc4, 0xff}, {0xb8, 0x86, 0x0b, 0xff}}
)

// DrawPNG draws curves as an image with axes, ticks, labels and a legend.
func DrawPNG(w io.Writer, p Plot, curves ...Series) error {
	c := newCanvas(p, curves)
	c.axes(p)
	for i, s := range curves {
		c.curve(s, palette[i%len(palette)])
	}
	c.legend(curves)
	if err := png.Encode(w, c.img); err != nil {
		return fmt.Errorf("track: %w", err)
	}
	return nil
}

// canvas is an image with a frame for the curves.
type canvas struct {
	img    *image.RGBA
	frame  frame
	bounds image.Rectangle // of the curves
}

func newCanvas(p Plot, curves []Series) *canvas {
	width, height := p.Width, p.Height
	if width <= 0 {
		width = 800
	}
	if height <= 0 {
		height = 500
	}
	width, height = min(max(width, 200), 8192), min(max(height, 150), 8192)
	c := &canvas{img: image.NewRGBA(image.Rect(0, 0, width, height)), frame: around(curves, p.LogY)}
	for i := range c.img.Pix {
		c.img.Pix[i] = 0xff
	}
	c.bounds = image.Rect(80, 40, width-20, height-55)
	return c
}

// x and y return the position of a number in the image.
func (c *canvas) x(v float64) float64 {
	return float64(c.bounds.Min.X) + (v-c.frame.x0)/(c.frame.x1-c.frame.x0)*float64(c.bounds.Dx())
}

func (c *canvas) y(v float64) float64 {
	return float64(c.bounds.Max.Y) - (v-c.frame.y0)/(c.frame.y1-c.frame.y0)*float64(c.bounds.Dy())
}

func (c *canvas) axes(p Plot) {
	b := c.bounds
	xs, ys := ticks(c.frame.x0, c.frame.x1, b.Dx()/90), ticks(c.frame.y0, c.frame.y1, b.Dy()/45)
	for i, text := range c.frame.labels(xs, false) {
		x := int(c.x(xs[i]))
		c.line(float64(x), float64(b.Min.Y), float64(x), float64(b.Max.Y), 1, grid)
		c.text(x-textWidth(text, 2)/2, b.Max.Y+8, text, 2)
	}
	for i, text := range c.frame.labels(ys, true) {
		y := int(c.y(ys[i]))
		c.line(float64(b.Min.X), float64(y), float64(b.Max.X), float64(y), 1, grid)
		c.text(b.Min.X-8-textWidth(text, 2), y-5, text, 2)
	}
	left, right, top, bottom := float64(b.Min.X), float64(b.Max.X), float64(b.Min.Y), float64(b.Max.Y)
	c.line(left, top, left, bottom, 1, ink)
	c.line(left, bottom, right, bottom, 1, ink)
	c.text((b.Min.X+b.Max.X-textWidth(p.Title, 3))/2, 12, p.Title, 3)
	c.text((b.Min.X+b.Max.X-textWidth(p.XLabel, 2))/2, b.Max.Y+32, p.XLabel, 2)
	c.text(8, 20, p.YLabel, 2)
}

func (c *canvas) legend(curves []Series) {
	if len(curves) < 2 {
		return
	}
	width := 0
	for _, s := range curves {
		width = max(width, textWidth(s.Name, 2))
	}
	x, y := c.bounds.Max.X-width-40, c.bounds.Min.Y+8
	for i, s := range curves {
		c.line(float64(x), float64(y+5), float64(x+24), float64(y+5), 3, palette[i%len(palette)])
		c.text(x+32, y, s.Name, 2)
		y += 18
	}
}

// curve connects the points of a series. A single point is drawn as a dot.
func (c *canvas) curve(s Series, col color.RGBA) {
	xs, ys := c.frame.points(s)
	for i := range xs {
		if i > 0 {
			c.line(c.x(xs[i-1]), c.y(ys[i-1]), c.x(xs[i]), c.y(ys[i]), 2, col)
		} else if len(xs) == 1 {
			c.line(c.x(xs[0])-2, c.y(ys[0]), c.x(xs[0])+2, c.y(ys[0]), 5, col)
		}
	}
}

// line draws an anti-aliased line of some pixels' width.
func (c *canvas) line(x0, y0, x1, y1, width float64, col color.RGBA) {
	dx, dy := x1-x0, y1-y0
	length := math.Hypot(dx, dy)
	if length == 0 {
		return
	}
	half := width / 2
	box := image.Rect(int(min(x0, x1)-half-1), int(min(y0, y1)-half-1), int(max(x0, x1)+half+2), int(max(y0, y1)+half+2)).Intersect(c.img.Bounds())
	for y := box.Min.Y; y < box.Max.Y; y++ {
		for x := box.Min.X; x < box.Max.X; x++ {
			px, py := float64(x)-x0, float64(y)-y0
			along := min(max((px*dx+py*dy)/(length*length), 0), 1)
			c.blend(x, y, col, min(max(half+0.5-math.Hypot(px-along*dx, py-along*dy), 0), 1))
		}
	}
}

func (c *canvas) blend(x, y int, col color.RGBA, part float64) {
	if part <= 0 {
		return
	}
	was := c.img.RGBAAt(x, y)
	mix := func(a, b uint8) uint8 { return uint8(float64(a)*(1-part) + float64(b)*part + 0.5) }
	c.img.SetRGBA(x, y, color.RGBA{mix(was.R, col.R), mix(was.G, col.G), mix(was.B, col.B), 0xff})
}

// text draws s with its upper left corner at x, y. Each dot of a letter is size pixels wide.
func (c *canvas) text(x, y int, s string, size int) {
	for _, r := range s {
		rows := glyph(r)
		for i, row := range rows {
			for j, dot := range row {
				if dot != '#' {
					continue
				}
				for k := range size * size {
					if at := image.Pt(x+j*size+k%size, y+i*size+k/size); at.In(c.img.Bounds()) {
						c.img.SetRGBA(at.X, at.Y, ink)
					}
				}
			}
		}
		x += (len(rows[0]) + 1) * size
	}
}

func textWidth(s string, size int) int {
	n := 0
	for _, r := range s {
		n += (len(glyph(r)[0]) + 1) * size
	}
	return max(0, n-size)
}
