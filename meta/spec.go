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

// CausalLMSpec runs a whole decoder: embedding, layers, final norm, head, as the ForCausalLM classes of transformers
// do. Token ids become hidden states, [tokens, Hidden], and these logits, [tokens, Vocab]. With x = the embedding of a
// token and h = what the last block returns:
//
//	first block's operand = EmbedNorm(EmbedProject(EmbedScale·x) + Positions[position])
//	logits                = LogitSoftcap·tanh(LogitScale·Head(BeforeHead(NormProject(Norm(h)))) / LogitSoftcap)
//
// Parts that are not set are left out. Paths are dotted and relative to the node.
type CausalLMSpec struct {
	Embed     string // Embedding of token ids
	EmbedNorm string // norm of the embeddings, "" for none
	Positions string // Embedding of absolute positions, "" if none
	// FirstPosition is the row of Positions for the first token of a sequence (OPT: 2).
	FirstPosition int
	// Sinusoids, nil for none, are sines of positions, added to the first half of the embeddings' channels, and
	// cosines, added to the other (XGLM).
	Sinusoids  *RopeSpec
	EmbedScale float32 // multiplies the embeddings; 0 means 1
	// EmbedProject and NormProject, "" for none, are Linears of the embeddings, before positions are added, and of what
	// Norm leaves, before Head.
	EmbedProject, NormProject string
	Layers                    string          // ModuleList of Blocks
	Norm                      string          // final norm, "" for none
	NormScale                 float32         // multiplies the operand of Norm; 0 means 1
	BeforeHead                *BeforeHeadSpec // nil for none
	Head                      string          // Linear to the vocabulary

	AltUp    *AltUpSpec    // hidden states are several streams, of which blocks compute one; nil for one
	PerLayer *PerLayerSpec // what blocks with a LayerInput get; nil for none
	Streams  *StreamsSpec  // the residual stream is several; nil for one
	Join     *JoinSpec     // what joins embeddings and hidden states of another model; nil for none
	// KeepsEmbeddings says that the embeddings stand behind the hidden states, in rows of 2·Hidden channels, and pass all
	// blocks unchanged. The blocks have BesideEmbeddings.
	KeepsEmbeddings bool

	LogitScale   float32 // multiplies the logits; 0 means 1
	LogitSoftcap float32 // bounds the logits (Gemma 2); 0 means none

	Vocab, Hidden int // logits of a token, the first rows of Head, and channels of the embeddings and of the operand of Head
	Context       int // tokens that the config allows for a sequence, rope scaling included
	Reach         int // tokens that a linear or dynamic rope scaling is made for, if they are more than Context
}

// BeforeHeadSpec is Norm(Act(Dense(x))) in front of a head (ModernBERT). Dense is a Linear that keeps the width. States that are
// asked for beside logits, embeddings of texts among them, are the operand x.
type BeforeHeadSpec struct {
	Dense, Norm string // dotted paths of the root
	Act         Activation
}

