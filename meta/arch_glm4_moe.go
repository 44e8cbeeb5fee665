package meta

// glm4MoE is Glm4MoeForCausalLM: grouped attention with rope on a part of each head, and after
// some dense layers DeepSeek-V3's MoE layer.
func glm4MoE(f *fields, b *Builder) {
	d := &deepseek{decoder: readDecoder(f, "Glm4Moe", decoderDefaults{
		vocab: 151552, hidden: 4096, inner: 10944, layers: 46, heads: 96, kvHeads: 8,
		context: 131072, eps: 1e-5, act: "silu", rope: ropeDefaults{theta: 10000, partial: 0.5, roundUp: true},
	})}
	bias, qkNorm := f.bool("attention_bias", false), f.bool("use_qk_norm", false)
	d.glmLayers(f, b, mixtureDefaults{inner: 1408, experts: 128, topK: 8, scale: 1, groups: 1, topGroups: 1}, func(b *Builder, i int) {
		spec := AttentionSpec{Layer: i}
		if qkNorm {
			spec.QNorm, spec.KNorm = "q_norm", "k_norm"
		}
		a := d.attention(b, bias, false, spec)
		if qkNorm {
			d.norm(a, "q_norm", d.headDim)
			d.norm(a, "k_norm", d.headDim)
		}
	})
}

// glm4VMoE is the text model of Glm4vMoeForConditionalGeneration: glm4_moe without norms of queries and keys.
func glm4VMoE(f *fields, b *Builder) {
	d := &deepseek{decoder: readDecoder(f, "Glm4vMoeText", decoderDefaults{
		vocab: 151424, hidden: 4096, inner: 10944, layers: 46, heads: 96, kvHeads: 8,
		context: 65536, eps: 1e-5, act: "silu", rope: ropeDefaults{theta: 10000, partial: 0.5, roundUp: true},
	})}
	d.wideRouter, d.finalClass = true, "Glm4vMoeRMSNorm"
	bias := f.bool("attention_bias", true)
	d.glmLayers(f, b, mixtureDefaults{inner: 1408, experts: 128, topK: 8, scale: 1, groups: 1, topGroups: 1}, func(b *Builder, i int) {
		d.attention(b, bias, false, AttentionSpec{Layer: i})
	})
}

// glmLayers builds glm4_moe's model. attention adds the attention of each layer.
func (d *deepseek) glmLayers(f *fields, b *Builder, def mixtureDefaults, attention func(b *Builder, layer int)) {
	d.correction = Float32
	d.readMixture(f, def)
	dense := f.count("first_k_dense_replace", 1, 0, maxLayers)
	d.causalLMWithNext(f, b, func(b *Builder, i int) {
		attention(b, i)
		if i < dense {
			d.gatedMLP(b, "mlp", d.inner, false)
		} else {
			d.mixture(b)
		}
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}

// glm4MoELite is Glm4MoeLiteForCausalLM: deepseek_v3 with other defaults.
func glm4MoELite(f *fields, b *Builder) {
	d := readDeepseek(f, "Glm4MoeLite", decoderDefaults{
		vocab: 154880, hidden: 2048, inner: 10240, layers: 47, heads: 20, context: 202752, eps: 1e-5,
	}, latentDefaults{qRank: 768, kvRank: 512, nope: 192, value: 256})
	d.correction = Float32
	d.readMixture(f, mixtureDefaults{inner: 1536, experts: 64, topK: 4, scale: 1.8, groups: 1, topGroups: 1})
	sparse := d.sparseByType(f)
	d.causalLMWithNext(f, b, func(b *Builder, i int) {
		d.latentAttention(b, i)
		if sparse[i] {
			d.mixture(b)
		} else {
			d.gatedMLP(b, "mlp", d.inner, false)
		}
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}

// sparseByType returns which layers have an MoE layer: those in mlp_layer_types or, without that
// field, all but the first. One additional value stands for the layers for multi-token
// prediction.
func (d *decoder) sparseByType(f *fields) []bool {
	return d.layersWithMixture(f, func(i int) bool { return i > 0 })
}

// layersWithMixture is sparseByType with is as the default for a missing field.
func (d *decoder) layersWithMixture(f *fields, is func(layer int) bool) []bool {
	sparse := make([]bool, d.layers, d.layers+1)
	for i := range sparse {
		sparse[i] = is(i)
	}
	f.byType("mlp_layer_types", sparse, "sparse", "dense")
	return append(sparse, true)
}
