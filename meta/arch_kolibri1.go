package meta

// kolibri1 is Kolibri1ForCausalLM: norms before and after attention and MLP, norms on query and
// key heads, rope only in layers with a window, and in every layer an MoE with a shared expert,
// whose router adds a correction to the logits.
func kolibri1(f *fields, b *Builder) {
	d := readDecoder(f, "Kolibri1", decoderDefaults{
		vocab: 128000, hidden: 2560, inner: 1, layers: 50, heads: 48, kvHeads: 4, headDim: 128,
		context: 262144, eps: 1e-6, act: "silu", rope: ropeDefaults{theta: 10000},
	})
	sliding := d.sliding(f, func(i int) bool { return (i+1)%5 != 0 })
	window := f.slidingWindow(513, sliding)
	inner, shared := f.size("moe_intermediate_size", 512), f.size("shared_expert_intermediate_size", 512)
	spec := f.experts(f.expertCount(), 384, "num_experts_per_tok", 6)
	spec.Router, spec.Experts, spec.Shared, spec.Correction = "gate", "experts", "shared_experts", "e_score_correction_bias"
	spec.Score, spec.Renormalise = ScoreTopKSigmoid, f.bool("norm_topk_prob", false)
	b.publishes(
		".mlp.gate.e_score_correction_bias", ".moe.router.expert_bias",
		".post_self_attn_layernorm.", ".post_attn_norm.", ".post_mlp_layernorm.", ".post_ffn_norm.",
	)
	block := BlockSpec{
		AttentionNorm: "input_layernorm", Attention: "self_attn", PostAttentionNorm: "post_self_attn_layernorm",
		MLPNorm: "post_attention_layernorm", MLP: "mlp", PostMLPNorm: "post_mlp_layernorm",
	}
	d.causalLM(f, b, wiring{block: block}, func(b *Builder, i int) {
		d.qkNormAttention(b, false, exaoneAttention(i, window, sliding))
		m, router := d.mixtureAndRouter(b, *spec, inner)
		router.Buffer(spec.Correction, Float32, true, spec.Count)
		d.gatedMLP(m, "shared_experts", shared, false)
		d.norms(b, "input_layernorm", "post_attention_layernorm", "post_self_attn_layernorm", "post_mlp_layernorm")
	})
}
