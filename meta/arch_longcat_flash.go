package meta

import "math"

// longcatFlash is LongcatFlashForCausalLM: each layer has latent attention and an MLP twice. An
// MoE layer has the first MLP's input, and its result is added after the second. Some experts
// have no weights and return their input.
func longcatFlash(f *fields, b *Builder) {
	f = f.without("num_hidden_layers", "rope_interleave", "intermediate_size", "moe_intermediate_size").renamed("num_hidden_layers", "num_layers").
		renamed("intermediate_size", "ffn_hidden_size")
	d := readDeepseek(f, "LongcatFlash", decoderDefaults{
		vocab: 131072, hidden: 6144, inner: 12288, layers: 28, heads: 64, context: 131072, eps: 1e-5, rope: ropeDefaults{theta: 1e7},
	}, latentDefaults{qRank: 1536, kvRank: 512, nope: 128, value: 128})
	if f.null("q_lora_rank") {
		f.fail("q_lora_rank", "null is not supported")
	}
	if n := f.count("head_dim", d.headDim, 1, maxHeads); n != d.headDim { // the reference computes the rope's frequencies for it
		f.fail("head_dim", "%d, want qk_rope_head_dim, %d", n, d.headDim)
	}
	f.only("zero_expert_type", "identity")
	if f.bool("router_bias", false) {
		f.fail("router_bias", "true is not supported")
	}
	inner := f.size("expert_ffn_hidden_size", 2048)
	identity := f.count("zero_expert_num", 256, 0, maxExperts)
	spec := &MoESpec{
		Count: f.count("n_routed_experts", 512, 1, maxExperts), TopK: f.count("moe_topk", 12, 1, maxExperts), Identity: identity, GateUp: "gate_up_proj", Down: "down_proj",
		Router: "router.classifier", Correction: "e_score_correction_bias", Experts: "experts", Score: ScoreSoftmax, Act: d.act.act,
		Scale: float32(f.positive("routed_scaling_factor", 6)),
	}
	if spec.TopK > spec.Count+identity {
		f.fail("moe_topk", "%d of %d experts", spec.TopK, spec.Count+identity)
	}
	block := BlockSpec{
		AttentionNorm: "input_layernorm.0", Attention: "self_attn.0", MLPNorm: "post_attention_layernorm.0", MLP: "mlps.0", Shortcut: "mlp",
		Second: &BlockSpec{AttentionNorm: "input_layernorm.1", Attention: "self_attn.1", MLPNorm: "post_attention_layernorm.1", MLP: "mlps.1"},
	}
	d.causalLM(f, b, wiring{block: block}, func(b *Builder, i int) {
		m := b.Child("mlp", "LongcatFlashMoE").Runs(KindMoE, spec)
		m.stackedExperts(spec, expertNames{
			class: "LongcatFlashExperts", gate: "gate_proj", up: "up_proj", down: "down_proj", each: []string{m.path + ".experts"},
		}, d.hidden, inner, d.act)
		experts := m.node.Find("experts")
		experts.Children = append(experts.Children, &Module{Name: "identity_expert", Class: "Identity"})
		router := m.Child("router", "LongcatFlashTopkRouter")
		router.Buffer(spec.Correction, b.tree.dtype, true, spec.Count+identity)
		router.Linear("classifier", d.hidden, spec.Count+identity, false)
		d.longcatPairs(b, i)
	})
	b.Ignore("model.mtp.**")
}

// longcatPairs adds both pairs of attention and MLP, with their norms. The compressed queries and
// keys are scaled by the square root of the ratio of the hidden size to their ranks.
func (d *deepseek) longcatPairs(b *Builder, i int) {
	missing := func(rank int) float64 { return math.Sqrt(float64(d.hidden) / float64(rank)) }
	each := func(name string, add func(list *Builder, name string)) {
		list := b.Child(name, "ModuleList")
		add(list, "0")
		add(list, "1")
	}
	layer := 2 * i
	each("self_attn", func(list *Builder, name string) {
		_, mla := d.latentAttentionIn(list.Child(name, "LongcatFlashMLA"), layer)
		mla.KVScale, mla.QueryScale = float32(missing(d.kvRank)), float32(missing(d.qRank))
		layer++
	})
	each("mlps", func(list *Builder, name string) { d.gatedMLP(list, name, d.inner, false) })
	for _, norm := range []string{"input_layernorm", "post_attention_layernorm"} {
		each(norm, func(list *Builder, name string) { d.norm(list, name, d.hidden) })
	}
}
