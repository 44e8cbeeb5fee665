package meta

// gptJ is GPTJForCausalLM: attention and MLP in parallel after one norm, rope on adjacent pairs
// in the first channels of each head, and a head with a bias.
func gptJ(f *fields, b *Builder) {
	c := readGPT(f, "GPTJ", gptNames{
		context: "n_positions", hidden: "n_embd", inner: "n_inner", layers: "n_layer", heads: "n_head",
		vocab: 50400, maxContext: 2048, width: 4096, depth: 28, wide: 16, act: "gelu_new",
	})
	const rotary = "rotary_dim"
	dim := f.count(rotary, 64, 2, maxHeads)
	if f.null(rotary) || dim%2 != 0 || dim > c.headDim() {
		f.fail(rotary, "got %d, want an even number up to the head's %d", dim, c.headDim())
	}
	if f.err() != nil {
		return
	}
	rope := &RopeSpec{Theta: 10000, Dim: dim, Interleaved: true, Max: c.context}
	block := BlockSpec{Parallel: true, AttentionNorm: "ln_1", Attention: "attn", MLPNorm: "ln_1", MLP: "mlp"}
	c.model(b, block, false, true, func(b *Builder, i int) {
		b.LayerNorm("ln_1", c.hidden, c.eps, true)
		a := b.Child("attn", "GPTJAttention")
		c.separate(a, AttentionSpec{Layer: i, Scale: rootScale(float64(c.headDim())), Rope: rope}, false)
		a.Buffer("embed_positions", Float32, false, c.context, dim)
		c.mlp(b, "fc_in", "fc_out")
	})
	b.Ignore("transformer.h.*.attn.bias", "transformer.h.*.attn.masked_bias")
}
