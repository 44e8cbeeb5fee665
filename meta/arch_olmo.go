package meta

// olmo is OlmoForCausalLM: llama with layer norms that have no weights.
func olmo(f *fields, b *Builder) {
	d := readDecoder(f, "Olmo", decoderDefaults{
		vocab: 50304, hidden: 4096, inner: 11008, layers: 32, heads: 32,
		context: 2048, eps: 1e-5, epsField: derived, act: "silu", rope: ropeDefaults{theta: 10000},
	})
	bias := f.bool("attention_bias", false)
	if f.has("clip_qkv") {
		f.fail("clip_qkv", "%v is not supported: queries, keys and values are not clamped", f.values["clip_qkv"])
	}
	d.normClass, d.normSpec, d.bareNorms = "OlmoLayerNorm", NormSpec{Eps: 1e-5, Layer: true}, true
	d.causalLM(f, b, wiring{block: preNorm()}, func(b *Builder, i int) {
		d.attention(b, bias, bias, AttentionSpec{Layer: i})
		d.gatedMLP(b, "mlp", d.inner, false)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}
