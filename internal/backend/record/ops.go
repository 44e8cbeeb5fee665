package record

import (
	"slices"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// gradientOf returns the gradient of a trainable weight. It is absent for a frozen one.
func (r *Recorder) gradientOf(w tensor.Tensor) tensor.Tensor {
	if w.IsZero() {
		return w
	}
	if t, ok := r.weights.Gradient(w); ok {
		return t
	}
	return tensor.Tensor{}
}

// matrixGradient returns the gradient of a matrix, in its layout. Quantised matrices have none.
func (r *Recorder) matrixGradient(w backend.Matrix) backend.Matrix {
	if w.Quant != nil {
		return backend.Matrix{}
	}
	g := w
	if g.Tensor = r.gradientOf(w.Tensor); g.IsZero() {
		return backend.Matrix{}
	}
	return g
}

// Embed records a backward operation that adds to the table's gradient.
func (r *Recorder) Embed(dst tensor.Tensor, table backend.Matrix, ids []int32, scale float32) {
	r.EmbedPadded(dst, table, ids, scale, -1)
}

// EmbedPadded records a backward operation that adds to all rows of the table's gradient except
// padding.
func (r *Recorder) EmbedPadded(dst tensor.Tensor, table backend.Matrix, ids []int32, scale float32, padding int32) {
	if r.unrecorded(dst) {
		r.Backend.Embed(dst, table, ids, scale)
		return
	}
	r.write(dst)
	r.Backend.Embed(dst, table, ids, scale)
	ids = slices.Clone(ids)
	for i, id := range ids {
		if id == padding {
			ids[i] = -1
		}
	}
	r.push(dst, func(dy tensor.Tensor) {
		if g := r.matrixGradient(table); !g.IsZero() {
			r.compute.EmbedGrad(g, dy, ids, scale)
		}
	})
}

// Norm records a backward operation, also if it works in place.
func (r *Recorder) Norm(dst, x, weight, bias tensor.Tensor, a meta.NormSpec) {
	if r.unrecorded(dst) {
		r.Backend.Norm(dst, x, weight, bias, a)
		return
	}
	in := r.keep(x)
	r.write(dst)
	r.Backend.Norm(dst, r.value(in), weight, bias, a)
	r.made(dst, func(to tensor.Tensor) { r.Backend.Norm(to, r.value(in), weight, bias, a) })
	r.push(dst, func(dy tensor.Tensor) {
		r.compute.NormGrad(r.Gradient(x), r.gradientOf(weight), r.gradientOf(bias), dy, r.value(in), weight, a)
	}, x)
}

// Linear uses the order of summation for training, whether it records or not.
func (r *Recorder) Linear(dst, x tensor.Tensor, w backend.Matrix, bias tensor.Tensor) {
	r.product(&backend.Product{Dst: dst, X: x, W: w, Bias: bias})
}

// LinearRounded ignores the role: all rows are treated as a prompt's. With float16 weights it
// also rounds results and their gradients to float16, so that they overflow where torch's do
// under autocast. bfloat16 has the range of float32.
func (r *Recorder) LinearRounded(dst, x tensor.Tensor, w backend.Matrix, bias tensor.Tensor, _ backend.Role) {
	r.product(&backend.Product{Dst: dst, X: x, W: w, Bias: bias, Rounded: true})
}

// Products computes the products one by one.
func (r *Recorder) Products(ps []backend.Product) {
	for i := range ps {
		p := &ps[i]
		r.product(p)
	}
}

func (r *Recorder) product(p *backend.Product) {
	dst, x, w, bias, rounded := p.Dst, p.X, p.W, p.Bias, p.Rounded
	r.write(dst)
	narrow := rounded && w.DType == meta.Float16 && w.Quant == nil
	if !p.Unread || !r.on {
		r.compute.Product(dst, x, w, bias, rounded)
		if narrow {
			r.compute.Round(dst, meta.Float16)
		}
	}
	if !r.on {
		return
	}
	in := -1
	if w.Quant == nil && !w.IsZero() && r.weights.Trains(w.Tensor) { // its gradient takes no memory yet
		in = r.keep(x)
	}
	r.push(dst, func(dy tensor.Tensor) {
		dw := r.matrixGradient(w)
		if in < 0 {
			dw = backend.Matrix{}
		}
		if narrow {
			r.compute.Round(dy, meta.Float16)
		}
		r.compute.LinearGrad(r.Gradient(x), dw, r.gradientOf(bias), dy, r.value(in), w, rounded)
	}, x)
}

// Rope records a rotation by the negative angles, in place.
func (r *Recorder) Rope(x tensor.Tensor, dim int, cos, sin tensor.Tensor, interleaved bool) {
	if r.unrecorded(x) {
		r.Backend.Rope(x, dim, cos, sin, interleaved)
		return
	}
	r.write(x)
	r.Backend.Rope(x, dim, cos, sin, interleaved)
	r.reverse = append(r.reverse, func() { r.compute.RopeGrad(r.Gradient(x), dim, cos, sin, interleaved) })
}

// RopeLearned records a backward operation that also adds to the gradient of alpha. The
// derivative of a rotated pair (a, b) by its angle is (-b, a), and that of an angle by alpha is
// the angle.
func (r *Recorder) RopeLearned(x tensor.Tensor, dim int, cos, sin, angles tensor.Tensor, interleaved bool, alpha tensor.Tensor) {
	r.Rope(x, dim, cos, sin, interleaved)
	if !r.on || !r.weights.Trains(alpha) {
		return
	}
	out := r.keep(x)
	r.reverse = append(r.reverse, func() {
		dy, into := r.Gradient(x), r.gradientOf(alpha)
		if dy.IsZero() || into.IsZero() {
			return
		}
		pairs, step, apart := angles.Cols(), 1, angles.Cols()
		if interleaved {
			step, apart = 2, 1
		}
		y, sums := r.value(out), make([]float64, pairs)
		for i := range x.Rows() {
			y, dy, turned := y.Row(i), dy.Row(i), angles.Row(i)
			for h := 0; h < len(y); h += dim {
				for j, angle := range turned {
					a := h + j*step
					b := a + apart
					sums[j] += float64(angle) * (float64(dy[b])*float64(y[a]) - float64(dy[a])*float64(y[b]))
				}
			}
		}
		for j, sum := range sums {
			into.F32()[j] += float32(sum)
		}
	})
}

// StoreKV records a backward operation that takes the gradients out of its slots.
func (r *Recorder) StoreKV(kv backend.KV, k, v tensor.Tensor, slots []int32) {
	r.Backend.StoreKV(kv, k, v, slots)
	if !r.on {
		return
	}
	slots = slices.Clone(slots)
	r.reverse = append(r.reverse, func() {
		r.compute.StoreKVGrad(r.kvGradient(kv), r.Gradient(k), r.Gradient(v), slots)
		r.idle(kv.K, true)
		r.idle(kv.V, true)
	})
}

func (r *Recorder) kvGradient(kv backend.KV) backend.KV {
	return backend.KV{K: r.Gradient(kv.K), V: r.Gradient(kv.V), PageTokens: kv.PageTokens}
}

// Attention requires that its pages do not change before the backward pass.
func (r *Recorder) Attention(dst, q tensor.Tensor, kv backend.KV, spans []backend.Span, a backend.AttentionArgs) {
	if r.unrecorded(dst) {
		r.Backend.Attention(dst, q, kv, spans, a)
		return
	}
	in, states := r.keep(q), r.keep(a.Relative.States)
	r.write(dst)
	r.Backend.Attention(dst, q, kv, spans, a)
	spans = clonedSpans(spans)
	r.push(dst, func(dy tensor.Tensor) {
		r.idle(kv.K, false)
		r.idle(kv.V, false)
		d := backend.ScoreGradients{Sinks: r.gradientOf(a.Sinks), Relative: backend.Relative{States: r.Gradient(a.Relative.States), Profiles: r.gradientOf(a.Relative.Profiles)}}
		a.Relative.States = r.value(states)
		r.compute.AttentionGrad(r.Gradient(q), r.kvGradient(kv), d, dy, r.value(in), kv, spans, a)
	})
}

// Gate records a backward operation, also if it works in place.
func (r *Recorder) Gate(dst, gate, up tensor.Tensor, act meta.Activation, limit float32) {
	if r.unrecorded(dst) {
		r.Backend.Gate(dst, gate, up, act, limit)
		return
	}
	g, u := r.keep(gate), r.keep(up)
	r.write(dst)
	r.Backend.Gate(dst, r.value(g), r.value(u), act, limit)
	r.made(dst, func(to tensor.Tensor) { r.Backend.Gate(to, r.value(g), r.value(u), act, limit) })
	r.push(dst, func(dy tensor.Tensor) {
		r.compute.GateGrad(r.Gradient(gate), r.Gradient(up), dy, r.value(g), r.value(u), act, limit)
	}, gate, up)
}

// Add records a backward operation that does not change the gradient of dst.
func (r *Recorder) Add(dst, x tensor.Tensor, scale float32) {
	if r.unrecorded(dst) {
		r.Backend.Add(dst, x, scale)
		return
	}
	r.write(dst)
	r.Backend.Add(dst, x, scale)
	r.reverse = append(r.reverse, func() {
		if dx, dy := r.Gradient(x), r.Gradient(dst); !dx.IsZero() && !dy.IsZero() {
			r.compute.Add(dx, dy, scale)
		}
	})
}

// AddLearned records a backward operation that adds to the gradients of the vectors: the slopes
// times the product of x and the gradient of dst.
func (r *Recorder) AddLearned(dst, x tensor.Tensor, scale float32, by ...backend.Learned) {
	if !r.on || !slices.ContainsFunc(by, func(l backend.Learned) bool { return r.weights.Trains(l.Weight) }) {
		r.Add(dst, x, scale)
		return
	}
	in := r.keep(x)
	r.write(dst)
	r.Backend.Add(dst, x, scale)
	r.reverse = append(r.reverse, func() {
		dy := r.Gradient(dst)
		if dy.IsZero() {
			return
		}
		rows := x.Rows()
		scales, products := slices.Repeat([]float32{scale}, rows), make([]float32, rows)
		r.compute.ScatterAddGrad(r.Gradient(x), products, dy, r.value(in), r.count(rows), scales)
		sum := 0.0
		for _, v := range products {
			sum += float64(v)
		}
		for _, l := range by {
			if into := r.gradientOf(l.Weight); !into.IsZero() {
				for i, slope := range l.Slopes {
					into.F32()[i] += float32(float64(slope) * sum)
				}
			}
		}
	})
}

// Gather records a ScatterAdd, or an Add if it copies all rows in order.
func (r *Recorder) Gather(dst, x tensor.Tensor, rows []int32) {
	if r.unrecorded(dst) {
		r.Backend.Gather(dst, x, rows)
		return
	}
	r.write(dst)
	r.Backend.Gather(dst, x, rows)
	rows = slices.Clone(rows)
	r.push(dst, func(dy tensor.Tensor) {
		dx := r.Gradient(x)
		switch {
		case dx.IsZero():
		case slices.Equal(rows, r.count(x.Rows())):
			r.compute.Add(dx, dy, 1)
		default:
			r.compute.ScatterAdd(dx, dy, rows, r.units(len(rows)))
		}
	}, x)
}

// ScatterAdd records gradients for weights that Route or Copy wrote.
func (r *Recorder) ScatterAdd(dst, x tensor.Tensor, rows []int32, weights []float32) {
	if r.unrecorded(dst) {
		r.Backend.ScatterAdd(dst, x, rows, weights)
		return
	}
	r.write(dst)
	r.Backend.ScatterAdd(dst, x, rows, weights)
	in, into := -1, r.hostGradient(weights)
	if into != nil {
		in = r.keep(x)
	}
	rows, weights = slices.Clone(rows), slices.Clone(weights)
	r.reverse = append(r.reverse, func() {
		if dy := r.Gradient(dst); !dy.IsZero() {
			r.compute.ScatterAddGrad(r.Gradient(x), into, dy, r.value(in), rows, weights)
		}
	})
}

// Scale stores its result if it has a cap.
func (r *Recorder) Scale(x tensor.Tensor, scale, softcap float32) {
	if r.unrecorded(x) {
		r.Backend.Scale(x, scale, softcap)
		return
	}
	r.write(x)
	r.Backend.Scale(x, scale, softcap)
	out := -1
	if softcap > 0 {
		out = r.keep(x)
	}
	r.reverse = append(r.reverse, func() { r.compute.ScaleGrad(r.Gradient(x), r.value(out), scale, softcap) })
}

// Copy records the backward operation of a copy within the device's memory, or from it to floats
// of the host.
func (r *Recorder) Copy(dst, src tensor.Tensor) error {
	if r.unrecorded(dst) {
		return r.Backend.Copy(dst, src)
	}
	r.write(dst)
	if err := r.Backend.Copy(dst, src); err != nil {
		return err
	}
	switch {
	case r.blocks[dst.Owner] != nil:
		r.push(dst, func(dy tensor.Tensor) {
			if dx := r.Gradient(src); !dx.IsZero() {
				r.compute.Add(dx, dy, 1)
			}
		}, src)
	case r.blocks[src.Owner] != nil && dst.DType == meta.Float32 && dst.RowStride() == dst.Cols():
		into := r.addHost(dst.F32())
		r.reverse = append(r.reverse, func() {
			chunk, used := r.chunk, r.used
			moved := r.Take(src.Rows(), src.Cols())
			if err := r.Backend.Copy(moved, tensor.Floats(into, src.Rows(), src.Cols())); err != nil {
				r.fail(err)
			}
			r.compute.Add(r.Gradient(src), moved, 1)
			r.rewind(chunk, used)
		})
	}
	return nil
}

// Route records gradients for its weights. The selection of experts has none.
func (r *Recorder) Route(experts []int32, weights []float32, logits, correction tensor.Tensor, a *meta.MoESpec) {
	r.Backend.Route(experts, weights, logits, correction, a)
	if !r.on {
		return
	}
	if err := r.Backend.Sync(); err != nil { // experts are read here
		r.fail(err)
		return
	}
	in, into := r.keep(logits), r.addHost(weights)
	experts = slices.Clone(experts)
	r.reverse = append(r.reverse, func() {
		r.compute.RouteGrad(r.Gradient(logits), into, experts, r.value(in), a)
	})
}
