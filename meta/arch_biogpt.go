package meta

import "math"

// bioGPT is BioGptForCausalLM: OPT's layers, scaled embeddings of tokens, and a head of another name. The reference
// has no no-split class; blocks stay whole here.
func bioGPT(f *fields, b *Builder) {
	d := &decoder{
		class: "BioGpt", vocab: f.size("vocab_size", 42384), hidden: f.size("hidden_size", 1024), inner: f.size("intermediate_size", 4096),
		layers: f.count("num_hidden_layers", 24, 1, maxLayers), heads: f.count("num_attention_heads", 16, 1, maxHeads),
		context: f.size("max_position_embeddings", 1024), act: f.activation("hidden_act", "gelu"), tied: f.bool("tie_word_embeddings", true),
	}
	d.layerNorms()
	d.normSpec.Eps = 1e-5 // whatever layer_norm_eps says
	d.kvHeads, d.headDim = d.heads, d.hidden/d.heads
	if d.hidden%d.heads != 0 {
		f.fail("num_attention_heads", "%d does not divide the hidden size of %d", d.heads, d.hidden)
	}
	scale := 1.0
	if f.bool("scale_embedding", true) {
		scale = math.Sqrt(float64(d.hidden))
	}
	if f.err() != nil {
		return
	}
	b.Runs(KindCausalLM, &CausalLMSpec{
		Embed: "biogpt.embed_tokens", EmbedScale: float32(scale), Positions: "biogpt.embed_positions", FirstPosition: 2, Layers: "biogpt.layers",
		Norm: "biogpt.layer_norm", Head: "output_projection", Vocab: d.vocab, Hidden: d.hidden, Context: d.context,
	})
	model := b.Child("biogpt", "BioGptModel")
	embed := model.Embedding("embed_tokens", "BioGptScaledWordEmbedding", d.vocab, d.hidden)
	model.Embedding("embed_positions", "BioGptLearnedPositionalEmbedding", d.context+2, d.hidden)
	d.optLayers(model, d.optBlock(), true)
	d.norm(model, "layer_norm", d.hidden)
	b.headAt("output_projection", embed, d.hidden, d.vocab, d.tied, "output_projection.weight")
}
