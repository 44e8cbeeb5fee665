package backend

import (
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// Recurrent is implemented by a Backend that supports layers with a state for each sequence. Each
// operation processes the tokens of a sequence one by one, in order, so a result does not depend
// on how a prompt is divided into passes. The state of a span is read from slot From of the
// memory, and written to slot To after the last token. If neither is used, the memory may be
// absent.
type Recurrent interface {
	// ShortConv convolves each channel of x with its own kernel along the tokens: dst[t][c] =
	// act(bias[c] + sum over j of weight[c][j] * x[t-K+1+j][c]), where tokens before the first
	// are zero. weight is [channels, K], bias [channels] or absent. The state has the last K-1
	// rows of x, oldest first. dst and x must not overlap.
	ShortConv(dst, x, weight, bias tensor.Tensor, s States, act meta.Activation)
	// DeltaRule is the recurrence of a gated delta net. For each value head, with the queries and
	// keys of its key head divided by their length:
	//
	//	S = exp(g)·S;  S += k (beta·(v - kᵀS))ᵀ;  dst = Sᵀq / √KeyDim
	//
	// with beta = Strength·sigmoid(b) and g = -exp(aLog)·softplus(a + dtBias), or Floor·sigmoid(exp(aLog)·(a + dtBias))
	// where Floor is not 0. dst and v are [n, ValueHeads·ValueDim], q and k [n, KeyHeads·KeyDim], a and b [n, ValueHeads].
	// The state is S, [ValueHeads, KeyDim, ValueDim]. With ByChannel each row of S has a g of its own: a is
	// [n, ValueHeads·KeyDim], and dtBias has as many elements.
	DeltaRule(dst tensor.Tensor, in DeltaInputs, s States, a DeltaArgs)
	// StateSpace is the recurrence of Mamba2, the state space duality. For each head, with the B and C
	// of its group:
	//
	//	S = exp(-exp(aLog)·Δ)·S + B (Δ·x)ᵀ;  dst = Sᵀ·C + d·x
	//
	// with Δ = softplus(dt + dtBias), at least StepMin and at most StepMax. dst and x are
	// [n, Heads·HeadDim], B and C [n, Groups·StateDim], dt [n, Heads]. The state is S,
	// [Heads, StateDim, HeadDim].
	StateSpace(dst tensor.Tensor, in StateSpaceInputs, s States, a StateSpaceArgs)
}

// RecurrentGradients has the backward operations of [Recurrent], for whole sequences: From and To
// of all spans are -1. As in [Gradients], a method adds to the gradients of the operands, dy is
// the gradient of the result, and absent gradients are not computed.
type RecurrentGradients interface {
	Recurrent
	// ShortConvGrad is the backward operation of ShortConv; d holds the gradients of in.
	ShortConvGrad(d ConvInputs, dy tensor.Tensor, in ConvInputs, s States, act meta.Activation)
	// DeltaRuleGrad is the backward operation of DeltaRule; d holds the gradients of in.
	DeltaRuleGrad(d DeltaInputs, dy tensor.Tensor, in DeltaInputs, s States, a DeltaArgs)
	// StateSpaceGrad is the backward operation of StateSpace; d holds the gradients of in.
	StateSpaceGrad(d StateSpaceInputs, dy tensor.Tensor, in StateSpaceInputs, s States, a StateSpaceArgs)
}

// ConvInputs holds the operands of [Recurrent.ShortConv].
type ConvInputs struct{ X, Weight, Bias tensor.Tensor }

// StateSpaceInputs holds the operands of [Recurrent.StateSpace].
type StateSpaceInputs struct {
	X, B, C, DT     tensor.Tensor
	ALog, DTBias, D tensor.Tensor // [Heads]
}

// StateSpaceArgs holds the parameters of a layer.
type StateSpaceArgs struct {
	Heads, Groups     int // Heads is a multiple of Groups
	HeadDim, StateDim int
	StepMin, StepMax  float32 // StepMax may be infinite
	Rates             bool    // ALog has -exp(aLog)
}

// DeltaInputs are the operands of [Recurrent.DeltaRule].
type DeltaInputs struct {
	Q, K, V, A, B tensor.Tensor
	ALog, DTBias  tensor.Tensor // [ValueHeads], and DTBias [ValueHeads·KeyDim] with ByChannel
}

// DeltaArgs are the parameters of a layer.
type DeltaArgs struct {
	KeyHeads, ValueHeads int // ValueHeads is a multiple of KeyHeads
	KeyDim, ValueDim     int
	Rates                bool // ALog has -exp(aLog)
	// Strength multiplies the sigmoid of b; 0 means 1.
	Strength float32
	Tiled    bool // value head v has key head v mod KeyHeads, not v/(ValueHeads/KeyHeads)
	// ByChannel gives each channel of a key its own decay (Kimi's delta attention). Floor, if not
	// 0, bounds the logarithms of the decays.
	ByChannel bool
	Floor     float32
}

// Decays returns the total number of decays of the value heads.
func (a *DeltaArgs) Decays() int {
	if a.ByChannel {
		return a.ValueHeads * a.KeyDim
	}
	return a.ValueHeads
}

// KeyHead returns the key head of a value head.
func (a *DeltaArgs) KeyHead(value int) int {
	if a.Tiled {
		return value % a.KeyHeads
	}
	return value / (a.ValueHeads / a.KeyHeads)
}

// States says where an operation finds the states of the sequences of a pass.
type States struct {
	Memory tensor.Tensor // [slots, elements] of float32
	First  int           // the first element of a slot that belongs to the operation
	Spans  []StateSpan   // the sequences, which together cover all rows, in order
}

// A StateSpan is the rows of one sequence in a pass: Rows rows from First on.
type StateSpan struct {
	First, Rows int
	// From and To are slots. From is -1 for a sequence without tokens, whose state is all zeros.
	// To is -1 if the state after the last token is not needed, as in training.
	From, To int32
	// SaveAfter, if not 0, is a number of rows after which the state is also copied to slot Save.
	SaveAfter int
	Save      int32
}
