package meta

// phiMoE is PhimoeForCausalLM: mixtral with layer norms, biases, and a router that selects two
// experts one after the other.
func phiMoE(f *fields, b *Builder) {
	d := readDecoder(f, "Phimoe", decoderDefaults{
		vocab: 32064, hidden: 4096, inner: 6400, layers: 32, heads: 32, kvHeads: 8,
		context: 131072, eps: 1e-5, act: "silu", rope: ropeDefaults{theta: 1e6},
	})
	d.layerNorms()
	f.phiMoERope(d.rope)
	bias := f.bool("attention_bias", false)
	window := f.window("sliding_window", 0)
	spec := f.without("num_experts_per_tok").experts("num_local_experts", 16, "num_experts_per_tok", 1)
	if spec.Count < 2 {
		f.fail("num_local_experts", "got %d, want at least 2", spec.Count)
	}
	spec.TopK = 2 // the reference chooses two regardless of the config
	spec.Router, spec.Experts = "router", "experts"
	spec.Score, spec.Act = ScoreSparseMixer, d.act.act
	if spec.Jitter = float32(f.float("router_jitter_noise", 0.01)); spec.Jitter < 0 {
		f.fail("router_jitter_noise", "got %v, want 0 or more", spec.Jitter)
	}
	w := wiring{block: preNorm(), headBias: f.bool("lm_head_bias", false)}
	d.causalLM(f, b, w, func(b *Builder, i int) {
		d.attention(b, bias, bias, AttentionSpec{Layer: i, Window: window})
		m := b.Child("mlp", "PhimoeSparseMoeBlock").Runs(KindMoE, spec)
		published := b.path + ".block_sparse_moe"
		m.Child("router", "PhimoeTopKRouter").Published(published+".gate").Param("weight", spec.Count, d.hidden)
		m.stackedExperts(spec, expertNames{
			class: "PhimoeExperts", gate: "w1", up: "w3", down: "w2",
			each: []string{published + ".experts"},
		}, d.hidden, d.inner, d.act)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}

// phiMoERope completes a scaled rotary embedding. The reference uses the frequencies for short
// sequences at all lengths, and multiplies cos and sin by a factor of the config.
func (f *fields) phiMoERope(r *RopeSpec) {
	p := f.ropeParameters(ropeDefaults{})
	if p == nil || !p.has("rope_type") && !p.has("type") || p.text("rope_type", p.text("type", "")) == "default" {
		return
	}
	r.ShortScale, r.LongScale = p.required("short_mscale"), p.required("long_mscale")
	r.LongFactor = r.ShortFactor
	if r.Type == RopeDynamic {
		r.Type = RopeDefault
	}
}
