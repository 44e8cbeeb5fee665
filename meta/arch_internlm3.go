package meta

// internLM3 is InternLM3's config for LlamaForCausalLM. Published files have other names of the biases.
func internLM3(f *fields, b *Builder) {
	d := readDecoder(f, "Llama", decoderDefaults{
		vocab: 128512, hidden: 4096, inner: 10240, layers: 48, heads: 32, kvHeads: 2, headDim: 128,
		context: 32768, eps: 1e-5, act: "silu", rope: ropeDefaults{theta: 10000},
	})
	bias := f.bool("attention_bias", f.bool("qkv_bias", false))
	mlpBias := f.bool("mlp_bias", f.bool("bias", false))
	if bias != mlpBias {
		f.fail("qkv_bias", "%v beside %v of bias is not supported", bias, mlpBias)
	}
	d.llamaLayers(f, b, bias, mlpBias)
}

// iquestCoder is IQuest-Coder's config for LlamaForCausalLM.
func iquestCoder(f *fields, b *Builder) {
	d := readDecoder(f, "Llama", decoderDefaults{
		vocab: 76800, hidden: 5120, inner: 27648, layers: 80, heads: 40, kvHeads: 8, headDim: 128,
		context: 131072, eps: 1e-5, act: "silu", rope: ropeDefaults{theta: 10000},
	})
	if f.has("clip_qkv") {
		f.fail("clip_qkv", "%v is not supported: queries, keys and values are not clamped", f.values["clip_qkv"])
	}
	if f.bool("use_sliding_window", false) {
		f.fail("use_sliding_window", "true is not supported")
	}
	d.llamaLayers(f, b, f.bool("attention_bias", false), f.bool("mlp_bias", false))
}
