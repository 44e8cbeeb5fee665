package backendtest

import (
	"math"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

func testEmbed(e *env) {
	const rows, cols = 9, 37
	ids := []int32{3, 0, 8, 3}
	for _, d := range dtypes {
		for _, offset := range []int{0, 1, 8} {
			v := rounded(d, e.values(rows*cols))
			table := backend.Matrix{Tensor: e.place(d, v, offset, rows, cols)}
			for _, scale := range []float32{1, 2.5} {
				dst := e.empty(len(ids), cols)
				e.Embed(dst, table, ids, scale)
				var want []float32
				for _, id := range ids {
					for _, x := range v[id*cols : (id+1)*cols] {
						want = append(want, x*scale)
					}
				}
				sameBits(e, name("embed", d, offset, scale), e.read(dst), want)
			}
		}
	}
}

func refNorm(x, weight, bias []float32, rows, cols int, a meta.NormSpec) []float64 {
	out := make([]float64, 0, len(x))
	for r := range rows {
		for c := 0; c < cols; c += a.Dim {
			group := x[r*cols+c:][:a.Dim]
			mean, square := 0.0, 0.0
			if a.Layer {
				for _, v := range group {
					mean += float64(v) / float64(a.Dim)
				}
			}
			for _, v := range group {
				square += (float64(v) - mean) * (float64(v) - mean) / float64(a.Dim)
			}
			for i, v := range group {
				y := (float64(v) - mean) / math.Sqrt(square+float64(a.Eps))
				if weight != nil {
					y *= float64(a.Offset) + float64(weight[(c+i)%len(weight)])
				}
				if bias != nil {
					y += float64(bias[(c+i)%len(bias)])
				}
				out = append(out, y)
			}
		}
	}
	return out
}

// testNorm tests both norms, groups with a shared weight and with one weight each, in place and to
// other memory.
func testNorm(e *env) {
	for i, c := range []struct {
		dim, groups, weights int
		layer                bool
		offset               float32
	}{
		{1, 1, 1, false, 0}, {7, 1, 7, false, 1}, {64, 1, 64, true, 0}, {100, 1, 100, true, 0},
		{2048, 1, 2048, false, 0}, {16, 5, 16, false, 0}, {33, 3, 99, true, 0}, {40, 2, 0, true, 0},
	} {
		for _, rows := range []int{1, 5, 70} {
			d, cols := dtypes[i%3], c.dim*c.groups
			x := e.values(rows * cols)
			spec := meta.NormSpec{Dim: c.dim, Eps: 1e-5, Layer: c.layer, Offset: c.offset}
			var weight, bias []float32
			var w, b tensor.Tensor
			if c.weights > 0 {
				weight, bias = rounded(d, e.values(c.weights)), rounded(d, e.values(c.weights))
				w, b = e.place(d, weight, 1, c.weights), e.place(d, bias, 0, c.weights)
			}
			want := refNorm(x, weight, bias, rows, cols, spec)
			in, dst := e.strided(x, rows, cols, 3), e.empty(rows, cols)
			e.Norm(dst, in, w, b, spec)
			got := e.read(dst)
			close64(e, name("norm", c, rows), got, want, 1e-5, 1)
			e.Norm(in, in, w, b, spec)
			sameBits(e, name("norm in place", c, rows), e.read(in), got)
			one := e.empty(1, cols)
			e.Norm(one, e.floats(x[(rows-1)*cols:], 1, cols), w, b, spec)
			sameBits(e, name("norm of one row", c, rows), e.read(one), got[(rows-1)*cols:])
		}
	}
}

func testRope(e *env) {
	const rows, heads = 5, 3
	for _, c := range []struct{ dim, rot int }{{2, 2}, {8, 8}, {20, 12}, {64, 64}, {96, 24}} {
		for _, interleaved := range []bool{false, true} {
			half, cols := c.rot/2, heads*c.dim
			x := e.values(rows * cols)
			angles := e.values(rows * half)
			cos, sin := make([]float32, len(angles)), make([]float32, len(angles))
			for i, a := range angles {
				cos[i], sin[i] = float32(math.Cos(float64(a))), float32(math.Sin(float64(a)))
			}
			want := make([]float64, len(x))
			for i, v := range x {
				want[i] = float64(v)
			}
			for r := range rows {
				for h := range heads {
					for i := range half {
						p, q := i, i+half
						if interleaved {
							p, q = 2*i, 2*i+1
						}
						p, q = r*cols+h*c.dim+p, r*cols+h*c.dim+q
						cs, sn := float64(cos[r*half+i]), float64(sin[r*half+i])
						want[p], want[q] = float64(x[p])*cs-float64(x[q])*sn, float64(x[q])*cs+float64(x[p])*sn
					}
				}
			}
			in := e.strided(x, rows, cols, 4)
			e.Rope(in, c.dim, e.floats(cos, rows, half), e.floats(sin, rows, half), interleaved)
			close64(e, name("rope", c, interleaved), e.read(in), want, 1e-6, 1)
		}
	}
}

func refGate(g, up float64, act meta.Activation, limit float64) float64 {
	sigmoid := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	switch act {
	case meta.ActSiLU:
		return g * sigmoid(g) * up
	case meta.ActGELU:
		return g * 0.5 * math.Erfc(-g/math.Sqrt2) * up
	case meta.ActGELUTanh:
		return 0.5 * g * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(g+0.044715*g*g*g))) * up
	case meta.ActReLU2:
		g = max(g, 0) * max(g, 0)
	case meta.ActReLU:
		return math.Max(g, 0) * up
	case meta.ActTanh:
		return math.Tanh(g) * up
	case meta.ActSigmoid:
		return sigmoid(g) * up
	case meta.ActClampedSwiGLU:
		g = math.Min(g, limit)
		return (math.Max(math.Min(up, limit), -limit) + 1) * g * sigmoid(1.702*g)
	}
	return g * up
}

