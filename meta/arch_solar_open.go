package meta

// solarOpen is SolarOpenForCausalLM: grouped attention, and DeepSeek-V3's MoE layer in every
// layer.
func solarOpen(f *fields, b *Builder) {
	d := &deepseek{decoder: readDecoder(f, "SolarOpen", decoderDefaults{
		vocab: 196608, hidden: 4096, inner: 10240, layers: 48, heads: 64, kvHeads: 8, headDim: 128,
		context: 131072, eps: 1e-5, act: "silu", rope: ropeDefaults{theta: 1e6, partial: 1},
	})}
	bias := f.bool("attention_bias", false)
	d.correction = Float32
	d.readMixture(f, mixtureDefaults{inner: 1280, experts: 128, topK: 8, scale: 1, groups: 1, topGroups: 1})
	if f.bool("use_qk_norm", false) {
		f.fail("use_qk_norm", "true is not supported for this model_type")
	}
	if f.count("first_k_dense_replace", 0, 0, maxLayers) > 0 {
		f.fail("first_k_dense_replace", "layers without experts are not supported for this model_type")
	}
	d.causalLM(f, b, wiring{block: preNorm()}, func(b *Builder, i int) {
		d.attention(b, bias, false, AttentionSpec{Layer: i})
		d.mixture(b)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}
