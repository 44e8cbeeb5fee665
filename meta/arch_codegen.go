package meta

// codeGenShards is the number of parts that CodeGen's fused projection is laid out in.
const codeGenShards = 4

// codeGen is CodeGenForCausalLM: GPT-J with a fused projection, whose order is that of the four
// machines on which it was trained.
func codeGen(f *fields, b *Builder) {
	c := readGPT(f, "CodeGen", gptNames{
		context: "n_positions", hidden: "n_embd", inner: "n_inner", layers: "n_layer", heads: "n_head",
		vocab: 50400, maxContext: 2048, width: 4096, depth: 28, wide: 16, act: "gelu_new",
	})
	const rotary = "rotary_dim"
	dim := f.count(rotary, 64, 2, maxHeads)
	switch {
	case f.null(rotary):
		f.fail(rotary, "null is not supported: rope turns a part of each head")
	case dim%2 != 0 || dim > c.headDim():
		f.fail(rotary, "got %d, want an even number up to the head's %d", dim, c.headDim())
	}
	if c.hidden%codeGenShards != 0 {
		f.fail("n_embd", "got %d, want a multiple of %d", c.hidden, codeGenShards)
	}
	if f.err() != nil {
		return
	}
	spec := AttentionSpec{
		Heads: c.heads, KVHeads: c.heads, HeadDim: c.headDim(), ValueDim: c.headDim(), Scale: rootScale(float64(c.headDim())),
		Fused: "qkv_proj", FusedOrder: FusedQVKInShards, Shards: codeGenShards, Out: "out_proj",
		Rope: &RopeSpec{Theta: 10000, Dim: dim, Interleaved: true, Max: c.context},
	}
	block := BlockSpec{Parallel: true, AttentionNorm: "ln_1", Attention: "attn", MLPNorm: "ln_1", MLP: "mlp"}
	model := c.model(b, block, false, true, func(b *Builder, i int) {
		b.LayerNorm("ln_1", c.hidden, c.eps, true)
		s := spec
		s.Layer = i
		a := b.Child("attn", "CodeGenAttention").Runs(KindAttention, &s)
		a.Linear("out_proj", c.hidden, c.hidden, false)
		a.Dropout("resid_dropout")
		a.Linear("qkv_proj", c.hidden, 3*c.hidden, false)
		c.mlp(b, "fc_in", "fc_out")
	})
	if model != nil {
		model.Child("rotary_emb", "CodeGenRotaryEmbedding").Buffer("embed_positions", Float32, false, c.context, dim)
	}
	b.Ignore("transformer.h.*.attn.causal_mask")
}
