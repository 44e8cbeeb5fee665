package backendtest

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
)

// alternatingCase is the reverse of one operation of alternating updates (AltUp) or
// hyper-connections.
type alternatingCase struct {
	name     string
	widths   []int   // of the operands; the operation changes the first one
	scale    float32 // of the first operand
	shift    float32 // of all operands
	run      func(b backend.Gradients, x []tensor.Tensor)
	backward func(g backend.Gradients, d []tensor.Tensor, dy tensor.Tensor, x []tensor.Tensor)
}

func testAlternatingGrad(e *env) {
	g := e.gradients()
	if g == nil {
		return
	}
	const n, width, active, by = 3, 10, 1, 0.3
	for _, c := range []alternatingCase{
		{"predicted streams", []int{n * width, n * n}, 1, 0,
			func(b backend.Gradients, x []tensor.Tensor) { b.PredictStreams(x[0], x[1]) },
			func(g backend.Gradients, d []tensor.Tensor, dy tensor.Tensor, x []tensor.Tensor) {
				g.PredictStreamsGrad(d[0], d[1], dy, x[0], x[1])
			}},
		{"corrected streams", []int{n * width, width, n}, 1, 0,
			func(b backend.Gradients, x []tensor.Tensor) { b.CorrectStreams(x[0], x[1], x[2], active) },
			func(g backend.Gradients, d []tensor.Tensor, dy tensor.Tensor, x []tensor.Tensor) {
				g.CorrectStreamsGrad(d[0], d[1], d[2], dy, x[0].Columns(active*width, (active+1)*width), x[1], x[2], active)
			}},
		{"magnitude", []int{4 * width, 4 * width}, 1, 0,
			func(b backend.Gradients, x []tensor.Tensor) { b.Magnify(x[0], x[1]) },
			func(g backend.Gradients, d []tensor.Tensor, dy tensor.Tensor, x []tensor.Tensor) {
				g.MagnifyGrad(d[0], d[1], dy, x[0], x[1])
			}},
		{"magnitude below the least", []int{4 * width, 4 * width}, 2e-3, 0,
			func(b backend.Gradients, x []tensor.Tensor) { b.Magnify(x[0], x[1]) },
			func(g backend.Gradients, d []tensor.Tensor, dy tensor.Tensor, x []tensor.Tensor) {
				g.MagnifyGrad(d[0], d[1], dy, x[0], x[1])
			}},
		{"cut", []int{width}, 30, 0, // few values are near the edge
			func(b backend.Gradients, x []tensor.Tensor) { b.CutOff(x[0], by) },
			func(g backend.Gradients, d []tensor.Tensor, dy tensor.Tensor, x []tensor.Tensor) {
				g.CutOffGrad(d[0], dy, x[0], by)
			}},
	} {
		c.test(e, g)
	}
}

func testStreamsGrad(e *env) {
	g := e.gradients()
	if g == nil {
		return
	}
	const n, width = 3, 10
	vector := func(t tensor.Tensor) tensor.Tensor { // the first row
		t.Rank, t.Stride, t.Dims = 1, 0, [tensor.MaxRank]int{t.Cols()}
		return t
	}
	for _, a := range []backend.StreamArgs{{Count: n, Iterations: 1, Eps: 1e-3}, {Count: n, Iterations: 4, Eps: 1e-3}, {Count: n, Independent: true, Eps: 1e-3, Magnitude: 1.5}} {
		all, scales := (2+n)*n, 3
		if a.Independent {
			all, scales = 2*n, 2
		}
		cases := []alternatingCase{
			{"gates of streams", []int{n * width, width, n * width}, 1, 1.5, // products are far from 0
				func(b backend.Gradients, x []tensor.Tensor) { b.GateStreams(x[0], x[1], x[0], x[2]) },
				func(g backend.Gradients, d []tensor.Tensor, dy tensor.Tensor, x []tensor.Tensor) {
					g.GateStreamsGrad(d[1], d[0], d[2], dy, x[1], x[0], x[2])
				}},
			{"collapsed streams", []int{width, n * width, all}, 1, 0,
				func(b backend.Gradients, x []tensor.Tensor) { b.CollapseStreams(x[0], x[1], x[2], a) },
				func(g backend.Gradients, d []tensor.Tensor, dy tensor.Tensor, x []tensor.Tensor) {
					g.CollapseStreamsGrad(d[1], d[2], dy, x[1], x[2], a)
				}},
			{"expanded streams", []int{n * width, width, all}, 1, 0,
				func(b backend.Gradients, x []tensor.Tensor) { b.ExpandStreams(x[0], x[1], x[2], a) },
				func(g backend.Gradients, d []tensor.Tensor, dy tensor.Tensor, x []tensor.Tensor) {
					g.ExpandStreamsGrad(d[0], d[1], d[2], dy, x[0], x[1], x[2], a)
				}},
		}
		for _, columns := range [][2]int{{all, scales}, {n, 1}} {
			cases = append(cases, alternatingCase{"weights of streams", []int{columns[0], columns[0], columns[1]}, 1, 0,
				func(b backend.Gradients, x []tensor.Tensor) { b.StreamWeights(x[0], vector(x[1]), vector(x[2]), a) },
				func(g backend.Gradients, d []tensor.Tensor, dy tensor.Tensor, x []tensor.Tensor) {
					of := func(t tensor.Tensor) tensor.Tensor {
						if t.IsZero() {
							return t
						}
						return vector(t)
					}
					g.StreamWeightsGrad(d[0], of(d[1]), of(d[2]), dy, x[0], vector(x[1]), vector(x[2]), a)
				}})
		}
		for _, c := range cases {
			c.test(e, g)
		}
	}
}

func (c *alternatingCase) test(e *env, g backend.Gradients) {
	e.Helper()
	const rows = 5
	values := make([][]float32, len(c.widths))
	for i, width := range c.widths {
		values[i] = e.values(rows * width)
	}
	for i := range values[0] {
		values[0][i] *= c.scale
	}
	for _, v := range values {
		for i := range v {
			v[i] += c.shift
		}
	}
	tensors := func() (x []tensor.Tensor) {
		for i, v := range values {
			x = append(x, e.strided(v, rows, c.widths[i], 2))
		}
		return x
	}
	dy := e.values(rows * c.widths[0])
	var d []tensor.Tensor
	for _, width := range c.widths {
		d = append(d, e.gradient(rows, width))
	}
	c.backward(g, d, e.strided(dy, rows, c.widths[0], 1), tensors())
	var operands []slope
	for i, v := range values {
		operands = append(operands, slope{c.name + " operand", v, e.read(d[i]), begun})
	}
	e.slopes(c.name, dy, func() []float32 {
		x := tensors()
		c.run(g, x)
		return e.read(x[0])
	}, operands...)
	c.absent(e, g, d, dy, tensors())
}

// absent checks that each gradient has the same bits if it is the only one requested.
func (c *alternatingCase) absent(e *env, g backend.Gradients, all []tensor.Tensor, dy []float32, x []tensor.Tensor) {
	e.Helper()
	for k := range all {
		rows := all[k].Rows()
		d := make([]tensor.Tensor, len(all))
		d[k] = e.gradient(rows, c.widths[k])
		c.backward(g, d, e.strided(dy, rows, c.widths[0], 1), x)
		sameBits(e, c.name+" gradient by itself", e.read(d[k]), e.read(all[k]))
	}
}
