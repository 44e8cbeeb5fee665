package meta

// deepseekV2 is DeepseekV2ForCausalLM: deepseek_v3's attention with rope on adjacent pairs, and
// an MoE layer whose softmax weights are not divided by their sum.
func deepseekV2(f *fields, b *Builder) {
	d := readDeepseek(f, "DeepseekV2", decoderDefaults{
		vocab: 102400, hidden: 4096, inner: 11008, layers: 32, heads: 32, context: 2048, eps: 1e-6,
	}, latentDefaults{qRank: 1536, kvRank: 512, nope: 128, value: 128})
	d.rope.Interleaved = true
	mlpBias := f.bool("mlp_bias", false)
	dense := f.count("first_k_dense_replace", 0, 0, maxLayers)
	mixture := d.softmaxMixture(f, "DeepseekV2", b.tree.dtype)
	d.causalLM(f, b, wiring{block: preNorm()}, func(b *Builder, i int) {
		d.latentAttention(b, i)
		if i < dense {
			d.gatedMLP(b, "mlp", d.inner, mlpBias)
		} else {
			mixture(b, mlpBias)
		}
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}

// softmaxMixture reads the MoE layer of DeepSeek-V2 and returns the function that adds it to a
// layer. Its class names begin with class, and its routers have the dtype router.
func (d *decoder) softmaxMixture(f *fields, class string, router DType) func(layer *Builder, mlpBias bool) {
	inner := f.size("moe_intermediate_size", 1407)
	shared := inner * f.count("n_shared_experts", 2, 1, maxExperts)
	spec := f.experts("n_routed_experts", 64, "num_experts_per_tok", 6)
	spec.Router, spec.Experts, spec.Shared = "gate", "experts", "shared_experts"
	spec.Score, spec.Act = ScoreSoftmax, d.act.act
	spec.Scale = float32(f.positive("routed_scaling_factor", 1))
	switch method := f.text("topk_method", "greedy"); method {
	case "greedy":
	case "group_limited_greedy":
		spec.Groups, spec.TopGroups = f.count("n_group", 1, 1, maxExperts), f.count("topk_group", 1, 1, maxExperts)
		f.checkGroups(spec, 1)
	default:
		f.fail("topk_method", "%.40q is not supported (supported: greedy, group_limited_greedy)", method)
	}
	f.only("scoring_func", "softmax")
	return func(layer *Builder, mlpBias bool) {
		m := layer.Child("mlp", class+"Moe").Runs(KindMoE, spec)
		m.stackedExperts(spec, expertNames{
			class: class + "Experts", gate: "gate_proj", up: "up_proj", down: "down_proj",
			each: []string{m.path + ".experts"},
		}, d.hidden, inner, d.act)
		m.Child("gate", class+"TopkRouter").paramOf(router, "weight", spec.Count, d.hidden)
		d.gatedMLP(m, "shared_experts", shared, mlpBias)
	}
}

// deepseekOCR2 is the text model of DeepSeek-OCR 2: llama's attention with deepseek_v2's MoE
// layer. Heads share the hidden size whatever head_dim says.
func deepseekOCR2(f *fields, b *Builder) {
	d := readDecoder(f, "DeepseekOcr2Text", decoderDefaults{
		vocab: 102400, hidden: 4096, inner: 11008, layers: 32, heads: 32, headDimField: derived,
		context: 2048, eps: 1e-6, act: "silu", rope: ropeDefaults{theta: 10000},
	})
	bias, mlpBias := f.bool("attention_bias", false), f.bool("mlp_bias", false)
	sparse := d.sparseByType(f)
	mixture := d.softmaxMixture(f, "DeepseekOcr2Text", Float32)
	d.causalLM(f, b, wiring{block: preNorm()}, func(b *Builder, i int) {
		d.attention(b, bias, bias, AttentionSpec{Layer: i})
		if sparse[i] {
			mixture(b, mlpBias)
		} else {
			d.gatedMLP(b, "mlp", d.inner, mlpBias)
		}
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}
