package meta

// axK1 is AXK1ForCausalLM: deepseek_v3 with a norm after each MoE layer.
func axK1(f *fields, b *Builder) {
	d := readDeepseek(f, "AXK1", decoderDefaults{
		vocab: 163840, hidden: 7168, inner: 18432, layers: 61, heads: 64, context: 32768, eps: 1e-6,
	}, latentDefaults{qRank: 1536, kvRank: 512, nope: 128, value: 128})
	d.wideRouter, d.correction = true, Float32
	if d.qRank == 0 {
		f.fail("q_lora_rank", "null is not supported for this model_type")
	}
	d.readMixture(f, mixtureDefaults{inner: 2048, experts: 192, topK: 8, scale: 2.5, groups: 8, topGroups: 4})
	dense, step := f.count("first_k_dense_replace", 1, 0, maxLayers), f.size("moe_layer_freq", 1)
	sparse := d.layersWithMixture(f, func(i int) bool { return i >= dense && i%step == 0 })
	d.causalLM(f, b, wiring{block: preNorm()}, func(b *Builder, i int) {
		d.latentAttention(b, i)
		if sparse[i] {
			m := d.mixture(b)
			d.norm(m.Published(b.path), "post_mlp_layernorm", d.hidden)
			block := preNorm()
			block.PostMLPNorm = "mlp.post_mlp_layernorm"
			b.Runs(KindBlock, &block)
		} else {
			d.gatedMLP(b, "mlp", d.inner, false)
		}
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}
