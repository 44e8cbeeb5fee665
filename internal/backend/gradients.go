package backend

import (
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// Gradients is a Backend that has the reverse of its operations. A method takes the gradient dy of
// an operation's result and adds to the gradients of its operands. An absent gradient (a zero
// Tensor or Matrix, nil) is not computed. Gradients are float32 and have the shape of their
// operands; gradients of activations may have a row stride. No gradient overlaps another of the
// same call unless the comment says so. The order of a sum depends on the shape alone, not on the
// number of threads. The reverse of Add is Add, that of Gather is ScatterAdd.
type Gradients interface {
	Backend
	RecurrentGradients
	ScanGradients
	GatedUnitGradients
	KeyedAverageGradients
	AlternatingGradients
	BlockedGradients
	CompressedGradients
	StreamGradients
	NGramGradients
	// Zero: x = 0, a float32 matrix.
	Zero(x tensor.Tensor)
	// Round rounds the elements of x to dtype, ties to even, and beyond float16's range to
	// infinity.
	Round(x tensor.Tensor, dtype meta.DType)
	// Product is Linear for many rows. Its order of summation depends on the shape alone. With
	// rounded, it may round x to the dtype of w, or both to bfloat16 if w is float32.
	Product(dst, x tensor.Tensor, w Matrix, bias tensor.Tensor, rounded bool)
	// LinearGrad: dx += dy·W, dw += dyᵀ·x, dbias += Σ dy. dw is a float32 view laid out as w is
	// (Transposed, RowStep, row stride); dbias may have a Stride. With rounded, it may round dy and
	// x to the dtype of w, or all three to bfloat16 if w is float32.
	LinearGrad(dx tensor.Tensor, dw Matrix, dbias, dy, x tensor.Tensor, w Matrix, rounded bool)
	// EmbedGrad: dtable[ids[i]] += scale · dy[i], in the order of i. Negative ids are left out.
	EmbedGrad(dtable Matrix, dy tensor.Tensor, ids []int32, scale float32)
	// NormGrad is the reverse of Norm of x by a. dweight and dbias have the shape of weight.
	NormGrad(dx, dweight, dbias, dy, x, weight tensor.Tensor, a meta.NormSpec)
	// RopeGrad turns the gradient of Rope's result into that of its operand, in place.
	RopeGrad(dx tensor.Tensor, dim int, cos, sin tensor.Tensor, interleaved bool)
	// StoreKVGrad moves the gradients of slots out of dkv and leaves 0 there: dk[i] +=
	// dkv.K[slots[i]], and dv likewise. dv is absent if v was.
	StoreKVGrad(dkv KV, dk, dv tensor.Tensor, slots []int32)
	// AttentionGrad adds to dq, to the pages of dkv (laid out as kv, both float32; V may
	// be a view of K) and to those of d.
	AttentionGrad(dq tensor.Tensor, dkv KV, d ScoreGradients, dy, q tensor.Tensor, kv KV, spans []Span, a AttentionArgs)
	// GateGrad is the reverse of Gate. dup is absent if up is.
	GateGrad(dgate, dup, dy, gate, up tensor.Tensor, act meta.Activation, limit float32)
	// ScatterAddGrad: dx[i] += weights[i] · dy[rows[i]], dweights[i] += x[i]·dy[rows[i]]. dy is the
	// gradient of ScatterAdd's dst.
	ScatterAddGrad(dx tensor.Tensor, dweights []float32, dy, x tensor.Tensor, rows []int32, weights []float32)
	// ScaleGrad turns the gradient of Scale's result y into that of its operand, in
	// place. y is absent without a cap.
	ScaleGrad(dx, y tensor.Tensor, scale, cap float32)
	// RouteGrad adds to dlogits the gradient of the weights that Route computed for the chosen
	// experts.
	RouteGrad(dlogits tensor.Tensor, dweights []float32, experts []int32, logits tensor.Tensor, a *meta.MoESpec)
	// Softmax: dst = softmax of each row of x, or with log its logarithm. dst may be x.
	Softmax(dst, x tensor.Tensor, log bool)
	// SoftmaxGrad is the reverse of Softmax, whose result is y.
	SoftmaxGrad(dx, dy, y tensor.Tensor, log bool)
	// CrossEntropy sets losses[i] to the loss of labels[i] under the softmax of logits[i], 0 for a
	// negative label, and dlogits[i] += scale · its gradient. smoothing is the share of a label's
	// weight that is spread over all classes. If dlogits is logits, the gradient replaces the
	// logits.
	CrossEntropy(losses []float32, dlogits, logits tensor.Tensor, labels []int32, scale, smoothing float32)
	// Measure measures the distribution of each row of logits. It changes none of them.
	Measure(m Measures, logits tensor.Tensor, labels []int32, scale float32)
}

// ScoreGradients are the gradients of what is added to the scores of attention. Each may be absent.
type ScoreGradients struct {
	Sinks    tensor.Tensor
	Relative Relative
}

// Measures are values of distributions, one for each row. A nil list is not measured.
type Measures struct {
	// Entropies are those of the softmax of scale times the logits, in nats.
	Entropies []float32
	// Means are means of the logits.
	Means []float32
	// Tops are 1 where the label is the first of the highest logits, else 0.
	Tops []float32
}

// A Recorder is a Backend that remembers its operations while it records, to reverse them. Memory
// that it allocated has a shadow of the same size. The gradient of a view of the memory is the same
// view of the shadow. The reverse of an operation takes the gradient of the result from the shadow,
// clears it if the operation overwrote the result, and adds to the gradients of the operands.
// Between reverses shadows are 0.
type Recorder interface {
	Backend
	// Record starts recording, Pause stops it. Results of operations in between are constants: they give no gradient to
	// operands and weights, and none may reach them.
	Record()
	Pause()
	Recording() bool
	// EmbedPadded is Embed in which lookups of row padding have no gradient.
	EmbedPadded(dst tensor.Tensor, table Matrix, ids []int32, scale float32, padding int32)
	// AddLearned is Add whose scale follows from the values of vectors.
	AddLearned(dst, x tensor.Tensor, scale float32, by ...Learned)
	// RopeLearned is Rope by angles, [n, rot/2] in the host's memory, that are proportional to exp(alpha[pair]).
	RopeLearned(x tensor.Tensor, dim int, cos, sin, angles tensor.Tensor, interleaved bool, alpha tensor.Tensor)
	// Take returns memory for a result that does not change until the record is reversed. It is
	// valid only while recording.
	Take(rows, cols int) tensor.Tensor
	// Derive says that the host copied to[i] from from[places[i]], where Route or Copy wrote from.
	// It passes gradients of the weights of ScatterAdd on. places may change after the call.
	Derive(to, from []float32, places []int32)
	// ScaleChosen says that the host multiplies weights[i], which Route wrote, by scales[chosen[i]], an element of the
	// vector from. It is called before that.
	ScaleChosen(weights []float32, chosen []int32, scales []float32, from tensor.Tensor)
	// Mark returns the current place in the record. Reverse runs the operations after a mark
	// backwards, forgets them, and makes their memory available to Take. Forget does the same
	// without running them.
	Mark() Mark
	Reverse(to Mark)
	Forget(to Mark)
	// Clear forgets all operations and sets all gradients to 0, after a reverse that failed.
	Clear()
	// Gradient returns the gradient of a view of memory, which a caller may read and write.
	Gradient(t tensor.Tensor) tensor.Tensor
	// Replace is Gradient for a result that is not read again. Until the next Reverse or Forget the
	// gradient may share the result's memory, and it begins with the result's values.
	Replace(t tensor.Tensor) tensor.Tensor
	// Drop sets the gradient of a view to 0.
	Drop(t tensor.Tensor)
}

// Learned is a vector that a number follows from, and the derivatives of the number by the vector's elements.
type Learned struct {
	Weight tensor.Tensor
	Slopes []float32
}

// A Mark is a place in a [Recorder]'s record; the zero Mark is its beginning.
type Mark struct{ Operations, Values, Hosts, Chunk, Used int }
