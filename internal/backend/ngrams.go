package backend

import (
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// NGrams is implemented by a Backend that adds embeddings of n-grams to several streams.
type NGrams interface {
	// DilatedConv is [Recurrent].ShortConv without a bias, of tokens that are step apart:
	// dst[t][c] = act(sum over j of weight[c][j] * x[t-(K-1-j)·step][c]). The state has the last (K-1)·step rows of x.
	DilatedConv(dst, x, weight tensor.Tensor, s States, step int, act meta.Activation)
	// GateStreams: stream[k] of dst = sigmoid(g)·value, where g is the square root of the size of d, at least 1e-6, with
	// the sign of d, and d the product of streams k of keys and queries, divided by the square root of their channels. A
	// row of dst, keys and queries has several times the channels of value. dst may be keys or queries.
	GateStreams(dst, value, keys, queries tensor.Tensor)
}

// NGramGradients has the reverses of [NGrams]. All operands are those before the operation.
type NGramGradients interface {
	NGrams
	// DilatedConvGrad is the reverse of DilatedConv for whole sequences; d are the gradients of in, which has no bias.
	DilatedConvGrad(d ConvInputs, dy tensor.Tensor, in ConvInputs, s States, step int, act meta.Activation)
	// GateStreamsGrad is the reverse of GateStreams. A product of less than 1e-6 has no gradient.
	GateStreamsGrad(dvalue, dkeys, dqueries, dy, value, keys, queries tensor.Tensor)
}
