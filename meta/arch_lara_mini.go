package meta

import "slices"

// laraMini is LaraMiniForCausalLM (Translated's Lara 4 Mini): delta nets, attention with windows
// and rope, and attention to all tokens without rope, each before an MoE layer with a shared
// expert.
func laraMini(f *fields, b *Builder) {
	d := readDecoder(f, "LaraMini", decoderDefaults{
		vocab: 151936, hidden: 1024, inner: 1, layers: 34, heads: 16, kvHeads: 4, headDim: 128,
		context: 131072, eps: 1e-6, act: "silu", tied: true, rope: ropeDefaults{theta: 10000},
	})
	n := &deltaNets{spec: d.deltaNetSizes(f, 8, 16), published: "in_proj"}
	kinds := d.layerKinds(f, func(i int) string {
		return [...]string{"linear_attention", "sliding_attention", "linear_attention", "full_attention", "sliding_attention"}[i%5]
	}, "linear_attention", "sliding_attention", "full_attention")
	bias, window := f.bool("attention_bias", false), f.size("sliding_window", 512)
	inner, shared := f.size("moe_intermediate_size", 512), f.size("shared_expert_intermediate_size", 512)
	spec := f.experts(f.expertCount(), 128, "num_experts_per_tok", 4)
	spec.Router, spec.Experts, spec.Shared = "gate", "experts", "shared_expert"
	spec.Score, spec.Renormalise = ScoreSoftmax, f.bool("norm_topk_prob", true)
	b.publishes(".linear_attn.norm.", ".linear_attn.out_norm.")
	attentions, states := 0, 0
	d.causalLM(f, b, wiring{block: preNorm()}, func(b *Builder, i int) {
		switch kinds[i] {
		case "linear_attention":
			block := preNorm()
			block.Attention = "linear_attn"
			b.Runs(KindBlock, &block)
			d.deltaNet(b, n, states)
			states++
		case "sliding_attention":
			d.qkNormAttention(b, bias, AttentionSpec{Layer: attentions, Window: window})
			attentions++
		default:
			d.qkNormAttention(b, bias, AttentionSpec{Layer: attentions, Rope: noRope})
			attentions++
		}
		m := d.mixture(b, *spec, inner)
		d.gatedMLP(m, "shared_expert", shared, false)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}

// layerKinds returns the kinds of layers that layer_types names. All of them must be in known.
// Without that field, usual returns them.
func (d *decoder) layerKinds(f *fields, usual func(layer int) string, known ...string) []string {
	kinds := f.texts("layer_types")
	if kinds == nil {
		for i := range d.layers {
			kinds = append(kinds, usual(i))
		}
	}
	if len(kinds) != d.layers {
		f.fail("layer_types", "%d types for %d layers", len(kinds), d.layers)
	}
	for _, kind := range kinds {
		if !slices.Contains(known, kind) {
			f.fail("layer_types", "%.40q is not supported", kind)
		}
	}
	return kinds
}
