package meta

// The specs of layers that have a state for each sequence instead of keys and values. They stand
// where a block has its attention. State is the index of the layer's state, from 0. The operand and the result are
// [tokens, hidden].

// ShortConvSpec runs a gated short convolution, transformers' Lfm2ShortConv: with b, c, x = the thirds of In's
// result, the layer is Out(c · conv(b · x)). The state is the last Kernel-1 products b · x.
type ShortConvSpec struct {
	State   int
	In, Out string // Linears [3·Width, hidden] and [hidden, Width]
	Conv    string // child with weight [Width, 1, Kernel] and maybe bias [Width]
	Width   int
	Kernel  int // tokens
}

// ResidualConvSpec adds to each channel its convolution along the tokens: x + conv(x), transformers'
// InklingShortConvolution. The state is the last Kernel-1 tokens of x.
type ResidualConvSpec struct {
	State  int
	Conv   string // child with weight [channels, 1, Kernel] and maybe bias
	Kernel int    // tokens
}

// DeltaNetSpec runs a gated delta net, as transformers' Qwen3NextGatedDeltaNet, or with ByChannel its
// KimiLinearDeltaAttention. Queries, keys and values pass a short convolution and SiLU together. Each value head has
// the state S, [KeyDim, ValueDim], which begins at 0. With q and k divided by their lengths, for one token:
//
//	S = exp(g)·S;  S = S + k·(β·(v - Sᵀ·k))ᵀ;  y = Sᵀ·q / √KeyDim
//	β = Strength·sigmoid(B(x));  g = -exp(A_log)·softplus(A(x) + DTBias)
//
// The result of each value head passes Norm, is multiplied by SiLU of its z, and goes through Out.
type DeltaNetSpec struct {
	State                int
	KeyHeads, ValueHeads int // each key head serves ValueHeads/KeyHeads value heads
	KeyDim, ValueDim     int
	Kernel               int // tokens that the convolution sees
	// QKV is a Linear of 2·KeyHeads·KeyDim + ValueHeads·ValueDim rows: all queries, then all keys, then all values. Z
	// has ValueHeads·ValueDim rows, and B and A have ValueHeads each.
	QKV, Z, B, A       string
	Q, K, V            string // Linear instead of QKV
	FusedQKVZ, FusedBA string // Linear instead of QKV and Z, or of B and A; for each key head its q, k, v and z, or its b and a
	Conv               string // child with weight [queries + keys + values, 1, Kernel]
	ALog, DTBias       string // Params of one number for each value head; ALog may have dimensions of 1 beside them
	Norm, Out          string
	Act                Activation // of what is convolved; ActNone means ActSiLU
	Rates              bool       // ALog has -exp(A_log) instead of A_log
	Strength           float32    // multiplies the sigmoid of what B projects; 0 means 1
	// ByChannel says that each channel of a key decays by itself: A has KeyDim numbers for each value head, and DTBias
	// as many. Floor, 0 for none, makes the logarithm of a decay Floor·sigmoid(exp(A_log)·(a + DTBias)).
	ByChannel bool
	Floor     float32
	Forget    string // child with ALog and DTBias, "" for the layer itself
	// ADown and ZDown, "" for none, are Linears before A and Z.
	ADown, ZDown string
	GateAct      Activation // of the output gate; ActNone means ActSiLU
	Tiled        bool       // value head v belongs to key head v mod KeyHeads, not to v/(ValueHeads/KeyHeads)
}

// Mamba2Spec runs a Mamba2 mixer, transformers' Mamba2Mixer. The result of In is, in this order, the output gate z, x, B
// and C, which pass a short convolution and Act together, and the steps dt. Each head has the state S, [StateDim,
// HeadDim], which begins at 0. For one token:
//
//	Δ = softplus(dt + DTBias), from StepMin to StepMax
//	S = exp(-exp(A_log)·Δ)·S + B·(Δ·x)ᵀ;  y = Sᵀ·C + D·x
//
// The result goes through Out after SiLU of z has multiplied it and Norm, if there is one, has normalised the product.
type Mamba2Spec struct {
	State             int
	Heads, Groups     int // each group of B and C serves Heads/Groups heads
	HeadDim, StateDim int
	Kernel            int // tokens that the convolution sees
	Act               Activation
	StepMin, StepMax  float32 // limits of the steps; StepMax may be infinite
	In                string  // Linear of 2·Heads·HeadDim + 2·Groups·StateDim + Heads rows
	Conv              string  // child with weight [x + B + C, 1, Kernel] and maybe bias
	ALog, DTBias, D   string  // Params of one number for each head
	Rates             bool    // ALog has -exp(A_log) instead of A_log
	Norm              string  // "" for none
	NormFirst         bool    // Norm comes before the product with z
	Out               string

	InScale, OutScale float32    // multiply the operand and the result; 0 means 1
	Scales            [5]float32 // multiply z, x, B, C and dt; 0 means 1
}