// BlockSpec wires one decoder layer. It maps hidden states x to y of the same shape, [tokens, channels]. With a =
// Attention and m = MLP or MoE:
//
//	sequential: h = x + s·post(a(pre(x)));  y = h + s'·post'(m(pre'(h)))
//	parallel:   y = x + s·a(pre(x)) + s·m(pre'(x))
//
// Each norm is the name of a child, or "" for none. Pre-norm (Llama) sets AttentionNorm and MLPNorm,
// post-norm (OLMo 2) the two Post norms, sandwich (Gemma 2) all four. A parallel block with one norm (GPT-J)
// has equal MLPNorm and AttentionNorm. With NormSums (OPT-350M), in a sequential block, the two Post norms apply to
// the sums: h = post(x + s·a(x)), y = post'(h + s·m(h)).
type BlockSpec struct {
	Parallel          bool
	NormSums          bool
	AttentionNorm     string
	Attention         string
	PostAttentionNorm string
	MLPNorm           string
	MLP               string
	// Plain, nil for none, replaces MLP: its projections are children of the block itself.
	Plain         *MLPSpec
	PostMLPNorm   string
	ResidualScale float32 // s and s'; 0 means 1
	MLPScale      float32 // s' where it differs from s, in a sequential block; 0: it does not
	// AttentionResidual and MLPResidual, "" for none, name Params [hidden] of the block, by which the residual stream is
	// multiplied before the result of the branch is added (transformers' DogeDecoderLayer).
	AttentionResidual, MLPResidual string
	// NormedResidual says, of a sequential block, that what the norm before a branch leaves replaces the residual stream.
	// AttentionKeep and MLPKeep multiply that stream before the result of the branch is added; 0 means 1 (MiniMax-Text-01).
	NormedResidual         bool
	AttentionKeep, MLPKeep float32
	// Attention or MLP may be "", with its norms: the layer has one branch. BesideAttention and BesideMLP
	// name children, "" for none, whose operands are those of Attention and MLP, and whose results are added to
	// theirs: the mixer of Falcon-H1, the mixture of Granite 4.
	BesideAttention, BesideMLP string
	AttentionIn, AttentionOut  float32 // multiply the operand and the result of Attention; 0 means 1
	MLPOut                     float32 // multiplies the result of MLP; 0 means 1
	// Experts, "" for none, names a mixture of experts whose result is added to that of MLP. See
	// [ExpertsSpec].
	Experts *ExpertsSpec
	// Input, nil for none, is a third branch behind the other two.
	Input *LayerInputSpec
	// Streams, nil for none, replaces the sums of a sequential block; see [StreamsSpec].
	Streams *StreamsSpec
	// NGrams, nil for none, is added to the streams before the branches.
	NGrams *NGramSpec
	// AltUp, nil for none, is around the branches of a sequential block, and Laurel, nil for none, beside its attention.
	AltUp  *AltUpSpec
	Laurel *LaurelSpec
	// AttentionConv and MLPConv, nil for none, are convolutions of the results of the branches, behind their norms, in a
	// sequential block of two branches.
	AttentionConv, MLPConv *ResidualConvSpec
	// Shortcut, "" for none, names a child whose operand is MLP's. Its result is added to the block's. Then, which Shortcut needs and nil
	// is none, has the names of two further branches in sequence (LongCat Flash).
	Shortcut string
	Then     *BlockSpec
	// Entry, nil for none, changes x before all else, in a sequential block of two branches.
	Entry *EntrySpec
	// Scalar, "" for none, names a Buffer of one number, which multiplies the block's result (Gemma 4).
	Scalar string
	// BesideEmbeddings says that x is the first half of the channels, and that the block leaves the embeddings behind it as
	// they are. Lead, nil for none, needs it. The block has one branch.
	BesideEmbeddings bool
	Lead             *LeadSpec
}

// EntrySpec is Norm(Scale·x) in front of a block (RWKV): what comes out is the residual stream.
type EntrySpec struct {
	Norm  string  // of the block, "" for none
	Scale float32 // 0 means 1
}

// LeadSpec is a chain of modules in front of the only branch of a block, whose result is added to the operand of the
// branch but not to the residual stream (Zamba2). With a = the block's Attention and e = the embeddings:
//
//	y = x + a(pre(x + Out(MLP(MLPNorm(Attention(Norm(x and e side by side)))))))
//
// Names are children of the block. Their parameters may be those of an earlier block: see [Module.Unread].
type LeadSpec struct {
	Norm, Attention, MLPNorm, MLP, Out string
}

