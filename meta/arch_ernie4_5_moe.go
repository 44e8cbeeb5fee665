package meta

// ernie45MoE is Ernie4_5_MoeForCausalLM: ernie4_5 with an MoE in some layers, which selects
// experts by softmax plus a correction.
func ernie45MoE(f *fields, b *Builder) {
	d := readDecoder(f, "Ernie4_5_Moe", decoderDefaults{
		vocab: 103424, hidden: 2560, inner: 12288, layers: 28, heads: 20, kvHeads: 4,
		context: 131072, eps: 1e-5, act: "silu", tied: true, rope: ropeDefaults{theta: 500000, interleaved: true},
	})
	bias := f.bool("use_bias", false)
	inner := f.size("moe_intermediate_size", 1536)
	shared := inner * f.count("moe_num_shared_experts", 2, 0, maxExperts)
	spec := f.experts("moe_num_experts", 64, "moe_k", 6)
	spec.Router, spec.Experts, spec.Correction = "gate", "experts", "moe_statics.e_score_correction_bias"
	if shared > 0 {
		spec.Shared = "shared_experts"
	}
	spec.Score, spec.Renormalise, spec.Act = ScoreSoftmax, true, d.act.act
	first, last := f.count("moe_layer_start_index", 1, 0, maxLayers), f.count("moe_layer_end_index", -1, -1, maxLayers)
	if last < 0 {
		last = d.layers - 1
	}
	interval := f.size("moe_layer_interval", 1)
	d.causalLM(f, b, wiring{block: preNorm(), headBias: bias}, func(b *Builder, i int) {
		d.attention(b, bias, bias, AttentionSpec{Layer: i})
		if (i+1)%interval != 0 || i < first || i > last {
			d.gatedMLP(b, "mlp", d.inner, bias)
		} else {
			m := b.Child("mlp", "Ernie4_5_MoeSparseMoeBlock").Runs(KindMoE, spec)
			gate := m.Child("gate", "Ernie4_5_MoeTopKRouter")
			gate.paramOf(Float32, "weight", spec.Count, d.hidden)
			gate.Child("moe_statics", "Ernie4_5_MoeStatics").Published(m.path+".moe_statics").
				paramOf(Float32, "e_score_correction_bias", 1, spec.Count)
			m.stackedExperts(spec, expertNames{
				class: "Ernie4_5_MoeExperts", gate: "gate_proj", up: "up_proj", down: "down_proj",
				each: []string{m.path + ".experts"},
			}, d.hidden, inner, d.act)
			if shared > 0 {
				d.gatedMLP(m, "shared_experts", shared, bias)
			}
		}
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}

// paramOf is Param for a parameter with its own dtype, which a header overrides.
func (b *Builder) paramOf(dtype DType, name string, shape ...int) {
	weights := b.tree.dtype
	b.tree.dtype = dtype
	b.Param(name, shape...)
	b.tree.dtype = weights
}
