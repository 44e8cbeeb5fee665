package track

import (
	"math"
	"slices"
	"strconv"
)

// Series is a curve. Points that are not finite are left out.
type Series struct {
	Name string
	X, Y []float64
}

// Plot says how curves are drawn. The zero value is good.
type Plot struct {
	Title          string
	XLabel, YLabel string
	// Width and Height are pixels of an image (0: 800 by 500), or characters of a text
	// (0: 72 by 18).
	Width, Height int
	// LogY draws logarithms; what is not above 0 is left out.
	LogY bool
}

// frame is what part of the plane is shown.
type frame struct {
	x0, x1, y0, y1 float64
	logY           bool
}

// points returns the finite ones of a curve, as they are drawn.
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

// around returns the frame that holds all curves.
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

// ticks returns round numbers from lo to hi, about n of them.
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

// label writes a tick of ticks that are step apart.
func label(v, step float64) string {
	if math.Abs(v) < step/1e6 {
		return "0"
	}
	if a := math.Abs(v); a >= 1e6 || step < 1e-4 {
		return strconv.FormatFloat(v, 'g', 4, 64)
	}
	return strconv.FormatFloat(v, 'f', max(0, int(math.Ceil(-math.Log10(step)-1e-9))), 64)
}

// labels returns the ticks' texts.
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
