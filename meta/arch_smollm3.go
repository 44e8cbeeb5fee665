package meta

// smollm3 is SmolLM3ForCausalLM: llama without rope in some layers, by default every fourth.
func smollm3(f *fields, b *Builder) {
	d := readDecoder(f, "SmolLM3", decoderDefaults{
		vocab: 128256, hidden: 2048, inner: 11008, layers: 36, heads: 16, kvHeads: 4,
		context: 32768, eps: 1e-6, act: "silu", tied: true, rope: ropeDefaults{theta: 2e6},
	})
	attentionBias := f.bool("attention_bias", false)
	mlpBias := f.bool("mlp_bias", false)
	window := f.window("sliding_window", 0)
	roped := f.ropedLayers(d.layers)
	slides := f.bool("use_sliding_window", false)
	sliding := d.sliding(f, func(i int) bool { return slides && !roped[i] })
	d.causalLM(f, b, wiring{block: preNorm()}, func(b *Builder, i int) {
		spec := AttentionSpec{Layer: i, Window: windowIf(sliding[i], window)}
		if !roped[i] {
			spec.Rope = noRope
		}
		d.attention(b, attentionBias, attentionBias, spec)
		d.gatedMLP(b, "mlp", d.inner, mlpBias)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}

// ropedLayers returns which layers have a rotary embedding: those with a 1 in no_rope_layers, or
// else all but every no_rope_layer_interval-th.
func (f *fields) ropedLayers(layers int) []bool {
	const name = "no_rope_layers"
	interval := f.size("no_rope_layer_interval", 4)
	roped := make([]bool, layers)
	list := f.list(name)
	if list != nil && len(list) < layers {
		f.fail(name, "%d values for %d layers", len(list), layers)
		return roped
	}
	for i := range roped {
		if list == nil {
			roped[i] = (i+1)%interval != 0
		} else if n, ok := f.integer(name, list[i], 0, 1); ok {
			roped[i] = n == 1
		}
	}
	return roped
}
