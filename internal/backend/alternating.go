package backend

import "github.com/heftai/heft/internal/tensor"

// Alternating is implemented by a Backend that runs models with alternating updates, see [meta.AltUpSpec]. Rows of
// streams are several streams of equal width, side by side.
type Alternating interface {
	// PredictStreams: stream[i] += sum over j of weights[i·n+j]·stream[j], for n streams.
	PredictStreams(streams, weights tensor.Tensor)
	// CorrectStreams: stream[i] += (1 + weights[i])·(y - stream[active]).
	CorrectStreams(streams, y, weights tensor.Tensor, active int)
	// Magnify gives x the root mean square of the rows of as, taking that of x as at least √1e-5.
	Magnify(x, as tensor.Tensor)
	// CutOff: x = max(0, x - mean - by·deviation), by the mean and the standard deviation of the row.
	CutOff(x tensor.Tensor, by float32)
}

// AlternatingGradients has the reverses of [Alternating]. All operands are those before the operation.
type AlternatingGradients interface {
	Alternating
	// PredictStreamsGrad is the reverse of PredictStreams.
	PredictStreamsGrad(dstreams, dweights, dy, streams, weights tensor.Tensor)
	// CorrectStreamsGrad is the reverse of CorrectStreams by y, whose gradient is dother. stream is the active one.
	CorrectStreamsGrad(dstreams, dother, dweights, dy, stream, y, weights tensor.Tensor, active int)
	// MagnifyGrad is the reverse of Magnify.
	MagnifyGrad(dx, das, dy, x, as tensor.Tensor)
	// CutOffGrad is the reverse of CutOff. A value at the edge has no gradient.
	CutOffGrad(dx, dy, x tensor.Tensor, by float32)
}
