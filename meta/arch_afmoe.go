package meta

import "math"

// afMoE is AfmoeForCausalLM (Trinity): gated attention with norms of query and key heads, rope
// only in layers with a window, norms before and after attention and MLP, and after dense layers
// MoE layers with sigmoid routing.
func afMoE(f *fields, b *Builder) {
	d := readDecoder(f, "Afmoe", decoderDefaults{
		vocab: 200192, hidden: 2048, inner: 6144, layers: 32, heads: 16, headDim: 128,
		context: 16384, eps: 1e-5, act: "silu", rope: ropeDefaults{theta: 10000},
	})
	bias := f.bool("attention_bias", false)
	window := f.window("sliding_window", 1024)
	every := f.size("global_attn_every_n_layers", 4)
	sliding := d.sliding(f, func(i int) bool { return (i+1)%every != 0 })
	dense := f.count("num_dense_layers", 1, 0, maxLayers)
	m := d.afMixture(f)
	w := wiring{block: BlockSpec{
		AttentionNorm: "input_layernorm", Attention: "self_attn", PostAttentionNorm: "post_attention_layernorm",
		MLPNorm: "pre_mlp_layernorm", MLP: "mlp", PostMLPNorm: "post_mlp_layernorm",
	}}
	if f.bool("mup_enabled", false) {
		w.spec.EmbedScale = float32(math.Sqrt(float64(d.hidden)))
	}
	d.causalLM(f, b, w, func(b *Builder, i int) {
		s := AttentionSpec{Layer: i, QNorm: "q_norm", KNorm: "k_norm", Gate: "gate_proj", Window: windowIf(sliding[i], window)}
		if !sliding[i] {
			s.Rope = noRope
		}
		a := d.attention(b, bias, bias, s)
		d.norm(a, "q_norm", d.headDim)
		d.norm(a, "k_norm", d.headDim)
		a.Linear("gate_proj", d.hidden, d.heads*d.headDim, false)
		d.norms(b, "input_layernorm", "post_attention_layernorm", "pre_mlp_layernorm", "post_mlp_layernorm")
		if i < dense {
			d.gatedMLP(b, "mlp", d.inner, false)
		} else {
			m.add(b)
		}
	})
}

// afMixture is an MoE layer that states the total width of its shared experts.
type afMixture struct {
	*decoder
	spec          *MoESpec
	inner, shared int
}

func (d *decoder) afMixture(f *fields) *afMixture {
	m := &afMixture{decoder: d, spec: f.experts("num_experts", 64, "num_experts_per_tok", 6), inner: f.size("moe_intermediate_size", 1408)}
	m.shared = m.inner * f.count("num_shared_experts", 2, 1, maxExperts)
	s := m.spec
	s.Router, s.Experts, s.Shared, s.Correction = "router.gate", "experts", "shared_experts", "expert_bias"
	s.Score, s.Renormalise, s.Act = ScoreSigmoid, true, d.act.act
	s.Scale = float32(f.positive("route_scale", 1))
	f.only("score_func", "sigmoid")
	if !f.bool("route_norm", true) {
		f.fail("route_norm", "false is not supported")
	}
	for _, name := range []string{"n_group", "topk_group", "num_expert_groups", "num_limited_groups"} {
		if n := f.count(name, 1, 0, maxExperts); n > 1 {
			f.fail(name, "%d is not supported: groups of experts", n)
		}
	}
	return m
}

func (m *afMixture) add(b *Builder) {
	x := b.Child("mlp", "AfmoeSparseMoeBlock").Runs(KindMoE, m.spec)
	x.Param("expert_bias", m.spec.Count)
	x.wide("expert_bias")
	x.Child("router", "AfmoeTokenChoiceRouter").Linear("gate", m.hidden, m.spec.Count, false)
	m.gatedMLP(x, "shared_experts", m.shared, false)
	x.stackedExperts(m.spec, expertNames{
		class: "AfmoeExperts", gate: "gate_proj", up: "up_proj", down: "down_proj",
		each: []string{x.path + ".experts"},
	}, m.hidden, m.inner, m.act)
}
