package backend

import (
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// Gradients is a Backend with the backward operations of its operations. A method takes the
// gradient dy of an operation's result and adds to the gradients of its operands. An absent
// gradient (a zero Tensor or Matrix, nil) is not computed. Gradients are float32 and have the
// shape of their operands; gradients of activations may have a row stride. Gradients of one call
// must not overlap unless the comment says so. The order of a sum depends only on the shape, not
// on the number of threads. The backward operation of Add is Add, that of Gather is ScatterAdd.
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
	// Round rounds the elements of x to dtype, ties to even. Values beyond float16's range become
	// infinite.
	Round(x tensor.Tensor, dtype meta.DType)
	// Product is Linear for many rows. Its order of summation depends only on the shape. If
	// rounded is set, it may round x to the dtype of w, or both to bfloat16 if w is float32.
	Product(dst, x tensor.Tensor, w Matrix, bias tensor.Tensor, rounded bool)
	// LinearGrad: dx += dy·W, dw += dyᵀ·x, dbias += Σ dy. dw is a float32 view with the layout of
	// w (Transposed, RowStep, row stride); dbias may have a Stride. If rounded is set, it may
	// round dy and x to the dtype of w, or all three to bfloat16 if w is float32.
	LinearGrad(dx tensor.Tensor, dw Matrix, dbias, dy, x tensor.Tensor, w Matrix, rounded bool)
	// EmbedGrad: dtable[ids[i]] += scale · dy[i], in the order of i. Negative ids are skipped.
	EmbedGrad(dtable Matrix, dy tensor.Tensor, ids []int32, scale float32)
	// NormGrad is the backward operation of Norm. dweight and dbias have the shape of weight.
	NormGrad(dx, dweight, dbias, dy, x, weight tensor.Tensor, a meta.NormSpec)
	// RopeGrad converts the gradient of Rope's result to that of its operand, in place.
	RopeGrad(dx tensor.Tensor, dim int, cos, sin tensor.Tensor, interleaved bool)
	// StoreKVGrad moves the gradients of slots out of dkv and sets them to 0 there: dk[i] +=
	// dkv.K[slots[i]], and likewise for dv. dv is absent if v was.
	StoreKVGrad(dkv KV, dk, dv tensor.Tensor, slots []int32)
	// AttentionGrad adds to dq, to the pages of dkv, and to the gradients d. dkv has the layout
	// of kv; both are float32, and V may be a view of K.
	AttentionGrad(dq tensor.Tensor, dkv KV, d ScoreGradients, dy, q tensor.Tensor, kv KV, spans []Span, a AttentionArgs)
	// GateGrad is the backward operation of Gate. dup is absent if up is.
	GateGrad(dgate, dup, dy, gate, up tensor.Tensor, act meta.Activation, limit float32)
	// ScatterAddGrad: dx[i] += weights[i] · dy[rows[i]], dweights[i] += x[i]·dy[rows[i]]. dy is the
	// gradient of ScatterAdd's dst.
	ScatterAddGrad(dx tensor.Tensor, dweights []float32, dy, x tensor.Tensor, rows []int32, weights []float32)
	// ScaleGrad converts the gradient of Scale's result y to that of its operand, in place. y is
	// absent without a cap.
	ScaleGrad(dx, y tensor.Tensor, scale, cap float32)
	// RouteGrad adds to dlogits the gradient of the weights that Route computed for the selected
	// experts.
	RouteGrad(dlogits tensor.Tensor, dweights []float32, experts []int32, logits tensor.Tensor, a *meta.MoESpec)
	// Softmax sets dst to the softmax of each row of x, or to its logarithm if log is set. dst
	// may be x.
	Softmax(dst, x tensor.Tensor, log bool)
	// SoftmaxGrad is the backward operation of Softmax, whose result is y.
	SoftmaxGrad(dx, dy, y tensor.Tensor, log bool)
	// CrossEntropy sets losses[i] to the loss of labels[i] under the softmax of logits[i], or to
	// 0 for a negative label, and adds scale times its gradient to dlogits[i]. smoothing is the
	// share of a label's weight that is spread over all classes. If dlogits is logits, the
	// gradient replaces the logits.
	CrossEntropy(losses []float32, dlogits, logits tensor.Tensor, labels []int32, scale, smoothing float32)
	// Measure computes measures of the distribution of each row of logits. It does not change the
	// logits.
	Measure(m Measures, logits tensor.Tensor, labels []int32, scale float32)
}

