package track

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// braille has the bits of a character's 2 by 4 dots, by row and column.
var braille = [4][2]rune{{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}}

// DrawText draws curves with axes and ticks, in characters of 2 by 4 dots. All curves look alike.
// If there are several, their names are listed below.
func DrawText(w io.Writer, p Plot, curves ...Series) error {
	width, height := p.Width, p.Height
	if width <= 0 {
		width = 72
	}
	if height <= 0 {
		height = 18
	}
	width, height = min(max(width, 20), 500), min(max(height, 4), 200)
	f := around(curves, p.LogY)
	at := ticks(f.y0, f.y1, max(2, height/4))
	texts := f.labels(at, true)
	margin := 0
	for _, s := range texts {
		margin = max(margin, utf8.RuneCountInString(s))
	}
	d := newDots(width-margin-2, height)
	for _, s := range curves {
		d.curve(&f, s)
	}
	var b strings.Builder
	if p.Title != "" {
		fmt.Fprintf(&b, "%*s%s\n", margin+2, "", p.Title)
	}
	if p.YLabel != "" {
		fmt.Fprintf(&b, "%*s\n", margin, p.YLabel)
	}
	names := map[int]string{}
	for i, v := range at {
		names[min(height-1, max(0, int((f.y1-v)/(f.y1-f.y0)*float64(height))))] = texts[i]
	}
	for i, row := range d.rows {
		edge := "│"
		if names[i] != "" {
			edge = "┤"
		}
		fmt.Fprintf(&b, "%*s %s%s\n", margin, names[i], edge, strings.TrimRight(string(row), "\u2800"))
	}
	fmt.Fprintf(&b, "%*s └%s\n", margin, "", strings.Repeat("─", d.width))
	left, right := label(f.x0, (f.x1-f.x0)/10), label(f.x1, (f.x1-f.x0)/10)
	gap := d.width - len(left) - len(right) - utf8.RuneCountInString(p.XLabel)
	fmt.Fprintf(&b, "%*s  %s%s%s%s%s\n", margin, "", left, strings.Repeat(" ", max(1, gap/2)), p.XLabel, strings.Repeat(" ", max(1, gap-gap/2)), right)
	if len(curves) > 1 {
		var all []string
		for _, s := range curves {
			all = append(all, s.Name)
		}
		fmt.Fprintf(&b, "%*s  %s\n", margin, "", strings.Join(all, ", "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// dotted is a grid of characters.
type dotted struct {
	width, height int
	rows          [][]rune
}

func newDots(width, height int) *dotted {
	d := &dotted{width: max(width, 4), height: height}
	for range height {
		row := make([]rune, d.width)
		for i := range row {
			row[i] = 0x2800
		}
		d.rows = append(d.rows, row)
	}
	return d
}

func (d *dotted) set(x, y int) {
	if x >= 0 && y >= 0 && x < 2*d.width && y < 4*d.height {
		d.rows[y/4][x/2] |= braille[y%4][x%2]
	}
}

func (d *dotted) curve(f *frame, s Series) {
	xs, ys := f.points(s)
	place := func(i int) (float64, float64) {
		return (xs[i] - f.x0) / (f.x1 - f.x0) * float64(2*d.width-1), (f.y1 - ys[i]) / (f.y1 - f.y0) * float64(4*d.height-1)
	}
	for i := range xs {
		x1, y1 := place(i)
		x0, y0 := place(max(0, i-1))
		steps := int(max(x1-x0, x0-x1, y1-y0, y0-y1)) + 1
		for k := range steps + 1 {
			part := float64(k) / float64(steps)
			d.set(int(x0+(x1-x0)*part+0.5), int(y0+(y1-y0)*part+0.5))
		}
	}
}
