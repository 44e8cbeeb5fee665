package meta

// mixtral is MixtralForCausalLM: mistral with an MoE in every layer. Files have a tensor
// for each expert under block_sparse_moe.
func mixtral(f *fields, b *Builder) {
	d := readDecoder(f, "Mixtral", decoderDefaults{
		vocab: 32000, hidden: 4096, inner: 14336, layers: 32, heads: 32, kvHeads: 8,
		context: 131072, eps: 1e-5, act: "silu", rope: ropeDefaults{theta: 1e6},
	})
	window := f.window("sliding_window", 0)
	spec := f.experts("num_local_experts", 8, "num_experts_per_tok", 2)
	spec.Router, spec.Experts = "gate", "experts"
	spec.Score, spec.Renormalise = ScoreSoftmax, true
	d.causalLM(f, b, wiring{block: preNorm()}, func(b *Builder, i int) {
		d.attention(b, false, false, AttentionSpec{Layer: i, Window: window})
		d.mixtralExperts(b, *spec)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}

func (d *decoder) mixtralExperts(b *Builder, spec MoESpec) {
	published := Join(b.path, "block_sparse_moe")
	spec.Act = d.act.act
	m := b.Child("mlp", d.class+"SparseMoeBlock").Runs(KindMoE, &spec)
	router := m.Child("gate", d.class+"TopKRouter")
	router.ParamFrom("weight", []int{spec.Count, d.hidden},
		[]TensorSource{{Tensor: published + ".gate.weight"}},
		[]TensorSource{{Tensor: router.path + ".weight"}})
	m.stackedExperts(&spec, expertNames{
		class: d.class + "Experts", gate: "w1", up: "w3", down: "w2",
		each: []string{published + ".experts", m.path + ".experts"},
	}, d.hidden, d.inner, d.act)
}
