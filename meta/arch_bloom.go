package meta

import "strconv"

// bloom is BloomForCausalLM: gpt_neox's fused projection in sequential blocks, a norm of the
// embeddings, and ALiBi biases as the only positions.
func bloom(f *fields, b *Builder) {
	if f.bool("apply_residual_connection_post_layernorm", false) {
		f.fail("apply_residual_connection_post_layernorm", "true is not supported")
	}
	d := readDecoder(f.bloomNames(), "Bloom", decoderDefaults{
		vocab: 250880, hidden: 64, layers: 2, heads: 8, context: 2048, eps: 1e-5, epsField: "layer_norm_epsilon",
		act: "gelu_new", actField: "activation", headDimField: derived, tied: true, rope: ropeDefaults{theta: 10000},
	})
	d.layerNorms()
	d.inner = 4 * d.hidden
	d.act.class = "BloomGelu"
	if f.err() != nil {
		return
	}
	b.Runs(KindCausalLM, &CausalLMSpec{
		Embed: "transformer.word_embeddings", EmbedNorm: "transformer.word_embeddings_layernorm", Layers: "transformer.h",
		Norm: "transformer.ln_f", Head: "lm_head", Vocab: d.vocab, Hidden: d.hidden, Context: d.context,
	})
	model := b.Child("transformer", "BloomModel")
	embed := model.Embedding("word_embeddings", "Embedding", d.vocab, d.hidden)
	d.norm(model, "word_embeddings_layernorm", d.hidden)
	layers, slopes := model.Child("h", "ModuleList"), alibiSlopes(d.heads)
	block := BlockSpec{AttentionNorm: "input_layernorm", Attention: "self_attention", MLPNorm: "post_attention_layernorm", MLP: "mlp"}
	for i := range d.layers {
		layer := layers.Child(strconv.Itoa(i), "BloomBlock").Runs(KindBlock, &block)
		d.norm(layer, "input_layernorm", d.hidden)
		s := d.attentionSpec(AttentionSpec{Layer: i, Rope: noRope, Slopes: slopes})
		s.Fused, s.FusedOrder, s.Out = "query_key_value", FusedPerHead, "dense"
		a := layer.Child("self_attention", "BloomAttention").Runs(KindAttention, s)
		a.Linear("query_key_value", d.hidden, 3*d.hidden, true)
		a.Linear("dense", d.hidden, d.hidden, true)
		a.Dropout("attention_dropout")
		d.norm(layer, "post_attention_layernorm", d.hidden)
		m := layer.Child("mlp", "BloomMLP").Runs(KindMLP, &MLPSpec{Up: "dense_h_to_4h", Down: "dense_4h_to_h", Act: d.act.act})
		m.Linear("dense_h_to_4h", d.hidden, d.inner, true)
		m.Activation("gelu_impl", d.act.class, d.act.act)
		m.Linear("dense_4h_to_h", d.inner, d.hidden, true)
	}
	d.norm(model, "ln_f", d.hidden)
	b.head(embed, d.hidden, d.vocab, d.tied, "lm_head.weight")
}

// bloomNames returns f with BLOOM's field names replaced by the usual ones.
func (f *fields) bloomNames() *fields {
	g := f.without("activation", "num_key_value_heads", "intermediate_size", "max_position_embeddings")
	for _, names := range [...][2]string{{"n_embed", "hidden_size"}, {"n_layer", "num_hidden_layers"}, {"n_head", "num_attention_heads"}, {"seq_length", "max_position_embeddings"}} {
		if f.has(names[0]) {
			g.values[names[1]] = f.values[names[0]]
		}
	}
	return g
}
