package meta

// glm4 is Glm4ForCausalLM: norms before and after attention and MLP, fused gates, and rope on
// adjacent pairs of a part of each head.
func glm4(f *fields, b *Builder) {
	d := readDecoder(f, "Glm4", decoderDefaults{
		vocab: 151552, hidden: 4096, inner: 13696, layers: 40, heads: 32, kvHeads: 2, headDim: 128,
		context: 131072, eps: 0.00000015625, act: "silu",
		rope: ropeDefaults{theta: 10000, partial: 0.5, interleaved: true, roundUp: true},
	})
	d.glm4(f, b, f.bool("attention_bias", true))
}

// glm4V is the text model of Glm4vForConditionalGeneration: glm4 whose rope has no default for
// the rotated part of a head.
func glm4V(f *fields, b *Builder) {
	d := readDecoder(f, "Glm4vText", decoderDefaults{
		vocab: 151552, hidden: 4096, inner: 13696, layers: 40, heads: 32, kvHeads: 2, headDimField: derived,
		context: 32768, eps: 1e-5, act: "silu", rope: ropeDefaults{theta: 10000, partial: 1, interleaved: true, roundUp: true},
	})
	d.normClass = "Glm4vRMSNorm"
	d.glm4(f, b, true)
}

// glmOCR is the text model of GlmOcrForConditionalGeneration: glm4V without biases.
func glmOCR(f *fields, b *Builder) {
	d := readDecoder(f, "GlmOcrText", decoderDefaults{
		vocab: 59392, hidden: 1024, inner: 4096, layers: 16, heads: 16, kvHeads: 8,
		context: 131072, eps: 1e-5, act: "silu", rope: ropeDefaults{theta: 10000, partial: 1, interleaved: true, roundUp: true},
	})
	d.normClass = "GlmOcrRMSNorm"
	d.glm4(f, b, false)
}

// glm4 builds glm4's model.
func (d *decoder) glm4(f *fields, b *Builder, bias bool) {
	block := BlockSpec{
		AttentionNorm: "input_layernorm", Attention: "self_attn", PostAttentionNorm: "post_self_attn_layernorm",
		MLPNorm: "post_attention_layernorm", MLP: "mlp", PostMLPNorm: "post_mlp_layernorm",
	}
	d.causalLM(f, b, wiring{block: block}, func(b *Builder, i int) {
		d.attention(b, bias, false, AttentionSpec{Layer: i})
		d.fusedMLP(b)
		d.norms(b, "input_layernorm", "post_attention_layernorm", "post_self_attn_layernorm", "post_mlp_layernorm")
	})
}

// glm is GlmForCausalLM: glm4 with norms only before attention and MLP.
func glm(f *fields, b *Builder) {
	d := readDecoder(f, "Glm", decoderDefaults{
		vocab: 151552, hidden: 4096, inner: 13696, layers: 40, heads: 32, kvHeads: 2, headDim: 128,
		context: 131072, eps: 0.00000015625, act: "silu",
		rope: ropeDefaults{theta: 10000, partial: 0.5, interleaved: true, roundUp: true},
	})
	bias := f.bool("attention_bias", true)
	d.causalLM(f, b, wiring{block: preNorm()}, func(b *Builder, i int) {
		d.attention(b, bias, false, AttentionSpec{Layer: i})
		d.fusedMLP(b)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}
