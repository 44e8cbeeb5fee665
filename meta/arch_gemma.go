package meta

import "math"

// gemma1 is GemmaForCausalLM: llama with scaled embeddings and norms whose weights have an offset
// of 1.
func gemma1(f *fields, b *Builder) {
	d := readDecoder(f, "Gemma", decoderDefaults{
		vocab: 256000, hidden: 3072, inner: 24576, layers: 28, heads: 16, kvHeads: 16, headDim: 256,
		context: 8192, eps: 1e-6, act: "gelu_pytorch_tanh", tied: true, rope: ropeDefaults{theta: 10000},
	})
	if d.act.class == "GELUActivation" && f.text("hidden_act", "") == "gelu" {
		d.act = activation{ActGELUTanh, "GELUTanh"} // the first files say gelu and mean this
	}
	d.normSpec.Offset = 1
	bias := f.bool("attention_bias", false)
	f.causalOnly()
	w := wiring{
		block:      preNorm(),
		spec:       CausalLMSpec{EmbedScale: float32(math.Sqrt(float64(d.hidden)))},
		embedClass: "GemmaTextScaledWordEmbedding",
		embed:      func(b *Builder) { b.Buffer("embed_scale", b.tree.dtype, false) },
	}
	d.causalLM(f, b, w, func(b *Builder, i int) {
		d.attention(b, bias, bias, AttentionSpec{Layer: i})
		d.gatedMLP(b, "mlp", d.inner, false)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}

// causalOnly rejects models that attend to later tokens.
func (f *fields) causalOnly() {
	if f.bool("use_bidirectional_attention", false) {
		f.fail("use_bidirectional_attention", "attention to later tokens is not supported")
	}
}
