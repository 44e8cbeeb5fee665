package tensor

import "math"

// MaxPool2D computes the maximum of each position of a square kernel over x [batch, channels,
// height, width]. Padding is never the maximum. Of equal elements the first in row order gets the
// gradient. NaN counts as the maximum. stride 0 means kernel.
func (tp *Tape) MaxPool2D(x *Tensor, kernel, stride, padding int) *Tensor {
	p, out := tp.pool("maxpool2d", x, kernel, stride, padding)
	if p == nil {
		return out
	}
	from := make([]int, len(out.data)) // which element of x won
	if out.widen(x) {
		largest(p, from, x.wide)
		for i, at := range from {
			out.set64(i, x.wide[at])
		}
	} else {
		largest(p, from, x.data)
		for i, at := range from {
			out.data[i] = x.data[at]
		}
	}
	return tp.record(out, func(grad []float32) {
		g := tp.gradient(x)
		for i, at := range from {
			g[at] += grad[i]
		}
	})
}

// largest finds the maximum element of x for each result.
func largest[F float](p *pooling, from []int, x []F) {
	p.planes(func(plane int) {
		p.each(plane, func(i, y0, y1, x0, x1 int) {
			best, at := F(math.Inf(-1)), p.index(plane, y0, x0)
			for row := y0; row < y1; row++ {
				for col := x0; col < x1; col++ {
					j := p.index(plane, row, col)
					if v := x[j]; v > best || v != v {
						best, at = v, j
					}
				}
			}
			from[i] = at
		})
	})
}

// AvgPool2D computes the mean of each position of a square kernel over x [batch, channels, height,
// width]. Padding counts as zeros. stride 0 means kernel.
func (tp *Tape) AvgPool2D(x *Tensor, kernel, stride, padding int) *Tensor {
	p, out := tp.pool("avgpool2d", x, kernel, stride, padding)
	if p == nil {
		return out
	}
	// The last position may reach past the padding; elements beyond it do not count.
	p.size = func(i int) float64 {
		place := i % (p.rows.places() * p.cols.places())
		extent := func(w window, i int) int {
			return min(w.at(i, 0)+w.kernel, w.size+w.padding) - w.at(i, 0)
		}
		return float64(extent(p.rows, place/p.cols.places()) * extent(p.cols, place%p.cols.places()))
	}
	return p.average(out)
}

// AdaptiveAvgPool2D computes the means of height×width nearly equal parts of x [batch, channels, ·,
// ·]. Parts overlap if the size is not divisible.
func (tp *Tape) AdaptiveAvgPool2D(x *Tensor, height, width int) *Tensor {
	if !tp.ready("adaptive_avgpool2d", x) {
		return tp.void()
	}
	if x.dims() != 4 || height < 1 || width < 1 || x.shape[2] < 1 || x.shape[3] < 1 {
		return tp.fail("adaptive_avgpool2d: x has shape %v, want [batch channels height width], the result is [%d %d]", x, height, width)
	}
	p := &pooling{tp: tp, x: x}
	p.each = func(plane int, f func(i, y0, y1, x0, x1 int)) {
		part := func(i, n, size int) (int, int) { return i * size / n, ((i+1)*size + n - 1) / n }
		for i := range height * width {
			y0, y1 := part(i/width, height, x.shape[2])
			x0, x1 := part(i%width, width, x.shape[3])
			f(plane*height*width+i, y0, y1, x0, x1)
		}
	}
	return p.average(tp.result([]int{x.shape[0], x.shape[1], height, width}, x))
}

// pooling reads rectangles of planes, a plane being one channel of one image.
type pooling struct {
	tp         *Tape
	x          *Tensor
	rows, cols window
	// each calls f for each result of a plane with its rectangle [y0, y1) × [x0, x1).
	each func(plane int, f func(i, y0, y1, x0, x1 int))
	// size returns the divisor of the sum of result i. nil means the area of the rectangle.
	size func(i int) float64
}

// pool makes the result of a sliding kernel. It returns nil after an error.
func (tp *Tape) pool(name string, x *Tensor, kernel, stride, padding int) (*pooling, *Tensor) {
	if !tp.ready(name, x) {
		return nil, tp.void()
	}
	if stride == 0 {
		stride = kernel
	}
	if x.dims() != 4 || kernel < 1 || stride < 1 || padding < 0 || 2*padding > kernel {
		return nil, tp.fail("%s: x has shape %v: invalid kernel %d, stride %d or padding %d", name, x, kernel, stride, padding)
	}
	p := &pooling{tp: tp, x: x, rows: window{x.shape[2], kernel, stride, padding, 1}, cols: window{x.shape[3], kernel, stride, padding, 1}}
	height, width := p.rows.places(), p.cols.places()
	if height < 1 || width < 1 {
		return nil, tp.fail("%s: x has shape %v, smaller than the kernel %d", name, x, kernel)
	}
	p.each = func(plane int, f func(i, y0, y1, x0, x1 int)) {
		for i := range height * width {
			y, x := p.rows.at(i/width, 0), p.cols.at(i%width, 0)
			f(plane*height*width+i, max(y, 0), min(y+kernel, p.rows.size), max(x, 0), min(x+kernel, p.cols.size))
		}
	}
	return p, tp.result([]int{x.shape[0], x.shape[1], height, width}, x)
}

func (p *pooling) index(plane, y, x int) int { return (plane*p.x.shape[2]+y)*p.x.shape[3] + x }

// planes runs f for each plane on all threads.
func (p *pooling) planes(f func(plane int)) {
	p.tp.rows(p.x.shape[0]*p.x.shape[1], p.x.shape[2]*p.x.shape[3], func(lo, hi int) {
		for plane := lo; plane < hi; plane++ {
			f(plane)
		}
	})
}

// divisor returns the number by which a result's sum is divided.
func (p *pooling) divisor(i, elements int) float64 {
	if p.size != nil {
		return p.size(i)
	}
	return float64(elements)
}

func (p *pooling) average(out *Tensor) *Tensor {
	out.widen(p.x)
	p.planes(func(plane int) {
		p.each(plane, func(i, y0, y1, x0, x1 int) {
			var sum float64
			for y := y0; y < y1; y++ {
				for x := x0; x < x1; x++ {
					sum += p.x.at64(p.index(plane, y, x))
				}
			}
			mean := sum / p.divisor(i, (y1-y0)*(x1-x0))
			if out.data[i] = float32(mean); out.wide != nil {
				out.wide[i] = mean
			}
		})
	})
	return p.tp.record(out, func(grad []float32) {
		g := p.tp.gradient(p.x)
		p.planes(func(plane int) {
			p.each(plane, func(i, y0, y1, x0, x1 int) {
				v := float32(float64(grad[i]) / p.divisor(i, (y1-y0)*(x1-x0)))
				for y := y0; y < y1; y++ {
					for x := x0; x < x1; x++ {
						g[p.index(plane, y, x)] += v
					}
				}
			})
		})
	})
}
