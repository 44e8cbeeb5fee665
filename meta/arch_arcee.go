package meta

// arcee is ArceeForCausalLM: llama with a plain MLP, whose activation is the square of relu.
func arcee(f *fields, b *Builder) {
	d := readDecoder(f, "Arcee", decoderDefaults{
		vocab: 32000, hidden: 2560, inner: 18432, layers: 32, heads: 32,
		context: 4096, eps: 1e-5, act: "relu2", rope: ropeDefaults{theta: 10000},
	})
	bias, mlpBias := f.bool("attention_bias", false), f.bool("mlp_bias", false)
	d.causalLM(f, b, wiring{block: preNorm()}, func(b *Builder, i int) {
		d.attention(b, bias, bias, AttentionSpec{Layer: i})
		d.plainMLP(b, "up_proj", "down_proj", "act_fn", mlpBias)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}
