package backendtest

import (
	"math"
	"slices"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
)

// images returns the backend's operations for convolutional networks.
func images(e *env) backend.Images {
	i, ok := e.Backend.(backend.Images)
	if !ok {
		e.Fatal("the backend has no operations on images")
	}
	return i
}

// convCase is a convolution of a batch of images.
type convCase struct {
	images, in, out int
	a               backend.Conv2DArgs
}

func (c *convCase) shapes() (x, w, y []int) {
	r, k := c.a.Rows, c.a.Cols
	return []int{c.images, c.in, r.Size, k.Size}, []int{c.out, c.in / c.a.Groups, r.Kernel, k.Kernel}, []int{c.images, c.out, r.Places(), k.Places()}
}

func sizeOf(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

func window(size, kernel, stride, padding, dilation int) backend.Window {
	return backend.Window{Size: size, Kernel: kernel, Stride: stride, Padding: padding, Dilation: dilation}
}

var convCases = []convCase{
	{2, 3, 4, backend.Conv2DArgs{Rows: window(7, 3, 1, 1, 1), Cols: window(6, 3, 1, 1, 1), Groups: 1}},
	{1, 4, 6, backend.Conv2DArgs{Rows: window(9, 3, 2, 2, 2), Cols: window(8, 2, 3, 0, 1), Groups: 2}},
	{3, 70, 30, backend.Conv2DArgs{Rows: window(5, 1, 1, 0, 1), Cols: window(5, 1, 1, 0, 1), Groups: 1}},
	{2, 5, 5, backend.Conv2DArgs{Rows: window(4, 3, 1, 1, 1), Cols: window(5, 5, 1, 2, 1), Groups: 5}},
	{1, 2, 3, backend.Conv2DArgs{Rows: window(1, 3, 1, 1, 1), Cols: window(2, 2, 1, 0, 1), Groups: 1}},
}

// reference computes the convolution in float64.
func (c *convCase) reference(x, w, bias []float32) []float64 {
	_, _, shape := c.shapes()
	want := make([]float64, sizeOf(shape))
	in, out := c.in/c.a.Groups, c.out/c.a.Groups
	rows, cols := c.a.Rows, c.a.Cols
	for i := range want {
		col, row := i%shape[3], i/shape[3]%shape[2]
		o, image := i/(shape[2]*shape[3])%c.out, i/(shape[1]*shape[2]*shape[3])
		sum := 0.0
		if bias != nil {
			sum = float64(bias[o])
		}
		for ch := range in {
			for ky := range rows.Kernel {
				for kx := range cols.Kernel {
					y, z := rows.At(row, ky), cols.At(col, kx)
					if y < 0 || y >= rows.Size || z < 0 || z >= cols.Size {
						continue
					}
					from := ((image*c.in+o/out*in+ch)*rows.Size+y)*cols.Size + z
					sum += float64(w[((o*in+ch)*rows.Kernel+ky)*cols.Kernel+kx]) * float64(x[from])
				}
			}
		}
		want[i] = sum
	}
	return want
}

// testConv2D compares results with sums in float64, and gradients with difference quotients.
func testConv2D(e *env) {
	b := images(e)
	for n, c := range convCases {
		xs, ws, ys := c.shapes()
		x, w, bias := e.values(sizeOf(xs)), e.values(sizeOf(ws)), e.values(c.out)
		run := func(bias tensor.Tensor) []float32 {
			dst := e.floats(make([]float32, sizeOf(ys)), ys...)
			b.Conv2D(dst, e.floats(x, xs...), e.floats(w, ws...), bias, c.a)
			return e.read(dst)
		}
		what := name("convolution", n)
		close64(e, what, run(tensor.Tensor{}), c.reference(x, w, nil), 1e-5, 1)
		close64(e, what, run(e.floats(bias, c.out)), c.reference(x, w, bias), 1e-5, 1)
		wide, in := make([]float64, sizeOf(ys)), make([]float64, len(x))
		for i, v := range x {
			in[i] = float64(v)
		}
		for _, from := range []tensor.Tensor{e.floats(x, xs...), tensor.Doubles(in, xs...)} {
			b.Conv2D(tensor.Doubles(wide, ys...), from, e.floats(w, ws...), e.floats(bias, c.out), c.a)
			e.sync()
			for i, want := range c.reference(x, w, bias) {
				if !(math.Abs(wide[i]-want) <= 1e-12*(1+math.Abs(want))) {
					e.Fatalf("%s: element %d in float64 is %v, want %v", what, i, wide[i], want)
				}
			}
		}
		dy := e.values(sizeOf(ys))
		dx, dw, db := e.gradientOf(xs), e.gradientOf(ws), e.gradientOf([]int{c.out})
		b.Conv2DGrad(dx, dw, db, e.floats(dy, ys...), e.floats(x, xs...), e.floats(w, ws...), c.a)
		e.slopes(what, dy, func() []float32 { return run(e.floats(bias, c.out)) },
			slope{"x", x, e.read(dx), begun}, slope{"weight", w, e.read(dw), begun}, slope{"bias", bias, e.read(db), begun})
		dx2 := e.gradientOf(xs)
		b.Conv2DGrad(dx2, tensor.Tensor{}, tensor.Tensor{}, e.floats(dy, ys...), e.floats(x, xs...), e.floats(w, ws...), c.a)
		if !slices.Equal(e.read(dx2), e.read(dx)) {
			e.Errorf("%s: the gradient of x depends on which are wanted", what)
		}
	}
	c := convCases[0]
	xs, ws, ys := c.shapes()
	b.Conv2D(e.floats(make([]float32, sizeOf(ys)), ys...), e.floats(make([]float32, sizeOf(xs)), xs...), e.floats(make([]float32, sizeOf(ws)), ws...), tensor.Tensor{},
		backend.Conv2DArgs{Rows: window(7, 3, 0, 1, 1), Cols: c.a.Cols, Groups: 1})
	if e.Sync() == nil {
		e.Error("a stride of 0 is no error")
	}
}

// gradientOf returns memory for a gradient of the given shape, with initial values that must be
// added to.
func (e *env) gradientOf(shape []int) tensor.Tensor {
	v := make([]float32, sizeOf(shape))
	for i := range v {
		v[i] = begun
	}
	return e.floats(v, shape...)
}

// testPool2D compares maxima, means and their gradients with plain loops.
func testPool2D(e *env) {
	b := images(e)
	parts := func(size, n int) backend.Window { return backend.Window{Size: size, Parts: n} }
	for n, a := range []backend.Pool2DArgs{
		{Rows: window(7, 3, 2, 1, 1), Cols: window(8, 2, 2, 0, 1)},
		{Rows: window(5, 2, 1, 1, 1), Cols: window(6, 3, 3, 1, 1)},
		{Rows: parts(7, 3), Cols: parts(5, 5)},
		{Rows: parts(4, 1), Cols: parts(6, 4)},
	} {
		for _, most := range []bool{false, true} {
			a.Max = most
			const count, channels = 2, 3
			x := e.values(count * channels * a.Rows.Size * a.Cols.Size)
			high, wide := a.Rows.Places(), a.Cols.Places()
			dy := e.values(count * channels * high * wide)
			want, grad := make([]float64, len(dy)), make([]float64, len(x))
			for i := range want {
				want[i] = poolElement(x, grad, float64(dy[i]), i, &a)
			}
			shape := []int{count, channels, a.Rows.Size, a.Cols.Size}
			dst, dx := e.floats(make([]float32, len(dy)), count, channels, high, wide), e.floats(make([]float32, len(x)), shape...)
			var from []int32
			if most {
				from = make([]int32, len(dy))
			}
			b.Pool2D(dst, from, e.floats(x, shape...), a)
			b.Pool2DGrad(dx, e.floats(dy, count, channels, high, wide), from, a)
			close64(e, name("pool", n, most), e.read(dst), want, 1e-6, 1)
			close64(e, name("pool gradient", n, most), e.read(dx), grad, 1e-6, 1)
			in, out := make([]float64, len(x)), make([]float64, len(dy))
			for i, v := range x {
				in[i] = float64(v)
			}
			b.Pool2D(tensor.Doubles(out, count, channels, high, wide), from, tensor.Doubles(in, shape...), a)
			e.sync()
			for i, w := range want {
				if !(math.Abs(out[i]-w) <= 1e-12) {
					e.Fatalf("pool %d: element %d in float64 is %v, want %v", n, i, out[i], w)
				}
			}
		}
	}
}

// poolElement returns result i and adds dy to the elements that it depends on.
func poolElement(x []float32, grad []float64, dy float64, i int, a *backend.Pool2DArgs) float64 {
	high, wide := a.Rows.Places(), a.Cols.Places()
	plane := i / (high * wide) * a.Rows.Size * a.Cols.Size
	y0, y1, h := a.Rows.Span(i / wide % high)
	x0, x1, w := a.Cols.Span(i % wide)
	sum, best, at := 0.0, math.Inf(-1), 0
	for y := y0; y < y1; y++ {
		for z := x0; z < x1; z++ {
			j := plane + y*a.Cols.Size + z
			v := float64(x[j])
			if sum += v; v > best {
				best, at = v, j
			}
			if !a.Max {
				grad[j] += dy / float64(h*w)
			}
		}
	}
	if a.Max {
		grad[at] += dy
		return best
	}
	return sum / float64(h*w)
}

// imageProgram runs convolutions and pooling that are large enough to be divided among threads.
func imageProgram(e *env, out map[string][]float32) {
	e.Helper()
	b, ok := e.Backend.(backend.Images)
	if !ok {
		return
	}
	c := convCase{3, 12, 26, backend.Conv2DArgs{Rows: window(11, 3, 1, 1, 1), Cols: window(13, 3, 2, 0, 1), Groups: 2}}
	xs, ws, ys := c.shapes()
	x, w, y := e.floats(e.values(sizeOf(xs)), xs...), e.floats(e.values(sizeOf(ws)), ws...), e.floats(make([]float32, sizeOf(ys)), ys...)
	dx, dw, db := e.gradientOf(xs), e.gradientOf(ws), e.gradientOf([]int{c.out})
	b.Conv2D(y, x, w, e.floats(e.values(c.out), c.out), c.a)
	b.Conv2DGrad(dx, dw, db, y, x, w, c.a)
	a := backend.Pool2DArgs{Rows: window(11, 3, 2, 1, 1), Cols: window(13, 3, 2, 1, 1), Max: true}
	p, from := e.floats(make([]float32, 3*12*6*7), 3, 12, 6, 7), make([]int32, 3*12*6*7)
	b.Pool2D(p, from, x, a)
	b.Pool2DGrad(dx, p, from, a)
	for _, t := range []tensor.Tensor{y, dx, dw, db, p} {
		out["images"] = append(out["images"], e.read(t)...)
	}
}
