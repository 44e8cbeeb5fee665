package meta

import "math"

// recurrentGemma is RecurrentGemmaForCausalLM (Griffin): each layer has a block of gated linear recurrent units, or
// attention to a window, before its MLP.
func recurrentGemma(f *fields, b *Builder) {
	d := readDecoder(f, "RecurrentGemma", decoderDefaults{
		vocab: 256000, hidden: 2560, inner: 7680, layers: 26, heads: 10,
		context: endlessContext, eps: 1e-6, act: "gelu_pytorch_tanh", actField: "hidden_activation", tied: true,
		rope: ropeDefaults{theta: 10000, partial: 0.5, roundUp: true},
	})
	d.mlpClass, d.normSpec.Offset = "RecurrentGemmaMlp", 1
	if d.rope.Type != RopeDefault {
		f.fail("rope_scaling", "only ropes of type default are supported for this model_type")
	}
	if d.inner /= 2; d.inner == 0 {
		f.fail("intermediate_size", "got 1, want at least 2")
	}
	width := d.hidden
	if !f.null("lru_width") {
		width = f.size("lru_width", width)
	}
	if width%d.heads != 0 {
		f.fail("lru_width", "%d is not a multiple of the %d attention heads", width, d.heads)
	}
	g := &griffin{decoder: d, width: width, kernel: f.count("conv1d_width", 4, 2, maxKernel), window: f.size("attention_window_size", 2048), bias: f.bool("attention_bias", false)}
	attended := f.blockTypes()
	w := wiring{
		block: BlockSpec{AttentionNorm: "temporal_pre_norm", Attention: "temporal_block", MLPNorm: "channel_pre_norm", MLP: "mlp_block"},
		spec: CausalLMSpec{EmbedScale: roundBFloat16(math.Sqrt(float64(d.hidden))),
			LogitSoftcap: float32(f.positive("logits_soft_cap", 30))},
		finalNorm: "final_norm",
		rotary:    func(b *Builder) { b.Buffer("normalizer", BFloat16, false) },
	}
	attentions, states := 0, 0
	d.causalLM(f, b, w, func(b *Builder, i int) {
		d.norms(b, "temporal_pre_norm")
		if attended[i%len(attended)] {
			g.attention(b, attentions)
			attentions++
		} else {
			g.recurrent(b, states)
			states++
		}
		d.norms(b, "channel_pre_norm")
		d.gatedMLP(b, "mlp_block", d.inner, true)
	})
}

// griffin holds properties of RecurrentGemma's layers that decoder does not hold.
type griffin struct {
	*decoder
	width, kernel, window int
	bias                  bool // of queries, keys and values
}

// attention adds attention to a window, with the given layer of the cache.
func (g *griffin) attention(b *Builder, layer int) {
	s := g.attentionSpec(AttentionSpec{Layer: layer, Q: "q_proj", K: "k_proj", V: "v_proj", Out: "o_proj", Window: g.window})
	a := b.Child("temporal_block", "RecurrentGemmaAttention").Runs(KindAttention, s)
	a.Linear("q_proj", g.hidden, g.heads*g.headDim, g.bias)
	a.Linear("k_proj", g.hidden, g.kvHeads*g.headDim, g.bias)
	a.Linear("v_proj", g.hidden, g.kvHeads*g.headDim, g.bias)
	a.Linear("o_proj", g.heads*g.headDim, g.hidden, true)
	a.Rotary("RecurrentGemmaRotaryEmbedding", g.rope)
}

// recurrent adds a recurrent block with the given state.
func (g *griffin) recurrent(b *Builder, state int) {
	s := &GatedLRUSpec{State: state, Width: g.width, Heads: g.heads, Kernel: g.kernel, X: "linear_x", Y: "linear_y", Out: "linear_out", Conv: "conv_1d",
		Unit: "rg_lru", InputGate: "input_gate_weight", InputBias: "input_gate_bias", DecayGate: "recurrent_gate_weight", DecayBias: "recurrent_gate_bias",
		Rate: "recurrent_param", Power: 8, Act: g.act.act}
	r := b.Child("temporal_block", "RecurrentGemmaRecurrentBlock").Runs(KindGatedLRU, s)
	r.Linear("linear_y", g.hidden, g.width, true)
	r.Linear("linear_x", g.hidden, g.width, true)
	r.Linear("linear_out", g.width, g.hidden, true)
	c := r.Child("conv_1d", "Conv1d")
	c.Param("weight", g.width, 1, g.kernel)
	c.Param("bias", g.width)
	u := r.Child("rg_lru", "RecurrentGemmaRglru")
	u.Param("recurrent_param", g.width)
	each := g.width / g.heads
	for _, gate := range [...]string{"input_gate", "recurrent_gate"} {
		u.Param(gate+"_weight", g.heads, each, each)
		u.Param(gate+"_bias", g.heads, each)
	}
	r.Activation("act_fn", g.act.class, g.act.act)
}

// blockTypes reads which layers of a period have attention instead of recurrent units.
func (f *fields) blockTypes() []bool {
	types := f.texts("block_types")
	if len(types) == 0 {
		types = []string{"recurrent", "recurrent", "attention"}
		if f.has("block_types") {
			f.fail("block_types", "is empty")
		}
	}
	attended := make([]bool, len(types))
	for i, kind := range types {
		if attended[i] = kind == "attention"; !attended[i] && kind != "recurrent" {
			f.fail("block_types", "%.40q is not supported (supported: recurrent, attention)", kind)
		}
	}
	return attended
}

// roundBFloat16 rounds to the nearest bfloat16 value, ties to even.
func roundBFloat16(x float64) float32 {
	bits := math.Float32bits(float32(x))
	return math.Float32frombits((bits + 0x7fff + bits>>16&1) &^ 0xffff)
}