// ExpertsSpec is a mixture beside the MLP of a block, with norms of its own, as in Gemma 4: with m = MLP and e =
// Experts, the second branch is y = h + post'(MLPOut(m(pre'(h))) + Out(e(In(h)))). Experts is a child of kind MoE
// that has its parameters itself. The operand of Router is h, with RMS normalisation by RouterEps, times the weight
// RouterScale and RouterFactor. All but the numbers are names of children.
type ExpertsSpec struct {
	Experts, In, Out, MLPOut string
	Router                   string // child with the parameters RouterScale and ExpertScale
	RouterScale, ExpertScale string // [channels], and [experts], which multiplies the chosen weights by expert
	RouterEps, RouterFactor  float32
}

// PerLayerSpec makes, for each token, a vector of Width for each of Layers blocks, as in Gemma 3n: with t = Embed(token)
// and h = the hidden states before the first block, the sum of t·EmbedScale and Norm(Projection(h)·Factor),
// multiplied by Scale. Tokens from Rows on, if that is not 0, have the embedding of token 0.
type PerLayerSpec struct {
	// Embed is an Embedding of Layers·Width channels, Projection a Linear [Layers·Width, channels], and Norm a norm of
	// each Width channels.
	Embed, Projection, Norm   string
	Layers, Width, Rows       int
	EmbedScale, Factor, Scale float32
}

// LayerInputSpec is the branch x + Norm(Projection(act(Gate(x)) · v)), where v is vector Index of
// [PerLayerSpec], of Width channels. Names are children.
type LayerInputSpec struct {
	Gate, Projection, Norm string // Linears [Width, channels] and [channels, Width], and a norm, "" for none
	Index, Width           int
	Act                    Activation
}

// MLPSpec runs a feed-forward layer. Names are Linear children. With Gate it is gated (GLU), as Llama's:
//
//	y = Scale·Down(InnerNorm(Act(GateScale·Gate(x)) · Up(x)))
//
// Without Gate and Fused it is plain, as GPT-2's: Down(Act(Up(x))). Fused is one projection for gate and up. Gate and
// Up are [inner, channels], Fused [2·inner, channels], and Down [channels, inner].
type MLPSpec struct {
	Gate, Up, Down string
	Fused          string
	FusedOrder     GateOrder
	// FusedAdapter, "" for none, names a Sequential whose result is added to that of Fused (Zamba2).
	FusedAdapter string
	Act          Activation
	// XIELU, "" for none, names a child with the numbers alpha_p and alpha_n (Params), beta and eps (Buffers)
	// of the activation xIELU (Apertus), which replaces Act: beta·x + softplus(alpha_p)·x² above 0, and
	// beta·x + (beta + softplus(alpha_n))·(exp(min(x, eps)) - 1 - x) up to 0.
	XIELU     string
	InnerNorm string  // norm of the operand of Down (BitNet), "" for none
	Limit     float32 // clamp of ActClampedSiLU and ActSiLUAtMost
	// Sparse replaces the result g of Gate by max(0, g - mean - Cutoff·deviation), by the mean and the standard
	// deviation of its row, whose squares are divided by its length (Gemma 3n).
	Sparse bool
	Cutoff float32
	// GateScale multiplies the result of Gate, and Scale that of Down; 0 means 1.
	GateScale, Scale float32
	// ScaleParam, "" for none, names a Param [1] of the MLP, which multiplies the result.
	ScaleParam string
}

// GateOrder is the row layout of a fused projection of gate and up.
type GateOrder uint8

// The layouts of fused gates.
const (
	GateHalves      GateOrder = iota // all of gate, then all of up
	GateInterleaved                  // gate and up row by row
)

// Activation is a pointwise function. In a gated layer its result is multiplied by up.
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
	ActClampedSwiGLU // gpt-oss: with g = min(gate, limit), (clamp(up, ±limit) + 1) · g·sigmoid(1.702 g)
	ActReLU2         // relu2: the square of relu
	// ActExpRest is exp(min(x, -limit)) - 1 - x for x up to 0, and 0 above: the curved part of xIELU.
	ActExpRest
	ActClampedSiLU // DeepSeek-V4: silu(min(gate, limit)) · clamp(up, ±limit)
	ActClamp       // clamp(x, ±limit)
	ActSoftplus    // ln(1 + exp(x))
	ActExp         // exp(x)
	ActSiLUAtMost  // Step 3.7: min(silu(gate), limit) · clamp(up, ±limit), for limits from 0.28 on
)

