package meta

// ministral is MinistralForCausalLM: mistral with a window in some layers.
func ministral(f *fields, b *Builder) {
	d := readDecoder(f, "Ministral", decoderDefaults{
		vocab: 32000, hidden: 4096, inner: 14336, layers: 32, heads: 32, kvHeads: 8,
		context: 131072, eps: 1e-6, act: "silu", rope: ropeDefaults{theta: 10000},
	})
	window := f.window("sliding_window", 4096)
	sliding := d.sliding(f, func(int) bool { return true })
	d.causalLM(f, b, wiring{block: preNorm()}, func(b *Builder, i int) {
		d.attention(b, false, false, AttentionSpec{Layer: i, Window: windowIf(sliding[i], window)})
		d.gatedMLP(b, "mlp", d.inner, false)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}
