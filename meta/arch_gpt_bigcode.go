package meta

// gptBigCode is GPTBigCodeForCausalLM (SantaCoder, StarCoder): GPT-2 whose query heads share one
// key/value head. Without multi_query, its fused projection is ordered by head.
func gptBigCode(f *fields, b *Builder) {
	c := readGPT(f, "GPTBigCode", gptNames{
		context: "n_positions", hidden: "n_embd", inner: "n_inner", layers: "n_layer", heads: "n_head",
		vocab: 50257, maxContext: 1024, width: 768, depth: 12, wide: 12, act: "gelu_pytorch_tanh", tied: true,
	})
	if f.bool("add_cross_attention", false) {
		f.fail("add_cross_attention", "cross attention is not supported")
	}
	kvHeads, order, scale := c.heads, FusedPerHead, float32(1)
	if f.bool("multi_query", true) {
		kvHeads, order = 1, FusedQKV
	}
	if f.bool("scale_attn_weights", true) && f.err() == nil {
		scale = rootScale(float64(c.headDim()))
	}
	if f.err() != nil {
		return
	}
	block := BlockSpec{AttentionNorm: "ln_1", Attention: "attn", MLPNorm: "ln_2", MLP: "mlp"}
	model := c.model(b, block, true, false, func(b *Builder, i int) {
		b.LayerNorm("ln_1", c.hidden, c.eps, true)
		a := b.Child("attn", "GPTBigCodeAttention").Runs(KindAttention, &AttentionSpec{
			Layer: i, Heads: c.heads, KVHeads: kvHeads, HeadDim: c.headDim(), ValueDim: c.headDim(),
			Fused: "c_attn", FusedOrder: order, Out: "c_proj", Scale: scale,
		})
		a.Linear("c_attn", c.hidden, c.hidden+2*kvHeads*c.headDim(), true)
		a.Linear("c_proj", c.hidden, c.hidden, true)
		a.Dropout("resid_dropout")
		b.LayerNorm("ln_2", c.hidden, c.eps, true)
		c.mlp(b, "c_fc", "c_proj")
	})
	model.Buffer("bias", Bool, false, c.context, c.context)
	b.Ignore("transformer.h.*.attn.bias", "transformer.h.*.attn.masked_bias")
}
