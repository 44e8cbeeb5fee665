package meta

// AttentionSpec runs causal self-attention with grouped key/value heads: query head h uses
// key/value head h / (Heads/KVHeads). For a token at position i, and each position j up to i to
// which it attends:
//
//	score = Softcap·tanh(Scale·(q·k) / Softcap) - Slopes[h]·(i - j)
//	y     = sum of exp(score)·v / (exp(Sinks[h]) + sum of exp(score))
//
// Parts that are not set are left out. Either Q, K and V name three Linear children, or Fused
// names one whose rows have the layout FusedOrder. Out is the output projection of the heads'
// results, [Heads·ValueDim]. For an input of hidden channels, the weights of Q, K, V and Out are
// [Heads·HeadDim, hidden], [KVHeads·HeadDim, hidden], [KVHeads·ValueDim, hidden] and [hidden,
// Heads·ValueDim].
type AttentionSpec struct {
	Layer             int // index of the key/value cache, from 0
	Heads, KVHeads    int // KVHeads divides Heads
	HeadDim, ValueDim int // channels of a query or key head, and of a value head
	Q, K, V           string
	// QAdapter, KAdapter and VAdapter name Sequentials of the layer's input whose results are
	// added to those of Q, K and V (Zamba2), or are "".
	QAdapter, KAdapter, VAdapter string
	Fused                        string // Linear with the rows of Q, K and V
	FusedOrder                   FusedOrder
	Shards                       int // of FusedQVKInShards
	Out                          string
	OutBias                      string    // Param of the layer, added to the result of Out; or ""
	QNorm, KNorm                 string    // norms before rope, "" if none; a norm as wide as one head is applied per head
	NormLast                     bool      // QNorm and KNorm come after rope instead
	Scale                        float32   // multiplies q·k; usually HeadDim^(-1/2)
	Window                       int       // tokens that a token attends to: itself and Window-1 before it; 0: all
	Chunk                        int       // a token attends to earlier ones from the last multiple of Chunk tokens on (Llama 4); 0: all
	Softcap                      float32   // bounds the scores (Gemma 2); 0: none
	Sinks                        string    // Param [Heads]: a further logit of each head, without a value (gpt-oss); or ""
	Slopes                       []float32 // of each head, by which a score falls per token of distance (ALiBi); nil: none
	// RoundedSlopes replaces the biases of Slopes by Scale · slope · the key's position. The
	// slope, the position and their product are rounded to bfloat16 (Falcon).
	RoundedSlopes bool
	Clip          float32         // queries, keys and values are clamped to ±Clip, after norms and before rope; 0: not
	Rope          *RopeSpec       // nil: none
	QueryRope     *RopeSpec       // of queries, if it differs from that of keys
	MLA           *MLASpec        // set for multi-head latent attention
	Compressed    *CompressedSpec // set for attention to a window and compressed keys
	// Gated means that the result of Q, [2·Heads·HeadDim], has a gate of the same size after each
	// query head. Its sigmoid multiplies the head's output (Qwen3-Next). In latent attention a
	// gate has ValueDim channels, in the result of MLA's QUp.
	Gated      bool
	VNorm      string  // norm of the values, "" if none
	KeysToo    bool    // the values are the keys before their norm and rope; V is "" (Gemma 4)
	Shared     bool    // keys and values are those of an earlier layer, whose cache Layer names; K and V are "" (Gemma 3n)
	ValueScale float32 // multiplies the values; 0 means 1
	// Gate names a Linear of the layer's input, [Heads·ValueDim, hidden], or is "". Its sigmoid,
	// or GateAct of it if that is set, multiplies the heads' outputs.
	Gate       string
	GateAct    Activation
	GateByHead bool              // Gate is [Heads, hidden]: one number for each head
	GateBias   string            // Param [Heads], added to Gate's result for each channel of a head; or ""
	Blocks     *BlockIndexerSpec // limits the positions that a token attends to; nil if none
	Difference *DifferenceSpec   // subtracts heads from others; nil if none
	KeyBias    *KeyBiasSpec      // adds a number of each key to its scores; nil if none
	Mixture    *HeadMixtureSpec  // selects query and output projections per token; nil if none
	Relative   *RelativeSpec     // adds biases by distance that depend on the query; nil if none
	// KConv and VConv, if not nil, follow K and V, before norms and rope.
	KConv, VConv *ResidualConvSpec
	Mix          *KeyMixSpec // mixes queries and keys before norms and rope; nil for none
	// KeyScale, "" for none, is the path of a Param [KVHeads] that multiplies key heads, behind KNorm (ZAYA).
	KeyScale string
	// QueryChannels multiplies the channels of queries behind rope, and GateChannels those of
	// Gate's result; nil for none.
	QueryChannels, GateChannels *ChannelScaleSpec
	OutNorm                     string // norm of the heads' outputs together, of Heads·ValueDim channels; or ""
}

