package meta

// olmo2 is Olmo2ForCausalLM: norms after attention and MLP instead of before, and
// norms over all query and all key channels.
func olmo2(f *fields, b *Builder) {
	d := readDecoder(f, "Olmo2", decoderDefaults{
		vocab: 50304, hidden: 4096, inner: 11008, layers: 32, heads: 32,
		context: 2048, eps: 1e-5, act: "silu", rope: ropeDefaults{theta: 10000},
	})
	bias := f.bool("attention_bias", false)
	d.causalLM(f, b, wiring{block: postNorm()}, func(b *Builder, i int) {
		a := d.attention(b, bias, bias, AttentionSpec{Layer: i, QNorm: "q_norm", KNorm: "k_norm"})
		d.norm(a, "q_norm", d.heads*d.headDim)
		d.norm(a, "k_norm", d.kvHeads*d.headDim)
		d.gatedMLP(b, "mlp", d.inner, false)
		d.norms(b, "post_attention_layernorm", "post_feedforward_layernorm")
	})
}

// postNorm is a block whose norms come after attention and MLP.
func postNorm() BlockSpec {
	return BlockSpec{
		Attention: "self_attn", PostAttentionNorm: "post_attention_layernorm",
		MLP: "mlp", PostMLPNorm: "post_feedforward_layernorm",
	}
}
