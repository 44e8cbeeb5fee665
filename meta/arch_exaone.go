package meta

// exaone is EXAONE 3's config for LlamaForCausalLM. Published files have GPT-2's names.
func exaone(f *fields, b *Builder) {
	f = f.renamed("num_hidden_layers", "num_layers").renamed("rms_norm_eps", "layer_norm_epsilon").renamed("hidden_act", "activation_function")
	d := readDecoder(f, "Llama", decoderDefaults{
		vocab: 102400, hidden: 4096, inner: 14336, layers: 32, heads: 32, kvHeads: 8,
		context: 4096, eps: 1e-5, act: "silu", rope: ropeDefaults{theta: 500000},
	})
	b.publishes(
		"model.embed_tokens.", "transformer.wte.", "model.layers.", "transformer.h.", "model.norm.", "transformer.ln_f.",
		".self_attn.o_proj.", ".attn.attention.out_proj.", ".self_attn.", ".attn.attention.",
		".input_layernorm.", ".ln_1.", ".post_attention_layernorm.", ".ln_2.",
		".mlp.gate_proj.", ".mlp.c_fc_0.", ".mlp.up_proj.", ".mlp.c_fc_1.", ".mlp.down_proj.", ".mlp.c_proj.",
	)
	d.llamaLayers(f, b, f.bool("attention_bias", false), f.bool("mlp_bias", false))
	b.Ignore("transformer.h.*.attn.attention.rotary.inv_freq")
}
