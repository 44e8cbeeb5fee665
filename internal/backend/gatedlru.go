package backend

import "github.com/heftai/heft/internal/tensor"

// GatedUnits is implemented by a Backend that supports the recurrence of RecurrentGemma. It is
// like the operations of [Recurrent].
type GatedUnits interface {
	// GatedLRU is the recurrence of the real-gated linear recurrent unit (RG-LRU). Each channel has a state of one number:
	//
	//	a = exp(-Power·softplus(rate)·gate);  S = a·S + √(1 - a²)·x;  dst = S
	//
	// where the first token of a sequence has S = x. dst, x and gate are [n, Channels], and rate is [Channels]. The state
	// is S. dst may be x.
	GatedLRU(dst tensor.Tensor, in GatedLRUInputs, s States, a GatedLRUArgs)
}

// GatedUnitGradients has the backward operation of [GatedUnits.GatedLRU]. It is like those of
// [RecurrentGradients].
type GatedUnitGradients interface {
	GatedUnits
	// GatedLRUGrad is the backward operation of GatedLRU; d holds the gradients of in. Like
	// transformers, it limits the slope of the root to 1000.
	GatedLRUGrad(d GatedLRUInputs, dy tensor.Tensor, in GatedLRUInputs, s States, a GatedLRUArgs)
}

// GatedLRUInputs holds the operands of [GatedUnits.GatedLRU].
type GatedLRUInputs struct{ X, Gate, Rate tensor.Tensor }

// GatedLRUArgs holds the parameters of a layer.
type GatedLRUArgs struct {
	Channels int
	Power    float32
}
