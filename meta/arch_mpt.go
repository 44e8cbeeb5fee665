package meta

import "strconv"

// mpt is MptForCausalLM: GPT-2's blocks without biases, with ALiBi biases as the only positions.
// The reference applies them whatever the config says about positions.
func mpt(f *fields, b *Builder) {
	f = f.renamed("d_model", "hidden_size").renamed("n_layers", "num_hidden_layers").renamed("n_heads", "num_attention_heads")
	c := &gptConfig{
		class:   "Mpt",
		vocab:   f.size("vocab_size", 50368),
		context: f.size("max_seq_len", 2048),
		hidden:  f.size("d_model", 2048),
		layers:  f.count("n_layers", 24, 1, maxLayers),
		heads:   f.count("n_heads", 16, 1, maxHeads),
		eps:     f.positive("layer_norm_epsilon", 1e-5),
		act:     activation{ActGELU, "GELU"},
		tied:    f.bool("tie_word_embeddings", true),
	}
	if c.hidden%c.heads != 0 {
		f.fail("n_heads", "%d does not divide the hidden size of %d", c.heads, c.hidden)
	}
	if n := f.size("expansion_ratio", 4); n != 4 {
		f.fail("expansion_ratio", "%d is not supported (supported: 4)", n)
	}
	if !f.bool("no_bias", true) {
		f.fail("no_bias", "false is not supported: the reference has no biases")
	}
	s := f.mptAttention(c)
	if f.err() != nil {
		return
	}
	b.Runs(KindCausalLM, &CausalLMSpec{
		Embed: "transformer.wte", Layers: "transformer.blocks", Norm: "transformer.norm_f", Head: "lm_head",
		Vocab: c.vocab, Hidden: c.hidden, Context: c.context,
	})
	model := b.Child("transformer", "MptModel")
	embed := model.Embedding("wte", "Embedding", c.vocab, c.hidden)
	layers := model.Child("blocks", "ModuleList")
	block := BlockSpec{AttentionNorm: "norm_1", Attention: "attn", MLPNorm: "norm_2", MLP: "ffn"}
	for i := range c.layers {
		layer, attention := layers.Child(strconv.Itoa(i), "MptBlock").Runs(KindBlock, &block), s
		attention.Layer = i
		layer.LayerNorm("norm_1", c.hidden, c.eps, false)
		a := layer.Child("attn", "MptAttention").Runs(KindAttention, &attention)
		a.Linear("Wqkv", c.hidden, 3*c.hidden, false)
		a.Linear("out_proj", c.hidden, c.hidden, false)
		layer.LayerNorm("norm_2", c.hidden, c.eps, false)
		m := layer.Child("ffn", "MptMLP").Runs(KindMLP, &MLPSpec{Up: "up_proj", Down: "down_proj", Act: c.act.act})
		m.Linear("up_proj", c.hidden, 4*c.hidden, false)
		m.Activation("act", c.act.class, c.act.act)
		m.Linear("down_proj", 4*c.hidden, c.hidden, false)
		layer.Dropout("resid_attn_dropout")
	}
	model.LayerNorm("norm_f", c.hidden, c.eps, false)
	b.head(embed, c.hidden, c.vocab, c.tied, "lm_head.weight")
}

// mptAttention reads attn_config.
func (f *fields) mptAttention(c *gptConfig) AttentionSpec {
	s := AttentionSpec{
		Heads: c.heads, KVHeads: c.heads, HeadDim: c.headDim(), ValueDim: c.headDim(),
		Fused: "Wqkv", FusedOrder: FusedQKV, Out: "out_proj", Scale: rootScale(float64(c.headDim())),
	}
	if g := f.object("attn_config"); g != nil {
		g.only("attn_type", "multihead_attention")
		if g.float("clip_qkv", 0) != 0 { // which the reference takes for none
			s.Clip = g.clip()
		}
		for _, name := range []string{"prefix_lm", "qk_ln"} {
			if g.bool(name, false) {
				g.fail(name, "true is not supported")
			}
		}
		if !g.bool("alibi", true) {
			g.fail("alibi", "false is not supported: positions other than biases by distance")
		}
		s.Scale = float32(g.positive("softmax_scale", float64(s.Scale)))
		if n := g.size("alibi_bias_max", 8); n != 8 {
			g.fail("alibi_bias_max", "%d is not supported: the reference computes with 8", n)
		}
	}
	s.Slopes = alibiSlopes(c.heads)
	return s
}
