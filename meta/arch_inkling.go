package meta

// inkling is the text model of Inkling, and InklingForCausalLM: short convolutions of keys,
// values and the results of both branches; biases of scores by distance that depend on the query,
// instead of a rope; and MoE layers whose router also weighs the shared experts. Published files
// have alternating rows of gate and up.
func inkling(f *fields, b *Builder) {
	for _, alias := range [][2]string{{"logits_mup_width_multiplier", "embedding_multiplier"}, {"sliding_window_size", "sliding_window"}, {"n_routed_experts", "num_local_experts"},
		{"conv_kernel_size", "sconv_kernel_size"}, {"max_position_embeddings", "model_max_length"}} {
		f = f.renamed(alias[0], alias[1])
	}
	moeInner := "moe_intermediate_size"
	if f.has("dense_intermediate_size") { // intermediate_size is the experts'
		moeInner = "intermediate_size"
	}
	n := &inklingLayers{}
	n.readTypes(f, f.count("num_hidden_layers", 66, 1, maxLayers))
	plain := f.without("rope_parameters", "rope_scaling", "rope_theta").renamed("intermediate_size", "dense_intermediate_size")
	if n.windows == len(n.sliding) {
		plain.values["num_key_value_heads"] = nil // no layer has them
	}
	n.decoder = readDecoder(plain, "Inkling", decoderDefaults{
		vocab: 201024, hidden: 6144, inner: 24576, layers: 66, heads: 64, kvHeads: 8, headDim: 128,
		context: 131072, eps: 1e-6, act: "silu", rope: ropeDefaults{theta: 10000},
	})
	n.tied, n.expertInner = false, f.size(moeInner, 3072)
	n.read(f)
	if n.cut = f.size("unpadded_vocab_size", n.vocab); n.cut >= n.vocab {
		n.cut = 0
	} else if b.tree.rowsOf("lm_head.weight") == n.cut || b.tree.rowsOf("model.llm.unembed.weight") == n.cut {
		n.outputs, n.cut = n.cut, 0
	}
	b.inklingNames()
	path := b.tree.textPath()
	w := wiring{
		block: preNorm(), wrapped: true, modelClass: "InklingTextModel", rotary: func(*Builder) {},
		spec:       CausalLMSpec{EmbedNorm: path + ".embed_tokens.embed_norm", LogitScale: float32(1 / f.positive("logits_mup_width_multiplier", 24))},
		embedClass: "InklingNormedEmbedding", embed: func(b *Builder) { n.norm(b, "embed_norm", n.hidden) },
	}
	n.causalLM(f, b, w, func(b *Builder, i int) {
		block := w.block
		block.AttentionConv, block.MLPConv = n.residualConv("attn_sconv", 4*i+2), n.residualConv("mlp_sconv", 4*i+3)
		b.Runs(KindBlock, &block)
		n.attention(b, i)
		if n.dense[i] {
			n.mlp(b)
		} else {
			n.mixture(b)
		}
		n.norms(b, "input_layernorm", "post_attention_layernorm")
		n.convolution(b, "attn_sconv", n.hidden)
		n.convolution(b, "mlp_sconv", n.hidden)
	})
	b.Ignore("model.mtp.**")
}

// inklingNames sets the tensor names of published files.
func (b *Builder) inklingNames() {
	b.publishes(
		"model.language_model.embed_tokens.embed_norm.", "model.llm.embed_norm.", "model.language_model.embed_tokens.", "model.llm.embed.",
		"model.language_model.", "model.llm.", "lm_head.", "model.llm.unembed.",
		".mlp.shared_experts.down_proj", ".mlp.shared_experts.shared_w2_weight", ".mlp.experts.down_proj", ".mlp.experts.w2_weight", ".mlp.down_proj.", ".mlp.w2_md.",
		".mlp.gate.e_score_correction_bias", ".mlp.gate.bias",
		".self_attn.q_proj.", ".attn.wq_du.", ".self_attn.k_proj.", ".attn.wk_dv.", ".self_attn.v_proj.", ".attn.wv_dv.", ".self_attn.r_proj.", ".attn.wr_du.", ".self_attn.o_proj.", ".attn.wo_ud.",
		".self_attn.k_sconv.conv1d.", ".attn.k_sconv.", ".self_attn.v_sconv.conv1d.", ".attn.v_sconv.", ".self_attn.", ".attn.",
		".attn_sconv.conv1d.", ".attn_sconv.", ".mlp_sconv.conv1d.", ".mlp_sconv.",
		".post_attention_layernorm.", ".mlp_norm.", ".input_layernorm.", ".attn_norm.")
}