// ScoreGradients holds the gradients of terms that are added to attention scores. Each may be
// absent.
type ScoreGradients struct {
	Sinks    tensor.Tensor
	Relative Relative
}

// Measures are values of distributions, one per row. A nil slice is not computed.
type Measures struct {
	// Entropies are the entropies of the softmax of scale times the logits, in nats.
	Entropies []float32
	// Means are the means of the logits.
	Means []float32
	// Tops are 1 if the label is the first of the highest logits, otherwise 0.
	Tops []float32
}

// A Recorder is a Backend that records its operations, to run them backwards. Memory that it
// allocated has a shadow of the same size, which holds the gradients: the gradient of a view of
// the memory is the same view of the shadow. The backward operation takes the gradient of the
// result from the shadow, clears it if the operation overwrote the result, and adds to the
// gradients of the operands. Between backward passes shadows are 0.
type Recorder interface {
	Backend
	// Record starts recording, Pause stops it. Results of operations that are not recorded are
	// constants: they give no gradient to operands and weights, and must not receive one.
	Record()
	Pause()
	Recording() bool
	// EmbedPadded is Embed in which lookups of row padding have no gradient.
	EmbedPadded(dst tensor.Tensor, table Matrix, ids []int32, scale float32, padding int32)
	// AddLearned is Add whose scale is computed from the values of vectors.
	AddLearned(dst, x tensor.Tensor, scale float32, by ...Learned)
	// RopeLearned is Rope with angles, [n, rot/2] in host memory, that are proportional to
	// exp(alpha[pair]).
	RopeLearned(x tensor.Tensor, dim int, cos, sin, angles tensor.Tensor, interleaved bool, alpha tensor.Tensor)
	// Take returns memory for a result that does not change until the backward pass. It may only
	// be called while recording.
	Take(rows, cols int) tensor.Tensor
	// Derive records that the host copied to[i] from from[places[i]], where Route or Copy wrote
	// from. It propagates gradients of the weights of ScatterAdd. places may change after the
	// call.
	Derive(to, from []float32, places []int32)
	// ScaleChosen records that the host multiplies weights[i], which Route wrote, by
	// scales[chosen[i]], an element of the vector from. Call it before the host does.
	ScaleChosen(weights []float32, chosen []int32, scales []float32, from tensor.Tensor)
	// Mark returns the current position in the record. Reverse runs the operations after a mark
	// backwards, drops them, and makes their memory available to Take. Forget does the same
	// without running them.
	Mark() Mark
	Reverse(to Mark)
	Forget(to Mark)
	// Clear drops all operations and sets all gradients to 0, after a failed Reverse.
	Clear()
	// Gradient returns the gradient of a view of memory. The caller may read and write it.
	Gradient(t tensor.Tensor) tensor.Tensor
	// Replace is Gradient for a result that is not read again. Until the next Reverse or Forget
	// the gradient may share the result's memory. It initially has the result's values.
	Replace(t tensor.Tensor) tensor.Tensor
	// Drop sets the gradient of a view to 0.
	Drop(t tensor.Tensor)
}

// Learned is a vector that determines a number, with the derivatives of the number by the
// vector's elements.
type Learned struct {
	Weight tensor.Tensor
	Slopes []float32
}

// A Mark is a position in a [Recorder]'s record. The zero Mark is its beginning.
type Mark struct{ Operations, Values, Hosts, Chunk, Used int }
