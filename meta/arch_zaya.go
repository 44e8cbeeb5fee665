package meta

// zaya is ZayaForCausalLM: queries and keys that two convolutions mix, values of which half belong to the token before, sums
// with learned factors, and mixtures with one expert for each token, or none, whose routers pass a state from block to block.
func zaya(f *fields, b *Builder) {
	d := readDecoder(f.without("rope_parameters", "rope_scaling", "rope_theta", "partial_rotary_factor"), "Zaya", decoderDefaults{
		vocab: 262272, hidden: 2048, inner: 2048, layers: 40, heads: 8, kvHeads: 2, headDim: 128,
		context: 131072, eps: 1e-5, act: "silu", tied: true, rope: ropeDefaults{theta: 10000},
	})
	z := &zayaLayers{decoder: d, bias: f.bool("attention_bias", false), states: f.size("router_hidden_size", 256), kernel: f.count("cca_time0", 2, 2, 1<<10)}
	if n := f.size("cca_time1", 2); n != 2 {
		f.fail("cca_time1", "%d is not supported, want 2", n)
	}
	z.sliding = make([]bool, d.layers)
	f.byType("layer_types", z.sliding, "hybrid_sliding", "hybrid")
	z.window = f.slidingWindow(0, z.sliding)
	z.readRopes(f)
	z.experts = f.experts("num_experts", 16, "num_experts_per_tok", 1)
	if z.experts.TopK != 1 {
		f.fail("num_experts_per_tok", "%d is not supported, want 1", z.experts.TopK)
	}
	inner := f.size("moe_intermediate_size", 2048)
	w := wiring{block: preNorm(), headBias: f.bool("lm_head_bias", false), rotary: z.rotary, inputs: func(b *Builder) {
		b.Param("input_hidden_states_scale", d.hidden)
		b.Param("input_hidden_states_bias", d.hidden)
	}}
	w.spec.Carry, w.spec.EmbedSum = z.states, &AffineSpec{Module: b.tree.textPath(), Bias: "input_hidden_states_bias", Factor: "input_hidden_states_scale"}
	w.block.Carries, w.block.AttentionSum, w.block.MLPSum = true, "post_attention_residual_scale", "post_mlp_residual_scale"
	d.causalLM(f, b, w, func(b *Builder, i int) {
		z.attention(b, i)
		z.mixture(b, i, inner)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
		for _, name := range []string{w.block.AttentionSum, w.block.MLPSum} {
			sum := b.Child(name, "ZayaResidualScaling")
			for _, part := range []string{"hidden_states", "residual"} {
				sum.Param(part+"_scale", d.hidden)
				sum.Param(part+"_bias", d.hidden)
			}
		}
	})
}

// zayaLayers is what the layers have beyond a decoder's.
type zayaLayers struct {
	*decoder
	bias    bool
	states  int // channels of the routers' states
	kernel  int // tokens that the first convolution sees
	window  int
	sliding []bool
	ropes   [2]*RopeSpec // of layers without and with a window
	experts *MoESpec
}

// readRopes reads the rope of each type of layers.
func (z *zayaLayers) readRopes(f *fields) {
	params := f.object("rope_parameters")
	for i, kind := range []string{"hybrid", "hybrid_sliding"} {
		def := ropeDefaults{theta: []float64{5000000, 10000}[i], partial: 1, roundUp: true, headDim: z.headDim, context: z.context}
		var own *fields
		if params == nil {
			def.partial = 0.5
		} else if own = params.object(kind); own == nil {
			for _, sliding := range z.sliding {
				if sliding == (i == 1) {
					params.fail(kind, "missing")
				}
			}
		}
		z.ropes[i] = f.without("partial_rotary_factor", "rope_theta").ropeFrom(own, true, def)
	}
	z.rope = z.ropes[0]
}