// MoESpec runs a mixture of experts. The router's logits, one per expert, become scores. For each token the TopK
// experts of the highest scores are chosen; of equal scores the lower number. With e for the chosen experts:
//
//	y = sum of Scale·weight[e]·expert[e](x) + sigmoid(SharedGate(x))·Shared(x)
//
// where a weight is the score of an expert, and expert[e] is an MLP, gated unless Plain is set. Parts that are not
// set are left out. In the shapes below E is Count, H the channels of x, and F those inside an expert.
type MoESpec struct {
	Router      string // child with weight [E+Identity, H] and maybe bias [E+Identity]
	Experts     string // child whose parameters are stacked by expert; "" for the node itself, see [ExpertsSpec]
	DownExperts string // child with the Param Down instead of Experts, which is then held after the other (JetMoE)
	Shared      string // child MLP that every token passes, or "" if none
	SharedGate  string // Linear [1, H] whose sigmoid multiplies Shared (Qwen2-MoE), or "" if none
	Count, TopK int
	Identity    int // experts of the router behind Count, which have no weights: their result is their operand (LongCat Flash)
	// Scored, nil for none, are experts of the router behind Count that every token passes. Their scores, with Score
	// ScoreSigmoid, are among those that Renormalise divides by their sum (Inkling). There is no Identity and no Table.
	Scored *ScoredSpec
	// RouterScale, "" for none, names a Param [1] of the router, which multiplies all weights.
	RouterScale string
	Score       RouterScore
	Renormalise bool    // chosen weights are divided by their sum
	Scale       float32 // multiplies the chosen weights; 0 means 1
	ScaleInput  bool    // the weights multiply the experts' operands instead of their results (Llama 4)
	// Correction is a Buffer of the router or of the node, or a Param below the router, [E+Identity]. It is added to the
	// scores for choosing only (DeepSeek-V3's e_score_correction_bias), of which those of Scored are none.
	Correction string
	Jitter     float32 // of ScoreSparseMixer
	Softcap    float32 // of the router's logits x: Softcap·tanh(x/Softcap); 0: none
	// Table, "" for none, names a Buffer of the router, [vocabulary, TopK]: the experts of each token. The
	// scores weigh them only (DeepSeek-V4).
	Table string
	// Groups of neighbouring experts rank by their best corrected score, and experts are chosen from the best TopGroups
	// of them (DeepSeek-V2). 0: none.
	Groups    int
	TopGroups int
	// GroupsByTwo says that groups rank by the sum of their best two scores instead of their best one (DeepSeek-V3).
	GroupsByTwo bool

	GateUp, Down         string // Params of Experts: [E, 2·F, H] and [E, H, F]
	GateUpBias, DownBias string // Params of Experts: [E, 2·F] and [E, H], "" if none
	SumBias              string // Param [H] of the node, added to the sum; the weights of a token add up to 1; "" if none
	Transposed           bool   // [E, H, 2·F] and [E, F, H] instead
	Plain                bool   // experts are down(act(up(x))): GateUp names up alone, [E, F, H]
	// LatentDown and LatentUp, "" for none, are Linears before and behind the sum of the routed experts, whose H is
	// then the number of LatentDown's rows (Nemotron-H).
	LatentDown, LatentUp string
	GateOrder            GateOrder
	// Reordered says that the checkpoint has the rows of GateUp in another order than transformers.
	Reordered bool
	Act       Activation
	Limit     float32 // clamp of ActClampedSwiGLU, ActClampedSiLU and ActSiLUAtMost
}

