package meta

import "slices"

// qwen3MoE is Qwen3MoeForCausalLM: qwen3 with an MoE in every layer, or in some.
func qwen3MoE(f *fields, b *Builder) {
	d := readDecoder(f, "Qwen3Moe", decoderDefaults{
		vocab: 151936, hidden: 2048, inner: 6144, layers: 24, heads: 32, kvHeads: 4,
		context: 32768, eps: 1e-6, act: "silu", rope: ropeDefaults{theta: 10000},
	})
	bias := f.bool("attention_bias", false)
	window := f.window("sliding_window", 4096)
	if !f.bool("use_sliding_window", false) {
		window = 0
	}
	inner := f.size("moe_intermediate_size", 768)
	spec, dense := f.sparseLayers(128, 8)
	d.causalLM(f, b, wiring{block: preNorm()}, func(b *Builder, i int) {
		d.qkNormAttention(b, bias, AttentionSpec{Layer: i, Window: window})
		if dense(i) {
			d.gatedMLP(b, "mlp", d.inner, false)
		} else {
			d.mixture(b, *spec, inner)
		}
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}

// sparseLayers reads the MoE layer. The returned function reports which layers have a plain MLP
// instead.
func (f *fields) sparseLayers(defCount, defTopK int) (*MoESpec, func(layer int) bool) {
	count := f.expertCount()
	if f.count(count, defCount, 0, maxExperts) == 0 {
		return &MoESpec{}, func(int) bool { return true }
	}
	spec := f.experts(count, defCount, "num_experts_per_tok", defTopK)
	spec.Router, spec.Experts = "gate", "experts"
	spec.Score, spec.Renormalise = ScoreSoftmax, f.bool("norm_topk_prob", false)
	step := f.size("decoder_sparse_step", 1)
	only := f.tokens("mlp_only_layers")
	return spec, func(i int) bool { return slices.Contains(only, i) || (i+1)%step != 0 }
}

// expertCount returns the name of the field with the number of experts. transformers saves it
// under another name than published files have.
func (f *fields) expertCount() string {
	if !f.has("num_experts") && f.has("num_local_experts") {
		return "num_local_experts"
	}
	return "num_experts"
}

// mixture adds an MoE layer whose files have a tensor for each expert under the module's own
// names, as Qwen and DeepSeek publish them.
func (d *decoder) mixture(b *Builder, spec MoESpec, inner int) *Builder {
	m, _ := d.mixtureAndRouter(b, spec, inner)
	return m
}

// mixtureAndRouter is MoE layer that returns the scope of the router too.
func (d *decoder) mixtureAndRouter(b *Builder, spec MoESpec, inner int) (mixture, router *Builder) {
	spec.Act = d.act.act
	m := b.Child("mlp", d.class+"SparseMoeBlock").Runs(KindMoE, &spec)
	m.stackedExperts(&spec, expertNames{
		class: d.class + "Experts", gate: "gate_proj", up: "up_proj", down: "down_proj",
		each: []string{m.path + ".experts"},
	}, d.hidden, inner, d.act)
	router = m.Child("gate", d.class+"TopKRouter")
	router.Param("weight", spec.Count, d.hidden)
	return m, router
}
