package cpu

import (
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// float is the type in which images are read.
type float interface{ float32 | float64 }

// doubles is a float64 matrix.
type doubles struct {
	v      []float64
	stride int
}

// doubles checks that t is a float64 matrix [rows, cols] of op and returns it.
func (b *Backend) doubles(op, name string, t tensor.Tensor, rows, cols int) (doubles, bool) {
	if !b.isMatrix(op, name, t, meta.Float64, rows, cols) {
		return doubles{}, false
	}
	return doubles{t.F64(), t.RowStride()}, true
}

// conv2dDouble computes in float64, which takes several times as long.
func (b *Backend) conv2dDouble(c *convolution, dst, x tensor.Tensor, bias []float32) {
	const op = "conv2d"
	out, ok := b.doubles(op, "result", dst, c.images, dst.Cols())
	if !ok {
		return
	}
	n, at := c.size(), func(m doubles, u, n int) []float64 { return m.v[u/c.groups*m.stride+u%c.groups*n:][:n] }
	var image func(u int) []float64
	if x.DType == meta.Float64 {
		in, ok := b.doubles(op, "images", x, c.images, x.Cols())
		if !ok {
			return
		}
		image = func(u int) []float64 { return at(in, u, n) }
	} else {
		in, ok := b.floats(op, "images", x, c.images, x.Cols())
		if !ok {
			return
		}
		image = func(u int) []float64 {
			wide := make([]float64, n)
			for i, v := range c.channels(in, u, n) {
				wide[i] = float64(v)
			}
			return wide
		}
	}
	b.run(taskFunc(func(_ *worker, u int) {
		unfolded := make([]float64, (c.taps+c.taps&1)*c.places) // a last tap of zeros makes the number even
		unfold(c, unfolded, image(u))
		y := at(out, u, c.out*c.places)
		clear(y)
		if bias != nil {
			for i := range y {
				y[i] = float64(bias[u%c.groups*c.out+i/c.places])
			}
		}
		c.double(y, c.weights(c.w, u), unfolded)
	}), c.images*c.groups, 4*c.images*c.groups*c.out*c.taps*c.places)
}

// double adds the product to sum in ascending order, two rows of the result and two taps at a time.
func (c *convolution) double(sum []float64, w []float32, image []float64) {
	n := c.places
	weight := func(o, t int) float64 {
		if o >= c.out || t >= c.taps {
			return 0
		}
		return float64(w[o*c.taps+t])
	}
	spare := make([]float64, n) // stands for a row that makes the number even
	for o := 0; o < c.out; o += 2 {
		row0, row1 := sum[o*n:(o+1)*n], spare
		if o+1 < c.out {
			row1 = sum[(o+1)*n : (o+2)*n]
		}
		row1 = row1[:len(row0)]
		for t := 0; t < c.taps; t += 2 {
			a, b := weight(o, t), weight(o, t+1)
			d, e := weight(o+1, t), weight(o+1, t+1)
			p, q := image[t*n:(t+1)*n], image[(t+1)*n:(t+2)*n]
			p, q = p[:len(row0)], q[:len(row0)]
			for i := range row0 {
				u, v := p[i], q[i]
				row0[i] = row0[i] + a*u + b*v
				row1[i] = row1[i] + d*u + e*v
			}
		}
	}
}