// rotary adds the frequencies of the types of layers that there are.
func (z *zayaLayers) rotary(b *Builder) {
	c := b.Child("rotary_emb", "ZayaRotaryEmbedding")
	for i, kind := range []string{"hybrid", "hybrid_sliding"} {
		for _, sliding := range z.sliding {
			if sliding == (i == 1) {
				c.Buffer(kind+"_inv_freq", Float32, false, z.ropes[i].Dim/2)
				c.Buffer(kind+"_original_inv_freq", Float32, false, z.ropes[i].Dim/2)
				break
			}
		}
	}
}

func (z *zayaLayers) attention(b *Builder, i int) {
	const in, smallest = "qkv_proj.", 0x1p-23 // a head's length below this, float32's epsilon, counts as this
	d, queries, keys := z.decoder, z.heads*z.headDim, z.kvHeads*z.headDim
	s := d.attentionSpec(AttentionSpec{Layer: i, Q: in + "q_proj", K: in + "k_proj", V: in + "v_proj_current", Out: "o_proj", QNorm: "qk_norm", KNorm: "qk_norm", KeyScale: "qk_norm.temp",
		Rope: z.ropes[0], Mix: &KeyMixSpec{State: i, Kernel: z.kernel, Depthwise: in + "conv_qk_depthwise", Grouped: in + "conv_qk_grouped", VBefore: in + "v_proj_delayed"}})
	if z.sliding[i] {
		s.Rope, s.Window = z.ropes[1], z.window
	}
	a := b.Child("self_attn", "ZayaAttention").Runs(KindAttention, s)
	a.Linear("o_proj", queries, d.hidden, z.bias)
	p := a.Child("qkv_proj", "ZayaCCAProjection")
	p.Linear("q_proj", d.hidden, queries, z.bias)
	p.Linear("k_proj", d.hidden, keys, z.bias)
	p.Linear("v_proj_current", d.hidden, keys/2, z.bias)
	p.Linear("v_proj_delayed", d.hidden, keys/2, z.bias)
	for _, conv := range []struct {
		name       string
		in, kernel int
	}{{"conv_qk_depthwise", 1, z.kernel}, {"conv_qk_grouped", d.headDim, 2}} {
		c := p.Child(conv.name, "Conv1d")
		c.Param("weight", queries+keys, conv.in, conv.kernel)
		c.Param("bias", queries+keys)
	}
	a.Child("qk_norm", "ZayaQKNorm").Runs(KindNorm, &NormSpec{Dim: d.headDim, Eps: smallest * smallest / float32(d.headDim)}).Param("temp", d.kvHeads)
}

// mixture adds a mixture whose router is a small network. The last of its choices is no expert.
func (z *zayaLayers) mixture(b *Builder, i, inner int) {
	d, spec := z.decoder, *z.experts
	spec.Router, spec.Experts, spec.Correction, spec.GateUp, spec.Down = "gate", "experts", "balancing_biases", "gate_up_proj", "down_proj"
	spec.Identity, spec.Skips, spec.Act = 1, true, d.act.act
	spec.Deep = &RouterSpec{Down: "down_proj", Norm: "router_mlp.norm", Maps: [2]string{"router_mlp.fc1", "router_mlp.fc2"}, Out: "router_mlp.out_proj", Width: z.states, Act: ActGELU}
	m := b.Child("mlp", "ZayaSparseMoeBlock").Runs(KindMoE, &spec)
	g := m.Child("gate", "ZayaRouter")
	g.Linear("down_proj", d.hidden, z.states, true)
	if i > 0 {
		spec.Deep.Factor = "router_states_scale"
		g.Param(spec.Deep.Factor, z.states)
	}
	r := g.Child("router_mlp", "ZayaRouterMLP")
	d.norm(r, "norm", z.states)
	r.Linear("fc1", z.states, z.states, true)
	r.Linear("fc2", z.states, z.states, true)
	r.Linear("out_proj", z.states, spec.Count+1, false)
	r.Activation("act_fn", "GELU", ActGELU)
	g.Buffer(spec.Correction, Float32, true, spec.Count+1)
	e := m.Child("experts", "ZayaExperts")
	e.Param(spec.GateUp, spec.Count, 2*inner, d.hidden)
	e.Param(spec.Down, spec.Count, d.hidden, inner)
	e.Activation("act_fn", d.act.class, d.act.act)
}
