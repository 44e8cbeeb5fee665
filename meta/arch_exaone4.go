package meta

// exaone4 is Exaone4ForCausalLM: norms after attention and MLP, and norms on query and key heads.
// If some layers have a window, only those have rope.
func exaone4(f *fields, b *Builder) {
	d := readDecoder(f, "Exaone4", decoderDefaults{
		vocab: 102400, hidden: 4096, inner: 16384, layers: 32, heads: 32, kvHeads: 32,
		context: 2048, eps: 1e-5, act: "silu", rope: ropeDefaults{theta: 10000},
	})
	window, sliding := d.exaoneWindows(f)
	d.causalLM(f, b, wiring{block: postNorm()}, func(b *Builder, i int) {
		d.qkNormAttention(b, false, exaoneAttention(i, window, sliding))
		d.gatedMLP(b, "mlp", d.inner, false)
		d.norms(b, "post_attention_layernorm", "post_feedforward_layernorm")
	})
}

// exaoneWindows returns the width of windows, 0 for none, and which layers have one.
func (d *decoder) exaoneWindows(f *fields) (int, []bool) {
	window, pattern := f.window("sliding_window", 4096), 0
	if window > 0 && !f.has("layer_types") {
		pattern = f.size("sliding_window_pattern", 4)
	}
	return window, d.sliding(f, func(i int) bool { return pattern > 0 && (i+1)%pattern != 0 })
}

// exaoneAttention returns attention with rope in layers with a window, or in all layers of a
// model without windows.
func exaoneAttention(layer, window int, sliding []bool) AttentionSpec {
	spec := AttentionSpec{Layer: layer, Window: windowIf(sliding[layer], window)}
	if window > 0 && !sliding[layer] {
		spec.Rope = noRope
	}
	return spec
}
