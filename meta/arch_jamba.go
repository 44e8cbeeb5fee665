package meta

// jamba is JambaForCausalLM: each layer has a Mamba mixer, or attention without rope, before its
// MLP or MoE layer.
func jamba(f *fields, b *Builder) {
	d := readDecoder(f.without("rope_theta", "rope_scaling", "rope_parameters"), "Jamba", decoderDefaults{
		vocab: 65536, hidden: 4096, inner: 14336, layers: 32, heads: 32, kvHeads: 8,
		context: 262144, eps: 1e-6, act: "silu", rope: ropeDefaults{theta: 10000},
	})
	m := &selective{class: "Jamba", act: d.act, hidden: d.hidden, norm: "JambaRMSNorm", normEps: d.normSpec.Eps}
	m.read(f, selectiveFields{expand: "mamba_expand", state: "mamba_d_state", kernel: "mamba_d_conv", rank: "mamba_dt_rank", bias: "mamba_proj_bias", convBias: "mamba_conv_bias"})
	attended, sparse := f.everyLayer("attn_layer", 8, 4), f.everyLayer("expert_layer", 2, 1)
	f, chosen := f.renamed("num_experts", "num_local_experts"), 2
	if f.count("num_experts", 16, 1, maxExperts) == 1 { // no layer has a router
		f, chosen = f.without("num_experts_per_tok"), 1
	}
	spec := f.experts("num_experts", 16, "num_experts_per_tok", chosen)
	spec.Router, spec.Experts, spec.Act = "router", "experts", d.act.act
	block := BlockSpec{AttentionNorm: "input_layernorm", Attention: "mamba", MLPNorm: "pre_ff_layernorm", MLP: "feed_forward"}
	w := wiring{block: block, finalNorm: "final_layernorm", rotary: func(*Builder) {}, layerClass: func(i int) string {
		if attended(i) {
			return "JambaAttentionDecoderLayer"
		}
		return "JambaMambaDecoderLayer"
	}}
	attentions, states := 0, 0
	d.causalLM(f, b, w, func(b *Builder, i int) {
		if attended(i) {
			own := block
			own.Attention = "self_attn"
			b.Runs(KindBlock, &own)
			d.attention(b, false, false, AttentionSpec{Layer: attentions, Rope: noRope})
			attentions++
		} else {
			m.add(b, "mamba", "JambaMambaMixer", states)
			states++
		}
		if sparse(i) && spec.Count > 1 {
			e := b.Child("feed_forward", "JambaSparseMoeBlock").Runs(KindMoE, spec)
			e.Child("router", "JambaTopKRouter").Param("weight", spec.Count, d.hidden)
			e.stackedExperts(spec, expertNames{
				class: "JambaExperts", gate: "gate_proj", up: "up_proj", down: "down_proj", each: []string{e.path + ".experts"},
			}, d.hidden, d.inner, d.act)
		} else {
			d.gatedMLP(b, "feed_forward", d.inner, false)
		}
		d.norms(b, "input_layernorm", "pre_ff_layernorm")
	})
}

// everyLayer reads which layers are of a kind: every so many, from an offset on.
func (f *fields) everyLayer(name string, every, from int) func(layer int) bool {
	every = f.count(name+"_period", every, 1, maxLayers)
	from = f.count(name+"_offset", from, 0, maxLayers)
	if from >= every {
		f.fail(name+"_offset", "%d, not below the period of %d", from, every)
	}
	return func(layer int) bool { return layer%every == from }
}
