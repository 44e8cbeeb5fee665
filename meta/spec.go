package meta

// Kind selects the rule that runs a module.
type Kind uint8

// The kinds. A module's Spec is of the type named here.
const (
	KindNone       Kind = iota // containers, activations, dropout: never run by themselves
	KindCausalLM               // *CausalLMSpec
	KindBlock                  // *BlockSpec
	KindAttention              // *AttentionSpec
	KindMLP                    // *MLPSpec
	KindMoE                    // *MoESpec
	KindLinear                 // *LinearSpec
	KindEmbedding              // *EmbeddingSpec
	KindNorm                   // *NormSpec
	KindSequential             // no spec: children in order
	KindActivation             // *ActivationSpec
	KindShortConv              // *ShortConvSpec
	KindDeltaNet               // *DeltaNetSpec
	KindMamba2                 // *Mamba2Spec
	KindMamba                  // *MambaSpec
	KindLightning              // *LightningSpec
	KindGatedLRU               // *GatedLRUSpec
	KindTimeMix                // *TimeMixSpec
	KindChannelMix             // *ChannelMixSpec
)

var kindNames = [...]string{"none", "causal-lm", "block", "attention", "mlp", "moe",
	"linear", "embedding", "norm", "sequential", "activation", "short convolution", "delta net", "mamba2", "mamba", "lightning attention", "gated linear recurrent unit", "time mix", "channel mix"}

// String returns the kind's name in messages.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// CausalLMSpec runs a whole decoder, as the ForCausalLM classes of transformers do: embedding,
// layers, final norm, head. Token ids become hidden states, [tokens, Hidden], and these become
// logits, [tokens, Vocab]. With x = the embedding of a token and h = the output of the last
// block:
//
//	input of the first block = EmbedNorm(EmbedProject(EmbedScale·x) + Positions[position])
//	logits                   = LogitSoftcap·tanh(LogitScale·Head(BeforeHead(NormProject(Norm(h)))) / LogitSoftcap)
//
// Parts that are not set are left out. Paths are dotted and relative to the node.
type CausalLMSpec struct {
	Embed     string // Embedding of token ids
	EmbedNorm string // norm of the embeddings, "" if none
	Positions string // Embedding of absolute positions, "" if none
	// FirstPosition is the row of Positions for the first token of a sequence (OPT: 2).
	FirstPosition int
	// Sinusoids, if not nil, are sinusoidal positions: sines are added to the first half of the
	// embeddings' channels, and cosines to the second half (XGLM).
	Sinusoids  *RopeSpec
	EmbedScale float32 // multiplies the embeddings; 0 means 1
	// EmbedSum, nil for none, is applied to the embeddings (ZAYA).
	EmbedSum *AffineSpec
	// EmbedProject and NormProject are Linears, or "". EmbedProject is applied to the embeddings
	// before positions are added. NormProject is applied to the result of Norm, before Head.
	EmbedProject, NormProject string
	Layers                    string          // ModuleList of Blocks
	Runs                      []RunSpec       // the order in which blocks run; nil: each of Layers once
	Norm                      string          // final norm, "" if none
	NormScale                 float32         // multiplies the input of Norm; 0 means 1
	BeforeHead                *BeforeHeadSpec // nil if none
	Head                      string          // Linear to the vocabulary

	AltUp    *AltUpSpec    // hidden states are several streams, of which blocks compute one; nil if one
	PerLayer *PerLayerSpec // inputs of blocks with a LayerInput; nil if none
	Streams  *StreamsSpec  // the residual stream is several; nil if one
	Join     *JoinSpec     // joins embeddings and hidden states of another model; nil if none
	// KeepsEmbeddings means that rows have 2·Hidden channels: the hidden states followed by the
	// embeddings, which all blocks leave unchanged. The blocks have KeepsEmbeddings set.
	KeepsEmbeddings bool
	// Carry is how many numbers stand behind the hidden states, in rows of Hidden+Carry channels, which blocks with Carries
	// hand on to the next: the state of the routers of [RouterSpec], or the states that [RunEntrySpec] keeps; 0 for none. The
	// first block finds the Param [Carry] at the path CarryStart there, which gets no gradient, or nothing.
	Carry      int
	CarryStart string

	LogitScale   float32 // multiplies the logits; 0 means 1
	LogitSoftcap float32 // bounds the logits (Gemma 2); 0 means none
	// LogitChannels, a Param of Head, multiplies each token's logit; nil for none (Dory).
	LogitChannels *ChannelScaleSpec

	Vocab, Hidden int // logits of a token, the first rows of Head, and channels of the embeddings and of the input of Head
	Context       int // tokens that the config allows for a sequence, rope scaling included
	Reach         int // tokens that a linear or dynamic rope scaling is made for, if they are more than Context
}

