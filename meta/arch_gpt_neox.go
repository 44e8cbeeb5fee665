package meta

import "strconv"

// gptNeoX is GPTNeoXForCausalLM: attention and MLP in parallel, layer norms, a projection with q,
// k and v of each head together, and rope on a part of each head. Files call the head embed_out.
func gptNeoX(f *fields, b *Builder) {
	d := readDecoder(f, "GPTNeoX", decoderDefaults{
		vocab: 50432, hidden: 6144, inner: 24576, layers: 44, heads: 64, whole: true,
		context: 2048, eps: 1e-5, epsField: "layer_norm_eps", act: "gelu",
		rope: ropeDefaults{theta: 10000, thetaField: "rotary_emb_base", partial: 0.25, partialField: "rotary_pct", roundUp: true},
	})
	d.layerNorms()
	bias := f.bool("attention_bias", true)
	block := BlockSpec{
		Parallel: f.bool("use_parallel_residual", true), AttentionNorm: "input_layernorm", Attention: "attention",
		MLPNorm: "post_attention_layernorm", MLP: "mlp",
	}
	if d.headDim*d.heads != d.hidden || d.kvHeads != d.heads {
		f.fail("num_attention_heads", "%d heads of %d, %d for keys: not a fused projection of %d", d.heads, d.headDim, d.kvHeads, d.hidden)
	}
	if f.err() != nil {
		return
	}
	b.Runs(KindCausalLM, &CausalLMSpec{
		Embed: "gpt_neox.embed_in", Layers: "gpt_neox.layers", Norm: "gpt_neox.final_layer_norm", Head: "lm_head",
		Vocab: d.vocab, Hidden: d.hidden, Context: d.rope.contextOf(d.context), Reach: d.rope.reachOf(d.context),
	})
	model := b.Child("gpt_neox", "GPTNeoXModel")
	embed := model.Embedding("embed_in", "Embedding", d.vocab, d.hidden)
	model.Dropout("emb_dropout")
	layers := model.Child("layers", "ModuleList")
	for i := range d.layers {
		layer := layers.Child(strconv.Itoa(i), "GPTNeoXLayer").Runs(KindBlock, &block)
		d.norms(layer, "input_layernorm", "post_attention_layernorm")
		layer.Dropout("post_attention_dropout")
		layer.Dropout("post_mlp_dropout")
		d.neoXLayer(layer, i, bias)
	}
	d.norm(model, "final_layer_norm", d.hidden)
	model.Rotary("GPTNeoXRotaryEmbedding", d.rope)
	b.head(embed, d.hidden, d.vocab, d.tied, "embed_out.weight", "lm_head.weight")
	b.Ignore("gpt_neox.layers.*.attention.bias", "gpt_neox.layers.*.attention.masked_bias",
		"gpt_neox.layers.*.attention.rotary_emb.inv_freq")
}

func (d *decoder) neoXLayer(b *Builder, layer int, bias bool) {
	s := d.attentionSpec(AttentionSpec{Layer: layer})
	s.Fused, s.FusedOrder, s.Out = "query_key_value", FusedPerHead, "dense"
	a := b.Child("attention", "GPTNeoXAttention").Runs(KindAttention, s)
	a.Linear("query_key_value", d.hidden, 3*d.hidden, bias)
	a.Linear("dense", d.hidden, d.hidden, bias)
	d.plainMLP(b, "dense_h_to_4h", "dense_4h_to_h", "act", true)
}
