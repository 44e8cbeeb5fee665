package backend

import (
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// Gradients is a Backend that has the reverse of its operations. A method takes the
// gradient dy of an operation's result and adds to the gradients of its operands; one
// that is absent (a zero Tensor or Matrix, nil) is not wanted. Gradients are float32, of
// the shape of what they belong to, rows of activations perhaps apart; no gradient
// overlaps another of the same call unless the comment says so. Sums have one order for
// one shape, whatever the number of threads. The reverse of Add is Add, of Gather
// ScatterAdd.
type Gradients interface {
	Backend
	RecurrentGradients
	// Zero: x = 0, a float32 matrix.
	Zero(x tensor.Tensor)
	// Round rounds the elements of x to dtype, ties to even, and beyond float16's range to
	// infinity.
	Round(x tensor.Tensor, dtype meta.DType)
	// Product is Linear for many rows, with an order of summation of its own that
	// depends on the shape alone. With rounded, x may be rounded to the dtype of w, or both
	// to bfloat16 where w is float32.
	Product(dst, x tensor.Tensor, w Matrix, bias tensor.Tensor, rounded bool)
	// LinearGrad: dx += dy·W, dw += dyᵀ·x, dbias += Σ dy. dw is a float32 view laid out as
	// w is (Transposed, RowStep, row stride); dbias may have a Stride. With rounded, dy
	// and x may be rounded to the dtype of w, or all three to bfloat16 where w is float32.
	LinearGrad(dx tensor.Tensor, dw Matrix, dbias, dy, x tensor.Tensor, w Matrix, rounded bool)
	// EmbedGrad: dtable[ids[i]] += scale · dy[i], in the order of i. Negative ids are left out.
	EmbedGrad(dtable Matrix, dy tensor.Tensor, ids []int32, scale float32)
	// NormGrad is of Norm of x by a; dweight and dbias are shaped as weight is.
	NormGrad(dx, dweight, dbias, dy, x, weight tensor.Tensor, a meta.NormSpec)
	// RopeGrad turns the gradient of Rope's result into that of its operand, in place.
	RopeGrad(dx tensor.Tensor, dim int, cos, sin tensor.Tensor, interleaved bool)
	// StoreKVGrad takes the gradients of slots out of dkv, which it leaves 0: dk[i] +=
	// dkv.K[slots[i]] and dv likewise. dv is absent where v was.
	StoreKVGrad(dkv KV, dk, dv tensor.Tensor, slots []int32)
	// AttentionGrad adds to dq, to the pages of dkv (laid out as kv, both float32; V may
	// be a view of K) and to dsinks.
	AttentionGrad(dq tensor.Tensor, dkv KV, dsinks, dy, q tensor.Tensor, kv KV, spans []Span, a AttentionArgs)
	// GateGrad is of Gate; dup is absent where up is.
	GateGrad(dgate, dup, dy, gate, up tensor.Tensor, act meta.Activation, limit float32)
	// ScatterAddGrad: dx[i] += weights[i] · dy[rows[i]], dweights[i] += x[i]·dy[rows[i]].
	// dy is the gradient of what was added to.
	ScatterAddGrad(dx tensor.Tensor, dweights []float32, dy, x tensor.Tensor, rows []int32, weights []float32)
	// ScaleGrad turns the gradient of Scale's result y into that of its operand, in
	// place. y is absent without a cap.
	ScaleGrad(dx, y tensor.Tensor, scale, cap float32)
	// RouteGrad: dlogits of the weights that Route gave for the experts it chose.
	RouteGrad(dlogits tensor.Tensor, dweights []float32, experts []int32, logits tensor.Tensor, a *meta.MoESpec)
	// CrossEntropy: losses[i] is that of labels[i] under the softmax of logits[i], 0 for a
	// negative label, and dlogits[i] += scale · its gradient. smoothing is the share of a
	// label's weight that is spread over all classes. dlogits may be logits, which then
	// is overwritten instead.
	CrossEntropy(losses []float32, dlogits, logits tensor.Tensor, labels []int32, scale, smoothing float32)
}

// A Recorder is a Backend that remembers its operations while it records, to reverse
// them. The gradient of a view of memory that it allocated is the same view of a shadow,
// which is 0 but for what is under way: reversing an operation takes the gradient of its
// result from there, leaves 0 where the result was written anew, and adds to those of
// the operands.
type Recorder interface {
	Backend
	// Record begins to remember, Pause ends it.
	Record()
	Pause()
	Recording() bool
	// EmbedPadded is Embed, of which lookups of row padding get no gradient.
	EmbedPadded(dst tensor.Tensor, table Matrix, ids []int32, scale float32, padding int32)
	// Take is memory for a result that stays as it is until the record is reversed. It is
	// valid while recording only.
	Take(rows, cols int) tensor.Tensor
	// Derive says that to[i] was copied from from[places[i]] on the host, where from is
	// what Route or Copy wrote there; places are borrowed until the call returns. So
	// gradients of the weights of ScatterAdd find their way.
	Derive(to, from []float32, places []int32)
	// Mark is a place in the record. Reverse runs what follows it backwards, forgets it,
	// and lets Take hand out its memory again; Forget does not run it.
	Mark() Mark
	Reverse(to Mark)
	Forget(to Mark)
	// Clear forgets all and makes all gradients 0, after a reverse that did not end.
	Clear()
	// Gradient is that of a view of memory, which a caller may read and write.
	Gradient(t tensor.Tensor) tensor.Tensor
	// Replace is Gradient of a result that is not read again: until the next Reverse or Forget it
	// may share the result's memory, and begins with the result's values.
	Replace(t tensor.Tensor) tensor.Tensor
	// Drop makes the gradient of a view 0, whatever it was.
	Drop(t tensor.Tensor)
}

// A Mark is a place in a [Recorder]'s record; the zero Mark is its beginning.
type Mark struct{ Operations, Values, Hosts, Chunk, Used int }