// AffineSpec is (x + Bias)·Factor by channel. Bias and Factor are Params of the node at the path Module.
type AffineSpec struct{ Module, Bias, Factor string }

// BeforeHeadSpec is Norm(Act(Dense(x))) before a head (ModernBERT). Dense is a Linear that keeps
// the width. Hidden states that are returned in addition to logits, such as those of text
// embeddings, are x.
type BeforeHeadSpec struct {
	Dense, Norm string // dotted paths of the root
	Act         Activation
}

// BlockSpec wires one decoder layer. It maps hidden states x to y of the same shape, [tokens,
// channels]. With a = Attention and m = MLP or MoE:
//
//	sequential: h = x + s·post(a(pre(x)));  y = h + s'·post'(m(pre'(h)))
//	parallel:   y = x + s·a(pre(x)) + s·m(pre'(x))
//
// Each norm is the name of a child, or "" for none. Pre-norm (Llama) sets AttentionNorm and
// MLPNorm, post-norm (OLMo 2) the two Post norms, sandwich (Gemma 2) all four. A parallel block
// with one norm (GPT-J) has equal MLPNorm and AttentionNorm. With NormSums (OPT-350M), in a
// sequential block, the two Post norms apply to the sums: h = post(x + s·a(x)), y = post'(h +
// s·m(h)).
type BlockSpec struct {
	Parallel          bool
	NormSums          bool
	AttentionNorm     string
	Attention         string
	PostAttentionNorm string
	MLPNorm           string
	MLP               string
	// Plain, if not nil, replaces MLP: its projections are children of the block itself.
	Plain         *MLPSpec
	PostMLPNorm   string
	ResidualScale float32 // s and s'; 0 means 1
	MLPScale      float32 // s' where it differs from s, in a sequential block; 0: it does not
	// AttentionResidual and MLPResidual name Params [hidden] of the block, or are "". They
	// multiply the residual stream before the result of the branch is added (transformers'
	// DogeDecoderLayer).
	AttentionResidual, MLPResidual string
	// AttentionSum and MLPSum, "" for none, name children with four Params [hidden], hidden_states_bias, hidden_states_scale,
	// residual_bias and residual_scale, which shift and then multiply the two terms of the branch's sum (ZAYA).
	AttentionSum, MLPSum string
	// AttentionRate and MLPRate, nil for none, replace the sum x + y of the residual stream and a
	// branch's result by x + rate·(y - x) for each channel (nGPT).
	AttentionRate, MLPRate *ChannelScaleSpec
	// NormedResidual means, in a sequential block, that the result of the norm before a branch
	// replaces the residual stream. AttentionSkipScale and MLPSkipScale multiply that stream before the
	// result of the branch is added; 0 means 1 (MiniMax-Text-01).
	NormedResidual                   bool
	AttentionSkipScale, MLPSkipScale float32
	// Attention or MLP may be "", with its norms: the layer then has one branch. AddedMixer
	// and AddedMLP name children, or are "". They have the same input as Attention and MLP, and
	// their results are added to those: the mixer of Falcon-H1, the MoE layer of Granite 4.
	AddedMixer, AddedMLP      string
	AttentionIn, AttentionOut float32 // multiply the input and the result of Attention; 0 means 1
	MLPOut                    float32 // multiplies the result of MLP; 0 means 1
	// Experts, if not nil, describes an MoE layer whose result is added to that of MLP. See
	// [ExpertsSpec].
	Experts *ExpertsSpec
	// Input, if not nil, is a third branch after the other two.
	Input *LayerInputSpec
	// Streams, if not nil, replaces the sums of a sequential block; see [StreamsSpec].
	Streams *StreamsSpec
	// NGrams, if not nil, is added to the streams before the branches.
	NGrams *NGramSpec
	// AltUp, if not nil, wraps the branches of a sequential block. Laurel, if not nil, is
	// parallel to its attention.
	AltUp  *AltUpSpec
	Laurel *LaurelSpec
	// AttentionConv and MLPConv, if not nil, are convolutions of the results of the branches,
	// after their norms, in a sequential block of two branches.
	AttentionConv, MLPConv *ResidualConvSpec
	// Shortcut names a child with the same input as MLP, or is "". Its result is added to the
	// block's. It requires Second, the second pair of branches, which follows the first in sequence and is
	// otherwise nil (LongCat Flash).
	Shortcut string
	Second   *BlockSpec
	// Entry, if not nil, changes x first, in a sequential block of two branches.
	Entry *EntrySpec
	// Scalar names a Buffer of one number that multiplies the block's result, or is "" (Gemma 4).
	Scalar string
	// KeepsEmbeddings means that x is the first half of the channels, and that the block leaves
	// the second half, the embeddings, unchanged. The block has one branch. Shared, if not nil,
	// requires it.
	KeepsEmbeddings bool
	// Carries says that x is the channels in front of the [CausalLMSpec].Carry ones. The block has two branches in sequence.
	Carries bool
	Shared  *SharedBlockSpec
}

