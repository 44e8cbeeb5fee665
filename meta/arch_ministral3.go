package meta

import "encoding/json"

// ministral3 is Ministral3ForCausalLM: mistral with queries that are scaled up with their
// position.
func ministral3(f *fields, b *Builder) {
	def := ropeDefaults{theta: 10000, scaling: map[string]any{
		"rope_type": "yarn", "rope_theta": json.Number("1e6"), "factor": json.Number("16"),
		"original_max_position_embeddings": json.Number("16384"), "mscale": json.Number("1"),
		"mscale_all_dim": json.Number("1"), "llama_4_scaling_beta": json.Number("0.1"),
	}}
	d := readDecoder(f, "Ministral3", decoderDefaults{
		vocab: 131072, hidden: 4096, inner: 14336, layers: 34, heads: 32, kvHeads: 8, headDim: 128,
		context: 262144, eps: 1e-5, act: "silu", rope: def,
	})
	window := f.window("sliding_window", 0)
	queries := *d.rope
	if p := f.ropeParameters(def); p != nil {
		queries.Growth = p.required("llama_4_scaling_beta")
		queries.GrowthEvery = p.count("original_max_position_embeddings", 0, 1, maxSize)
	}
	if queries.GrowthEvery == 0 {
		f.fail("rope_parameters", "got no llama_4_scaling_beta and original_max_position_embeddings, which the queries' scale needs")
	}
	d.causalLM(f, b, wiring{block: preNorm()}, func(b *Builder, i int) {
		d.attention(b, false, false, AttentionSpec{Layer: i, Window: window, QueryRope: &queries})
		d.gatedMLP(b, "mlp", d.inner, false)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}
