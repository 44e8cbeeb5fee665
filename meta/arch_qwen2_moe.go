package meta

// qwen2MoE is Qwen2MoeForCausalLM: qwen2 with an MoE layer and a gated shared expert in every
// layer, or in some.
func qwen2MoE(f *fields, b *Builder) {
	d := readDecoder(f, "Qwen2Moe", decoderDefaults{
		vocab: 151936, hidden: 2048, inner: 5632, layers: 24, heads: 16, kvHeads: 16,
		context: 32768, eps: 1e-6, act: "silu", rope: ropeDefaults{theta: 10000},
	})
	bias := f.bool("qkv_bias", true)
	window, slides := 0, f.bool("use_sliding_window", false)
	if slides { // files saved by the reference have a width of 0 otherwise
		window = f.window("sliding_window", 4096)
	}
	below := f.count("max_window_layers", 28, 0, maxSize)
	sliding := d.sliding(f, func(i int) bool { return slides && i%2 == 0 && i < below })
	inner, shared := f.size("moe_intermediate_size", 1408), f.size("shared_expert_intermediate_size", 5632)
	spec, dense := f.sparseLayers(60, 4)
	spec.Shared, spec.SharedGate, spec.Act = "shared_expert", "shared_expert_gate", d.act.act
	d.causalLM(f, b, wiring{block: preNorm()}, func(b *Builder, i int) {
		d.attention(b, bias, false, AttentionSpec{Layer: i, Window: windowIf(sliding[i], window)})
		if dense(i) {
			d.gatedMLP(b, "mlp", d.inner, false)
		} else {
			m := d.routedMixture(b, spec, inner)
			d.gatedMLP(m, "shared_expert", shared, false)
			m.Linear("shared_expert_gate", d.hidden, 1, false)
		}
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}

// olmoe is OlmoeForCausalLM: llama with norms over all query and all key channels, and an MoE
// layer in every layer.
func olmoe(f *fields, b *Builder) {
	d := readDecoder(f, "Olmoe", decoderDefaults{
		vocab: 50304, hidden: 2048, inner: 2048, layers: 16, heads: 16,
		context: 4096, eps: 1e-5, act: "silu", rope: ropeDefaults{theta: 10000},
	})
	bias := f.bool("attention_bias", false)
	clip := f.clip()
	spec, _ := f.sparseLayers(64, 8)
	spec.Act = d.act.act
	d.causalLM(f, b, wiring{block: preNorm()}, func(b *Builder, i int) {
		a := d.attention(b, bias, bias, AttentionSpec{Layer: i, QNorm: "q_norm", KNorm: "k_norm", Clip: clip})
		d.norm(a, "q_norm", d.heads*d.headDim)
		d.norm(a, "k_norm", d.kvHeads*d.headDim)
		d.routedMixture(b, spec, d.inner)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}

// routedMixture is MoE layer with the router before the experts.
func (d *decoder) routedMixture(b *Builder, spec *MoESpec, inner int) *Builder {
	m := b.Child("mlp", d.class+"SparseMoeBlock").Runs(KindMoE, spec)
	m.Child("gate", d.class+"TopKRouter").Param("weight", spec.Count, d.hidden)
	m.stackedExperts(spec, expertNames{
		class: d.class + "Experts", gate: "gate_proj", up: "up_proj", down: "down_proj",
		each: []string{m.path + ".experts"},
	}, d.hidden, inner, d.act)
	return m
}