// EntrySpec is Norm(Scale·x) before a block (RWKV). The result is the residual stream.
type EntrySpec struct {
	Norm  string  // of the block, "" if none
	Scale float32 // 0 means 1
}

// SharedBlockSpec is the transformer block that runs before the only branch of some blocks of
// Zamba2. Its result is added to the input of the branch but not to the residual stream. With a =
// the block's Attention, e = the embeddings, and [x, e] = the channels of both:
//
//	y = x + a(pre(x + Out(MLP(MLPNorm(Attention(Norm([x, e])))))))
//
// Names are children of the block. Their parameters may be those of an earlier block: see
// [Module.Unread].
type SharedBlockSpec struct {
	Norm, Attention, MLPNorm, MLP, Out string
}

// ExpertsSpec is an MoE layer parallel to the MLP of a block, with its own norms, as in Gemma 4.
// With m = MLP and e = Experts, the second branch is y = h + post'(MLPOut(m(pre'(h))) +
// Out(e(In(h)))). Experts is a child of kind MoE that holds its parameters itself. The input of
// Router is h, RMS-normalised with RouterEps, times the weight RouterScale and RouterFactor. All
// fields but the numbers are names of children.
type ExpertsSpec struct {
	Experts, In, Out, MLPOut string
	Router                   string // child with the parameters RouterScale and ExpertScale
	RouterScale, ExpertScale string // [channels], and [experts], which multiplies the selected weights by expert
	RouterEps, RouterFactor  float32
}

// PerLayerSpec computes, for each token, a vector of Width channels for each of Layers blocks, as
// in Gemma 3n. With t = Embed(token) and h = the hidden states before the first block, the
// vectors are Scale·(t·EmbedScale + Norm(Projection(h)·Factor)). If Rows is not 0, tokens from
// Rows on have the embedding of token 0.
type PerLayerSpec struct {
	// Embed is an Embedding of Layers·Width channels, Projection a Linear [Layers·Width,
	// channels], and Norm a norm of each Width channels.
	Embed, Projection, Norm   string
	Layers, Width, Rows       int
	EmbedScale, Factor, Scale float32
}

// LayerInputSpec is the branch x + Norm(Projection(act(Gate(x)) · v)), where v is vector Index of
// [PerLayerSpec], of Width channels. Names are children.
type LayerInputSpec struct {
	Gate, Projection, Norm string // Linears [Width, channels] and [channels, Width], and a norm, "" if none
	Index, Width           int
	Act                    Activation
}

