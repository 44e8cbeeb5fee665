package meta

// jais2 is Jais2ForCausalLM: llama with layer norms, biases, and a plain MLP, whose activation is the square
// of relu.
func jais2(f *fields, b *Builder) {
	d := readDecoder(f, "Jais2", decoderDefaults{
		vocab: 150272, hidden: 3328, inner: 26624, layers: 32, heads: 26,
		context: 8192, eps: 1e-5, epsField: "layer_norm_eps", act: "relu2", rope: ropeDefaults{theta: 10000},
	})
	d.layerNorms()
	bias, mlpBias := f.bool("attention_bias", true), f.bool("mlp_bias", true)
	d.causalLM(f, b, wiring{block: preNorm()}, func(b *Builder, i int) {
		d.attention(b, bias, bias, AttentionSpec{Layer: i})
		d.plainMLP(b, "up_proj", "down_proj", "act_fn", mlpBias)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}
