package backend

import "github.com/heftai/heft/internal/tensor"

// Alternating is implemented by a Backend that supports AltUp (alternating updates), see
// [meta.AltUpSpec]. Rows of streams hold several streams of equal width in adjacent columns.
type Alternating interface {
	// PredictStreams: stream[i] += sum over j of weights[i·n+j]·stream[j], for n streams.
	PredictStreams(streams, weights tensor.Tensor)
	// CorrectStreams: stream[i] += (1 + weights[i])·(y - stream[active]).
	CorrectStreams(streams, y, weights tensor.Tensor, active int)
	// Magnify scales the rows of x to the root mean square of the rows of as. The root mean
	// square of x counts as at least √1e-5.
	Magnify(x, as tensor.Tensor)
	// CutOff: x = max(0, x - mean - by·deviation), with the mean and the standard deviation of
	// the row.
	CutOff(x tensor.Tensor, by float32)
}

// AlternatingGradients has the backward operations of [Alternating]. All operands have the values
// before the operation.
type AlternatingGradients interface {
	Alternating
	// PredictStreamsGrad is the backward operation of PredictStreams.
	PredictStreamsGrad(dstreams, dweights, dy, streams, weights tensor.Tensor)
	// CorrectStreamsGrad is the backward operation of CorrectStreams. dother is the gradient of
	// y, and stream the active stream.
	CorrectStreamsGrad(dstreams, dother, dweights, dy, stream, y, weights tensor.Tensor, active int)
	// MagnifyGrad is the backward operation of Magnify.
	MagnifyGrad(dx, das, dy, x, as tensor.Tensor)
	// CutOffGrad is the backward operation of CutOff. A value at the edge has no gradient.
	CutOffGrad(dx, dy, x tensor.Tensor, by float32)
}
