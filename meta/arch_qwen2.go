package meta

// qwen2 is Qwen2ForCausalLM: llama with biases on q, k and v, and windows on some
// layers if they are turned on.
func qwen2(f *fields, b *Builder) {
	d := readDecoder(f, "Qwen2", qwenDefaults(0))
	window, sliding := d.qwenWindows(f, 28)
	d.causalLM(f, b, wiring{block: preNorm()}, func(b *Builder, i int) {
		d.attention(b, true, false, AttentionSpec{Layer: i, Window: windowIf(sliding[i], window)})
		d.gatedMLP(b, "mlp", d.inner, false)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}

// qwenDefaults returns the defaults of the dense Qwen configs.
func qwenDefaults(headDim int) decoderDefaults {
	return decoderDefaults{
		vocab: 151936, hidden: 4096, inner: 22016, layers: 32, heads: 32, kvHeads: 32, headDim: headDim,
		context: 32768, eps: 1e-6, act: "silu", rope: ropeDefaults{theta: 10000},
	}
}

// qwenWindows returns the width of windows, and which layers have one. These are the layers in
// layer_types or, without that field, all layers from max_window_layers on (default from). There
// are none unless use_sliding_window is set.
func (d *decoder) qwenWindows(f *fields, from int) (window int, sliding []bool) {
	window = f.window("sliding_window", 4096)
	if !f.bool("use_sliding_window", false) {
		window = 0
	}
	from = f.count("max_window_layers", from, 0, maxSize)
	return window, d.sliding(f, func(i int) bool { return i >= from })
}