// ScoredSpec is Count gated experts that every token passes, in the child Name of a mixture, with the mixture's
// activation. Its Params are stacked: Gate and Up [Count, F, H] and Down [Count, H, F]; or GateUp [Count, 2·F, H] instead of
// Gate and Up, whose rows have the mixture's GateOrder.
type ScoredSpec struct {
	Name                   string
	Count                  int
	Gate, Up, GateUp, Down string
}

// Chosen is how many experts the router gives a token: TopK, and those of Scored behind them.
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
	ScoreSoftmax     RouterScore = iota // softmax over all experts, then choose
	ScoreTopKSoftmax                    // choose, then softmax over the chosen
	ScoreSigmoid                        // sigmoid of each expert, then choose
	ScoreTopKSigmoid                    // choose, then sigmoid
	// ScoreSparseMixer, of Phi-3.5-MoE, chooses experts one after the other. The weight of each is its softmax over
	// the experts that are left whose logits are within 2·Jitter of the highest, relative to the larger
	// of the two sizes.
	ScoreSparseMixer
	ScoreSqrtSoftplus // √ln(1 + exp(x)) of each expert, then choose (DeepSeek-V4)
)

// LinearSpec is y = x·Wᵀ + b of x [tokens, In], with the Param weight, [Out, In], or [In, Out] if Transposed (GPT-2's
// Conv1D), and maybe the Param bias, [Out].
type LinearSpec struct {
	In, Out    int
	Transposed bool
	// PairRows is the rows of a head, if the checkpoint has each head's rows in the order of
	// [Conventions].RopePairs: row i+HeadDim/2 behind row i. 0 is the order of transformers.
	PairRows int
	// RowTiling and ColumnTiling, nil for none, are the order of rows and columns in the checkpoint.
	RowTiling, ColumnTiling *Tiling
	// Reordered says that the checkpoint has the rows in another order than transformers.
	Reordered bool
}

// Tiling is the order of rows or columns in which the value heads of a delta net are tiled over its key heads,
// as [Conventions].TiledHeads says. The heads, of Dim rows each, begin at row From. Each of Keys key heads
// has Per of them, which are neighbours in transformers.
type Tiling struct{ From, Keys, Per, Dim int }

// Place returns where the checkpoint has a row of transformers.
func (t *Tiling) Place(row int) int {
	if row < t.From {
		return row
	}
	head, i := (row-t.From)/t.Dim, (row-t.From)%t.Dim
	return t.From + (head%t.Per*t.Keys+head/t.Per)*t.Dim + i
}

// EmbeddingSpec is a table lookup: with the Param weight, [Rows, Dim], the result for an id is its row. An id from
// Rows on is an error of the pass.
type EmbeddingSpec struct {
	Rows, Dim int
	Padding   int // 1 + the row whose lookups get no gradient; 0 for none
}

// NormSpec is RMS or layer normalisation over each Dim channels:
//
//	y = (x - mean) / √(mean of (x - mean)² + Eps) · (weight + Offset) + bias
//
// where mean is 0 unless Layer is set. The Params weight and bias, [Dim], may be absent: then they are 1 and 0. A
// row may have several times Dim channels, such as those of heads, which are then normalised one by one.
type NormSpec struct {
	Dim    int
	Eps    float32
	Layer  bool    // LayerNorm: subtract the mean of the Dim channels
	Offset float32 // added to the weight: 1 for Gemma
	// Whole says that the checkpoint's weight includes what Offset adds in transformers.
	Whole bool

	// Heads > 0 normalises each head of Dim channels with its own weights (Cohere). The weight is [Heads,
	// Dim] or [Heads·Dim]; or, if Each is set, the child of that name has a norm per head (StableLM).
	Heads int
	Each  string

	// Inner and Gate, "" for none, name a norm and an MLP, children. With y = Inner(x) the result is y · sigmoid(Gate(y)), and
	// Dim alone is set beside them (A.X K2).
	Inner, Gate string
}

// ActivationSpec is a pointwise function as a module. It has no parameters, and keeps the shape of its operand.
type ActivationSpec struct{ Act Activation }
