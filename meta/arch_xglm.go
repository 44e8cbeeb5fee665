package meta

import "math"

// xglm is XGLMForCausalLM: OPT's layers, scaled token embeddings, and sinusoidal positions
// instead of a table.
func xglm(f *fields, b *Builder) {
	f = f.renamed("d_model", "hidden_size").renamed("num_layers", "num_hidden_layers").renamed("attention_heads", "num_attention_heads")
	d := &decoder{
		class: "XGLM", vocab: f.size("vocab_size", 256008), hidden: f.count("d_model", 1024, 4, maxSize), inner: f.size("ffn_dim", 4096),
		layers: f.count("num_layers", 24, 1, maxLayers), heads: f.count("attention_heads", 16, 1, maxHeads),
		context: f.size("max_position_embeddings", 2048), act: f.activation("activation_function", "gelu"), tied: f.bool("tie_word_embeddings", true),
	}
	d.layerNorms()
	d.normSpec.Eps = 1e-5
	d.kvHeads, d.headDim = d.heads, d.hidden/d.heads
	if d.hidden%d.heads != 0 || d.hidden%2 != 0 {
		f.fail("d_model", "%d is odd or not a multiple of the %d heads", d.hidden, d.heads)
	}
	if f.bool("add_cross_attention", false) {
		f.fail("add_cross_attention", "cross attention is not supported")
	}
	const firstPosition = 2
	if n := f.token("pad_token_id", -1); n >= firstPosition { // its row of the reference's table is zero
		f.fail("pad_token_id", "%d is not supported, want at most %d", n, firstPosition-1)
	}
	scale := 1.0
	if f.bool("scale_embedding", true) {
		scale = math.Sqrt(float64(d.hidden))
	}
	if f.err() != nil {
		return
	}
	b.Runs(KindCausalLM, &CausalLMSpec{
		Embed: "model.embed_tokens", EmbedScale: float32(scale), Layers: "model.layers", Norm: "model.layer_norm", Head: "lm_head",
		Sinusoids: &RopeSpec{Theta: 10000, Dim: d.hidden, Divisor: d.hidden - 2, Shift: -firstPosition},
		Vocab:     d.vocab, Hidden: d.hidden, Context: d.context,
	})
	model := b.Child("model", "XGLMModel")
	embed := model.Embedding("embed_tokens", "XGLMScaledWordEmbedding", d.vocab, d.hidden)
	model.Child("embed_positions", "XGLMSinusoidalPositionalEmbedding").Buffer("weights", b.tree.dtype, false, d.context+firstPosition, d.hidden)
	d.optLayers(model, d.optBlock(), true)
	d.norm(model, "layer_norm", d.hidden)
	b.head(embed, d.hidden, d.vocab, d.tied, "lm_head.weight")
	b.Ignore("model.embed_positions.weights")
}
