package meta

import "encoding/json"

// flint is FlintForCausalLM: norms on query and key heads, sinks in attention, rope only in
// layers with a window, and MoE layers with sigmoid routing and a shared expert.
func flint(f *fields, b *Builder) {
	d := readDecoder(f, "Flint", decoderDefaults{
		vocab: 150144, hidden: 2048, inner: 6144, layers: 49, heads: 32, kvHeads: 4, headDim: 128,
		context: 262144, eps: 1e-6, act: "silu", rope: ropeDefaults{theta: 10000},
	})
	bias := f.bool("attention_bias", false)
	sliding := d.sliding(f, func(i int) bool { return i >= 2 && i%4 != 1 && i != d.layers-1 })
	window := f.slidingWindow(513, sliding)
	inner, shared := f.size("moe_intermediate_size", 512), f.size("shared_expert_intermediate_size", 1024)
	g := f.without()
	if f.null("mlp_only_layers") || !f.has("mlp_only_layers") {
		g.values["mlp_only_layers"] = []any{json.Number("0"), json.Number("1")}
	}
	spec, dense := g.sparseLayers(256, 6)
	spec.Score, spec.Renormalise, spec.Shared = ScoreSigmoid, f.bool("norm_topk_prob", true), "shared_expert"
	d.causalLM(f, b, wiring{block: preNorm()}, func(b *Builder, i int) {
		s := AttentionSpec{Layer: i, QNorm: "q_norm", KNorm: "k_norm", Sinks: "sinks", Window: windowIf(sliding[i], window)}
		if !sliding[i] {
			s.Rope = noRope
		}
		d.flintAttention(b, bias, s)
		if dense(i) {
			d.gatedMLP(b, "mlp", d.inner, false)
		} else {
			m, router := d.mixtureAndRouter(b, *spec, inner)
			router.wide("weight")
			d.gatedMLP(m, "shared_expert", shared, false)
		}
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}

// flintAttention adds attention with sinks. Published files call them softmax_offset.
func (d *decoder) flintAttention(b *Builder, bias bool, s AttentionSpec) {
	a := d.attention(b, bias, bias, s)
	a.ParamFrom("sinks", []int{d.heads}, []TensorSource{{Tensor: a.path + ".softmax_offset"}}, []TensorSource{{Tensor: a.path + ".sinks"}})
	a.wide("sinks")
	d.norm(a, "q_norm", d.headDim)
	d.norm(a, "k_norm", d.headDim)
}
