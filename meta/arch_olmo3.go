package meta

// olmo3 is Olmo3ForCausalLM: olmo2 with windows on most layers, and a rope of its own for each of the
// two kinds.
func olmo3(f *fields, b *Builder) {
	d := readDecoder(f, "Olmo3", decoderDefaults{
		vocab: 50304, hidden: 4096, inner: 11008, layers: 32, heads: 32,
		context: 2048, eps: 1e-5, act: "silu", rope: ropeDefaults{theta: 500000},
	})
	bias := f.bool("attention_bias", false)
	window := f.window("sliding_window", 4096)
	sliding := d.sliding(f, func(i int) bool { return (i+1)%4 != 0 })
	// Published files have one base, which the reference uses only for full layers.
	full, local := f.layerRopes(ropeDefaults{theta: 500000, headDim: d.headDim, context: d.context},
		ropeDefaults{theta: 500000, thetaField: derived, headDim: d.headDim, context: d.context})
	d.rope = full
	w := wiring{block: postNorm(), rotary: func(b *Builder) { b.layerRotary("Olmo3RotaryEmbedding", sliding, full, local) }}
	d.causalLM(f, b, w, func(b *Builder, i int) {
		rope := full
		if sliding[i] {
			rope = local
		}
		a := d.attention(b, bias, bias, AttentionSpec{
			Layer: i, QNorm: "q_norm", KNorm: "k_norm", Window: windowIf(sliding[i], window), Rope: rope,
		})
		d.norm(a, "q_norm", d.heads*d.headDim)
		d.norm(a, "k_norm", d.kvHeads*d.headDim)
		d.gatedMLP(b, "mlp", d.inner, false)
		d.norms(b, "post_attention_layernorm", "post_feedforward_layernorm")
	})
}
