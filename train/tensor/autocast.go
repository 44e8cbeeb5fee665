package tensor

import "github.com/heftai/heft/internal/floats"

// Precision is the format to which a product's operands and results are rounded.
type Precision uint8

const (
	Float32 Precision = iota // no rounding
	BFloat16
	Float16
)

// String returns Accelerate's name for p (mixed_precision).
func (p Precision) String() string {
	switch p {
	case BFloat16:
		return "bf16"
	case Float16:
		return "fp16"
	}
	return "no"
}

// Autocast runs f with matrix products in p, as torch's autocast does. [Tape.Linear],
// [Tape.Conv1D], [Tape.MatMul], [Tape.Conv2D], [Tape.Attention] and [Tape.LinearCrossEntropy] round
// their operands to p and sum in float32. With Float16 the results and all their gradients are
// rounded to it too, so that they overflow where torch's do. With BFloat16, which has float32's
// range, layers keep the float32 sums and attention stays in float32. All other operations stay in
// float32, including norms, losses and activations; torch runs some of them in p. Parameters and
// their gradients are always float32.
func (tp *Tape) Autocast(p Precision, f func()) {
	defer func(was Precision) { tp.autocast = was }(tp.autocast)
	tp.autocast = p
	f()
}

// Autocasting returns the current precision of products.
func (tp *Tape) Autocasting() Precision { return tp.autocast }

// Round returns x with every element rounded to p, ties to even. It rounds the gradient too. Values
// beyond float16's range become infinite.
func (tp *Tape) Round(x *Tensor, p Precision) *Tensor {
	if !tp.ready("round", x) {
		return tp.void()
	}
	if p == Float32 {
		return x
	}
	out := tp.result(x.shape, x)
	tp.ranges(len(x.data), func(lo, hi int) { round(out.data[lo:hi], x.data[lo:hi], p) })
	return tp.record(out, func(grad []float32) {
		tp.ranges(len(grad), func(lo, hi int) { round(grad[lo:hi], grad[lo:hi], p) })
		tp.hand(out, x, grad)
	})
}

// lowered runs an operation on its inputs in the tape's precision. Inputs may be nil. Each
// parameter is rounded once per pass.
func (tp *Tape) lowered(op func(in []*Tensor) *Tensor, ins ...*Tensor) *Tensor {
	p := tp.autocast
	low := make([]*Tensor, len(ins))
	for i, t := range ins {
		if t == nil {
			continue
		}
		if low[i] = tp.casts[t]; low[i] != nil {
			continue
		}
		low[i] = tp.Round(t, p)
		if t.param != nil {
			if tp.casts == nil {
				tp.casts = map[*Tensor]*Tensor{}
			}
			tp.casts[t] = low[i]
		}
	}
	var out *Tensor
	tp.Autocast(Float32, func() { out = op(low) })
	if tp.err != nil {
		return tp.void()
	}
	return tp.Round(out, p)
}

// round sets dst to src rounded to another precision.
func round(dst, src []float32, p Precision) {
	dst = dst[:len(src)]
	if p == BFloat16 {
		for i, v := range src {
			dst[i] = floats.RoundBFloat16(v)
		}
		return
	}
	for i, v := range src {
		dst[i] = floats.RoundFloat16(v)
	}
}
