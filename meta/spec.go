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
)

var kindNames = [...]string{"none", "causal-lm", "block", "attention", "mlp", "moe",
	"linear", "embedding", "norm", "sequential", "activation", "short convolution", "delta net", "mamba2", "mamba"}

// String returns the kind's name in messages.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// CausalLMSpec runs a whole decoder: embedding, layers, final norm, head. Paths
// are dotted and relative to the node.
type CausalLMSpec struct {
	Embed     string // Embedding of token ids
	EmbedNorm string // norm of the embeddings, "" for none
	Positions string // Embedding of absolute positions, "" if none
	// FirstPosition is the row of Positions for the first token of a sequence.
	FirstPosition int
	// Sinusoids, nil for none, are sines of positions, added to the first half of the embeddings, and cosines, added
	// to the other.
	Sinusoids  *RopeSpec
	EmbedScale float32 // multiplies the embeddings; 0 means 1
	// EmbedProject and NormProject, "" for none, are Linears of the embeddings, before positions are added, and of what
	// Norm leaves, before Head.
	EmbedProject, NormProject string
	Layers                    string // ModuleList of Blocks
	Norm                      string // final norm, "" for none
	Head                      string // Linear to the vocabulary

	AltUp    *AltUpSpec    // hidden states are several streams, of which blocks compute one; nil for one
	PerLayer *PerLayerSpec // what blocks with a LayerInput get; nil for none
	Streams  *StreamsSpec  // the residual stream is several; nil for one
	Join     *JoinSpec     // what joins embeddings and hidden states of another model; nil for none

	LogitScale   float32 // multiplies the logits; 0 means 1
	LogitSoftcap float32 // cap*tanh(x/cap); 0 means none

	Vocab, Hidden int // Hidden: width of the embeddings and of the operand of Head
	Context       int // tokens the config allows, rope scaling included
	Reach         int // tokens that a linear or dynamic rope scaling is made for, if they are more than Context
}

// BlockSpec wires one decoder layer. With a = Attention and m = MLP or MoE:
//
//	sequential: h = x + s·post(a(pre(x)));  y = h + s·post'(m(pre'(h)))
//	parallel:   y = x + s·a(pre(x)) + s·m(pre'(x))
//
// Each norm is the name of a child, or "" for none. Pre-norm sets AttentionNorm and MLPNorm,
// post-norm the two Post norms, sandwich all four. A parallel block with one norm has equal MLPNorm
// and AttentionNorm. With NormSums, in a sequential block, the two Post norms apply to the sums: h = post(x + s·a(x)),
// y = post'(h + s·m(h)).
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
	ResidualScale float32 // s; 0 means 1
	// Attention or MLP may be "", with its norms: the layer has one branch. BesideAttention and BesideMLP
	// name children, "" for none, whose results are added to those of Attention and MLP.
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
	// AltUp, nil for none, is around the branches of a sequential block, and Laurel, nil for none, beside its attention.
	AltUp  *AltUpSpec
	Laurel *LaurelSpec
	// Shortcut, "" for none, names a child whose operand is MLP's. Its result is added to the block's. Then, which Shortcut needs and nil
	// is none, has the names of two further branches in sequence.
	Shortcut string
	Then     *BlockSpec
	// Scalar, "" for none, names a Buffer of one number, which multiplies the block's result.
	Scalar string
}

// ExpertsSpec is a mixture beside the MLP of a block, with norms of its own: with m = MLP and e = Experts,
// the second branch is y = h + post'(MLPOut(m(pre'(h))) + Out(e(In(h)))). Experts is a child of kind MoE
// that has its parameters itself. The operand of Router is h, normalised with the weight RouterScale and
// multiplied by RouterFactor. All but the numbers are names of children.
type ExpertsSpec struct {
	Experts, In, Out, MLPOut string
	Router                   string // child with the parameters RouterScale and ExpertScale
	RouterScale, ExpertScale string // ExpertScale multiplies the chosen weights, by expert
	RouterEps, RouterFactor  float32
}

// PerLayerSpec makes, for each token, a vector of Width for each of Layers blocks: with t = Embed(token)
// and h = the hidden states before the first block, the sum of t·EmbedScale and Norm(Projection(h)·Factor),
// multiplied by Scale. Tokens from Rows on, if that is not 0, have the embedding of token 0.
type PerLayerSpec struct {
	Embed, Projection, Norm   string // Embedding, Linear, Norm
	Layers, Width, Rows       int
	EmbedScale, Factor, Scale float32
}

