package tensor

// Keep returns a mask for [AttentionOptions] from booleans: 0 where an entry is true, otherwise
// -Inf.
func (tp *Tape) Keep(keep []bool, shape ...int) *Tensor {
	v := make([]float32, len(keep))
	for i, k := range keep {
		if !k {
			v[i] = negativeInfinity
		}
	}
	return tp.Input(v, shape...)
}

// composedAttention is Attention with o.Mask, or without Causal. It stores the probabilities,
// [batch heads queries keys].
func (tp *Tape) composedAttention(q, k, v *Tensor, o AttentionOptions) *Tensor {
	if q.dims() != 4 || k.dims() != 4 || v.dims() != 4 || k.shape[2] == 0 || q.last() == 0 || q.shape[2]%k.shape[2] != 0 ||
		!k.is(q.shape[0], k.shape[1], k.shape[2], q.shape[3]) || !v.is(k.shape[0], k.shape[1], k.shape[2], v.shape[3]) {
		return tp.fail("attention: q has shape %v, k %v, v %v, want [batch length heads width] and twice [batch keys groups width]", q, k, v)
	}
	batch, queries, keys, heads := q.shape[0], q.shape[1], k.shape[1], q.shape[2]
	if o.Mask != nil && !tp.spreads(o.Mask, batch, heads, queries, keys) {
		return tp.fail("attention: mask has shape %v, which does not broadcast to [%d %d %d %d]", o.Mask, batch, heads, queries, keys)
	}
	shared := func(x *Tensor) *Tensor { // [batch heads keys width]
		groups, width := x.shape[2], x.last()
		x = tp.Reshape(tp.Transpose(x, 1, 2), batch, groups, 1, keys, width)
		return tp.Reshape(tp.Expand(x, batch, groups, heads/groups, keys, width), batch, heads, keys, width)
	}
	scores := tp.Scale(tp.MatMul(tp.Transpose(q, 1, 2), tp.Transpose(shared(k), 2, 3)), o.scale(q.last()))
	if o.Mask != nil {
		scores = tp.Add(scores, o.Mask)
	}
	if o.Causal {
		scores = tp.Add(scores, tp.causal(queries, keys, o.Window))
	}
	return tp.Transpose(tp.MatMul(tp.safeSoftmax(scores), shared(v)), 1, 2)
}

// spreads reports whether t broadcasts to a shape of four dimensions.
func (tp *Tape) spreads(t *Tensor, shape ...int) bool {
	w := tp.pair(t.shape, shape)
	return w != nil && count(w.shape) == count(shape) && len(w.shape) == len(shape)
}

// causal returns the mask of causal attention: query i attends to keys up to i.
func (tp *Tape) causal(queries, keys, window int) *Tensor {
	keep := make([]bool, queries*keys)
	for i := range keep {
		t, key := i/keys, i%keys
		keep[i] = key <= t && (window <= 0 || key > t-window)
	}
	return tp.Keep(keep, queries, keys)
}

// safeSoftmax is Softmax over the last dimension that returns 0 for a row of only -Inf.
func (tp *Tape) safeSoftmax(x *Tensor) *Tensor {
	return tp.softmax("attention", x, -1, false, func(x, y []float32) {
		for _, v := range x {
			if v != negativeInfinity {
				return
			}
		}
		clear(y)
	})
}
