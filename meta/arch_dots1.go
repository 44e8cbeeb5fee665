package meta

// dots1 is Dots1ForCausalLM: qwen3's attention, and after some dense layers DeepSeek-V3's MoE
// layer.
func dots1(f *fields, b *Builder) {
	d := &deepseek{decoder: readDecoder(f, "Dots1", decoderDefaults{
		vocab: 152064, hidden: 4608, inner: 10944, layers: 62, heads: 32, kvHeads: 32,
		context: 2048, eps: 1e-6, act: "silu", rope: ropeDefaults{theta: 10000},
	})}
	bias := f.bool("attention_bias", false)
	for _, name := range []string{"n_routed_experts", "num_experts_per_tok", "n_shared_experts"} {
		if !f.has(name) {
			f.fail(name, "missing")
		}
	}
	if f.text("scoring_func", "") != "noaux_tc" { // which published files call the sigmoid
		f.only("scoring_func", "sigmoid")
	}
	d.readMixture(f.without("scoring_func"), mixtureDefaults{inner: 1408, experts: 128, topK: 6, scale: 1, groups: 1, topGroups: 1})
	d.moe.Renormalise = f.bool("norm_topk_prob", false)
	dense := f.count("first_k_dense_replace", 0, 0, maxLayers)
	window, full := f.window("sliding_window", 4096), f.count("max_window_layers", 62, 0, maxSize)
	sliding := d.sliding(f, func(i int) bool { return i >= full })
	d.causalLM(f, b, wiring{block: preNorm()}, func(b *Builder, i int) {
		d.qkNormAttention(b, bias, AttentionSpec{Layer: i, Window: windowIf(sliding[i], window)})
		if i < dense {
			d.gatedMLP(b, "mlp", d.inner, false)
		} else {
			d.mixture(b)
		}
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}