// KeyMixSpec is compressed convolutional attention (ZAYA). With p = the results of Q and then K, side by side, and with the key head of
// each query head:
//
//	m = (q + k)/2 of each query head;  q, k = Grouped(Depthwise(p)) + (m, the mean of m over the query heads of each key head)
//
// Depthwise is a convolution of each channel over Kernel tokens, and Grouped one of each head over 2. Tokens before the first are 0
// in p. The first half of the value channels is V of the token, the other VBefore of the token before.
type KeyMixSpec struct {
	State              int
	Kernel             int
	Depthwise, Grouped string // with weights [channels, 1, Kernel] and [channels, HeadDim, 2], and biases [channels]
	VBefore            string // Linear with half of the value channels, as V
}

// FusedOrder is the row layout of a fused q/k/v projection.
type FusedOrder uint8

// The layouts of fused projections.
const (
	FusedQKV         FusedOrder = iota // all of q, then all of k, then all of v
	FusedPerHead                       // for each head: q, k, v
	FusedQVKInShards                   // for each of AttentionSpec.Shards: its part of all of q, of v, and of k
)

// MLASpec is multi-head latent attention (MLA), which DeepSeek-V2 introduced, as in transformers'
// DeepseekV3Attention. Names are children. With x = the input, and for each head h:
//
//	q[h]                 = QUp(QNorm(QDown(x)))           NopeDim channels, then RopeDim rotated by rope
//	c, r                 = KVDown(x); c = KVNorm(c)       LoraRank and RopeDim channels
//	k[h]                 = keys[h] of KVUp(c), then rope(r)
//	v[h]                 = values[h] of KVUp(c)
//
// The cache holds c and rope(r) of each token, LoraRank + RopeDim values. AttentionSpec.HeadDim
// is NopeDim + RopeDim, and ValueDim is the number of channels of v[h].
type MLASpec struct {
	// QDown is [rank, hidden], and QUp [Heads·HeadDim, rank]. If QDown is "", QUp projects the
	// input directly.
	QDown, QNorm, QUp string
	// QConcat means that the input of QUp, [.., 2·rank], is the result of QNorm followed by that
	// of QDown.
	QConcat bool
	// KVDown is [LoraRank+RopeDim, hidden], and KVUp [Heads·(NopeDim+ValueDim), LoraRank]: the
	// key part of each head followed by its value part. With AttentionSpec.Shared, c and rope(r)
	// are those of an earlier layer, and KVDown and KVNorm are "".
	KVDown, KVNorm, KVUp string
	KRopeNorm            string // norm of r before rope, "" if none
	// KeyUp and ValueUp replace KVUp if the expansion is stored as two matrices: the transpose of
	// each head's key part, [Heads·LoraRank, NopeDim], and each head's value part,
	// [Heads·ValueDim, LoraRank].
	KeyUp, ValueUp   string
	LoraRank         int // channels of the compressed key/value
	RopeDim, NopeDim int // channels of a query or key head that rope rotates, 0 for none, and of its other part
	// KVScale multiplies the compressed key/value after its norm, and QueryScale the queries. 0
	// means 1.
	KVScale, QueryScale float32
	// QueryGrowth, if not nil, is of type [RopeNone] and multiplies the queries by the growth of
	// their position before Rope.
	QueryGrowth *RopeSpec
	// HeadScale names a child with the Params scale and bias, [Heads], or is "". It multiplies
	// the queries of head h at position p by scale[h]·ln(p + 1) + bias[h] (Mistral Large 4).
	HeadScale string
	// Indexer, if not nil, limits the positions that a token attends to, to Chosen of them.
	// Chosen > 0 without an Indexer means the positions of the last earlier layer that has one.
	Indexer *IndexerSpec
	Chosen  int
}