// MLPSpec runs a feed-forward layer. Names are Linear children. With Gate it is gated (GLU), as
// in Llama:
//
//	y = Scale·Down(InnerNorm(Act(GateScale·Gate(x)) · Up(x)))
//
// Without Gate and Fused it is plain, as in GPT-2: Down(Act(Up(x))). Fused is one projection for
// gate and up. Gate and Up are [inner, channels], Fused [2·inner, channels], and Down [channels,
// inner].
type MLPSpec struct {
	Gate, Up, Down string
	Fused          string
	FusedOrder     GateOrder
	// FusedAdapter names a Sequential whose result is added to that of Fused (Zamba2), or is "".
	FusedAdapter string
	Act          Activation
	// XIELU names a child with the parameters of the activation xIELU (Apertus), which replaces
	// Act, or is "". The child has the Params alpha_p and alpha_n and the Buffers beta and eps,
	// one number each. xIELU is beta·x + softplus(alpha_p)·x² above 0, and beta·x + (beta +
	// softplus(alpha_n))·(exp(min(x, eps)) - 1 - x) up to 0.
	XIELU     string
	InnerNorm string  // norm of the input of Down (BitNet), "" if none
	Limit     float32 // clamp of ActClampedSwiGLU, ActClampedSiLU and ActSiLUAtMost
	Alpha     float32 // of ActClampedSwiGLU; 0 means 1.702
	// Sparse replaces the result g of Gate by max(0, g - mean - Cutoff·deviation), with the mean
	// and the standard deviation of its row (Gemma 3n). The variance is the sum of squares
	// divided by the length of the row.
	Sparse bool
	Cutoff float32
	// GateScale multiplies the result of Gate, and Scale that of Down; 0 means 1.
	GateScale, Scale float32
	// GateChannels and UpChannels multiply the channels of Gate and of Up; nil for none.
	GateChannels, UpChannels *ChannelScaleSpec
	// ScaleParam names a Param [1] of the MLP that multiplies the result, or is "".
	ScaleParam string
}

// GateOrder is the row layout of a fused projection of gate and up.
type GateOrder uint8

// The layouts of fused gates.
const (
	GateHalves      GateOrder = iota // all of gate, then all of up
	GateInterleaved                  // gate and up row by row
)

// Activation is a pointwise function. In a gated layer its result is multiplied by that of Up.
type Activation uint8

// The activations, as config.json names them.
const (
	ActNone     Activation = iota // the identity
	ActSiLU                       // silu, swish: x·sigmoid(x)
	ActGELU                       // gelu: exact, with erf
	ActGELUTanh                   // gelu_new, gelu_pytorch_tanh
	ActReLU
	ActTanh
	ActSigmoid
	// ActClampedSwiGLU is gpt-oss's: with g = min(gate, limit), (clamp(up, ±limit) + 1) · g·sigmoid(alpha·g).
	// alpha is 1.702 unless a spec states another one.
	ActClampedSwiGLU
	ActReLU2 // relu2: the square of relu
	// ActExpRest is exp(min(x, -limit)) - 1 - x for x up to 0, and 0 above: the curved part of
	// xIELU.
	ActExpRest
	ActClampedSiLU // DeepSeek-V4: silu(min(gate, limit)) · clamp(up, ±limit)
	ActClamp       // clamp(x, ±limit)
	ActSoftplus    // ln(1 + exp(x))
	ActExp         // exp(x)
	ActSiLUAtMost  // Step 3.7: min(silu(gate), limit) · clamp(up, ±limit), for limits from 0.28 on
)

