package meta

import (
	"encoding/json"
	"strconv"
)

// falcon is FalconForCausalLM: a fused projection, layer norms and a plain MLP, which is parallel
// to attention in most models. The newer ones group heads and may have a norm for each branch.
func falcon(f *fields, b *Builder) {
	d := readDecoder(f.falconNames(), "Falcon", decoderDefaults{
		vocab: 65024, hidden: 4544, layers: 32, heads: 71, context: 2048, eps: 1e-5, epsField: "layer_norm_epsilon",
		act: "gelu", actField: "activation", headDimField: derived, tied: true, rope: ropeDefaults{theta: 10000},
	})
	d.layerNorms()
	d.inner = f.size("ffn_hidden_size", 4*d.hidden)
	bias := f.bool("bias", false)
	var biases AttentionSpec
	if f.bool("alibi", false) {
		biases = AttentionSpec{Rope: noRope, Slopes: alibiSlopes(d.heads), RoundedSlopes: true}
	}
	block, norms := d.falconForm(f)
	if f.err() != nil {
		return
	}
	b.Runs(KindCausalLM, &CausalLMSpec{
		Embed: "transformer.word_embeddings", Layers: "transformer.h", Norm: "transformer.ln_f", Head: "lm_head",
		Vocab: d.vocab, Hidden: d.hidden, Context: d.rope.contextOf(d.context), Reach: d.rope.reachOf(d.context),
	})
	model := b.Child("transformer", "FalconModel")
	embed := model.Embedding("word_embeddings", "Embedding", d.vocab, d.hidden)
	layers := model.Child("h", "ModuleList")
	for i := range d.layers {
		layer := layers.Child(strconv.Itoa(i), "FalconDecoderLayer").Runs(KindBlock, &block)
		s := d.attentionSpec(biases)
		s.Layer = i
		s.Fused, s.FusedOrder, s.Out = "query_key_value", FusedPerHead, "dense"
		a := layer.Child("self_attention", "FalconAttention").Runs(KindAttention, s)
		a.falconLinear("query_key_value", d.hidden, d.hidden+2*d.kvHeads*d.headDim, bias)
		a.falconLinear("dense", d.hidden, d.hidden, bias)
		a.Dropout("attention_dropout")
		m := layer.Child("mlp", "FalconMLP").Runs(KindMLP, &MLPSpec{Up: "dense_h_to_4h", Down: "dense_4h_to_h", Act: d.act.act})
		m.falconLinear("dense_h_to_4h", d.hidden, d.inner, bias)
		m.Activation("act", d.act.class, d.act.act)
		m.falconLinear("dense_4h_to_h", d.inner, d.hidden, bias)
		d.norms(layer, norms...)
	}
	d.norm(model, "ln_f", d.hidden)
	model.Rotary("FalconRotaryEmbedding", d.rope)
	b.head(embed, d.hidden, d.vocab, d.tied, "lm_head.weight")
	b.Ignore("transformer.h.*.self_attention.rotary_emb.inv_freq")
}

// falconNames returns f with Falcon's field names replaced by the usual ones.
func (f *fields) falconNames() *fields {
	g := f.without("head_dim", "num_key_value_heads")
	if f.has("n_embed") {
		g.values["hidden_size"] = f.values["n_embed"]
	}
	if f.bool("new_decoder_architecture", false) || !f.bool("multi_query", true) {
		g.values["num_key_value_heads"] = f.values["num_kv_heads"]
	} else {
		g.values["num_key_value_heads"] = json.Number("1")
	}
	return g
}

// falconForm returns the block and its norms in their order.
func (d *decoder) falconForm(f *fields) (BlockSpec, []string) {
	block := BlockSpec{
		Parallel: f.bool("parallel_attn", true), AttentionNorm: "input_layernorm", Attention: "self_attention",
		MLPNorm: "input_layernorm", MLP: "mlp",
	}
	grouped := f.bool("new_decoder_architecture", false)
	const count = "num_ln_in_parallel_attn"
	norms := 1
	if grouped {
		norms = 2
	}
	norms = f.count(count, norms, 1, 2)
	switch {
	case !grouped && !f.bool("multi_query", true) && d.kvHeads != d.heads:
		f.fail("num_kv_heads", "%d instead of %d without new_decoder_architecture", d.kvHeads, d.heads)
	case grouped && !block.Parallel:
		f.fail("parallel_attn", "false with new_decoder_architecture is not supported")
	case !block.Parallel:
		block.MLPNorm = "post_attention_layernorm"
		return block, []string{"post_attention_layernorm", "input_layernorm"}
	case norms == 2 && !grouped:
		f.fail(count, "2 without new_decoder_architecture is not supported")
	case norms == 2:
		block.AttentionNorm, block.MLPNorm = "ln_attn", "ln_mlp"
		return block, []string{"ln_attn", "ln_mlp"}
	}
	return block, []string{"input_layernorm"}
}

func (b *Builder) falconLinear(name string, in, out int, bias bool) {
	b.Linear(name, in, out, bias).node.Class = "FalconLinear"
}