// LayerInputSpec is the branch x + Norm(Projection(act(Gate(x)) · v)), where v is vector Index of
// [PerLayerSpec]. Names are children.
type LayerInputSpec struct {
	Gate, Projection, Norm string
	Index, Width           int
	Act                    Activation
}

// AttentionSpec runs causal self-attention with grouped key/value heads. Either Q, K and V name
// three Linear children, or Fused names one whose rows have the layout FusedOrder.
type AttentionSpec struct {
	Layer             int // index of the key/value cache
	Heads, KVHeads    int
	HeadDim, ValueDim int // ValueDim: size of a value head
	Q, K, V           string
	Fused             string
	FusedOrder        FusedOrder
	Shards            int // of FusedQVKInShards
	Out               string
	QNorm, KNorm      string    // norms before rope; a norm as wide as one head is applied per head
	NormLast          bool      // QNorm and KNorm come after rope instead
	Scale             float32   // multiplies q·k
	Window            int       // a token sees itself and Window-1 before it; 0: all
	Chunk             int       // a token sees those before it from the last multiple of Chunk on; 0: all
	Softcap           float32   // of the scores; 0: none
	Sinks             string    // Param: one extra logit per head that takes no value
	Slopes            []float32 // of each head, times the distance to a token, taken from its score (ALiBi); nil: none
	// RoundedSlopes replaces the biases of Slopes by slope times the key's position, both and their product rounded to
	// bfloat16, and the product multiplied by Scale (Falcon).
	RoundedSlopes bool
	Clip          float32         // queries, keys and values are clamped to ±Clip, behind norms and before rope; 0: not
	Rope          *RopeSpec       // nil: none
	QueryRope     *RopeSpec       // of queries, if it differs from that of keys
	MLA           *MLASpec        // set for multi-head latent attention
	Compressed    *CompressedSpec // set for attention to a window and compressed keys
	// Gated says that each query head has a gate of the same size behind it in the result of Q, whose
	// sigmoid multiplies the head's output.
	Gated      bool
	VNorm      string  // norm of the values, "" for none
	KeysToo    bool    // the values are the keys before their norm and rope; V is ""
	Shared     bool    // keys and values are those of an earlier layer, whose cache Layer names; K and V are ""
	ValueScale float32 // multiplies the values; 0 means 1
	// Gate, "" for none, names a Linear of the layer's operand, which multiplies the heads' outputs: its sigmoid, or
	// GateAct of it where that is set.
	Gate       string
	GateAct    Activation
	GateByHead bool              // the result of Gate is one number for each head
	Blocks     *BlockIndexerSpec // limits the positions that a token attends to; nil for none
	OutNorm    string            // norm of the heads' outputs together, "" for none
}

// FusedOrder is the row layout of a fused q/k/v projection.
type FusedOrder uint8

// The layouts of fused projections.
const (
	FusedQKV         FusedOrder = iota // all of q, then all of k, then all of v
	FusedPerHead                       // for each head: q, k, v
	FusedQVKInShards                   // for each of AttentionSpec.Shards: its part of all of q, of v, and of k
)

// MLASpec is DeepSeek's multi-head latent attention. Names are children.
type MLASpec struct {
	QDown, QNorm, QUp    string // QDown "" means that QUp projects the input directly
	KVDown, KVNorm, KVUp string
	// KeyUp and ValueUp are set instead of KVUp where the expansion is stored in two: for each head the
	// transpose of its keys' part, [Heads·LoraRank, NopeDim], and its values' part, [Heads·ValueDim, LoraRank].
	KeyUp, ValueUp   string
	LoraRank         int // width of the compressed key/value
	RopeDim, NopeDim int // parts of a query or key head
	// KVScale multiplies the compressed key/value behind its norm, and QueryScale the queries. 0 means 1.
	KVScale, QueryScale float32
	// QueryGrowth, nil for none, is of type [RopeNone] and multiplies the queries by their position's growth before Rope.
	QueryGrowth *RopeSpec
	// Indexer, nil for none, limits the positions that a token attends to. Chosen > 0 without an
	// Indexer says that they are those of the last layer before that has one.
	Indexer *IndexerSpec
	Chosen  int
}

