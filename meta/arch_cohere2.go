package meta

// cohere2 is Cohere2ForCausalLM: cohere with windows on most layers, and rope only on those.
func cohere2(f *fields, b *Builder) {
	d := readDecoder(f, "Cohere2", decoderDefaults{
		vocab: 256000, hidden: 8192, inner: 22528, layers: 40, heads: 64,
		context: 8192, eps: 1e-5, epsField: "layer_norm_eps", act: "silu", tied: true,
		rope: ropeDefaults{theta: 10000, interleaved: true},
	})
	d.normClass, d.normSpec.Layer = "Cohere2LayerNorm", true
	bias := f.bool("attention_bias", false)
	window := f.window("sliding_window", 4096)
	pattern := f.size("sliding_window_pattern", 4)
	sliding := d.sliding(f, func(i int) bool { return (i+1)%pattern != 0 })
	w := wiring{
		block: BlockSpec{
			Parallel: true, AttentionNorm: "input_layernorm", Attention: "self_attn",
			MLPNorm: "input_layernorm", MLP: "mlp",
		},
		spec: CausalLMSpec{LogitScale: float32(f.positive("logit_scale", 0.0625))},
	}
	d.causalLM(f, b, w, func(b *Builder, i int) {
		spec := AttentionSpec{Layer: i, Window: windowIf(sliding[i], window)}
		if spec.Window == 0 {
			spec.Rope = noRope
		}
		d.attention(b, bias, bias, spec)
		d.gatedMLP(b, "mlp", d.inner, false)
		d.norms(b, "input_layernorm")
	})
}
