package meta

import "slices"

// bamba is BambaForCausalLM: each layer has a Mamba2 mixer, or attention with rope on a half of each head,
// before its MLP.
func bamba(f *fields, b *Builder) {
	d := readDecoder(f.without("partial_rotary_factor"), "Bamba", decoderDefaults{
		vocab: 128000, hidden: 4096, inner: 14336, layers: 32, heads: 32, kvHeads: 8,
		context: 262144, eps: 1e-5, act: "silu", rope: ropeDefaults{theta: 10000, partial: 0.5, roundUp: true},
	})
	bias, mlpBias := f.bool("attention_bias", false), f.bool("mlp_bias", false)
	m := &mixer{class: d.class, act: d.act, bias: f.bool("mamba_proj_bias", false), hidden: d.hidden, eps: float64(d.normSpec.Eps),
		normClass: "BambaRMSNormGated"}
	m.readHybrid(f, mixerDefaults{heads: 128, groups: 1, state: 256, inner: f.count("mamba_expand", 2, 1, 1<<10) * d.hidden})
	m.limits(f, "time_step_limit")
	attended := f.tokens("attn_layer_indices")
	for _, i := range attended {
		if i >= d.layers {
			f.fail("attn_layer_indices", "%d is not one of %d layers", i, d.layers)
		}
	}
	block := BlockSpec{AttentionNorm: "input_layernorm", Attention: "mamba", MLPNorm: "pre_ff_layernorm", MLP: "feed_forward"}
	attentions, states := 0, 0
	d.causalLM(f, b, wiring{block: block, finalNorm: "final_layernorm"}, func(b *Builder, i int) {
		d.gatedMLP(b, "feed_forward", d.inner, mlpBias)
		d.norms(b, "input_layernorm", "pre_ff_layernorm")
		if !slices.Contains(attended, i) {
			m.add(b, "mamba", "BambaMixer", states)
			states++
			return
		}
		own := block
		own.Attention = "self_attn"
		b.Runs(KindBlock, &own)
		d.attention(b, bias, bias, AttentionSpec{Layer: attentions})
		attentions++
	})
}
