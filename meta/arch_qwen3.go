package meta

// qwen3 is Qwen3ForCausalLM: qwen2 with norms on the query and key heads, a head
// size of its own, and biases only on request.
func qwen3(f *fields, b *Builder) {
	d := readDecoder(f, "Qwen3", qwenDefaults(128))
	bias := f.bool("attention_bias", false)
	windows := d.qwenWindows(f)
	d.causalLM(f, b, wiring{block: preNorm()}, func(b *Builder, i int) {
		d.qkNormAttention(b, bias, AttentionSpec{Layer: i, Window: windows[i]})
		d.gatedMLP(b, "mlp", d.inner, false)
		d.norm(b, "input_layernorm", d.hidden)
		d.norm(b, "post_attention_layernorm", d.hidden)
	})
}

// qkNormAttention is grouped attention with a norm on each query and key head.
func (d *decoder) qkNormAttention(b *Builder, bias bool, spec AttentionSpec) {
	spec.QNorm, spec.KNorm = "q_norm", "k_norm"
	a := d.attention(b, bias, bias, spec)
	d.norm(a, "q_norm", d.headDim)
	d.norm(a, "k_norm", d.headDim)
}