func testGate(e *env) {
	for act := meta.ActNone; act <= meta.ActReLU2; act++ {
		for _, n := range []struct{ rows, cols int }{{1, 1}, {3, 7}, {2, 16}, {1, 700}, {40, 333}} {
			g, up := e.values(n.rows*n.cols), e.values(n.rows*n.cols)
			for i := range g {
				g[i] *= 5
				up[i] *= 2
			}
			const limit = 1.5
			want, alone := make([]float64, len(g)), make([]float64, len(g))
			for i := range g {
				want[i] = refGate(float64(g[i]), float64(up[i]), act, limit)
				alone[i] = refGate(float64(g[i]), 1, act, limit)
				if act == meta.ActClampedSwiGLU {
					alone[i] = refGate(float64(g[i]), 0, act, limit)
				}
			}
			gt, ut := e.strided(g, n.rows, n.cols, 1), e.strided(up, n.rows, n.cols, 2)
			dst := e.empty(n.rows, n.cols)
			e.Gate(dst, gt, tensor.Tensor{}, act, limit)
			close64(e, name("gate without up", act, n), e.read(dst), alone, 2e-6, 1e-2)
			e.Gate(dst, gt, ut, act, limit)
			got := e.read(dst)
			close64(e, name("gate", act, n), got, want, 2e-6, 1e-2)
			e.Gate(gt, gt, ut, act, limit)
			sameBits(e, name("gate in place", act, n), e.read(gt), got)
		}
	}
}

// testGateExtremes: large arguments saturate, and NaN stays NaN.
func testGateExtremes(e *env) {
	inf := float32(math.Inf(1))
	g := []float32{0, 30, -30, 88, -88, 89, -89, 104, -104, 1e4, -1e4, 3e38, -3e38, inf, float32(math.NaN()), 1e-30, -1e-30}
	for _, act := range []meta.Activation{meta.ActSiLU, meta.ActGELUTanh, meta.ActGELU, meta.ActSigmoid, meta.ActTanh, meta.ActReLU, meta.ActReLU2} {
		want := make([]float64, len(g))
		for i, v := range g {
			want[i] = float64(float32(refGate(float64(v), 1, act, 0))) // a square may exceed float32
		}
		dst := e.empty(1, len(g))
		e.Gate(dst, e.floats(g, 1, len(g)), tensor.Tensor{}, act, 0)
		close64(e, name("gate", act), e.read(dst), want, 1e-5, 1e-30)
	}
}

// testRows tests Add, Gather and ScatterAdd.
func testRows(e *env) {
	const rows, cols = 6, 600
	x, y := e.values(rows*cols), e.values(rows*cols)
	for _, scale := range []float32{1, -0.5} {
		dst := e.strided(y, rows, cols, 2)
		e.Add(dst, e.strided(x, rows, cols, 1), scale)
		want := make([]float64, len(x))
		for i := range x {
			want[i] = float64(y[i]) + float64(scale)*float64(x[i])
		}
		close64(e, name("add", scale), e.read(dst), want, 1e-6, 1)
	}
	list := []int32{5, 0, 0, 3}
	dst := e.empty(len(list), cols)
	e.Gather(dst, e.strided(x, rows, cols, 1), list)
	var want []float32
	for _, r := range list {
		want = append(want, x[int(r)*cols:int(r+1)*cols]...)
	}
	sameBits(e, "gather", e.read(dst), want)

	weights := []float32{0.5, 2, -1, 0.25}
	sum := e.strided(y, rows, cols, 5)
	e.ScatterAdd(sum, dst, list, weights)
	exact := make([]float64, len(y))
	for i, v := range y {
		exact[i] = float64(v)
	}
	for i, r := range list {
		for c := range cols {
			exact[int(r)*cols+c] += float64(weights[i]) * float64(want[i*cols+c])
		}
	}
	close64(e, "scatter", e.read(sum), exact, 1e-6, 1)
}

func testScale(e *env) {
	const rows, cols = 3, 9000
	x := e.values(rows * cols)
	for _, softcap := range []float32{0, 1.5} {
		want := make([]float64, len(x))
		for i, v := range x {
			want[i] = float64(v) * 3
			if softcap > 0 {
				want[i] = float64(softcap) * math.Tanh(want[i]/float64(softcap))
			}
		}
		in := e.strided(x, rows, cols, 1)
		e.Scale(in, 3, softcap)
		close64(e, name("scale", softcap), e.read(in), want, 1e-6, 1)
	}
}
