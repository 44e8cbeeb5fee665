package backend

import (
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// NGrams is implemented by a Backend that adds embeddings of n-grams to several streams.
type NGrams interface {
	// DilatedConv is [Recurrent].ShortConv without a bias and with taps that are step tokens
	// apart: dst[t][c] = act(sum over j of weight[c][j] * x[t-(K-1-j)·step][c]). The state has
	// the last (K-1)·step rows of x.
	DilatedConv(dst, x, weight tensor.Tensor, s States, step int, act meta.Activation)
	// GateStreams: stream[k] of dst = sigmoid(g)·value, where d is the product of streams k of
	// keys and queries divided by the square root of their channels, and g = sign(d)·√max(|d|,
	// 1e-6). A row of dst, keys and queries has a multiple of the channels of value. dst may be
	// keys or queries.
	GateStreams(dst, value, keys, queries tensor.Tensor)
}

// NGramGradients has the backward operations of [NGrams]. All operands have the values before the
// operation.
type NGramGradients interface {
	NGrams
	// DilatedConvGrad is the backward operation of DilatedConv for whole sequences; d holds the
	// gradients of in, which has no bias.
	DilatedConvGrad(d ConvInputs, dy tensor.Tensor, in ConvInputs, s States, step int, act meta.Activation)
	// GateStreamsGrad is the backward operation of GateStreams. A product with a magnitude of
	// less than 1e-6 has no gradient.
	GateStreamsGrad(dvalue, dkeys, dqueries, dy, value, keys, queries tensor.Tensor)
}
