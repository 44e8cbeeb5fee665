package meta

// olmo is OlmoForCausalLM: llama with layer norms that have no weights.
func olmo(f *fields, b *Builder) {
	d := readDecoder(f, "Olmo", decoderDefaults{
		vocab: 50304, hidden: 4096, inner: 11008, layers: 32, heads: 32,
		context: 2048, eps: 1e-5, epsField: derived, act: "silu", rope: ropeDefaults{theta: 10000},
	})
	bias := f.bool("attention_bias", false)
	clip := f.clip()
	d.normClass, d.normSpec, d.bareNorms = "OlmoLayerNorm", NormSpec{Eps: 1e-5, Layer: true}, true
	d.causalLM(f, b, wiring{block: preNorm()}, func(b *Builder, i int) {
		d.attention(b, bias, bias, AttentionSpec{Layer: i, Clip: clip})
		d.gatedMLP(b, "mlp", d.inner, false)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}

// clip reads the limit of queries, keys and values, 0 for none.
func (f *fields) clip() float32 {
	if !f.has("clip_qkv") {
		return 0
	}
	return float32(f.positive("clip_qkv", 0))
}
