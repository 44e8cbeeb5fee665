package tensor

import (
	"math"

	"github.com/heftai/heft/internal/kernels/gemv"
	"github.com/heftai/heft/internal/kernels/mat"
)

// AttentionOptions configures [Tape.Attention].
type AttentionOptions struct {
	// Scale multiplies the products of queries and keys. 0 means 1/√width.
	Scale float64
	// Causal restricts each position to itself and earlier positions.
	Causal bool
	// Window, if positive, is the number of positions that a causal position sees, including
	// itself.
	Window int
	// Mask, if not nil, is added to the scaled products: 0 keeps a key, -Inf leaves it out. It
	// broadcasts to [batch heads length length] and may have a gradient; [Tape.Keep] makes one of
	// booleans. A query that is left without keys gets zeros. With a mask, k and v may have another
	// length than q, and the probabilities are kept in memory.
	Mask *Tensor
}

// Attention computes softmax(q·kᵀ·scale)·v for each head. q is [batch, length, heads, width]; k and
// v are [batch, length, groups, width]. heads is a multiple of groups, and neighbouring heads share
// a group. It does not keep the probabilities: Backward computes them again.
func (tp *Tape) Attention(q, k, v *Tensor, o AttentionOptions) *Tensor {
	if !tp.ready("attention", q, k, v) {
		return tp.void()
	}
	if o.Mask != nil {
		if !tp.ready("attention", o.Mask) {
			return tp.void()
		}
		if o.Window > 0 && !o.Causal {
			return tp.fail("attention: got window %d for q of shape %v without Causal, want Causal", o.Window, q)
		}
		return tp.maskedAttention(q, k, v, o)
	}
	if q.dims() != 4 || !k.is(v.shape...) || k.dims() != 4 || k.shape[2] == 0 || q.last() == 0 || q.shape[2]%k.shape[2] != 0 ||
		!k.is(q.shape[0], q.shape[1], k.shape[2], q.shape[3]) {
		return tp.fail("attention: q has shape %v, k %v, v %v, want [batch length heads width] and [batch length groups width]", q, k, v)
	}
	if o.Window > 0 && !o.Causal {
		return tp.fail("attention: got window %d for q of shape %v without Causal, want Causal", o.Window, q)
	}
	if tp.autocast == Float16 {
		return tp.lowered(func(in []*Tensor) *Tensor { return tp.Attention(in[0], in[1], in[2], o) }, q, k, v)
	}
	a := &attention{tp: tp, o: o, q: q, k: k, v: v, length: q.shape[1], heads: q.shape[2], groups: k.shape[2], width: q.shape[3]}
	a.scale = float32(o.Scale)
	if o.Scale == 0 {
		a.scale = float32(1 / math.Sqrt(float64(a.width)))
	}
	a.out = tp.result(q.shape, q, k, v)
	a.lse = make([]float32, q.shape[0]*a.heads*a.length)
	blocks := (a.length + attentionRows - 1) / attentionRows
	tp.parallel(q.shape[0]*a.heads*blocks, func(u int) {
		a.forward(u/blocks, u%blocks*attentionRows)
	})
	return tp.record(a.out, a.backward)
}

// attentionRows is the number of queries that are processed at a time.
const attentionRows = 48

// attention is one call. Heads are numbered across the batch: batch·heads + head.
type attention struct {
	tp                           *Tape
	o                            AttentionOptions
	q, k, v, out                 *Tensor
	length, heads, groups, width int
	scale                        float32
	lse                          []float32 // of each head and query
}

// reach returns the range [lo, hi) of keys that queries [t, t+n) attend to.
func (a *attention) reach(t, n int) (lo, hi int) {
	if !a.o.Causal {
		return 0, a.length
	}
	if a.o.Window > 0 {
		lo = max(t-a.o.Window+1, 0)
	}
	return lo, t + n
}

// sees returns the range [lo, hi) of keys that query t attends to.
func (a *attention) sees(t int) (lo, hi int) { return a.reach(t, 1) }

// of views one head of a tensor [batch, length, heads, width] from position t on.
func (a *attention) of(v []float32, heads, head, t int) mat.Floats {
	batch := head / heads
	return mat.Floats{V: v[((batch*a.length+t)*heads+head%heads)*a.width:], Stride: heads * a.width}
}

// group returns the head of k and v that a head reads, numbered across the batch.
func (a *attention) group(head int) int {
	return head/a.heads*a.groups + head%a.heads/(a.heads/a.groups)
}

