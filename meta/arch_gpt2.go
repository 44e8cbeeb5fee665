package meta

import "strconv"

// gpt2Config holds GPT-2's config, which has its own field names.
type gpt2Config struct {
	class string // with which those of the parts begin

	vocab, context, hidden, inner, layers, heads int

	eps         float64
	act         activation
	tied        bool
	scaled      bool // divide scores by √headDim
	layerScaled bool // and by the layer's number from 1
}

func readGPT2(f *fields) *gpt2Config {
	c := &gpt2Config{
		class:       "GPT2",
		vocab:       f.size("vocab_size", 50257),
		context:     f.size("n_positions", 1024),
		hidden:      f.size("n_embd", 768),
		layers:      f.count("n_layer", 12, 1, maxLayers),
		heads:       f.count("n_head", 12, 1, maxHeads),
		eps:         f.positive("layer_norm_epsilon", 1e-5),
		act:         f.activation("activation_function", "gelu_new"),
		tied:        f.bool("tie_word_embeddings", true),
		scaled:      f.bool("scale_attn_weights", true),
		layerScaled: f.bool("scale_attn_by_inverse_layer_idx", false),
	}
	c.inner = f.size("n_inner", 4*c.hidden)
	if c.hidden%c.heads != 0 {
		f.fail("n_head", "%d does not divide the hidden size of %d", c.heads, c.hidden)
	}
	if f.bool("add_cross_attention", false) {
		f.fail("add_cross_attention", "cross attention is not supported")
	}
	return c
}

// gpt2 is GPT2LMHeadModel: learned positions, layer norms, fused and transposed
// projections. The published file has no "transformer." prefix, and has causal masks
// as tensors.
func gpt2(f *fields, b *Builder) {
	c := readGPT2(f)
	if f.err() != nil {
		return
	}
	b.Runs(KindCausalLM, &CausalLMSpec{
		Embed: "transformer.wte", Positions: "transformer.wpe", Layers: "transformer.h",
		Norm: "transformer.ln_f", Head: "lm_head",
		Vocab: c.vocab, Hidden: c.hidden, Context: c.context,
	})
	model := b.Child("transformer", "GPT2Model")
	embed := model.Embedding("wte", "Embedding", c.vocab, c.hidden)
	model.Embedding("wpe", "Embedding", c.context, c.hidden)
	model.Dropout("drop")
	layers := model.Child("h", "ModuleList")
	block := BlockSpec{AttentionNorm: "ln_1", Attention: "attn", MLPNorm: "ln_2", MLP: "mlp"}
	for i := range c.layers {
		layer := layers.Child(strconv.Itoa(i), "GPT2Block").Runs(KindBlock, &block)
		layer.LayerNorm("ln_1", c.hidden, c.eps, true)
		c.attention(layer, i)
		layer.LayerNorm("ln_2", c.hidden, c.eps, true)
		c.mlp(layer)
	}
	model.LayerNorm("ln_f", c.hidden, c.eps, true)
	b.head(embed, c.hidden, c.vocab, c.tied, "lm_head.weight")
	b.Ignore("transformer.h.*.attn.bias", "transformer.h.*.attn.masked_bias")
}

func (c *gpt2Config) attention(b *Builder, layer int) *Builder {
	headDim := c.hidden / c.heads
	scale := float32(1)
	if c.scaled {
		scale = rootScale(float64(headDim))
	}
	if c.layerScaled {
		scale /= float32(layer + 1)
	}
	a := b.Child("attn", c.class+"Attention").Runs(KindAttention, &AttentionSpec{
		Layer: layer, Heads: c.heads, KVHeads: c.heads, HeadDim: headDim, ValueDim: headDim,
		Fused: "c_attn", FusedOrder: FusedQKV, Out: "c_proj", Scale: scale,
	})
	a.Conv1D("c_attn", c.hidden, 3*c.hidden)
	a.Conv1D("c_proj", c.hidden, c.hidden)
	a.Dropout("attn_dropout")
	a.Dropout("resid_dropout")
	return a
}

func (c *gpt2Config) mlp(b *Builder) *Builder {
	m := b.Child("mlp", c.class+"MLP").Runs(KindMLP, &MLPSpec{Up: "c_fc", Down: "c_proj", Act: c.act.act})
	m.Conv1D("c_fc", c.hidden, c.inner)
	m.Conv1D("c_proj", c.inner, c.hidden)
	m.Activation("act", c.act.class, c.act.act)
	m.Dropout("dropout")
	return m
}