// IndexerSpec chooses, for each token, the Count positions with the highest scores. A score is the sum over
// Heads of weight · max(0, q·k), with queries from the normalised compression of MLA's queries, and one
// key per token, which is cached. Names are dotted paths to children of the attention.
type IndexerSpec struct {
	Q, K, KNorm, Weights string
	Heads, HeadDim       int
	Count                int
	Interleaved          bool // rope turns pairs of neighbours in the first MLASpec.RopeDim channels
}

// BlockIndexerSpec chooses blocks of Size positions for each token and each of Heads heads, whose choice
// neighbouring query heads share, equally many: the Local ones that end with the
// token's own, and those with the highest scores, Count together. The score of a block is the highest product of
// the head's query, of the layer's operand, with the key of a position in it that the token sees. There is one such key
// per token, which is cached in a layer of its own. Rope turns queries and keys as it does those of attention. Names are dotted
// paths to children of the attention.
type BlockIndexerSpec struct {
	Layer              int // index of the cache of its keys
	Q, K, QNorm, KNorm string
	Heads, HeadDim     int
	Size, Count, Local int
}

// RopeSpec is a rotary position embedding. [RopeSpec.Frequencies] computes its frequencies. Fields
// that a type does not use are 0.
type RopeSpec struct {
	Type        RopeType
	Theta       float64
	Dim         int  // rotated dimensions of a head
	Divisor     int  // of the frequencies' exponents; 0 means Dim
	Interleaved bool // pairs (2i, 2i+1) instead of (i, i+Dim/2)
	Spread      bool // the frequencies are those of Dim/2 dimensions, and 0 behind each
	Backwards   bool // turns by negative angles
	Shift       int  // of positions: a token has the angles of the one so many before it
	Factor      float64
	Original    int // original_max_position_embeddings
	Max         int // max_position_embeddings

	Angles                  int       // proportional: so many frequencies are not 0
	LowFreq, HighFreq       float64   // llama3
	BetaFast, BetaSlow      float64   // yarn
	MScale, MScaleAllDim    float64   // yarn
	NoTruncate              bool      // yarn
	AttentionFactor         float64   // yarn, longrope; 0 means the formula
	ShortFactor, LongFactor []float64 // longrope

	// Growth > 0 multiplies position p by 1 + Growth·ln(1 + ⌊(p + GrowthShift)/GrowthEvery⌋): longer
	// contexts get sharper attention.
	Growth                   float64
	GrowthEvery, GrowthShift int

	// ShortScale and LongScale replace the factor of cos and sin for sequences of up to Original tokens,
	// and for longer ones; 0 means that they do not.
	ShortScale, LongScale float64
}

// RopeType selects the formula of the frequencies.
type RopeType uint8

// The rope types, as config.json names them.
const (
	RopeDefault RopeType = iota
	RopeLinear
	RopeDynamic
	RopeYarn
	RopeLlama3
	RopeLongRope
	RopeNone // no rotation; for Growth alone
	RopeProportional
)

// MLPSpec runs a feed-forward layer. Names are Linear children. Without Gate and Fused it is plain:
// down(act(up(x))). Fused is one projection for gate and up.
type MLPSpec struct {
	Gate, Up, Down string
	Fused          string
	FusedOrder     GateOrder
	Act            Activation
	// XIELU, "" for none, names a child with the numbers alpha_p and alpha_n (Params), beta and eps (Buffers)
	// of the activation xIELU, which replaces Act: beta·x + softplus(alpha_p)·x² above 0, and
	// beta·x + (beta + softplus(alpha_n))·(exp(min(x, eps)) - 1 - x) up to 0.
	XIELU     string
	InnerNorm string  // norm of the operand of Down, "" for none
	Limit     float32 // clamp of ActClampedSiLU
	// Sparse replaces the result g of Gate by max(0, g - mean - Cutoff·deviation), by the mean and the standard
	// deviation of its row.
	Sparse bool
	Cutoff float32
	// GateScale multiplies the result of Gate, and Scale that of Down; 0 means 1.
	GateScale, Scale float32
}

// GateOrder is the row layout of a fused projection of gate and up.
type GateOrder uint8

// The layouts of fused gates.
const (
	GateHalves      GateOrder = iota // all of gate, then all of up
	GateInterleaved                  // gate and up row by row
)

// Activation is a pointwise function.
type Activation uint8

