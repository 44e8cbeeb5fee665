package meta

// kimiLinear is KimiLinearForCausalLM: delta attention with a decay per channel in most layers,
// latent attention without rope in the others, and DeepSeek-V3's MoE layers.
func kimiLinear(f *fields, b *Builder) {
	f = f.bailingNames().without("rope_theta", "rope_scaling", "rope_parameters")
	d := readDeepseek(f, "KimiLinear", decoderDefaults{
		vocab: 163840, hidden: 2304, inner: 9216, layers: 27, heads: 32, context: 1048576, eps: 1e-5,
	}, latentDefaults{kvRank: 512, nope: 128, value: 128})
	d.tied, d.wideRouter, d.correction = false, true, Float32
	d.readMixture(f, mixtureDefaults{inner: 1024, experts: 256, topK: 8, scale: 2.446, groups: 1, topGroups: 1})
	net := kimiDelta{
		heads: f.count("linear_num_heads", 32, 1, maxHeads), dim: f.count("linear_head_dim", 128, 1, maxHeads),
		kernel: f.count("linear_conv_kernel_dim", 4, 2, maxKernel),
	}
	full := func(i int) bool { return i > 0 && i%4 == 0 }
	if own := f.object("linear_attn_config"); own != nil {
		net.heads, net.dim = own.count("num_heads", net.heads, 1, maxHeads), own.count("head_dim", net.dim, 1, maxHeads)
		net.kernel = own.count("short_conv_kernel_size", net.kernel, 2, maxKernel)
		if own.has("full_attn_layers") && own.has("kda_layers") && f.texts("layer_types") == nil {
			full = d.kimiLayers(own)
		}
	}
	net.linear = d.layersOfType(f, "linear_attention", func(i int) bool { return !full(i) })
	dense := f.count("first_k_dense_replace", 1, 0, maxLayers)
	const moe = ".block_sparse_moe."
	b.publishes(".self_attn.forget_gate.", ".self_attn.", ".mlp.experts.{}.gate_proj.", moe+"experts.{}.w1.", ".mlp.experts.{}.up_proj.", moe+"experts.{}.w3.",
		".mlp.experts.{}.down_proj.", moe+"experts.{}.w2.", ".mlp.experts.", moe+"experts.", ".mlp.shared_experts.", moe+"shared_experts.", ".mlp.gate.", moe+"gate.")
	d.withKimiDelta(f, b, net, dense, wiring{block: preNorm(), rotary: func(*Builder) {}}, func(b *Builder, layer int) {
		a, _ := d.latentAttention(b, layer)
		a.node.Spec.(*AttentionSpec).Rope = nil
	})
}

// kimiLayers returns which layers have latent attention, by the lists of a published config, which count from 1.
func (d *decoder) kimiLayers(f *fields) func(layer int) bool {
	kinds := make([]string, d.layers)
	for _, name := range []string{"full_attn_layers", "kda_layers"} {
		for _, v := range f.list(name) {
			if n, ok := f.integer(name, v, 1, d.layers); ok {
				kinds[n-1] = name
			}
		}
	}
	for i, kind := range kinds {
		if kind == "" {
			f.fail("kda_layers", "does not say what layer %d is, nor does full_attn_layers", i+1)
		}
	}
	return func(layer int) bool { return kinds[layer] == "full_attn_layers" }
}

// bailingNames returns f with field names of Kimi Linear and Ling replaced by DeepSeek's. If a
// file has both, the replaced ones win.
func (f *fields) bailingNames() *fields {
	for _, names := range [][2]string{
		{"max_position_embeddings", "model_max_length"}, {"norm_topk_prob", "moe_renormalize"}, {"n_group", "num_expert_group"},
		{"num_experts_per_tok", "num_experts_per_token"}, {"n_shared_experts", "num_shared_experts"},
	} {
		f = f.renamed(names[0], names[1])
	}
	f = f.without("n_routed_experts").renamed("n_routed_experts", "num_local_experts")
	return f.renamed("n_routed_experts", "num_experts")
}

// kimiDelta holds the layers of delta attention.
type kimiDelta struct {
	linear             []bool // which layers have one
	heads, dim, kernel int
	direct             bool    // decays and output gates have one projection each, not two
	floor              float32 // of the logarithms of decays, 0 for none
	wide               bool    // transformers keeps the kernels of the convolution and A_log in float32
}

