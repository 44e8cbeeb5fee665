package track

import (
	"math"
	"slices"
	"strconv"
)

// Series is a curve. Points that are not finite are omitted.
type Series struct {
	Name string
	X, Y []float64
}

// Plot configures a drawing. The zero value is valid.
type Plot struct {
	Title          string
	XLabel, YLabel string
	// Width and Height are in pixels of an image (0 means 800 by 500), or in characters of a text
	// (0 means 72 by 18).
	Width, Height int
	// LogY makes the y axis logarithmic. Values of 0 and below are omitted.
	LogY bool
}

// frame is the visible part of the plane.
type frame struct {
	x0, x1, y0, y1 float64
	logY           bool
}

// points returns the finite points of a curve in the frame's scale.
func (f *frame) points(s Series) (xs, ys []float64) {
	for i := range min(len(s.X), len(s.Y)) {
		x, y := s.X[i], s.Y[i]
		if f.logY {
			y = math.Log10(y)
		}
		if !math.IsNaN(x+y) && !math.IsInf(x, 0) && !math.IsInf(y, 0) {
			xs, ys = append(xs, x), append(ys, y)
		}
	}
	return xs, ys
}

// around returns the frame that contains all curves.
func around(all []Series, logY bool) frame {
	f := frame{logY: logY}
	var xs, ys []float64
	for _, s := range all {
		x, y := f.points(s)
		xs, ys = append(xs, x...), append(ys, y...)
	}
	f.x1, f.y1 = 1, 1
	if len(xs) > 0 {
		f.x0, f.x1 = slices.Min(xs), slices.Max(xs)
		f.y0, f.y1 = slices.Min(ys), slices.Max(ys)
	}
	widen := func(lo, hi *float64) {
		if *hi-*lo < 1e-12*max(1, math.Abs(*hi)) { // a single value
			d := max(0.5, math.Abs(*hi)/10)
			*lo, *hi = *lo-d, *hi+d
		}
	}
	widen(&f.x0, &f.x1)
	widen(&f.y0, &f.y1)
	pad := (f.y1 - f.y0) / 20
	f.y0, f.y1 = f.y0-pad, f.y1+pad
	return f
}

// ticks returns about n round numbers from lo to hi.
func ticks(lo, hi float64, n int) []float64 {
	raw := (hi - lo) / float64(max(n, 1))
	if !(raw > 0) || math.IsInf(raw, 0) {
		return nil
	}
	step := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, m := range []float64{1, 2, 5, 10} {
		if step*m >= raw {
			step *= m
			break
		}
	}
	var all []float64
	for i := math.Ceil(lo / step); i*step <= hi && len(all) < 100; i++ {
		all = append(all, i*step)
	}
	return all
}

// label formats a tick on an axis whose ticks are step apart.
func label(v, step float64) string {
	if math.Abs(v) < step/1e6 {
		return "0"
	}
	if a := math.Abs(v); a >= 1e6 || step < 1e-4 {
		return strconv.FormatFloat(v, 'g', 4, 64)
	}
	return strconv.FormatFloat(v, 'f', max(0, int(math.Ceil(-math.Log10(step)-1e-9))), 64)
}

// labels formats the ticks of an axis.
func (f *frame) labels(at []float64, y bool) []string {
	step := 1.0
	if len(at) > 1 {
		step = at[1] - at[0]
	}
	texts := make([]string, len(at))
	for i, v := range at {
		if texts[i] = label(v, step); y && f.logY {
			texts[i] = strconv.FormatFloat(math.Pow(10, v), 'g', 3, 64)
		}
	}
	return texts
}
