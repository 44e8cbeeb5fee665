package meta

// aria is AriaTextForCausalLM: llama with an MoE in every layer, whose experts are stored
// inputs first, beside shared experts. The routed experts have SiLU regardless of the config.
func aria(f *fields, b *Builder) {
	d := readDecoder(f, "AriaText", decoderDefaults{
		vocab: 32000, hidden: 4096, inner: 4096, layers: 32, heads: 32, context: 2048, eps: 1e-6, act: "silu", rope: ropeDefaults{theta: 10000},
	})
	d.mlpClass = "AriaSharedExpertsMLP"
	bias, mlpBias := f.bool("attention_bias", false), f.bool("mlp_bias", false)
	spec := f.experts("moe_num_experts", 8, "moe_topk", 2)
	shared := d.inner * f.count("moe_num_shared_experts", 2, 1, maxExperts)
	spec.Router, spec.Experts, spec.Shared = "router", "experts", "shared_experts"
	spec.Score, spec.Act, spec.Transposed = ScoreTopKSoftmax, ActSiLU, true
	d.causalLM(f, b, wiring{block: preNorm()}, func(b *Builder, i int) {
		d.attention(b, bias, bias, AttentionSpec{Layer: i})
		m := b.Child("mlp", "AriaTextMoELayer").Runs(KindMoE, spec)
		m.Child("router", "AriaTextTopKRouter").Param("weight", spec.Count, d.hidden)
		e := m.Child("experts", "AriaExperts")
		e.ParamFrom("gate_up_proj", []int{spec.Count, d.hidden, 2 * d.inner},
			[]TensorSource{{Tensor: e.path + ".fc1.weight"}}, []TensorSource{{Tensor: e.path + ".gate_up_proj"}})
		e.ParamFrom("down_proj", []int{spec.Count, d.inner, d.hidden},
			[]TensorSource{{Tensor: e.path + ".fc2.weight"}}, []TensorSource{{Tensor: e.path + ".down_proj"}})
		e.Activation("act_fn", "SiLUActivation", ActSiLU)
		d.gatedMLP(m, "shared_experts", shared, mlpBias)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}