// IndexerSpec selects, for each token, the Count positions with the highest scores, as in
// DeepSeek-V3.2's sparse attention (transformers' DeepseekV32Indexer). A score is the sum over
// Heads of weight · max(0, q·k). The queries are projected from the normalised compression of
// MLA's queries, or else from the layer's input. There is one key per token, which is cached.
// Rope rotates both as it does in the attention, if it does there. Factors that all scores have
// in common are left out. Names are dotted paths to children of the attention.
type IndexerSpec struct {
	// Q is [Heads·HeadDim, rank of MLA's queries], or [Heads·HeadDim, hidden] where these have no compression, K
	// [HeadDim, hidden], KNorm a norm of HeadDim channels, and Weights [Heads, hidden].
	Q, K, KNorm, Weights string
	QNorm                string // norm of the input of Q, "" if none
	HeadScale            string // as MLASpec's, of the queries before rope
	Layer                int    // with AttentionSpec.Shared, index of the cache of the keys
	Heads, HeadDim       int
	Count                int  // positions; a token with fewer attends to all of them
	Interleaved          bool // rope rotates adjacent pairs in the first MLASpec.RopeDim channels
	Last                 bool // rope rotates the last channels instead, as it does those of attention
}

// HeadMixtureSpec is an MoE of attention heads, as in transformers' JetMoeAttention. Each expert
// of Experts, a child of kind MoE without gates, has a query projection, [KVHeads·HeadDim,
// hidden], and an output projection, back to hidden channels. The queries of each selected expert
// attend to all KVHeads heads of keys and values, and the results are added. Heads is KVHeads
// times the number of selected experts. Q, K, V and Out are "".
type HeadMixtureSpec struct {
	Experts string
	KV      string // Linear [2·KVHeads·HeadDim, hidden]: all keys, then all values
}

// KeyBiasSpec is dynamic mask attention, as in transformers' DogeAttention. It adds a number of
// the key to the scores of each key head h,
//
//	exp(Rate[h] · ln(1 + exp(Step(v)[h])))
//
// where v is all value heads of the key's token. Step is a Linear [KVHeads, KVHeads·ValueDim],
// and Rate a Param [KVHeads]. With Count > 0, a token with more positions attends only to the
// Count of them with the highest numbers, per head.
type KeyBiasSpec struct {
	Step, Rate string
	Count      int
	Layer      int // index of the cache of the numbers, from 0, with Count > 0
}

// RelativeSpec adds to the score of a key at distance d < Extent from the token,
//
//	sum over r of States(x)[h, r] · proj[r, d]
//
// for each head h, as transformers' InklingRelativeLogits does. States is a Linear [Heads·Rank,
// hidden] of the layer's input x, and Profiles a child with the Param proj, [Rank, Extent].
// Growth, if not nil, is of type [RopeNone] and multiplies the states by the growth of their
// position.
type RelativeSpec struct {
	States, Profiles string
	Rank, Extent     int
	Growth           *RopeSpec
}

// DifferenceSpec is differential attention, as in transformers' DiffLlamaAttention. Query head i
// of the first half and head i of the second half both weigh the values of heads j and j +
// KVHeads/2, concatenated, where j is the key head of the first one. The result is the first's
// minus factor times the second's, where
//
//	factor = exp(Q1·K1) - exp(Q2·K2) + Init
//
// over four Params of HeadDim values. The result is normalised by Norm, a child that normalises
// each pair of value heads, and multiplied by 1 - Init. The cache holds the values twice.
type DifferenceSpec struct {
	Q1, K1, Q2, K2 string
	Init           float32
	Norm           string
}

// BlockIndexerSpec selects Count blocks of Size positions for each token and each of Heads heads,
// as in MiniMax M3. Equal groups of adjacent query heads share a selection. It consists of the
// Local blocks that end with the token's own, and those with the highest scores. The score of a
// block is the highest product of the head's query, projected from the layer's input, with the
// key of a position in the block that is visible to the token. There is one such key per token,
// which is cached in a layer of its own. Rope rotates queries and keys as it does in the
// attention. Names are dotted paths to children of the attention.
type BlockIndexerSpec struct {
	Layer int // index of the cache of its keys, from 0
	// Q and K are Linears [Heads·HeadDim, hidden] and [HeadDim, hidden], and QNorm and KNorm norms of each head,
	// "" for none.
	Q, K, QNorm, KNorm string
	Heads, HeadDim     int
	// Halves, if not nil, replaces the attention's rope, for heads of fewer channels than it rotates: the first
	// half of a head's channels takes the result of the first of two ropes, and the second half that of the second.
	Halves       *[2]RopeSpec
	Size         int // positions of a block
	Count, Local int // blocks
	// Averaged blocks have one key each, as in transformers' Qwen4ExpTextQSAIndexer. It is KNorm
	// of the average of K's results for the block's positions, rotated by the first position. The
	// score of a block is the sum over the indexer's heads of the positive products with this
	// key. All query heads share the selection of Count blocks, among those that are wholly
	// visible to the token, and also attend to the positions after these blocks. Local is 0. QK
	// is a Linear [(Heads+1)·HeadDim, hidden], of all queries and then the key, which replaces Q
	// and K.
	Averaged bool
	QK       string
}

