package meta

// qwen3 is Qwen3ForCausalLM: qwen2 with norms on the query and key heads, a head
// size of its own, and biases only on request.
func qwen3(f *fields, b *Builder) {
	d := readDecoder(f, "Qwen3", qwenDefaults(128))
	bias := f.bool("attention_bias", false)
	window, sliding := d.qwenWindows(f, 28)
	d.causalLM(f, b, wiring{block: preNorm()}, func(b *Builder, i int) {
		d.qkNormAttention(b, bias, AttentionSpec{Layer: i, Window: windowIf(sliding[i], window)})
		d.gatedMLP(b, "mlp", d.inner, false)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}
