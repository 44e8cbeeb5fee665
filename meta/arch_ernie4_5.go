package meta

// ernie45 is Ernie4_5ForCausalLM: llama with rope on adjacent pairs, and biases on request.
func ernie45(f *fields, b *Builder) {
	d := readDecoder(f, "Ernie4_5", decoderDefaults{
		vocab: 103424, hidden: 1024, inner: 3072, layers: 18, heads: 16, kvHeads: 2, headDim: 128,
		context: 131072, eps: 1e-5, act: "silu", tied: true, rope: ropeDefaults{theta: 500000, interleaved: true},
	})
	bias := f.bool("use_bias", false)
	d.causalLM(f, b, wiring{block: preNorm()}, func(b *Builder, i int) {
		d.attention(b, bias, bias, AttentionSpec{Layer: i})
		d.gatedMLP(b, "mlp", d.inner, bias)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}