// withKimiDelta builds a model of delta attention and latent attention, with MoE layers after the
// first dense layers. latent adds the latent attention with the given layer of the KV cache.
func (d *deepseek) withKimiDelta(f *fields, b *Builder, net kimiDelta, dense int, w wiring, latent func(b *Builder, layer int)) {
	sparse := d.layersWithMixture(f, func(i int) bool { return i >= dense })
	attentions, states := 0, 0
	d.causalLM(f, b, w, func(b *Builder, i int) {
		if net.linear[i] {
			d.kimiDelta(b, net, states)
			states++
		} else {
			latent(b, attentions)
			attentions++
		}
		if sparse[i] {
			d.mixture(b)
		} else {
			m := b.Child("mlp", d.mlpClass)
			if b.tree.header != nil && !net.direct {
				m.Published(b.path + ".block_sparse_moe") // as transformers saves it, unlike published files
			}
			d.gatedMLPIn(m, d.inner, false)
		}
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}

func (d *deepseek) kimiDelta(b *Builder, net kimiDelta, state int) {
	width := net.heads * net.dim
	s := DeltaNetSpec{
		State: state, KeyHeads: net.heads, ValueHeads: net.heads, KeyDim: net.dim, ValueDim: net.dim, Kernel: net.kernel, Act: d.act.act,
		Q: "q_proj", K: "k_proj", V: "v_proj", B: "b_proj", Out: "o_proj", Conv: "conv1d", Forget: "forget_gate", ALog: "A_log", DTBias: "dt_bias",
		ByChannel: true, Floor: net.floor, GateAct: ActSigmoid, Norm: "o_norm",
		ADown: "forget_gate.f_a_proj", A: "forget_gate.f_b_proj", ZDown: "g_a_proj", Z: "g_b_proj",
	}
	if net.direct {
		s.ADown, s.A, s.ZDown, s.Z = "", "forget_gate.f_proj", "", "g_proj"
	}
	a := b.Child("self_attn", d.class+"DeltaAttention").Runs(KindDeltaNet, &s)
	a.Linear("q_proj", d.hidden, width, false)
	a.Linear("k_proj", d.hidden, width, false)
	a.Linear("v_proj", d.hidden, width, false)
	conv := a.Child("conv1d", "Conv1d")
	conv.ParamFrom("weight", []int{3 * width, 1, net.kernel}, []TensorSource{
		{Tensor: a.path + ".q_conv1d.weight", Into: RowRange{0, width}}, {Tensor: a.path + ".k_conv1d.weight", Into: RowRange{width, 2 * width}},
		{Tensor: a.path + ".v_conv1d.weight", Into: RowRange{2 * width, 3 * width}},
	}, []TensorSource{{Tensor: conv.path + ".weight"}})
	d.kimiForget(a, net)
	a.Linear("b_proj", d.hidden, net.heads, false)
	if !net.direct {
		a.Linear("g_a_proj", d.hidden, net.dim, false)
		a.Linear("g_b_proj", net.dim, width, false)
	}
	norm := d.normSpec
	norm.Dim = net.dim
	a.Child("o_norm", d.class+"RMSNormGated").Runs(KindNorm, &norm).Param("weight", net.dim)
	out := a.Child("o_proj", "Linear").Runs(KindLinear, &LinearSpec{In: width, Out: d.hidden})
	out.ParamFrom("weight", []int{d.hidden, width}, []TensorSource{{Tensor: out.path + ".weight"}},
		[]TensorSource{{Tensor: Join(b.path, "attention.o_proj.weight")}})
	if net.direct {
		a.Linear("g_proj", d.hidden, width, false)
	}
	if net.wide {
		conv.wide("weight")
	}
}

// kimiForget adds the layers that compute the decays.
func (d *deepseek) kimiForget(b *Builder, net kimiDelta) {
	width := net.heads * net.dim
	g := b.Child("forget_gate", d.class+"ForgetGate")
	if net.direct {
		g.Param("A_log", net.heads)
		g.Param("dt_bias", width)
		g.wide("A_log")
		g.Linear("f_proj", d.hidden, width, false)
	} else {
		g.Param("dt_bias", width)
		g.Param("A_log", 1, 1, net.heads, 1)
		g.Linear("f_a_proj", d.hidden, net.dim, false)
		g.Linear("f_b_proj", net.dim, width, false)
	}
	g.wide("dt_bias")
}
