package meta

// exaoneMoE is ExaoneMoeForCausalLM: norms on query and key heads, rope only in layers with a
// window where there are some, and in all but the first layers DeepSeek-V3's MoE layer.
func exaoneMoE(f *fields, b *Builder) {
	d := &deepseek{decoder: readDecoder(f, "ExaoneMoe", decoderDefaults{
		vocab: 102400, hidden: 4096, inner: 16384, layers: 32, heads: 32, kvHeads: 32,
		context: 2048, eps: 1e-5, act: "silu", rope: ropeDefaults{theta: 10000},
	})}
	window, sliding := d.exaoneWindows(f)
	d.block = "ExaoneMoeSparseMoEBlock"
	g := f.without()
	g.values["n_shared_experts"] = f.values["num_shared_experts"]
	d.readMixture(g, mixtureDefaults{inner: 1024, experts: 64, count: "num_experts", topK: 8, scale: 2.5, groups: 1, topGroups: 1})
	dense, sparse := f.count("first_k_dense_replace", 1, 0, maxLayers), []bool(nil)
	if f.has("mlp_layer_types") {
		sparse = d.sparseByType(f)
	}
	d.causalLM(f, b, wiring{block: preNorm()}, func(b *Builder, i int) {
		d.qkNormAttention(b, false, exaoneAttention(i, window, sliding))
		if sparse != nil && sparse[i] || sparse == nil && i >= dense {
			d.mixture(b)
		} else {
			d.gatedMLP(b, "mlp", d.inner, false)
		}
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
	b.Ignore("mtp.**")
}
