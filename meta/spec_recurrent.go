package meta

// The specs of layers that have a state for each sequence instead of cached keys and values. They
// take the place of a block's attention. State is the index of the layer's state, from 0. Input
// and output are [tokens, hidden].

// ShortConvSpec is a gated short convolution, as in transformers' Lfm2ShortConv. With b, c, x =
// the thirds of In's result, the layer is Out(c · conv(b · x)). The state is the last Kernel-1
// products b · x.
type ShortConvSpec struct {
	State   int
	In, Out string // Linears [3·Width, hidden] and [hidden, Width]
	Conv    string // child with weight [Width, 1, Kernel] and maybe bias [Width]
	Width   int
	Kernel  int // tokens
}

// ResidualConvSpec adds a convolution along the tokens to each channel: x + conv(x), as in
// transformers' InklingShortConvolution. The state is the last Kernel-1 tokens of x.
type ResidualConvSpec struct {
	State  int
	Conv   string // child with weight [channels, 1, Kernel] and maybe bias
	Kernel int    // tokens
}

// DeltaNetSpec is a gated delta net, as in transformers' Qwen3NextGatedDeltaNet, or with
// ByChannel in its KimiLinearDeltaAttention. Queries, keys and values pass a short convolution
// and SiLU. Each value head has the state S, [KeyDim, ValueDim], which begins at 0. With q and k
// normalised to length 1, for one token:
//
//	S = exp(g)·S;  S = S + k·(β·(v - Sᵀ·k))ᵀ;  y = Sᵀ·q / √KeyDim
//	β = Strength·sigmoid(B(x));  g = -exp(A_log)·softplus(A(x) + DTBias)
//
// The result of each value head is normalised by Norm, multiplied by SiLU of its z, and projected
// by Out.
type DeltaNetSpec struct {
	State                int
	KeyHeads, ValueHeads int // each key head serves ValueHeads/KeyHeads value heads
	KeyDim, ValueDim     int
	Kernel               int // kernel size in tokens
	// QKV is a Linear of 2·KeyHeads·KeyDim + ValueHeads·ValueDim rows: all queries, then all
	// keys, then all values. Z has ValueHeads·ValueDim rows. B and A have ValueHeads rows each.
	QKV, Z, B, A       string
	Q, K, V            string // Linear instead of QKV
	FusedQKVZ, FusedBA string // Linear instead of QKV and Z, or of B and A; for each key head its q, k, v and z, or its b and a
	Conv               string // child with weight [queries + keys + values, 1, Kernel]
	ALog, DTBias       string // Params of one number for each value head; ALog may have dimensions of 1 beside them
	Norm, Out          string
	Act                Activation // of the convolution; ActNone means ActSiLU
	Rates              bool       // ALog has -exp(A_log) instead of A_log
	Strength           float32    // multiplies the sigmoid of B's result; 0 means 1
	// ByChannel gives each channel of a key its own decay: A and DTBias have KeyDim values per
	// value head. Floor, if not 0, makes the logarithm of a decay Floor·sigmoid(exp(A_log)·(a +
	// DTBias)).
	ByChannel bool
	Floor     float32
	Forget    string // child with ALog and DTBias, "" for the layer itself
	// ADown and ZDown are Linears before A and Z, or "".
	ADown, ZDown string
	GateAct      Activation // of the output gate; ActNone means ActSiLU
	Tiled        bool       // value head v belongs to key head v mod KeyHeads, not to v/(ValueHeads/KeyHeads)
}

// Mamba2Spec is a Mamba2 mixer, as in transformers' Mamba2Mixer. The result of In is, in this
// order, the output gate z, then x, B and C, which pass a short convolution and Act together,
// then the steps dt. Each head has the state S, [StateDim, HeadDim], which begins at 0. For one
// token:
//
//	Δ = softplus(dt + DTBias), from StepMin to StepMax
//	S = exp(-exp(A_log)·Δ)·S + B·(Δ·x)ᵀ;  y = Sᵀ·C + D·x
//
// The result is multiplied by SiLU of z, normalised by Norm, if there is one, and projected by
// Out.
type Mamba2Spec struct {
	State             int
	Heads, Groups     int // each group of B and C serves Heads/Groups heads
	HeadDim, StateDim int
	Kernel            int // kernel size in tokens
	Act               Activation
	StepMin, StepMax  float32 // limits of the steps; StepMax may be infinite
	In                string  // Linear of 2·Heads·HeadDim + 2·Groups·StateDim + Heads rows
	Conv              string  // child with weight [x + B + C, 1, Kernel] and maybe bias
	ALog, DTBias, D   string  // Params of one number for each head
	Rates             bool    // ALog has -exp(A_log) instead of A_log
	Norm              string  // "" if none
	NormFirst         bool    // Norm comes before the product with z
	Out               string

	InScale, OutScale float32    // multiply the input and the result; 0 means 1
	Scales            [5]float32 // multiply z, x, B, C and dt; 0 means 1
}

