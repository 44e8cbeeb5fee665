package meta

import "strconv"

// dbrx is DbrxForCausalLM: norms without biases, clamped queries, keys and values from a fused
// projection, and an MoE in every layer. Files store the matrices of all experts in one tensor,
// one after another; those of the down projection are transposed.
func dbrx(f *fields, b *Builder) {
	a, ffn := f.part("attn_config"), f.part("ffn_config")
	g := f.renamed("hidden_size", "d_model").renamed("num_attention_heads", "n_heads").renamed("num_hidden_layers", "n_layers").renamed("max_position_embeddings", "max_seq_len")
	g = g.without("num_key_value_heads")
	if a.has("kv_n_heads") {
		g.values["num_key_value_heads"] = a.values["kv_n_heads"]
	}
	if ffn.has("ffn_hidden_size") {
		g.values["intermediate_size"] = ffn.values["ffn_hidden_size"]
	}
	d := readDecoder(g, "Dbrx", decoderDefaults{
		vocab: 32000, hidden: 2048, inner: 3584, layers: 24, heads: 16, headDimField: derived, context: 2048, act: "silu", eps: 1e-5,
		rope: ropeDefaults{theta: a.positive("rope_theta", 10000)}, kvHeads: 1,
	})
	d.normSpec.Eps = 1e-5
	d.act = activation{ActSiLU, "SiLUActivation"}
	if act := ffn.object("ffn_act_fn"); act != nil {
		d.act = act.activation("name", "silu")
	}
	spec := ffn.dbrxExperts(d)
	attention := AttentionSpec{Fused: "Wqkv", FusedOrder: FusedQKV, Out: "out_proj", Clip: a.clip()}
	if f.bool("tie_word_embeddings", false) {
		f.fail("tie_word_embeddings", "true is not supported, as in transformers")
	}
	if f.err() != nil {
		return
	}
	b.Runs(KindCausalLM, &CausalLMSpec{
		Embed: "transformer.wte", Layers: "transformer.blocks", Norm: "transformer.norm_f", Head: "lm_head",
		Vocab: d.vocab, Hidden: d.hidden, Context: d.rope.contextOf(d.context), Reach: d.rope.reachOf(d.context),
	})
	model := b.Child("transformer", "DbrxModel")
	model.Rotary("DbrxRotaryEmbedding", d.rope)
	embed := model.Embedding("wte", "Embedding", d.vocab, d.hidden)
	layers := model.Child("blocks", "ModuleList")
	block := BlockSpec{AttentionNorm: "norm_attn_norm.norm_1", Attention: "norm_attn_norm.attn", MLPNorm: "norm_attn_norm.norm_2", MLP: "ffn"}
	for i := range d.layers {
		layer := layers.Child(strconv.Itoa(i), "DbrxBlock").Runs(KindBlock, &block)
		around := layer.Child("norm_attn_norm", "DbrxNormAttentionNorm")
		around.LayerNorm("norm_1", d.hidden, 1e-5, false)
		attention.Layer = i
		c := around.Child("attn", "DbrxAttention").Runs(KindAttention, d.attentionSpec(attention))
		c.Linear("Wqkv", d.hidden, (d.heads+2*d.kvHeads)*d.headDim, false)
		c.Linear("out_proj", d.hidden, d.hidden, false)
		around.LayerNorm("norm_2", d.hidden, 1e-5, false)
		d.dbrxMixture(layer, spec)
	}
	model.LayerNorm("norm_f", d.hidden, 1e-5, false)
	b.head(embed, d.hidden, d.vocab, false, "lm_head.weight")
}

// dbrxExperts reads ffn_config.
func (f *fields) dbrxExperts(d *decoder) *MoESpec {
	spec := f.experts("moe_num_experts", 4, "moe_top_k", 1)
	spec.Router, spec.Experts = "router.layer", "experts.mlp"
	spec.Score, spec.Act = ScoreSoftmax, d.act.act
	const power = "moe_normalize_expert_weights"
	if spec.Renormalise = !f.null(power); spec.Renormalise {
		if p := f.positive(power, 1); p != 1 {
			f.fail(power, "%g is not supported (supported: 1, null)", p)
		}
	}
	return spec
}

// dbrxMixture adds an MoE layer. Each expert is a range of rows in each of three tensors.
func (d *decoder) dbrxMixture(b *Builder, spec *MoESpec) {
	m := b.Child("ffn", "DbrxFFN").Runs(KindMoE, spec)
	m.Child("router", "DbrxRouter").Linear("layer", d.hidden, spec.Count, false)
	e := m.Child("experts", "DbrxExperts").Child("mlp", "DbrxExpertGLU")
	rows := func(name string, into RowRange, transposed bool) TensorSource {
		return TensorSource{Tensor: Join(e.path, name), Stack: spec.Count, Each: d.inner, Into: into, Transposed: transposed}
	}
	e.ParamFrom(spec.GateUp, []int{spec.Count, 2 * d.inner, d.hidden}, []TensorSource{
		rows("w1", RowRange{0, d.inner}, false), rows("v1", RowRange{d.inner, 2 * d.inner}, false),
	}, e.eachExpert(spec.Count, d.inner, "gate_proj", "up_proj"), e.eachExpert(spec.Count, 0, "gate_up_proj"))
	e.ParamFrom(spec.Down, []int{spec.Count, d.hidden, d.inner}, []TensorSource{rows("w2", RowRange{}, true)}, e.eachExpert(spec.Count, 0, "down_proj"))
	e.Activation("activation_fn", d.act.class, d.act.act)
}
