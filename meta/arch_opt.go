package meta

import "strconv"

// opt is OPTForCausalLM: learned positions, whose table begins with two unused rows, and a plain
// MLP whose projections are children of the block.
func opt(f *fields, b *Builder) {
	d := &decoder{
		class: "OPT", vocab: f.size("vocab_size", 50272), hidden: f.size("hidden_size", 768), inner: f.size("ffn_dim", 3072),
		layers: f.count("num_hidden_layers", 12, 1, maxLayers), heads: f.count("num_attention_heads", 12, 1, maxHeads),
		context: f.size("max_position_embeddings", 2048), act: f.activation("activation_function", "relu"), tied: f.bool("tie_word_embeddings", true),
	}
	d.layerNorms()
	d.normSpec.Eps, d.bareNorms = 1e-5, !f.bool("layer_norm_elementwise_affine", true)
	d.kvHeads, d.headDim = d.heads, d.hidden/d.heads
	if d.hidden%d.heads != 0 {
		f.fail("num_attention_heads", "%d does not divide the hidden size of %d", d.heads, d.hidden)
	}
	width := f.size("word_embed_proj_dim", d.hidden) // of the embeddings
	before := f.bool("do_layer_norm_before", true)
	bias := f.bool("enable_bias", true)
	normed := before && !f.bool("_remove_final_layer_norm", false)
	if f.err() != nil {
		return
	}
	spec := &CausalLMSpec{
		Embed: "model.decoder.embed_tokens", Positions: "model.decoder.embed_positions", FirstPosition: 2, Layers: "model.decoder.layers",
		Head: "lm_head", Vocab: d.vocab, Hidden: width, Context: d.context,
	}
	b.Runs(KindCausalLM, spec)
	model := b.Child("model", "OPTModel").Child("decoder", "OPTDecoder")
	embed := model.Embedding("embed_tokens", "Embedding", d.vocab, width)
	model.Embedding("embed_positions", "OPTLearnedPositionalEmbedding", d.context+2, d.hidden)
	if width != d.hidden {
		spec.EmbedProject, spec.NormProject = "model.decoder.project_in", "model.decoder.project_out"
		model.Linear("project_out", d.hidden, width, false)
		model.Linear("project_in", width, d.hidden, false)
	}
	if normed {
		spec.Norm = "model.decoder.final_layer_norm"
		d.norm(model, "final_layer_norm", d.hidden)
	}
	block := d.optBlock()
	if !before {
		block.NormSums = true
		block.PostAttentionNorm, block.PostMLPNorm, block.AttentionNorm, block.MLPNorm = block.AttentionNorm, block.MLPNorm, "", ""
	}
	d.optLayers(model, block, bias)
	b.head(embed, width, d.vocab, d.tied, "lm_head.weight")
}

// optBlock returns the block of OPT, which other models share.
func (d *decoder) optBlock() BlockSpec {
	return BlockSpec{
		AttentionNorm: "self_attn_layer_norm", Attention: "self_attn", MLPNorm: "final_layer_norm",
		Plain: &MLPSpec{Up: "fc1", Down: "fc2", Act: d.act.act},
	}
}

// optLayers adds the layers of OPT, which other models share.
func (d *decoder) optLayers(model *Builder, block BlockSpec, bias bool) {
	layers := model.Child("layers", "ModuleList")
	for i := range d.layers {
		d.optLayer(layers.Child(strconv.Itoa(i), d.class+"DecoderLayer").Runs(KindBlock, &block), i, bias)
	}
}

func (d *decoder) optLayer(b *Builder, layer int, bias bool) {
	a := b.Child("self_attn", d.class+"Attention").Runs(KindAttention, &AttentionSpec{
		Layer: layer, Heads: d.heads, KVHeads: d.heads, HeadDim: d.headDim, ValueDim: d.headDim,
		Q: "q_proj", K: "k_proj", V: "v_proj", Out: "out_proj", Scale: rootScale(float64(d.headDim)),
	})
	for _, name := range []string{"k_proj", "v_proj", "q_proj", "out_proj"} {
		a.Linear(name, d.hidden, d.hidden, bias)
	}
	b.Activation("activation_fn", d.act.class, d.act.act)
	d.norm(b, "self_attn_layer_norm", d.hidden)
	b.Linear("fc1", d.hidden, d.inner, bias)
	b.Linear("fc2", d.inner, d.hidden, bias)
	d.norm(b, "final_layer_norm", d.hidden)
}