// MambaSpec is the mixer of Mamba (version 1), as in transformers' MambaMixer. The result of In
// is x, which passes a short convolution and Act, and the output gate z. Select projects x to the
// compressed steps, B and C, which pass norms, and Steps expands the steps to dt. Each channel
// has the state S, [StateDim], which begins at 0. For one token:
//
//	Δ = softplus(dt);  S = exp(-exp(A_log)·Δ)·S + Δ·x·B;  y = S·C + D·x
//
// The result is multiplied by SiLU of z and projected by Out.
type MambaSpec struct {
	State              int
	Width              int // channels, each with a state of StateDim numbers
	StateDim, StepRank int
	Kernel             int // kernel size in tokens
	Act                Activation
	// In is [2·Width, hidden], Select [StepRank+2·StateDim, Width], and Steps [Width, StepRank]
	// with the steps' bias.
	In, Select, Steps string
	Conv              string // child with weight [Width, 1, Kernel] and maybe bias
	ALog, D           string // Params, [Width, StateDim] and [Width]
	StepNorm          string // of the compressed steps, "" if none
	BNorm, CNorm, Out string
	Rates             bool // ALog has -exp(A_log) instead of A_log

	// Heads, if not 0, is the number of heads of equal width, each with its own projections, B
	// and C (Zamba). Select, Steps and StepBias are then Params, [Heads, StepRank+2·StateDim,
	// Width/Heads], [Heads, Width/Heads, StepRank] and [Heads, Width/Heads]. ALog and D begin
	// with the dimensions Heads and Width/Heads too. There are no norms.
	Heads    int
	StepBias string
	Order    GateOrder // of x and z in the rows of In
}

// LightningSpec is lightning attention, as in transformers' MiniMaxLightningAttention. The result
// of QKV has the query, the key and the value of each head, which pass Act. Each head has the
// state S, [HeadDim, HeadDim], which begins at 0. For one token:
//
//	S = exp(-Rates[h])·S + k·vᵀ;  y = Sᵀ·q
//
// The results of all heads are normalised together by Norm, multiplied by the sigmoid of Gate,
// and projected by Out.
type LightningSpec struct {
	State          int
	Heads, HeadDim int
	QKV, Gate, Out string // Linears [3·Heads·HeadDim, hidden], [Heads·HeadDim, hidden] and [hidden, Heads·HeadDim]
	Norm           string // of Heads·HeadDim channels
	Act            Activation
	Rates          []float32
}

// GatedLRUSpec is Griffin's recurrent block with real-gated linear recurrent units (RG-LRU), as
// in transformers' RecurrentGemmaRecurrentBlock. With u = the short convolution of X(input), and
// for each of Heads, which have Width/Heads channels each:
//
//	i = sigmoid(u·InputGate + InputBias);  r = sigmoid(u·DecayGate + DecayBias)
//	a = exp(-Power·softplus(Rate)·r);      S = a·S + √(1 - a²)·i·u
//
// where the first token of a sequence has S = i·u. The result is Out(S · Act(Y(input))).
type GatedLRUSpec struct {
	State, Width, Heads int
	Kernel              int    // kernel size in tokens
	X, Y, Out           string // Linears [Width, hidden], [Width, hidden] and [hidden, Width]
	Conv                string // child with weight [Width, 1, Kernel] and maybe bias [Width]
	// Unit is a child with the other parameters: InputGate and DecayGate [Heads, Width/Heads,
	// Width/Heads], inputs first, their biases [Heads, Width/Heads], and Rate [Width].
	Unit, InputGate, InputBias, DecayGate, DecayBias, Rate string
	Power                                                  float32
	Act                                                    Activation
}

// TimeMixSpec is the part of an RWKV block that depends on earlier tokens, as in transformers'
// RwkvSelfAttention. Let x' be the input of the preceding token, 0 for the first. k, v and r are
// K, V and R of m∘x + (1 - m)∘x', each with its own m. The result is Out(sigmoid(r)∘y). In y,
// each channel is the weighted average of the values of the tokens so far. A weight is exp(k) and
// decays by exp(-exp(Decay)) per token; that of the token itself is exp(k + First).
type TimeMixSpec struct {
	State            int // the token before, then three numbers for each channel
	Hidden, Width    int
	K, V, R, Out     string // Linears [Width, Hidden], and [Hidden, Width]
	MixK, MixV, MixR string // Params [1, 1, Hidden]
	Decay, First     string // Params [Width]
}

// ChannelMixSpec is the MLP of an RWKV block, as in transformers' RwkvFeedForward:
// sigmoid(r)∘V(relu(k)²), where k and r are K and R of mixtures with the preceding token, as in
// TimeMixSpec.
type ChannelMixSpec struct {
	State         int // the token before
	Hidden, Inner int
	K, V, R       string // Linears [Inner, Hidden], [Hidden, Inner] and [Hidden, Hidden]
	MixK, MixR    string // Params [1, 1, Hidden]
}
