package meta

import (
	"math"
	"strconv"
)

// ctrl is CTRLLMHeadModel: scaled embeddings, sines and cosines of positions, and a head with a bias. The reference has
// no no-split class; blocks stay whole here.
func ctrl(f *fields, b *Builder) {
	f = f.renamed("n_positions", "max_position_embeddings").renamed("n_embd", "hidden_size").renamed("n_layer", "num_hidden_layers").renamed("n_head", "num_attention_heads")
	d := &decoder{
		vocab: f.size("vocab_size", 246534), hidden: f.size("n_embd", 1280), inner: f.size("dff", 8192),
		layers: f.count("n_layer", 48, 1, maxLayers), heads: f.count("n_head", 16, 1, maxHeads),
		context: f.size("n_positions", 256), act: activation{ActReLU, "ReLU"}, tied: f.bool("tie_word_embeddings", true),
	}
	eps := f.positive("layer_norm_epsilon", 1e-6)
	d.kvHeads, d.headDim = d.heads, d.hidden/d.heads
	if d.hidden%d.heads != 0 || d.hidden%2 != 0 {
		f.fail("n_embd", "%d is odd or not a multiple of the %d heads", d.hidden, d.heads)
	}
	if f.err() != nil {
		return
	}
	b.Runs(KindCausalLM, &CausalLMSpec{
		Embed: "transformer.w", EmbedScale: float32(math.Sqrt(float64(d.hidden))), Sinusoids: &RopeSpec{Theta: 10000, Dim: d.hidden},
		Layers: "transformer.h", Norm: "transformer.layernorm", Head: "lm_head", Vocab: d.vocab, Hidden: d.hidden, Context: d.context,
	})
	model := b.Child("transformer", "CTRLModel")
	embed := model.Embedding("w", "Embedding", d.vocab, d.hidden)
	model.Dropout("dropout")
	model.Buffer("pos_encoding", Float32, false, d.context, d.hidden)
	layers := model.Child("h", "ModuleList")
	block := BlockSpec{AttentionNorm: "layernorm1", Attention: "multi_head_attention", MLPNorm: "layernorm2", MLP: "ffn"}
	for i := range d.layers {
		d.ctrlLayer(layers.Child(strconv.Itoa(i), "EncoderLayer").Runs(KindBlock, &block), i)
	}
	model.LayerNorm("layernorm", d.hidden, eps, true)
	b.head(embed, d.hidden, d.vocab, d.tied, "lm_head.weight").Param("bias", d.vocab)
}

func (d *decoder) ctrlLayer(b *Builder, layer int) {
	s := d.attentionSpec(AttentionSpec{Layer: layer, Q: "Wq", K: "Wk", V: "Wv", Out: "dense"})
	a := b.Child("multi_head_attention", "MultiHeadAttention").Runs(KindAttention, s)
	for _, name := range []string{"Wq", "Wk", "Wv", "dense"} {
		a.Linear(name, d.hidden, d.hidden, true)
	}
	m := b.Child("ffn", "Sequential").Runs(KindMLP, &MLPSpec{Up: "0", Down: "2", Act: d.act.act})
	m.Linear("0", d.hidden, d.inner, true)
	m.Activation("1", d.act.class, d.act.act)
	m.Linear("2", d.inner, d.hidden, true)
	const eps = 1e-6 // whatever layer_norm_epsilon says
	b.LayerNorm("layernorm1", d.hidden, eps, true)
	b.LayerNorm("layernorm2", d.hidden, eps, true)
	b.Dropout("dropout1")
	b.Dropout("dropout2")
}