// MoESpec runs a mixture of experts (MoE). The router's logits, one per expert, become scores.
// For each token the router selects the TopK experts with the highest scores; of equal scores the
// lower number. With e for the selected experts:
//
//	y = sum of Scale·weight[e]·expert[e](x) + sigmoid(SharedGate(x))·Shared(x)
//
// where a weight is the score of an expert, and expert[e] is an MLP, gated unless Plain is set.
// Parts that are not set are left out. In the shapes below E is Count, H the channels of x, and F
// the channels inside an expert.
type MoESpec struct {
	Router      string // child with weight [E+Identity, H] and maybe bias [E+Identity]
	Experts     string // child whose parameters are stacked by expert; "" for the node itself, see [ExpertsSpec]
	DownExperts string // child with the Param Down instead of Experts, which is then held after the other (JetMoE)
	Shared      string // child MLP that every token uses, or "" if none
	SharedGate  string // Linear [1, H] whose sigmoid multiplies Shared (Qwen2-MoE), or "" if none
	Count, TopK int
	Identity    int  // experts of the router after Count, which have no weights: their result is their input (LongCat Flash)
	Skips       bool // the results of Identity experts are 0 instead (ZAYA)
	// Deep makes Router a small network instead of a linear map; nil means a linear map.
	Deep *RouterSpec
	// Scored, if not nil, describes experts after Count that every token uses. Their scores, with
	// Score ScoreSigmoid, are among those that Renormalise divides by their sum (Inkling). It
	// excludes Identity and Table.
	Scored *ScoredSpec
	// RouterScale names a Param [1] of the router that multiplies all weights, or is "".
	RouterScale string
	Score       RouterScore
	Renormalise bool    // selected weights are divided by their sum
	Scale       float32 // multiplies the selected weights; 0 means 1
	ScaleInput  bool    // the weights multiply the experts' inputs instead of their results (Llama 4)
	// Correction names a Buffer of the router or of the node, or a Param below the router,
	// [E+Identity]. It is added to the scores only for selecting experts (DeepSeek-V3's
	// e_score_correction_bias). It has no values for the experts of Scored.
	Correction string
	Jitter     float32 // of ScoreSparseMixer
	Softcap    float32 // of the router's logits x: Softcap·tanh(x/Softcap); 0: none
	// Table names a Buffer of the router, [vocabulary, TopK], with the experts of each token id,
	// or is "". The scores then only weigh the experts (DeepSeek-V4).
	Table string
	// Groups is the number of groups of adjacent experts, or 0. Groups are ranked by their best
	// corrected score, and experts are selected from the best TopGroups groups (DeepSeek-V2).
	Groups    int
	TopGroups int
	// GroupsByTwo ranks groups by the sum of their two best scores instead of their best one
	// (DeepSeek-V3).
	GroupsByTwo bool

	GateUp, Down         string // Params of Experts: [E, 2·F, H] and [E, H, F]
	GateUpBias, DownBias string // Params of Experts: [E, 2·F] and [E, H], "" if none
	SumBias              string // Param [H] of the node, added to the sum; the weights of a token add up to 1; or ""
	Transposed           bool   // [E, H, 2·F] and [E, F, H] instead
	Plain                bool   // experts are down(act(up(x))): GateUp names up alone, [E, F, H]
	// LatentDown and LatentUp are Linears, or "". LatentDown is applied before the routed
	// experts, whose H is then its number of rows, and LatentUp to their sum (Nemotron-H).
	LatentDown, LatentUp string
	GateOrder            GateOrder
	// Reordered says that the checkpoint has the rows of GateUp in another order than transformers.
	Reordered bool
	Act       Activation
	Limit     float32 // clamp of ActClampedSwiGLU, ActClampedSiLU and ActSiLUAtMost
	Alpha     float32 // of ActClampedSwiGLU; 0 means 1.702
}

// RouterSpec is a router with a state of Width channels, which the block hands on to the next (ZAYA). With s' = the state of the block
// before and each name a child of the router, a new state s and the logits are
//
//	s = Down(x) + Factor∘s';  logits = Out(Act(Maps[1](Act(Maps[0](Norm(s))))))
type RouterSpec struct {
	Down, Norm string
	Factor     string // Param [Width] of the router, "" for the first block, which has no state before it
	Maps       [2]string
	Out        string
	Width      int
	Act        Activation
}

// ScoredSpec is Count gated experts that every token uses, in the child Name of an MoE layer,
// with the layer's activation. Its Params are stacked: Gate and Up [Count, F, H] and Down [Count,
// H, F]. Instead of Gate and Up it may have GateUp [Count, 2·F, H], whose rows have the layer's
// GateOrder.
type ScoredSpec struct {
	Name                   string
	Count                  int
	Gate, Up, GateUp, Down string
}