// scores sets p[i][j] to the product of query t+i and key lo+j.
func (a *attention) scores(p []float32, head, t, n, lo, hi int) {
	keys := a.of(a.k.data, a.groups, a.group(head), lo)
	a.tp.set.GEMV.Mul(&gemv.Product{Y: dense(p, hi-lo), W: stored(keys.V, keys.Stride), X: a.of(a.q.data, a.heads, head, t), Rows: hi - lo, Tokens: n, N: a.width})
}

// forward computes the output of queries [t, t+attentionRows) of a head.
func (a *attention) forward(head, t int) {
	n := min(attentionRows, a.length-t)
	lo, hi := a.reach(t, n)
	span := hi - lo
	p := make([]float32, n*span)
	a.scores(p, head, t, n, lo, hi)
	for i := range n {
		row := p[i*span : (i+1)*span]
		first, end := a.sees(t + i)
		clear(row[:first-lo])
		clear(row[end-lo:])
		seen := row[first-lo : end-lo]
		top := a.tp.set.Vector.ScaleMax(seen, a.scale)
		sum := a.tp.set.Vector.ExpSum(seen, top)
		scaleBy(seen, 1/sum)
		a.lse[head*a.length+t+i] = top + float32(math.Log(float64(sum)))
	}
	values := a.of(a.v.data, a.groups, a.group(head), lo)
	a.tp.set.GEMV.Mix(&gemv.RowSum{Y: a.of(a.out.data, a.heads, head, t), P: dense(p, span), Step: 1, V: stored(values.V, values.Stride), Keys: span, Tokens: n, Cols: a.width})
}

// backward processes the heads of a group one after another, because they share the gradients of k
// and v.
func (a *attention) backward(grad []float32) {
	gq, gk, gv := a.tp.gradient(a.q), a.tp.gradient(a.k), a.tp.gradient(a.v)
	share := a.heads / a.groups
	a.tp.parallel(a.q.shape[0]*a.groups, func(u int) {
		scratch := make([]float32, 2*attentionRows*a.length)
		batch, group := u/a.groups, u%a.groups
		for h := range share {
			head := batch*a.heads + group*share + h
			for t := 0; t < a.length; t += attentionRows {
				a.backRows(scratch, grad, gq, gk, gv, head, t)
			}
		}
	})
}

// backRows adds the gradients of queries [t, t+attentionRows) of a head.
func (a *attention) backRows(scratch, grad, gq, gk, gv []float32, head, t int) {
	n := min(attentionRows, a.length-t)
	lo, hi := a.reach(t, n)
	span, g, set := hi-lo, a.group(head), a.tp.set
	p, dp := scratch[:n*span], scratch[attentionRows*a.length:][:n*span]
	dy, y := a.of(grad, a.heads, head, t), a.of(a.out.data, a.heads, head, t)
	values := a.of(a.v.data, a.groups, g, lo)
	a.scores(p, head, t, n, lo, hi)
	set.GEMV.Mul(&gemv.Product{Y: dense(dp, span), W: stored(values.V, values.Stride), X: dy, Rows: span, Tokens: n, N: a.width})
	for i := range n {
		first, end := a.sees(t + i)
		row := p[i*span : (i+1)*span]
		clear(row[:first-lo])
		clear(row[end-lo:])
		seen := row[first-lo : end-lo]
		scaleBy(seen, a.scale)
		set.Vector.ExpSum(seen, a.lse[head*a.length+t+i])
	}
	if gv != nil {
		set.GEMV.Mix(&gemv.RowSum{Y: a.of(gv, a.groups, g, lo), P: mat.Floats{V: p, Stride: 1}, Step: span, V: stored(dy.V, dy.Stride), Keys: n, Tokens: span, Cols: a.width})
	}
	for i := range n {
		var dot float64
		for c, d := range dy.V[i*dy.Stride : i*dy.Stride+a.width] {
			dot += float64(d * y.V[i*y.Stride+c])
		}
		row, drow := p[i*span:(i+1)*span], dp[i*span:(i+1)*span]
		for j, w := range row {
			drow[j] = w * (drow[j] - float32(dot)) * a.scale
		}
	}
	if gq != nil {
		keys := a.of(a.k.data, a.groups, g, lo)
		set.GEMV.Mix(&gemv.RowSum{Y: a.of(gq, a.heads, head, t), P: dense(dp, span), Step: 1, V: stored(keys.V, keys.Stride), Keys: span, Tokens: n, Cols: a.width})
	}
	if gk != nil {
		queries := a.of(a.q.data, a.heads, head, t)
		set.GEMV.Mix(&gemv.RowSum{Y: a.of(gk, a.groups, g, lo), P: mat.Floats{V: dp, Stride: 1}, Step: span, V: stored(queries.V, queries.Stride), Keys: n, Tokens: span, Cols: a.width})
	}
}
