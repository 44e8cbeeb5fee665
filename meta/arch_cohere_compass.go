package meta

import "slices"

// cohereCompass is the text model of CohereCompassForConditionalGeneration, and CohereCompassForCausalLM: cohere2 with
// a rope on halves for each type of layers, or none.
func cohereCompass(f *fields, b *Builder) {
	d := readDecoder(f.without("rope_parameters", "rope_scaling", "rope_theta"), "CohereCompass", decoderDefaults{
		vocab: 256000, hidden: 8192, inner: 22528, layers: 40, heads: 64,
		context: 8192, eps: 1e-5, epsField: "layer_norm_eps", act: "silu", tied: true, rope: ropeDefaults{theta: 10000},
	})
	d.normClass, d.normSpec.Layer = "CohereCompassLayerNorm", true
	bias := f.bool("attention_bias", false)
	sliding := d.sliding(f, func(int) bool { return false })
	window := f.slidingWindow(4096, sliding)
	ropes := d.compassRopes(f, sliding)
	w := wiring{
		block: BlockSpec{
			Parallel: true, AttentionNorm: "input_layernorm", Attention: "self_attn",
			MLPNorm: "input_layernorm", MLP: "mlp",
		},
		spec: CausalLMSpec{LogitScale: float32(f.positive("logit_scale", 1))}, wrapped: true,
		modelClass: "CohereCompassTextModel",
		rotary:     func(b *Builder) { b.layerRotary("CohereCompassRotaryEmbedding", sliding, ropes[0], ropes[1]) },
	}
	d.causalLM(f, b, w, func(b *Builder, i int) {
		spec := AttentionSpec{Layer: i, Rope: ropes[0]}
		if sliding[i] {
			spec.Window, spec.Rope = window, ropes[1]
		}
		d.attention(b, bias, bias, spec)
		d.gatedMLP(b, "mlp", d.inner, false)
		d.norms(b, "input_layernorm")
	})
}

// compassRopes returns the ropes of layers with full attention and of those with a window.
// rope_parameters states them by layer type. A type whose rope is null has none.
func (d *decoder) compassRopes(f *fields, sliding []bool) (ropes [2]*RopeSpec) {
	params := f.object("rope_parameters")
	for i, kind := range []string{"full_attention", "sliding_attention"} {
		ropes[i] = noRope
		switch {
		case !slices.Contains(sliding, i == 1):
		case params == nil || !params.null(kind):
			ropes[i] = f.typedRope(params, kind, ropeDefaults{theta: 10000, headDim: d.headDim, context: d.context})
			d.rope = ropes[i]
		}
	}
	return ropes
}
