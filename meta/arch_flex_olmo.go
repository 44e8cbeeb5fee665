package meta

// flexOlmo is FlexOlmoForCausalLM: olmo2 with an MoE in every layer.
func flexOlmo(f *fields, b *Builder) {
	d := readDecoder(f, "FlexOlmo", decoderDefaults{
		vocab: 100352, hidden: 4096, inner: 11008, layers: 32, heads: 32,
		context: 4096, eps: 1e-6, act: "silu", rope: ropeDefaults{theta: 500000},
	})
	bias := f.bool("attention_bias", false)
	spec, _ := f.sparseLayers(7, 5)
	spec.Act = d.act.act
	d.causalLM(f, b, wiring{block: postNorm()}, func(b *Builder, i int) {
		a := d.attention(b, bias, bias, AttentionSpec{Layer: i, QNorm: "q_norm", KNorm: "k_norm"})
		d.norm(a, "q_norm", d.heads*d.headDim)
		d.norm(a, "k_norm", d.kvHeads*d.headDim)
		d.routedMixture(b, spec, d.inner)
		d.norms(b, "post_attention_layernorm", "post_feedforward_layernorm")
	})
}
