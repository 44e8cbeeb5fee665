package meta

// llama is LlamaForCausalLM: pre-norm blocks, grouped attention with rope, SwiGLU.
func llama(f *fields, b *Builder) {
	d := readDecoder(f, "Llama", decoderDefaults{
		vocab: 32000, hidden: 4096, inner: 11008, layers: 32, heads: 32, whole: true,
		context: 2048, eps: 1e-6, act: "silu", rope: ropeDefaults{theta: 10000},
	})
	d.llamaLayers(f, b, f.bool("attention_bias", false), f.bool("mlp_bias", false))
}

// llamaLayers builds llama's model.
func (d *decoder) llamaLayers(f *fields, b *Builder, bias, mlpBias bool) {
	d.causalLM(f, b, wiring{block: preNorm()}, func(b *Builder, i int) {
		d.attention(b, bias, bias, AttentionSpec{Layer: i})
		d.gatedMLP(b, "mlp", d.inner, mlpBias)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}