// RopeSpec is a rotary position embedding (RoPE). It rotates pair n of a head's channels by
// position times frequency n, in radians. [RopeSpec.Frequencies] computes the frequencies and the
// factor of cos and sin, with the formulas of transformers' modeling_rope_utils. Fields that a
// type does not use are 0.
type RopeSpec struct {
	Type        RopeType
	Theta       float64   // base: frequency n of RopeDefault is Theta^(-2n/Divisor)
	Dim         int       // rotated channels of a head, an even number: its first, where the attention's spec does not say others
	Divisor     int       // of the frequencies' exponents; 0 means Dim
	Interleaved bool      // pairs (2i, 2i+1) instead of (i, i+Dim/2)
	Within      *RopeSpec // if not nil, the frequencies are those of Within from number From on, and again from its first
	From        int
	Spread      bool    // the frequencies are those of Dim/2 channels, and 0 after each
	Backwards   bool    // rotates by negative angles
	Shift       int     // of positions: a token has the angles of the one so many before it
	Factor      float64 // by which the context is stretched: frequencies are divided by it, all or some of them
	Original    int     // tokens that the model was trained with: original_max_position_embeddings
	Max         int     // tokens: max_position_embeddings

	Angles             int     // proportional: so many frequencies are not 0
	LowFreq, HighFreq  float64 // llama3: turns within Original tokens, below which Factor divides, and above which it does not
	BetaFast, BetaSlow float64 // yarn: turns within Original tokens, above which Factor does not divide, and below which it does
	// MScale and MScaleAllDim determine the factor of cos and sin of yarn. With s(m) =
	// 0.1·m·ln(Factor) + 1 it is s(MScale) / s(MScaleAllDim), or s(1) if one of them is 0.
	MScale, MScaleAllDim    float64
	NoTruncate              bool      // yarn: the bounds of the frequencies between both are not rounded
	AttentionFactor         float64   // yarn, longrope: the factor of cos and sin; 0 means the formula
	ShortFactor, LongFactor []float64 // longrope: a divisor of each of Dim/2 frequencies, up to Original tokens and beyond

	// Growth > 0 multiplies the rotated channels at position p by 1 + Growth·ln(1 + ⌊(p +
	// GrowthShift)/GrowthEvery⌋), for sharper attention in longer contexts (Llama 4, Mistral 4).
	// GrowthEvery and GrowthShift are in tokens.
	Growth                   float64
	GrowthEvery, GrowthShift int
	GrowthAlone              bool // the factor is that without its 1
	GrowthPower              bool // the factor is (1 + (p + GrowthShift)/GrowthEvery)^Growth instead (Beam)
	// GrowthFrom > 0, in tokens, changes that factor to 1 + Growth·ln(max(1, (p + 1)/GrowthFrom))
	// (Inkling).
	GrowthFrom int
	// Alpha is the path from the root of a module with the Param alpha, [Dim/2], or "". Frequency
	// n is multiplied by exp(alpha[n]) (Mistral Large 4).
	Alpha string

	// ShortScale and LongScale replace the factor of cos and sin for sequences of up to Original
	// tokens, and for longer ones (Phi-3.5-MoE). 0 means that they do not.
	ShortScale, LongScale float64
}

// RopeType selects the formula of the frequencies.
type RopeType uint8

// The rope types, as config.json names them.
const (
	RopeDefault      RopeType = iota // RoFormer's
	RopeLinear                       // all frequencies are divided by Factor
	RopeDynamic                      // NTK-aware: Theta grows with lengths beyond Max
	RopeYarn                         // YaRN
	RopeLlama3                       // Llama 3.1's
	RopeLongRope                     // LongRoPE
	RopeNone                         // no rotation; for Growth alone
	RopeProportional                 // frequencies from Angles on are 0 (Gemma 4)
)
