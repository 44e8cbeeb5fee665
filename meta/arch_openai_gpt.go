package meta

import "strconv"

// openAIGPT is OpenAIGPTLMHeadModel, the first GPT: GPT-2's projections, norms after the sums of
// a block and none after the last block. The published file has no "transformer." prefix, and has
// causal masks as tensors.
func openAIGPT(f *fields, b *Builder) {
	c := &gpt2Config{
		vocab:   f.size("vocab_size", 40478),
		context: f.size("n_positions", 512),
		hidden:  f.size("n_embd", 768),
		layers:  f.count("n_layer", 12, 1, maxLayers),
		heads:   f.count("n_head", 12, 1, maxHeads),
		eps:     f.positive("layer_norm_epsilon", 1e-5),
		act:     f.openAIActivation(),
		tied:    f.bool("tie_word_embeddings", true),
		scaled:  true,
	}
	c.inner = 4 * c.hidden
	if c.hidden%c.heads != 0 {
		f.fail("n_head", "%d does not divide the hidden size of %d", c.heads, c.hidden)
	}
	if f.err() != nil {
		return
	}
	b.Runs(KindCausalLM, &CausalLMSpec{
		Embed: "transformer.tokens_embed", Positions: "transformer.positions_embed", Layers: "transformer.h", Head: "lm_head",
		Vocab: c.vocab, Hidden: c.hidden, Context: c.context,
	})
	model := b.Child("transformer", "OpenAIGPTModel")
	embed := model.Embedding("tokens_embed", "Embedding", c.vocab, c.hidden)
	model.Embedding("positions_embed", "Embedding", c.context, c.hidden)
	model.Dropout("drop")
	model.Buffer("position_ids", Int64, false, c.context)
	layers := model.Child("h", "ModuleList")
	block := BlockSpec{NormSums: true, Attention: "attn", PostAttentionNorm: "ln_1", MLP: "mlp", PostMLPNorm: "ln_2"}
	var act *Module // of the first layer, which the others share
	for i := range c.layers {
		layer := layers.Child(strconv.Itoa(i), "Block").Runs(KindBlock, &block)
		c.attention(layer, i).Buffer("bias", b.tree.dtype, false, 1, 1, c.context, c.context)
		layer.LayerNorm("ln_1", c.hidden, c.eps, true)
		if own := c.mlp(layer).node.Find("act"); act == nil {
			act = own
		} else {
			*own = Module{Name: own.Name, SameAs: act}
		}
		layer.LayerNorm("ln_2", c.hidden, c.eps, true)
	}
	b.head(embed, c.hidden, c.vocab, c.tied, "lm_head.weight")
	b.Ignore("transformer.h.*.attn.bias")
}

// openAIActivation reads afn. Its "gelu" is the tanh approximation.
func (f *fields) openAIActivation() activation {
	switch name := f.text("afn", "gelu"); name {
	case "gelu":
		return activation{ActGELUTanh, "NewGELUActivation"}
	case "relu":
		return activation{ActReLU, "ReLU"}
	case "silu", "swish":
		return activation{ActSiLU, "SiLUActivation"}
	default:
		f.fail("afn", "activation %.40q is not supported (supported: gelu, relu, silu, swish)", name)
		return activation{}
	}
}
