package meta

// jetMoE is JetMoeForCausalLM: an MoE of attention heads, whose experts have query and output
// projections, and an MoE of MLPs. Keys and values are not routed.
func jetMoE(f *fields, b *Builder) {
	spec := f.experts("num_local_experts", 8, "num_experts_per_tok", 2)
	kvHeads := f.count("num_key_value_heads", 16, 1, maxHeads/spec.TopK)
	d := readDecoder(f.without("num_attention_heads"), "JetMoe", decoderDefaults{
		vocab: 32000, hidden: 2048, inner: 5632, layers: 12, heads: kvHeads * spec.TopK, kvHeads: kvHeads, headDim: 128, headDimField: "kv_channels",
		context: 4096, eps: 1e-6, act: "silu", actField: "activation_function", tied: true, rope: ropeDefaults{theta: 10000},
	})
	spec.Router, spec.Experts, spec.DownExperts, spec.GateUp, spec.Down, spec.SumBias = "router.layer", "input_linear", "output_linear", "weight", "weight", "bias"
	spec.Score = ScoreTopKSoftmax
	heads, mlp := *spec, *spec
	heads.Plain, mlp.Act = true, d.act.act
	within := *d
	within.normSpec.Eps = 1e-6 // regardless of the config, as in transformers
	w := wiring{block: BlockSpec{AttentionNorm: "input_layernorm", Attention: "self_attention", MLPNorm: "post_attention_layernorm", MLP: "mlp"}}
	d.causalLM(f, b, w, func(b *Builder, i int) {
		m := b.Child("mlp", "JetMoeMoE")
		m.Activation("activation", d.act.class, d.act.act)
		d.jetMixture(m, &mlp, 2*d.inner, d.inner)
		within.norms(b, "input_layernorm", "post_attention_layernorm")
		a := b.Child("self_attention", "JetMoeAttention").Runs(KindAttention, d.attentionSpec(AttentionSpec{Layer: i, Mixture: &HeadMixtureSpec{Experts: "experts", KV: "kv_proj"}}))
		width := d.kvHeads * d.headDim
		d.jetMixture(a.Child("experts", "JetMoeMoA"), &heads, width, width)
		a.Linear("kv_proj", d.hidden, 2*width, false)
	})
}

// jetMixture adds to m, the scope of an MoE layer, experts with two projections: to up channels,
// and back from down.
func (d *decoder) jetMixture(m *Builder, spec *MoESpec, up, down int) {
	m.Runs(KindMoE, spec)
	m.Param("bias", d.hidden)
	m.Child("input_linear", "JetMoeParallelExperts").Param("weight", spec.Count, up, d.hidden)
	m.Child("output_linear", "JetMoeParallelExperts").Param("weight", spec.Count, d.hidden, down)
	m.Child("router", "JetMoeTopKGating").Linear("layer", d.hidden, spec.Count, false)
}
