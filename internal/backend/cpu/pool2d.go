package cpu

import (
	"math"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// pooling is one call. A plane is a channel of an image.
type pooling struct {
	rows, cols     backend.Window
	size, places   int // elements of a plane, before and after
	images, planes int // number of images, and planes per image
}

// pooling checks what the forward and the backward operation have in common.
func (b *Backend) pooling(op string, dst, x tensor.Tensor, from []int32, a backend.Pool2DArgs) (*pooling, bool) {
	if b.failed.Load() {
		return nil, false
	}
	p := &pooling{rows: a.Rows, cols: a.Cols, size: a.Rows.Size * a.Cols.Size, images: x.Rows()}
	for _, w := range []backend.Window{a.Rows, a.Cols} {
		slides := w.Kernel > 0 && w.Stride > 0 && w.Padding >= 0 && 2*w.Padding <= w.Kernel && w.Dilation == 1
		if w.Size < 1 || w.Parts < 0 || w.Parts == 0 && !slides || w.Places() < 1 {
			b.fail("%s: invalid window %+v", op, w)
			return nil, false
		}
	}
	p.places = a.Rows.Places() * a.Cols.Places()
	p.planes = x.Cols() / p.size
	if x.Cols() != p.planes*p.size || dst.Cols() != p.planes*p.places || dst.Rows() != p.images {
		b.fail("%s: images %v and result %v do not fit with %+v", op, x.Shape(), dst.Shape(), a)
		return nil, false
	}
	if want := p.images * p.planes * p.places; a.Max && len(from) != want {
		b.fail("%s: got places of %d maxima, want %d", op, len(from), want)
		return nil, false
	}
	return p, true
}

// each calls f for each place of a plane, with the rectangle that it reduces and the rectangle's
// area including padding.
func (p *pooling) each(f func(i int, y, x [2]int, area float64)) {
	width := p.cols.Places()
	for r := range p.rows.Places() {
		y0, y1, high := p.rows.Span(r)
		for c := range width {
			x0, x1, wide := p.cols.Span(c)
			f(r*width+c, [2]int{y0, y1}, [2]int{x0, x1}, float64(high*wide))
		}
	}
}

// Pool2D computes plane by plane.
func (b *Backend) Pool2D(dst tensor.Tensor, from []int32, x tensor.Tensor, a backend.Pool2DArgs) {
	const op = "pool"
	p, ok := b.pooling(op, dst, x, from, a)
	if !ok {
		return
	}
	if x.DType == meta.Float64 {
		out, ok1 := b.doubles(op, "result", dst, p.images, dst.Cols())
		in, ok2 := b.doubles(op, "images", x, p.images, x.Cols())
		if ok1 && ok2 {
			pool2d(b, p, out.v, in.v, [2]int{out.stride, in.stride}, from, a.Max)
		}
		return
	}
	out, ok1 := b.floats(op, "result", dst, p.images, dst.Cols())
	in, ok2 := b.floats(op, "images", x, p.images, x.Cols())
	if ok1 && ok2 {
		pool2d(b, p, out.V, in.V, [2]int{out.Stride, in.Stride}, from, a.Max)
	}
}

func pool2d[F float](b *Backend, p *pooling, out, in []F, strides [2]int, from []int32, most bool) {
	b.each(p.images*p.planes, p.size, func(_ *worker, r int) {
		image, plane := r/p.planes, r%p.planes
		y, x := out[image*strides[0]+plane*p.places:][:p.places], in[image*strides[1]+plane*p.size:][:p.size]
		if most {
			largest(p, y, x, from[r*p.places:][:p.places])
		} else {
			means(p, y, x)
		}
	})
}

// largest finds the maxima of a plane.
func largest[F float](p *pooling, y, x []F, from []int32) {
	p.each(func(i int, rows, cols [2]int, _ float64) {
		best, at := F(math.Inf(-1)), rows[0]*p.cols.Size+cols[0]
		for row := rows[0]; row < rows[1]; row++ {
			for col := cols[0]; col < cols[1]; col++ {
				j := row*p.cols.Size + col
				if v := x[j]; v > best || v != v {
					best, at = v, j
				}
			}
		}
		y[i], from[i] = x[at], int32(at)
	})
}

// means computes the means of a plane, with sums in float64.
func means[F float](p *pooling, y, x []F) {
	p.each(func(i int, rows, cols [2]int, area float64) {
		var sum float64
		for row := rows[0]; row < rows[1]; row++ {
			for _, v := range x[row*p.cols.Size+cols[0] : row*p.cols.Size+cols[1]] {
				sum += float64(v)
			}
		}
		y[i] = F(sum / area)
	})
}

// Pool2DGrad computes plane by plane.
func (b *Backend) Pool2DGrad(dx, dy tensor.Tensor, from []int32, a backend.Pool2DArgs) {
	const op = "pool gradient"
	p, ok := b.pooling(op, dy, dx, from, a)
	if !ok {
		return
	}
	grad, ok1 := b.floats(op, "result", dy, p.images, dy.Cols())
	into, ok2 := b.floats(op, "images", dx, p.images, dx.Cols())
	if !ok1 || !ok2 || a.Max && !b.inside(op, from, p.size) {
		return
	}
	b.each(p.images*p.planes, p.size, func(_ *worker, r int) {
		image, plane := r/p.planes, r%p.planes
		y, x := grad.V[image*grad.Stride+plane*p.places:][:p.places], into.V[image*into.Stride+plane*p.size:][:p.size]
		if a.Max {
			for i, at := range from[r*p.places:][:p.places] {
				x[at] += y[i]
			}
			return
		}
		p.each(func(i int, rows, cols [2]int, area float64) {
			v := float32(float64(y[i]) / area)
			for row := rows[0]; row < rows[1]; row++ {
				for j := cols[0]; j < cols[1]; j++ {
					x[row*p.cols.Size+j] += v
				}
			}
		})
	})
}
