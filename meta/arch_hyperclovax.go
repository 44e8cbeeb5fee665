package meta

// hyperCLOVAX is HyperCLOVAXForCausalLM: granite with norms after attention and MLP, and with a
// factor that multiplies the logits instead of dividing them.
func hyperCLOVAX(f *fields, b *Builder) {
	d := readDecoder(f, "HyperCLOVAX", decoderDefaults{
		vocab: 32000, hidden: 4096, inner: 11008, layers: 32, heads: 32,
		context: 2048, eps: 1e-6, act: "silu", rope: ropeDefaults{theta: 10000},
	})
	bias, mlpBias := f.bool("attention_bias", false), f.bool("mlp_bias", false)
	w, scale := f.graniteWiring()
	w.spec.LogitScale = float32(f.positive("logits_scaling", 1))
	w.wrapped = b.tree.wrapper != nil && b.tree.wrapper.model == "HyperCLOVAXVisionV2Model"
	if !f.has("attention_multiplier") {
		scale = 0
	}
	post := f.bool("use_post_norm", true)
	if post {
		w.block.PostAttentionNorm, w.block.PostMLPNorm = "post_norm1", "post_norm2"
	}
	d.causalLM(f, b, w, func(b *Builder, i int) {
		d.attention(b, bias, bias, AttentionSpec{Layer: i, Scale: scale})
		d.gatedMLP(b, "mlp", d.inner, mlpBias)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
		if post {
			d.norms(b, "post_norm1", "post_norm2")
		} else {
			b.Child("post_norm1", "Identity")
			b.Child("post_norm2", "Identity")
		}
	})
}
