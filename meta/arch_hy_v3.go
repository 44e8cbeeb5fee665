package meta

// hyV3 is HYV3ForCausalLM: norms on query and key heads, and after a dense layer MoE layers with
// sigmoid routing and shared experts.
func hyV3(f *fields, b *Builder) {
	d := readDecoder(f, "HYV3", decoderDefaults{
		vocab: 120832, hidden: 4096, inner: 13312, layers: 80, heads: 64, kvHeads: 8, headDim: 128,
		context: 131072, eps: 1e-5, act: "silu", rope: ropeDefaults{theta: 11158840},
	})
	bias, mlpBias := f.bool("attention_bias", false), f.bool("mlp_bias", false)
	inner := f.size("moe_intermediate_size", 1536)
	shared := inner * f.count("num_shared_experts", 1, 1, maxExperts)
	spec := f.experts("num_experts", 192, "num_experts_per_tok", 8)
	spec.Router, spec.Experts, spec.Shared, spec.Correction = "gate", "experts", "shared_experts", "e_score_correction_bias"
	spec.Score, spec.Renormalise, spec.Act = ScoreSigmoid, true, d.act.act
	spec.Scale = float32(f.positive("router_scaling_factor", 2.826))
	sparse := d.sparseByType(f)
	d.causalLM(f, b, wiring{block: preNorm()}, func(b *Builder, i int) {
		d.qkNormAttention(b, bias, AttentionSpec{Layer: i})
		if sparse[i] {
			m := b.Child("mlp", "HYV3MoE").Runs(KindMoE, spec)
			m.Child("gate", "HYV3TopKRouter").Published(m.path+".router.gate").Param("weight", spec.Count, d.hidden)
			m.stackedExperts(spec, expertNames{
				class: "HYV3Experts", gate: "gate_proj", up: "up_proj", down: "down_proj",
				each: []string{m.path + ".experts"},
			}, d.hidden, inner, d.act)
			m.bufferFrom(spec.Correction, b.tree.dtype, true, []int{spec.Count},
				[][]TensorSource{{{Tensor: m.path + ".expert_bias"}}, {{Tensor: m.path + "." + spec.Correction}}})
			d.gatedMLPIn(m.Child("shared_experts", d.mlpClass).Published(m.path+".shared_mlp"), shared, mlpBias)
		} else {
			d.gatedMLP(b, "mlp", d.inner, mlpBias)
		}
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}