// inklingLayers holds properties of layers that decoder does not hold.
type inklingLayers struct {
	*decoder
	windowed       decoder // of layers with a window
	sliding, dense []bool
	windows        int // layers of sliding
	window         int
	rank, extent   int // of biases
	kernel         int
	growth         RopeSpec // of queries and of their biases in layers without a window; without Growth if there is none
	experts        *MoESpec
	expertInner    int
}

func (n *inklingLayers) read(f *fields) {
	n.windowed = *n.decoder
	w := &n.windowed
	w.heads, w.kvHeads, w.headDim = f.count("swa_num_attention_heads", 64, 1, maxHeads), f.count("swa_num_key_value_heads", 16, 1, maxHeads), f.count("swa_head_dim", 128, 1, maxHeads)
	if n.windows > 0 && w.heads%w.kvHeads != 0 {
		f.fail("swa_num_key_value_heads", "%d does not divide the %d attention heads", w.kvHeads, w.heads)
	}
	n.window, n.rank, n.extent = f.size("sliding_window_size", 512), f.size("d_rel", 16), f.size("rel_extent", 1024)
	n.kernel = f.count("conv_kernel_size", 4, 2, maxHeads)
	if f.has("log_scaling_n_floor") && n.windows < len(n.sliding) {
		n.growth = RopeSpec{Type: RopeNone, Growth: f.float("log_scaling_alpha", 0.1), GrowthFrom: f.size("log_scaling_n_floor", 1)}
		if n.growth.Growth < 0 {
			f.fail("log_scaling_alpha", "%g is negative", n.growth.Growth)
		}
		for name, size := range map[string]int{"head_dim": n.headDim, "d_rel": n.rank} {
			if size%2 != 0 {
				f.fail(name, "%d, an odd number, is not supported with log_scaling_n_floor", size)
			}
		}
	}
	m := f.experts("n_routed_experts", 256, "num_experts_per_tok", 6)
	m.Router, m.Experts, m.Act, m.Score, m.Renormalise = "gate", "experts", n.act.act, ScoreSigmoid, true
	m.Correction, m.RouterScale, m.Scale = "e_score_correction_bias", "global_scale", float32(f.positive("route_scale", 8))
	m.Scored = &ScoredSpec{Name: "shared_experts", Count: f.count("n_shared_experts", 2, 1, maxExperts), Gate: "gate_proj", Up: "up_proj", Down: "down_proj"}
	n.experts = m
}

// readTypes reads which layers have a window, and which have an MLP instead of an MoE layer.
func (n *inklingLayers) readTypes(f *fields, layers int) {
	n.sliding, n.dense = make([]bool, layers), make([]bool, layers)
	local := f.list("local_layer_ids")
	ids := map[int]bool{}
	for _, v := range local {
		id, _ := f.integer("local_layer_ids", v, -maxLayers, maxLayers)
		ids[id] = true
	}
	dense := f.count("dense_mlp_idx", 0, 0, maxLayers)
	for i := range layers {
		n.sliding[i], n.dense[i] = (i+1)%6 != 0, i < dense
		if local != nil {
			n.sliding[i] = ids[i]
		}
	}
	f.byType("layer_types", n.sliding, "hybrid_sliding", "hybrid")
	f.byType("mlp_layer_types", n.dense, "dense", "sparse")
	for _, sliding := range n.sliding {
		if sliding {
			n.windows++
		}
	}
}

// residualConv returns the spec of a child's convolution. It assigns a state.
func (n *inklingLayers) residualConv(child string, state int) *ResidualConvSpec {
	return &ResidualConvSpec{State: state, Conv: child + ".conv1d", Kernel: n.kernel}
}

// convolution adds the child of a convolution. transformers keeps its parameters in float32.
func (n *inklingLayers) convolution(b *Builder, name string, channels int) {
	c := b.Child(name, "InklingShortConvolution").Child("conv1d", "Conv1d")
	c.Param("weight", channels, 1, n.kernel)
	c.wide("weight")
}

