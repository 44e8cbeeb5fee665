package meta

// nemotron4 is NemotronForCausalLM: llama with layer norms whose weights have an offset of 1,
// rope on a part of each head, and a plain MLP with squared ReLU.
func nemotron4(f *fields, b *Builder) {
	d := readDecoder(f, "Nemotron", decoderDefaults{
		vocab: 256000, hidden: 6144, inner: 24576, layers: 32, heads: 48,
		context: 4096, eps: 1e-5, epsField: "norm_eps", act: "relu2", rope: ropeDefaults{theta: 10000, partial: 0.5, roundUp: true},
	})
	d.layerNorms()
	d.normClass, d.normSpec.Offset = "NemotronLayerNorm1P", 1
	bias, mlpBias := f.bool("attention_bias", false), f.bool("mlp_bias", false)
	d.causalLM(f, b, wiring{block: preNorm()}, func(b *Builder, i int) {
		d.attention(b, bias, bias, AttentionSpec{Layer: i})
		d.plainMLP(b, "up_proj", "down_proj", "act_fn", mlpBias)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}
