package meta

import "encoding/json"

// granite is GraniteForCausalLM: llama with multipliers on embeddings, scores,
// residuals and logits.
func granite(f *fields, b *Builder) { f.granite(b, "Granite", false, graniteDefaults()) }

// granite4Vision is the text model of Granite4VisionForConditionalGeneration: granite, with the
// factor of the logits.
func granite4Vision(f *fields, b *Builder) {
	f.granite(b, "Granite4VisionText", true, graniteDefaults())
}

// graniteDocling is the text model of GraniteDoclingForConditionalGeneration: granite with other
// defaults, and with the factor of the logits.
func graniteDocling(f *fields, b *Builder) {
	f = f.without()
	for name, v := range map[string]json.Number{"embedding_multiplier": "12", "logits_scaling": "4", "residual_multiplier": "0.263", "attention_multiplier": "0.015625"} {
		if !f.has(name) {
			f.values[name] = v
		}
	}
	f.granite(b, "GraniteDoclingText", true, decoderDefaults{
		vocab: 133800, hidden: 1024, inner: 2048, layers: 28, heads: 16, kvHeads: 4,
		context: 32768, eps: 1e-5, act: "silu", rope: ropeDefaults{theta: 10000}, tied: true,
	})
}

func graniteDefaults() decoderDefaults {
	return decoderDefaults{
		vocab: 32000, hidden: 4096, inner: 11008, layers: 32, heads: 32,
		context: 2048, eps: 1e-6, act: "silu", rope: ropeDefaults{theta: 10000},
	}
}

// granite builds granite's model with the given prefix of classes. wrapped says that the factor of
// the logits holds within the wrapper.
func (f *fields) granite(b *Builder, class string, wrapped bool, defaults decoderDefaults) {
	d := readDecoder(f, class, defaults)
	attentionBias := f.bool("attention_bias", false)
	mlpBias := f.bool("mlp_bias", false)
	w, scale := f.graniteWiring()
	w.wrapped = wrapped
	d.causalLM(f, b, w, func(b *Builder, i int) {
		d.attention(b, attentionBias, attentionBias, AttentionSpec{Layer: i, Scale: scale})
		d.gatedMLP(b, "mlp", d.inner, mlpBias)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}

// graniteWiring reads the multipliers of embeddings, residuals and logits, and that of scores.
func (f *fields) graniteWiring() (w wiring, scale float32) {
	w = wiring{block: preNorm(), spec: CausalLMSpec{
		EmbedScale: float32(f.positive("embedding_multiplier", 1)),
		LogitScale: float32(1 / f.positive("logits_scaling", 1)),
	}}
	w.block.ResidualScale = float32(f.positive("residual_multiplier", 1))
	return w, float32(f.positive("attention_multiplier", 1))
}