func (n *inklingLayers) attention(b *Builder, i int) {
	d, extent := n.decoder, n.extent
	s := AttentionSpec{Layer: i, QNorm: "q_norm", KNorm: "k_norm", Rope: noRope, KConv: n.residualConv("k_sconv", 4*i), VConv: n.residualConv("v_sconv", 4*i+1)}
	if n.sliding[i] {
		d, extent, s.Window = &n.windowed, n.window, n.window
	}
	s.Scale = 1 / float32(d.headDim)
	s.Relative = &RelativeSpec{States: "r_proj", Profiles: "rel_logits_proj", Rank: n.rank, Extent: extent}
	if !n.sliding[i] && n.growth.Growth > 0 {
		queries, states := n.growth, n.growth
		queries.Dim, states.Dim = d.headDim, n.rank
		s.QueryRope, s.Relative.Growth = &queries, &states
	}
	spec := d.attentionSpec(s)
	spec.Q, spec.K, spec.V, spec.Out = "q_proj", "k_proj", "v_proj", "o_proj"
	a := b.Child("self_attn", "InklingAttention").Runs(KindAttention, spec)
	a.Linear("q_proj", d.hidden, d.heads*d.headDim, false)
	a.Linear("k_proj", d.hidden, d.kvHeads*d.headDim, false)
	a.Linear("v_proj", d.hidden, d.kvHeads*d.headDim, false)
	a.Linear("r_proj", d.hidden, d.heads*n.rank, false)
	a.Linear("o_proj", d.heads*d.headDim, d.hidden, false)
	n.convolution(a, "k_sconv", d.kvHeads*d.headDim)
	n.convolution(a, "v_sconv", d.kvHeads*d.headDim)
	d.norm(a, "q_norm", d.headDim)
	d.norm(a, "k_norm", d.headDim)
	a.Child("rel_logits_proj", "InklingRelativeLogits").Param("proj", n.rank, extent)
}

// mlp adds the MLP of a layer without an MoE layer.
func (n *inklingLayers) mlp(b *Builder) {
	m := b.Child("mlp", "InklingMLP")
	s := &MLPSpec{Gate: "gate_proj", Up: "up_proj", Down: "down_proj", Act: n.act.act, ScaleParam: "global_scale"}
	m.Runs(KindMLP, s)
	if m.has(m.path + ".w13_dn.weight") {
		s.Gate, s.Up, s.Fused, s.FusedOrder = "", "", "w13_dn", GateInterleaved
		m.Linear(s.Fused, n.hidden, 2*n.inner, false)
	} else {
		m.Linear("gate_proj", n.hidden, n.inner, false)
		m.Linear("up_proj", n.hidden, n.inner, false)
	}
	m.Linear("down_proj", n.inner, n.hidden, false)
	m.Activation("act_fn", n.act.class, n.act.act)
	m.Param("global_scale", 1)
}

// has reports whether the checkpoint has a tensor whose name begins with name, as in the tree or
// as published.
func (b *Builder) has(name string) bool {
	return b.tree.rowsOf(name) > 0 || b.tree.rowsOf(b.tree.published.Replace(name)) > 0
}

// mixture adds the experts of a layer.
func (n *inklingLayers) mixture(b *Builder) {
	spec, scored := *n.experts, *n.experts.Scored
	spec.Scored = &scored
	m := b.Child("mlp", "InklingMoE")
	gateUp := Join(m.path, "experts.gate_up_proj")
	if published := Join(m.path, "experts.w13_weight"); m.has(published) {
		spec.GateOrder, spec.Reordered, gateUp = GateInterleaved, true, published
	}
	m.Runs(KindMoE, &spec)
	gate := m.Child("gate", "InklingTopkRouter")
	gate.Param("weight", spec.Count+scored.Count, n.hidden)
	gate.Param("global_scale", 1)
	gate.wide("global_scale")
	gate.Buffer("e_score_correction_bias", Float32, true, spec.Count)

	count, inner := spec.Count, n.expertInner
	e := m.Child("experts", "InklingExperts")
	e.ParamFrom("gate_up_proj", []int{count, 2 * inner, n.hidden}, []TensorSource{{Tensor: gateUp}})
	e.Param("down_proj", count, n.hidden, inner)
	e.Activation("act_fn", n.act.class, n.act.act)

	s := m.Child("shared_experts", "InklingSharedExperts")
	if both := "shared_w13_weight"; m.has(Join(s.path, both)) && spec.GateOrder == GateInterleaved {
		scored.Gate, scored.Up, scored.GateUp = "", "", both
		s.Param(both, scored.Count, 2*inner, n.hidden)
	} else {
		s.Param("gate_proj", scored.Count, inner, n.hidden)
		s.Param("up_proj", scored.Count, inner, n.hidden)
	}
	s.Param("down_proj", scored.Count, n.hidden, inner)
	s.Activation("act_fn", n.act.class, n.act.act)
}
