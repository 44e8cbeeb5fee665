package meta

// qwen2VL returns the text model of Qwen2-VL or Qwen2.5-VL: qwen2 with other defaults.
func qwen2VL(class string) func(f *fields, b *Builder) {
	return func(f *fields, b *Builder) {
		d := readDecoder(f, class, decoderDefaults{
			vocab: 152064, hidden: 8192, inner: 29568, layers: 80, heads: 64, kvHeads: 8,
			context: 32768, eps: 1e-5, act: "silu", rope: ropeDefaults{theta: 1e6},
		})
		d.mlpClass = "Qwen2MLP"
		window, sliding := d.qwenWindows(f, 80)
		d.causalLM(f, b, wiring{block: preNorm(), modelClass: class + "TextModel"}, func(b *Builder, i int) {
			d.attention(b, true, false, AttentionSpec{Layer: i, Window: windowIf(sliding[i], window)})
			d.gatedMLP(b, "mlp", d.inner, false)
			d.norms(b, "input_layernorm", "post_attention_layernorm")
		})
	}
}

// qwen3VL is the text model of Qwen3-VL: qwen3 without windows.
func qwen3VL(f *fields, b *Builder) {
	d := readDecoder(f, "Qwen3VLText", qwen3VLDefaults(decoderDefaults{hidden: 4096, inner: 22016, layers: 32, heads: 32, headDim: 128}))
	bias := f.bool("attention_bias", false)
	if w := b.tree.wrapper; w != nil && w.modelType == "cosmos3_omni" {
		b.publishes(".self_attn.q_proj.", ".self_attn.to_q.", ".self_attn.k_proj.", ".self_attn.to_k.", ".self_attn.v_proj.", ".self_attn.to_v.", ".self_attn.o_proj.", ".self_attn.to_out.",
			".self_attn.q_norm.", ".self_attn.norm_q.", ".self_attn.k_norm.", ".self_attn.norm_k.")
		for _, generator := range []string{"self_attn.add_*_proj", "self_attn.to_add_out", "self_attn.norm_added_*", "*_moe_gen", "*.*_moe_gen"} { // the layers that draw
			b.Ignore("layers.*." + generator + ".**")
		}
	}
	d.causalLM(f, b, wiring{block: preNorm()}, func(b *Builder, i int) {
		d.qkNormAttention(b, bias, AttentionSpec{Layer: i})
		d.gatedMLP(b, "mlp", d.inner, false)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}

// qwen3VLMoE is the text model of the Qwen3-VL MoE models. Published files have the experts
// stacked and transposed, and the selected weights are always divided by their sum.
func qwen3VLMoE(f *fields, b *Builder) {
	d := readDecoder(f, "Qwen3VLMoeText", qwen3VLDefaults(decoderDefaults{hidden: 2048, inner: 5632, layers: 24, heads: 16}))
	bias := f.bool("attention_bias", false)
	inner := f.size("moe_intermediate_size", 1408)
	spec, dense := f.sparseLayers(60, 4)
	spec.Renormalise = true
	d.causalLM(f, b, wiring{block: preNorm()}, func(b *Builder, i int) {
		d.qkNormAttention(b, bias, AttentionSpec{Layer: i})
		if dense(i) {
			d.gatedMLP(b, "mlp", d.inner, false)
		} else {
			d.mixture(b, *spec, inner)
		}
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}

func qwen3VLDefaults(d decoderDefaults) decoderDefaults {
	d.vocab, d.context, d.eps, d.act, d.kvHeads = 151936, 128000, 1e-6, "silu", d.heads
	d.rope = ropeDefaults{theta: 500000}
	return d
}

// qwen25Omni is the text model of Qwen2.5-Omni: qwen2 with other defaults.
func qwen25Omni(f *fields, b *Builder) {
	d := readDecoder(f, "Qwen2_5Omni", decoderDefaults{
		vocab: 152064, hidden: 3584, inner: 18944, layers: 28, heads: 28, kvHeads: 4,
		context: 32768, eps: 1e-6, act: "silu", rope: ropeDefaults{theta: 1e6},
	})
	d.mlpClass = "Qwen2MLP"
	window, sliding := d.qwenWindows(f, 28)
	d.causalLM(f, b, wiring{block: preNorm(), modelClass: "Qwen2_5OmniThinkerTextModel"}, func(b *Builder, i int) {
		d.attention(b, true, false, AttentionSpec{Layer: i, Window: windowIf(sliding[i], window)})
		d.gatedMLP(b, "mlp", d.inner, false)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}

// qwen3Omni is the text model of Qwen3-Omni: qwen3_moe without windows.
func qwen3Omni(f *fields, b *Builder) {
	d := readDecoder(f, "Qwen3OmniMoeThinkerText", decoderDefaults{
		vocab: 3584, hidden: 2048, inner: 18944, layers: 28, heads: 28, kvHeads: 4,
		context: 32768, eps: 1e-6, act: "silu", rope: ropeDefaults{theta: 1e6},
	})
	d.finalClass = "Qwen3OmniMoeTextRMSNorm"
	bias := f.bool("attention_bias", false)
	inner := f.size("moe_intermediate_size", 768)
	spec, dense := f.sparseLayers(128, 8)
	spec.Renormalise = f.bool("norm_topk_prob", true)
	d.causalLM(f, b, wiring{block: preNorm()}, func(b *Builder, i int) {
		d.qkNormAttention(b, bias, AttentionSpec{Layer: i})
		if dense(i) {
			d.gatedMLP(b, "mlp", d.inner, false)
		} else {
			d.mixture(b, *spec, inner)
		}
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}

// paddleOCR is the text model of PaddleOCRVLForConditionalGeneration: llama with biases in all
// linear layers or none.
func paddleOCR(f *fields, b *Builder) {
	d := readDecoder(f, "PaddleOCR", decoderDefaults{
		vocab: 103424, hidden: 1024, inner: 3072, layers: 18, heads: 16, kvHeads: 2, headDim: 128, context: 131072,
		eps: 1e-5, act: "silu", tied: true, rope: ropeDefaults{theta: 500000},
	})
	bias := f.bool("use_bias", false)
	d.causalLM(f, b, wiring{block: preNorm(), modelClass: "PaddleOCRTextModel"}, func(b *Builder, i int) {
		d.attention(b, bias, bias, AttentionSpec{Layer: i})
		d.gatedMLP(b, "mlp", d.inner, bias)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}
