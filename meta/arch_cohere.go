package meta

// cohere is CohereForCausalLM: attention and MLP in parallel after one norm, rope on adjacent
// pairs, scaled logits.
func cohere(f *fields, b *Builder) {
	d := readDecoder(f, "Cohere", decoderDefaults{
		vocab: 256000, hidden: 8192, inner: 22528, layers: 40, heads: 64,
		context: 8192, eps: 1e-5, epsField: "layer_norm_eps", act: "silu", tied: true,
		rope: ropeDefaults{theta: 500000, interleaved: true},
	})
	d.normClass, d.normSpec.Layer = "CohereLayerNorm", true
	bias := f.bool("attention_bias", false)
	qkNorm := f.bool("use_qk_norm", false)
	w := wiring{
		block: BlockSpec{
			Parallel: true, AttentionNorm: "input_layernorm", Attention: "self_attn",
			MLPNorm: "input_layernorm", MLP: "mlp",
		},
		spec: CausalLMSpec{LogitScale: float32(f.positive("logit_scale", 0.0625))},
	}
	d.causalLM(f, b, w, func(b *Builder, i int) {
		spec := AttentionSpec{Layer: i}
		if qkNorm {
			spec.QNorm, spec.KNorm = "q_norm", "k_norm"
		}
		a := d.attention(b, bias, bias, spec)
		if qkNorm {
			d.headNorm(a, "q_norm", d.heads)
			d.headNorm(a, "k_norm", d.kvHeads)
		}
		d.gatedMLP(b, "mlp", d.inner, false)
		d.norms(b, "input_layernorm")
	})
}

// headNorm adds a norm of each head with weights of its own for every head.
func (d *decoder) headNorm(b *Builder, name string, heads int) {
	spec := d.normSpec
	spec.Dim, spec.Heads = d.headDim, heads
	b.Child(name, d.normClass).Runs(KindNorm, &spec).Param("weight", heads, d.headDim)
}
