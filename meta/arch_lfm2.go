package meta

// lfm2 has a gated short convolution in most layers and attention in the others.
func lfm2(f *fields, b *Builder) {
	d := readLFM2(f, "Lfm2", decoderDefaults{hidden: 2560, inner: 12288})
	if inner := d.inner; f.bool("block_auto_adjust_ff_dim", true) {
		inner = 2 * inner / 3
		if !f.null("block_ffn_dim_multiplier") {
			multiple := f.size("block_multiple_of", 256)
			inner = int(f.positive("block_ffn_dim_multiplier", 1) * float64(inner))
			inner = (inner + multiple - 1) / multiple * multiple
		}
		d.inner = inner
	}
	attends := make([]bool, d.layers)
	if f.has("full_attn_idxs") && !f.null("full_attn_idxs") {
		for _, i := range f.tokens("full_attn_idxs") {
			if i < 0 || i >= d.layers {
				f.fail("full_attn_idxs", "%d is not one of %d layers", i, d.layers)
				break
			}
			attends[i] = true
		}
	} else {
		for i := range attends {
			attends[i] = true
		}
	}
	convolves := d.layersOfType(f, "conv", func(i int) bool { return !attends[i] })
	d.convolutional(f, b, convolves, "rotary_emb", func(b *Builder, _ int) { d.lfm2MLP(b) })
}

// lfm2MoE is lfm2 with MoE layers after the first, dense layers.
func lfm2MoE(f *fields, b *Builder) {
	d := readLFM2(f, "Lfm2Moe", decoderDefaults{hidden: 2048, inner: 7168})
	inner := f.size("moe_intermediate_size", 1792)
	dense := f.count("num_dense_layers", 2, 0, maxLayers)
	spec := f.experts("num_experts", 32, "num_experts_per_tok", 4)
	spec.Router, spec.Experts, spec.Score, spec.Act = "gate", "experts", ScoreSigmoid, ActSiLU
	spec.Renormalise, spec.Scale = f.bool("norm_topk_prob", true), float32(f.positive("routed_scaling_factor", 1))
	if f.bool("use_expert_bias", true) {
		spec.Correction = "expert_bias"
	}
	if !f.has("layer_types") {
		f.fail("layer_types", "is missing")
	}
	convolves := d.layersOfType(f, "conv", func(int) bool { return false })
	d.convolutional(f, b, convolves, "pos_emb", func(b *Builder, i int) {
		if i < dense {
			d.lfm2MLP(b)
			return
		}
		m := b.Child("feed_forward", "Lfm2MoeSparseMoeBlock").Runs(KindMoE, spec)
		if spec.Correction != "" {
			m.Buffer("expert_bias", Float32, true, spec.Count)
		}
		m.stackedExperts(spec, expertNames{
			class: "Lfm2MoeExperts", gate: "w1", up: "w3", down: "w2", each: []string{m.path + ".experts"},
		}, d.hidden, inner, activation{act: ActSiLU})
		m.Child("gate", "Lfm2MoeTopKRouter").Param("weight", spec.Count, d.hidden)
	})
}

// readLFM2 reads the fields that the families share. Older files use other names for some fields.
func readLFM2(f *fields, class string, def decoderDefaults) *decoder {
	def.vocab, def.layers, def.heads, def.kvHeads, def.context = 65536, 32, 32, 8, 128000
	def.eps, def.epsField, def.act, def.actField, def.tied = 1e-5, "norm_eps", "silu", derived, true
	def.rope = ropeDefaults{theta: 1e6}
	d := readDecoder(f, class, def)
	d.inner = f.size("block_ff_dim", d.inner)
	d.tied = f.bool("tie_embedding", d.tied)
	return d
}

// convolutional builds a model of short convolutions and attention. mlp adds the rest of each
// layer.
func (d *decoder) convolutional(f *fields, b *Builder, convolves []bool, rotary string, mlp func(b *Builder, layer int)) {
	convolve, attentions := d.shortConvolutions(f, 3), 0
	w := wiring{
		block:    BlockSpec{AttentionNorm: "operator_norm", Attention: "self_attn", MLPNorm: "ffn_norm", MLP: "feed_forward"},
		lastNorm: "embedding_norm",
		rotary:   func(b *Builder) { b.rotaryNamed(rotary, d.class+"RotaryEmbedding", d.rope) },
	}
	d.causalLM(f, b, w, func(b *Builder, i int) {
		if convolves[i] {
			convolve(b, w.block)
		} else {
			s := d.attentionSpec(AttentionSpec{Layer: attentions, QNorm: "q_layernorm", KNorm: "k_layernorm"})
			s.Q, s.K, s.V, s.Out = "q_proj", "k_proj", "v_proj", "out_proj"
			a := b.Child("self_attn", d.class+"Attention").Runs(KindAttention, s)
			a.Linear("q_proj", d.hidden, d.heads*d.headDim, false)
			a.Linear("k_proj", d.hidden, d.kvHeads*d.headDim, false)
			a.Linear("v_proj", d.hidden, d.kvHeads*d.headDim, false)
			a.Linear("out_proj", d.heads*d.headDim, d.hidden, false)
			d.norm(a, "q_layernorm", d.headDim)
			d.norm(a, "k_layernorm", d.headDim)
			attentions++
		}
		mlp(b, i)
		d.norms(b, "operator_norm", "ffn_norm")
	})
}

// shortConvolutions reads the short convolutions; kernel is the default kernel size in tokens. It
// returns a function that adds one to a layer with the given block.
func (d *decoder) shortConvolutions(f *fields, kernel int) func(b *Builder, block BlockSpec) {
	bias, kernel := f.bool("conv_bias", false), f.count("conv_L_cache", kernel, 2, maxKernel)
	states := 0
	return func(b *Builder, block BlockSpec) {
		block.Attention = "conv"
		b.Runs(KindBlock, &block)
		a := b.Child("conv", d.class+"ShortConv").Runs(KindShortConv, &ShortConvSpec{
			State: states, In: "in_proj", Out: "out_proj", Conv: "conv", Width: d.hidden, Kernel: kernel})
		c := a.Child("conv", "Conv1d")
		c.Param("weight", d.hidden, 1, kernel)
		if bias {
			c.Param("bias", d.hidden)
		}
		a.Linear("in_proj", d.hidden, 3*d.hidden, bias)
		a.Linear("out_proj", d.hidden, d.hidden, bias)
		states++
	}
}

// lfm2MLP adds the gated MLP under the names of these families.
func (d *decoder) lfm2MLP(b *Builder) {
	m := b.Child("feed_forward", d.mlpClass).Runs(KindMLP, &MLPSpec{Gate: "w1", Up: "w3", Down: "w2", Act: ActSiLU})
	m.Linear("w1", d.hidden, d.inner, false)
	m.Linear("w3", d.hidden, d.inner, false)
	m.Linear("w2", d.inner, d.hidden, false)
}
