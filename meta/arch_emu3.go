package meta

// emu3 is the text model of Emu3ForConditionalGeneration: llama's, with a dropout in each block.
func emu3(f *fields, b *Builder) {
	d := readDecoder(f, "Emu3", decoderDefaults{
		vocab: 184622, hidden: 4096, inner: 14336, layers: 32, heads: 32, kvHeads: 8,
		context: 9216, eps: 1e-5, act: "silu", rope: ropeDefaults{theta: 1000000},
	})
	bias, mlpBias := f.bool("attention_bias", false), f.bool("mlp_bias", false)
	d.causalLM(f, b, wiring{block: preNorm(), modelClass: "Emu3TextModel"}, func(b *Builder, i int) {
		d.attention(b, bias, bias, AttentionSpec{Layer: i})
		d.gatedMLP(b, "mlp", d.inner, mlpBias)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
		b.Dropout("dropout")
	})
}
