package backend

import "github.com/heftai/heft/internal/tensor"

// KeyedAverages is implemented by a Backend that supports the recurrence of RWKV. It is like the
// operations of [Recurrent].
type KeyedAverages interface {
	// WKV averages the values of a channel by the exponentials of its keys, which decay from token to token. With w =
	// -exp(decay), for one token of a sequence:
	//
	//	dst = (A + exp(first + k)·v) / (B + exp(first + k));  A = exp(w)·A + exp(k)·v;  B = exp(w)·B + exp(k)
	//
	// dst, k and v are [n, Channels], and decay and first [Channels]. The state of a channel is three numbers: A and B,
	// both divided by the exponential of the third.
	WKV(dst tensor.Tensor, in WKVInputs, s States, a WKVArgs)
}

// KeyedAverageGradients has the backward operation of [KeyedAverages.WKV]. It is like those of
// [RecurrentGradients].
type KeyedAverageGradients interface {
	KeyedAverages
	// WKVGrad is the backward operation of WKV; d holds the gradients of in.
	WKVGrad(d WKVInputs, dy tensor.Tensor, in WKVInputs, s States, a WKVArgs)
}

// WKVInputs holds the operands of [KeyedAverages.WKV].
type WKVInputs struct{ K, V, Decay, First tensor.Tensor }

// WKVArgs holds the parameters of a layer.
type WKVArgs struct{ Channels int }

// WKVState is the number of values in the state of a channel.
const WKVState = 3
