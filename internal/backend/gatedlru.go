package backend

import "github.com/heftai/heft/internal/tensor"

// GatedUnits is implemented by a Backend that runs the recurrence of RecurrentGemma, as [Recurrent] does others.
type GatedUnits interface {
	// GatedLRU is the recurrence of the real-gated linear recurrent unit (RG-LRU). Each channel has a state of one number:
	//
	//	a = exp(-Power·softplus(rate)·gate);  S = a·S + √(1 - a²)·x;  dst = S
	//
	// where the first token of a sequence has S = x. dst, x and gate are [n, Channels], and rate is [Channels]. The state
	// is S. dst may be x.
	GatedLRU(dst tensor.Tensor, in GatedLRUInputs, s States, a GatedLRUArgs)
}

// GatedUnitGradients has the reverse of [GatedUnits.GatedLRU], as [RecurrentGradients] has those of [Recurrent].
type GatedUnitGradients interface {
	GatedUnits
	// GatedLRUGrad is the reverse of GatedLRU; d are the gradients of in. As transformers does, it takes the root's slope to
	// be at most 1000.
	GatedLRUGrad(d GatedLRUInputs, dy tensor.Tensor, in GatedLRUInputs, s States, a GatedLRUArgs)
}

// GatedLRUInputs are the operands of [GatedUnits.GatedLRU].
type GatedLRUInputs struct{ X, Gate, Rate tensor.Tensor }

// GatedLRUArgs are the parameters of a layer.
type GatedLRUArgs struct {
	Channels int
	Power    float32
}
