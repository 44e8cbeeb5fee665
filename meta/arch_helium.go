package meta

// helium is HeliumForCausalLM: llama with rope on adjacent dimensions.
func helium(f *fields, b *Builder) {
	d := readDecoder(f, "Helium", decoderDefaults{
		vocab: 48000, hidden: 2560, inner: 7040, layers: 24, heads: 20, kvHeads: 20, headDim: 128,
		context: 4096, eps: 1e-8, act: "silu", rope: ropeDefaults{theta: 100000, interleaved: true},
	})
	if d.headDim*d.heads != d.hidden {
		f.fail("head_dim", "%d heads of %d are not the hidden size of %d", d.heads, d.headDim, d.hidden)
	}
	bias, mlpBias := f.bool("attention_bias", false), f.bool("mlp_bias", false)
	d.causalLM(f, b, wiring{block: preNorm()}, func(b *Builder, i int) {
		d.attention(b, bias, false, AttentionSpec{Layer: i})
		d.gatedMLP(b, "mlp", d.inner, mlpBias)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}
