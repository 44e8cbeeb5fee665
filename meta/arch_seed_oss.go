package meta

// seedOSS is SeedOssForCausalLM: llama with biases on q, k and v and a head size of its own.
func seedOSS(f *fields, b *Builder) {
	d := readDecoder(f, "SeedOss", decoderDefaults{
		vocab: 155136, hidden: 4096, inner: 27648, layers: 64, heads: 80, kvHeads: 8, headDim: 128,
		context: 524288, eps: 1e-6, act: "silu", rope: ropeDefaults{theta: 10000},
	})
	bias, outBias := f.bool("attention_bias", true), f.bool("attention_out_bias", false)
	mlpBias := f.bool("mlp_bias", false)
	d.causalLM(f, b, wiring{block: preNorm()}, func(b *Builder, i int) {
		d.attention(b, bias, outBias, AttentionSpec{Layer: i})
		d.gatedMLP(b, "mlp", d.inner, mlpBias)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}