// The activations, as config.json names them.
const (
	ActNone     Activation = iota
	ActSiLU                // silu, swish
	ActGELU                // gelu: exact, with erf
	ActGELUTanh            // gelu_new, gelu_pytorch_tanh
	ActReLU
	ActTanh
	ActSigmoid
	ActClampedSwiGLU // gpt-oss: (clamp(up)+1) · g·sigmoid(1.702 g)
	ActReLU2         // relu2: the square of relu
	// ActExpRest is exp(min(x, -limit)) - 1 - x for x up to 0, and 0 above: the curved part of xIELU.
	ActExpRest
	ActClampedSiLU // silu(min(g, limit)) · clamp(up, ±limit)
	ActClamp       // clamp(x, ±limit)
	ActSoftplus    // ln(1 + exp(x))
)

// MoESpec runs a mixture of experts.
type MoESpec struct {
	Router      string // child with weight [experts, hidden] and maybe bias
	Experts     string // child whose parameters are stacked by expert; "" for the node itself, see [ExpertsSpec]
	Shared      string // child MLP that every token passes, or "" if none
	SharedGate  string // Linear of width 1 whose sigmoid multiplies Shared, or "" if none
	Count, TopK int
	Identity    int // experts of the router behind Count, which have no weights: their result is their operand
	Score       RouterScore
	Renormalise bool    // chosen weights are divided by their sum
	Scale       float32 // multiplies the chosen weights; 0 means 1
	ScaleInput  bool    // the weights multiply the experts' operands instead of their results
	Correction  string  // Buffer of the router or of the node, or Param below the router: added to the scores for choosing only
	Jitter      float32 // of ScoreSparseMixer
	Softcap     float32 // of the router's logits: cap·tanh(x/cap); 0: none
	// Table, "" for none, names a Buffer of the router, [vocabulary, TopK]: the experts of each token. The
	// scores weigh them only.
	Table     string
	Groups    int // groups of experts, of which TopGroups are kept; 0: none
	TopGroups int
	// GroupsByTwo says that groups rank by the sum of their best two scores instead of their best one.
	GroupsByTwo bool

	GateUp, Down         string // Params of Experts: [E, 2·F, H] and [E, H, F]
	GateUpBias, DownBias string // Params of Experts, "" if none
	Transposed           bool   // [E, H, 2·F] and [E, F, H] instead
	Plain                bool   // experts are down(act(up(x))): GateUp names up alone, [E, F, H]
	// LatentDown and LatentUp, "" for none, are Linears before and behind the sum of the routed experts,
	// which see their narrower result.
	LatentDown, LatentUp string
	GateOrder            GateOrder
	Act                  Activation
	Limit                float32 // clamp of ActClampedSwiGLU and ActClampedSiLU
}

// RouterScore converts router logits to weights.
type RouterScore uint8

// The scores.
const (
	ScoreSoftmax     RouterScore = iota // softmax over all experts, then choose
	ScoreTopKSoftmax                    // choose, then softmax over the chosen
	ScoreSigmoid
	ScoreTopKSigmoid // choose, then sigmoid
	// ScoreSparseMixer chooses two experts, one after the other. The weight of each is its softmax over
	// the experts that are left whose logits are within 2·Jitter of the highest, relative to the larger
	// of the two sizes.
	ScoreSparseMixer
	ScoreSqrtSoftplus // √ln(1 + exp(x))
)

// LinearSpec is y = x·Wᵀ + b with weight [Out, In], or [In, Out] if Transposed (GPT-2's Conv1D).
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

// EmbeddingSpec is a table lookup, weight [Rows, Dim].
type EmbeddingSpec struct {
	Rows, Dim int
	Padding   int // 1 + the row whose lookups get no gradient; 0 for none
}

// NormSpec is RMS or layer normalisation over the last Dim channels.
type NormSpec struct {
	Dim    int
	Eps    float32
	Layer  bool    // subtract the mean (LayerNorm); weights and bias may be absent
	Offset float32 // added to the weight: 1 for Gemma
	// Whole says that the checkpoint's weight includes what Offset adds in transformers.
	Whole bool

	// Heads > 0 normalises each head of Dim channels with its own weights. The weight is [Heads,
	// Dim] or [Heads·Dim]; or, if Each is set, the child of that name has a norm per head.
	Heads int
	Each  string
}

// ActivationSpec is a pointwise function as a module.
type ActivationSpec struct{ Act Activation }
