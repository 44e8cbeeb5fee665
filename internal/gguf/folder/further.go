package folder

func phiConfig(k *keys, c object) {
	k.layerNorm(c, "layer_norm_eps")
	k.partial(c, "partial_rotary_factor")
	c["qk_layernorm"] = k.has("blk.0.attn_q_norm.weight")
}

func nemotronConfig(k *keys, c object) {
	k.layerNorm(c, "norm_eps")
	k.partial(c, "partial_rotary_factor")
	llamaConfig(k, c)
}

// hunyuanConfig: rope.freq_base includes the factor of the model's rope_scaling.
func hunyuanConfig(k *keys, c object) { c["attention_bias"] = k.queryBias() }

func hunyuanMoEConfig(k *keys, c object) {
	hunyuanConfig(k, c)
	c["num_experts"], c["moe_topk"] = k.size("expert_count"), k.size("expert_used_count")
	inner := k.size("expert_feed_forward_length")
	c["intermediate_size"] = inner
	if shared := k.int("expert_shared_feed_forward_length", inner); shared != inner {
		k.fail(k.arch+".expert_shared_feed_forward_length", "%d beside experts of %d is not supported", shared, inner)
	}
}

func dotsConfig(k *keys, c object) {
	c["sliding_window"] = nil
	c["attention_bias"] = k.queryBias()
	c["first_k_dense_replace"] = k.denseLayers()
	c["n_routed_experts"], c["num_experts_per_tok"] = k.size("expert_count"), k.size("expert_used_count")
	c["n_shared_experts"] = k.size("expert_shared_count")
	c["moe_intermediate_size"] = k.size("expert_feed_forward_length")
	c["routed_scaling_factor"] = k.float("expert_weights_scale", 1)
	c["norm_topk_prob"] = k.bool("expert_weights_norm", false)
	k.sigmoid()
}

func hasTwoNorms(k *keys) bool { return k.has("blk.0.attn_norm_2.weight") }

// falconConfig: only the newer models have several key heads.
func falconConfig(k *keys, c object) {
	k.layerNorm(c, "layer_norm_epsilon")
	c["num_kv_heads"], c["ffn_hidden_size"] = c["num_key_value_heads"], k.size("feed_forward_length")
	c["bias"] = k.has("blk.0.attn_qkv.bias")
	c["num_ln_in_parallel_attn"] = 1
	if k.int("attention.head_count_kv", 1) > 1 {
		c["new_decoder_architecture"] = true
	}
	if hasTwoNorms(k) {
		c["new_decoder_architecture"], c["num_ln_in_parallel_attn"] = true, 2
	}
}

func olmoConfig(k *keys, c object) {
	c["attention_bias"] = k.queryBias()
	if x := k.float("attention.clamp_kqv", 0); x > 0 {
		c["clip_qkv"] = x
	}
	if eps := k.float("attention.layer_norm_epsilon", 1e-5); eps != 1e-5 {
		k.fail(k.arch+".attention.layer_norm_epsilon", "got %v, want 1e-05", eps)
	}
}

var falconNames = names{
	layers: "transformer.h.",
	whole:  map[string]string{"token_embd": "transformer.word_embeddings", "output_norm": "transformer.ln_f", "output": "lm_head"},
	block: map[string]string{
		"attn_norm": "input_layernorm", "attn_qkv": "self_attention.query_key_value", "attn_output": "self_attention.dense",
		"ffn_up": "mlp.dense_h_to_4h", "ffn_down": "mlp.dense_4h_to_h",
	},
}

var falconTwoNorms = map[string]string{"attn_norm": "ln_mlp", "attn_norm_2": "ln_attn"}

var phiNames = names{
	layers: "model.layers.",
	whole:  map[string]string{"token_embd": "model.embed_tokens", "output_norm": "model.final_layernorm", "output": "lm_head"},
	block: map[string]string{
		"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
		"attn_output": "self_attn.dense", "attn_q_norm": "self_attn.q_layernorm", "attn_k_norm": "self_attn.k_layernorm",
		"ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2",
	},
}

var hunyuanNames = map[string]string{"attn_q_norm": "self_attn.query_layernorm", "attn_k_norm": "self_attn.key_layernorm"}

var hunyuanMoENames = map[string]string{
	"ffn_gate": "", "ffn_up": "", "ffn_down": "",
	"ffn_gate_inp": "mlp.gate.wg", "ffn_gate_exps": "mlp.experts.{}.gate_proj", "ffn_up_exps": "mlp.experts.{}.up_proj",
	"ffn_down_exps": "mlp.experts.{}.down_proj", "ffn_gate_shexp": "mlp.shared_mlp.gate_proj", "ffn_up_shexp": "mlp.shared_mlp.up_proj",
	"ffn_down_shexp": "mlp.shared_mlp.down_proj",
}