// MambaSpec runs the mixer of the first Mamba, transformers' MambaMixer. The result of In is x, which passes a short
// convolution and Act, and the output gate z. Select projects x to the compressed steps, B and C, which pass norms,
// and Steps expands the steps to dt. Each channel has the state S, [StateDim], which begins at 0. For one token:
//
//	Δ = softplus(dt);  S = exp(-exp(A_log)·Δ)·S + Δ·x·B;  y = S·C + D·x
//
// The result is multiplied by SiLU of z and goes through Out.
type MambaSpec struct {
	State              int
	Width              int // channels, each with a state of StateDim numbers
	StateDim, StepRank int
	Kernel             int // tokens that the convolution sees
	Act                Activation
	// In is [2·Width, hidden], Select [StepRank+2·StateDim, Width], and Steps [Width, StepRank] with the steps' bias.
	In, Select, Steps string
	Conv              string // child with weight [Width, 1, Kernel] and maybe bias
	ALog, D           string // Params, [Width, StateDim] and [Width]
	StepNorm          string // of the compressed steps, "" for none
	BNorm, CNorm, Out string
	Rates             bool // ALog has -exp(A_log) instead of A_log

	// Heads, 0 for a mixer without heads, are equally many channels each with maps, B and C of their own (Zamba). Select, Steps
	// and StepBias are then Params, [Heads, StepRank+2·StateDim, Width/Heads], [Heads, Width/Heads, StepRank] and [Heads,
	// Width/Heads]. ALog and D begin with the dimensions Heads and Width/Heads too. There are no norms.
	Heads    int
	StepBias string
	Order    GateOrder // of x and z in the rows of In
}

// LightningSpec runs lightning attention, transformers' MiniMaxLightningAttention. The result of QKV has, for each head, its
// query, its key and its value, which pass Act. Each head has the state S, [HeadDim, HeadDim], which begins at 0. For
// one token:
//
//	S = exp(-Rates[h])·S + k·vᵀ;  y = Sᵀ·q
//
// The results of all heads pass Norm together, are multiplied by the sigmoid of Gate, and go through Out.
type LightningSpec struct {
	State          int
	Heads, HeadDim int
	QKV, Gate, Out string // Linears [3·Heads·HeadDim, hidden], [Heads·HeadDim, hidden] and [hidden, Heads·HeadDim]
	Norm           string // of Heads·HeadDim channels
	Act            Activation
	Rates          []float32
}

// GatedLRUSpec runs Griffin's recurrent block with real-gated linear recurrent units (RG-LRU), transformers'
// RecurrentGemmaRecurrentBlock. With u = the short convolution of X(operand), and for each of Heads, which have
// Width/Heads channels each:
//
//	i = sigmoid(u·InputGate + InputBias);  r = sigmoid(u·DecayGate + DecayBias)
//	a = exp(-Power·softplus(Rate)·r);      S = a·S + √(1 - a²)·i·u
//
// where the first token of a sequence has S = i·u. The result is Out(S · Act(Y(operand))).
type GatedLRUSpec struct {
	State, Width, Heads int
	Kernel              int    // tokens that the convolution sees
	X, Y, Out           string // Linears [Width, hidden], [Width, hidden] and [hidden, Width]
	Conv                string // child with weight [Width, 1, Kernel] and maybe bias [Width]
	// Unit is a child with the other parameters: InputGate and DecayGate [Heads, Width/Heads, Width/Heads], inputs first,
	// their biases [Heads, Width/Heads], and Rate [Width].
	Unit, InputGate, InputBias, DecayGate, DecayBias, Rate string
	Power                                                  float32
	Act                                                    Activation
}

// TimeMixSpec runs the part of an RWKV block that sees earlier tokens, transformers' RwkvSelfAttention. With x' = the operand of the
// token before, 0 for the first, and each of k, v and r = K, V and R of m∘x + (1 - m)∘x' with an m of its own, the result is
// Out(sigmoid(r)∘y). In y, each channel averages the values of the tokens so far, with weights exp(k) that decay by
// exp(-exp(Decay)) from token to token; that of the token itself is exp(k + First).
type TimeMixSpec struct {
	State            int // the token before, then three numbers for each channel
	Hidden, Width    int
	K, V, R, Out     string // Linears [Width, Hidden], and [Hidden, Width]
	MixK, MixV, MixR string // Params [1, 1, Hidden]
	Decay, First     string // Params [Width]
}

// ChannelMixSpec runs the MLP of an RWKV block, transformers' RwkvFeedForward: sigmoid(r)∘V(relu(k)²), where k and r are K and R of
// mixtures with the token before, as in TimeMixSpec.
type ChannelMixSpec struct {
	State         int // the token before
	Hidden, Inner int
	K, V, R       string // Linears [Inner, Hidden], [Hidden, Inner] and [Hidden, Hidden]
	MixK, MixR    string // Params [1, 1, Hidden]
}