// Chosen returns the number of experts per token: TopK, and those of Scored.
func (m *MoESpec) Chosen() int {
	if m.Scored == nil {
		return m.TopK
	}
	return m.TopK + m.Scored.Count
}

// RouterScore converts router logits to weights.
type RouterScore uint8

// The scores.
const (
	ScoreSoftmax     RouterScore = iota // softmax over all experts, then select
	ScoreTopKSoftmax                    // select, then softmax over the selected
	ScoreSigmoid                        // sigmoid of each expert, then select
	ScoreTopKSigmoid                    // select, then sigmoid
	// ScoreSparseMixer selects experts one after another (Phi-3.5-MoE). The weight of each is its
	// softmax over the remaining experts whose logits are close to the highest one: within
	// 2·Jitter, relative to the larger of both magnitudes.
	ScoreSparseMixer
	ScoreSqrtSoftplus // √ln(1 + exp(x)) of each expert, then select (DeepSeek-V4)
)

// LinearSpec is y = x·Wᵀ + b for x [tokens, In]. The Param weight is [Out, In], or [In, Out] if
// Transposed (GPT-2's Conv1D). The Param bias, [Out], is optional.
type LinearSpec struct {
	In, Out    int
	Transposed bool
	// PairRows is the number of rows of a head if the checkpoint has each head's rows in the
	// order of [Conventions].RopePairs: row i+HeadDim/2 after row i. 0 means the order of
	// transformers.
	PairRows int
	// RowTiling and ColumnTiling, if not nil, are the order of rows and columns in the
	// checkpoint.
	RowTiling, ColumnTiling *Tiling
	// Reordered says that the checkpoint has the rows in another order than transformers.
	Reordered bool
}

// Tiling is the order of rows or columns in which the value heads of a delta net are tiled over
// its key heads, as [Conventions].TiledHeads describes. The heads, of Dim rows each, begin at row
// From. Each of Keys key heads has Per of them, which are adjacent in transformers.
type Tiling struct{ From, Keys, Per, Dim int }

// Place returns the checkpoint's row for a row of transformers.
func (t *Tiling) Place(row int) int {
	if row < t.From {
		return row
	}
	head, i := (row-t.From)/t.Dim, (row-t.From)%t.Dim
	return t.From + (head%t.Per*t.Keys+head/t.Per)*t.Dim + i
}

// EmbeddingSpec is a table lookup: the result for an id is that row of the Param weight, [Rows,
// Dim]. An id from Rows on fails the pass.
type EmbeddingSpec struct {
	Rows, Dim int
	Padding   int // 1 + the row whose lookups get no gradient; 0 for none
}

// NormSpec is RMS or layer normalisation over each Dim channels:
//
//	y = (x - mean) / √(mean of (x - mean)² + Eps) · (weight + Offset) + bias
//
// where mean is 0 unless Layer is set. The Params weight and bias, [Dim], are optional; they
// default to 1 and 0. A row may have a multiple of Dim channels, such as those of heads, which
// are normalised one by one.
type NormSpec struct {
	Dim    int
	Eps    float32
	Layer  bool    // LayerNorm: subtract the mean of the Dim channels
	Offset float32 // added to the weight: 1 for Gemma
	// L2 divides by √(sum of x² + Eps) instead: rows of length 1.
	L2 bool
	// Whole means that the checkpoint's weight includes Offset.
	Whole bool

	// Heads > 0 normalises each head of Dim channels with its own weights (Cohere). The weight is
	// [Heads, Dim] or [Heads·Dim]; or, if Each is set, the child of that name has a norm per head
	// (StableLM).
	Heads int
	Each  string

	// Inner and Gate name child modules, a norm and an MLP, or are "". With y = Inner(x) the
	// result is y · sigmoid(Gate(y)). Of the other fields only Dim may then be set (A.X K2).
	Inner, Gate string
}

// ActivationSpec is a pointwise function as a module. It has no parameters and keeps the shape of
// its input.
type ActivationSpec struct{ Act Activation }
