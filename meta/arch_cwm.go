package meta

import "encoding/json"

// cwm is CwmForCausalLM: llama with windows on most layers.
func cwm(f *fields, b *Builder) {
	d := readDecoder(f, "Cwm", decoderDefaults{
		vocab: 128256, hidden: 6144, inner: 21504, layers: 64, heads: 48, kvHeads: 8, headDim: 128,
		context: 131072, eps: 1e-5, act: "silu",
		rope: ropeDefaults{theta: 1e6, scaling: map[string]any{
			"rope_type": "llama3", "rope_theta": json.Number("1000000"), "factor": json.Number("16"), "high_freq_factor": json.Number("4"),
			"low_freq_factor": json.Number("1"), "original_max_position_embeddings": json.Number("8192"),
		}},
	})
	if f.bool("attention_bias", false) {
		f.fail("attention_bias", "true is not supported for this model_type")
	}
	mlpBias := f.bool("mlp_bias", false)
	window := f.window("sliding_window", 8192)
	sliding := d.sliding(f, func(i int) bool { return i%4 != 0 })
	d.causalLM(f, b, wiring{block: preNorm()}, func(b *Builder, i int) {
		d.attention(b, false, false, AttentionSpec{Layer: i, Window: windowIf(sliding[i], window)})
		d.gatedMLP(b, "mlp", d.inner, mlpBias)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}
