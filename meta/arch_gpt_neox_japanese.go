package meta

import "strconv"

// gptNeoXJapanese is GPTNeoXJapaneseForCausalLM: gpt_neox with attention before the MLP, and without biases but one of the last
// layer's attention.
func gptNeoXJapanese(f *fields, b *Builder) {
	d := readDecoder(f.without("num_key_value_heads", "intermediate_size"), "GPTNeoXJapanese", decoderDefaults{
		vocab: 32000, hidden: 2560, inner: 10240, layers: 32, heads: 32, whole: true, headDimField: derived,
		context: 2048, eps: 1e-5, epsField: "layer_norm_eps", act: "gelu", tied: true,
		rope: ropeDefaults{theta: 10000, thetaField: "rotary_emb_base", partial: 1, partialField: "rotary_pct"},
	})
	d.layerNorms()
	d.inner = d.hidden * f.count("intermediate_multiple_size", 4, 1, maxHeads)
	if f.err() != nil {
		return
	}
	b.Runs(KindCausalLM, &CausalLMSpec{
		Embed: "gpt_neox_japanese.embed_in", Layers: "gpt_neox_japanese.layers", Norm: "gpt_neox_japanese.final_layer_norm", Head: "embed_out",
		Vocab: d.vocab, Hidden: d.hidden, Context: d.rope.contextOf(d.context), Reach: d.rope.reachOf(d.context),
	})
	model := b.Child("gpt_neox_japanese", "GPTNeoXJapaneseModel")
	embed := model.Embedding("embed_in", "Embedding", d.vocab, d.hidden)
	layers := model.Child("layers", "ModuleList")
	block := BlockSpec{AttentionNorm: "input_layernorm", Attention: "attention", MLPNorm: "post_attention_layernorm", MLP: "mlp"}
	for i := range d.layers {
		layer := layers.Child(strconv.Itoa(i), "GPTNeoXJapaneseLayer").Runs(KindBlock, &block)
		d.norms(layer, "input_layernorm", "post_attention_layernorm")
		d.neoXJapaneseAttention(layer, i)
		d.plainMLP(layer, "dense_h_to_4h", "dense_4h_to_h", "act", false)
	}
	d.norm(model, "final_layer_norm", d.hidden)
	model.Rotary("GPTNeoXJapaneseRotaryEmbedding", d.rope)
	b.headAt("embed_out", embed, d.hidden, d.vocab, d.tied, "embed_out.weight")
	b.Ignore("gpt_neox_japanese.layers.*.attention.bias", "gpt_neox_japanese.layers.*.attention.masked_bias",
		"gpt_neox_japanese.layers.*.attention.rotary_emb.inv_freq")
}

func (d *decoder) neoXJapaneseAttention(b *Builder, layer int) {
	s := d.attentionSpec(AttentionSpec{Layer: layer, Fused: "query_key_value", FusedOrder: FusedPerHead, Out: "dense"})
	if layer == d.layers-1 {
		s.OutBias = "dense_bias"
	}
	a := b.Child("attention", "GPTNeoXJapaneseAttention").Runs(KindAttention, s)
	if s.OutBias != "" {
		a.Param(s.OutBias, d.hidden)
	}
	a.Dropout("attention_dropout")
	a.Linear("query_key_value", d.hidden, 3*d.hidden, false)
	a.Linear("dense", d.hidden, d.hidden, false)
}
