package meta

// youtu is YoutuForCausalLM: deepseek_v3's attention with a dense MLP in every layer.
func youtu(f *fields, b *Builder) {
	d := readDeepseek(f, "Youtu", decoderDefaults{
		vocab: 128256, hidden: 2048, inner: 6144, layers: 32, heads: 16, context: 131072, eps: 1e-6, tied: true,
	}, latentDefaults{qRank: 1536, kvRank: 512, nope: 128, value: 128})
	d.causalLM(f, b, wiring{block: preNorm()}, func(b *Builder, i int) {
		d.latentAttention(b, i)
		d.gatedMLP(b, "mlp", d.inner, false)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}
