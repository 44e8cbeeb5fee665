package meta

// starcoder2 is Starcoder2ForCausalLM: llama with layer norms, a plain MLP and biases
// everywhere.
func starcoder2(f *fields, b *Builder) {
	d := readDecoder(f, "Starcoder2", decoderDefaults{
		vocab: 49152, hidden: 3072, inner: 12288, layers: 30, heads: 24, kvHeads: 2,
		context: 4096, eps: 1e-5, epsField: "norm_epsilon", act: "gelu_pytorch_tanh", tied: true,
		rope: ropeDefaults{theta: 10000},
	})
	d.layerNorms()
	bias := f.bool("use_bias", true)
	window := f.window("sliding_window", 0)
	d.causalLM(f, b, wiring{block: preNorm()}, func(b *Builder, i int) {
		d.attention(b, bias, bias, AttentionSpec{Layer: i, Window: window})
		d.plainMLP(b, "c_fc", "c_proj", "act", bias)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}
