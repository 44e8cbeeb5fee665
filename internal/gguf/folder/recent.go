package folder

// olmo3Config gives the base of rope to all layers, and its scaling to those without a window.
func olmo3Config(k *keys, c object) {
	full, local := object{"rope_type": "default"}, object{"rope_type": "default"}
	if s, ok := c["rope_scaling"].(object); ok {
		full = s
		if x := k.float("rope.scaling.attn_factor", 0); x > 0 {
			full["attention_factor"] = x
		}
	}
	full["rope_theta"], local["rope_theta"] = c["rope_theta"], k.float("rope.freq_base_swa", c["rope_theta"].(float64))
	delete(c, "rope_scaling")
	delete(c, "rope_theta")
	c["rope_parameters"] = object{"full_attention": full, "sliding_attention": local}
	c["sliding_window"] = k.size("attention.sliding_window")
	c["attention_bias"] = k.queryBias()
	k.slidingLayers(c)
}

func cohere2Config(k *keys, c object) {
	cohereConfig(k, c)
	delete(c, "use_qk_norm")
	c["sliding_window"] = k.size("attention.sliding_window")
	k.slidingLayers(c)
}

// exaoneConfig: models without windows have rope in all layers.
func exaoneConfig(k *keys, c object) {
	c["sliding_window"] = nil
	if n := k.int("attention.sliding_window", 0); n > 0 {
		c["sliding_window"] = n
		k.slidingLayers(c)
	}
}

func seedConfig(k *keys, c object) {
	c["attention_bias"], c["attention_out_bias"] = k.queryBias(), k.has("blk.0.attn_output.bias")
	c["mlp_bias"] = k.has("blk.0.ffn_up.bias")
}

func ernieConfig(k *keys, c object) { c["use_bias"] = k.queryBias() }

func minimaxConfig(k *keys, c object) {
	c["num_local_experts"], c["num_experts_per_tok"] = k.size("expert_count"), k.size("expert_used_count")
	c["intermediate_size"] = k.size("expert_feed_forward_length")
	c["rotary_dim"] = k.size("rope.dimension_count")
	k.sigmoid()
}

// sigmoidGate is llama.cpp's number of scores of experts by the sigmoid.
const sigmoidGate = 2

func glm4MoEConfig(k *keys, c object) {
	glm4Config(k, c)
	c["use_qk_norm"] = k.has("blk.0.attn_q_norm.weight")
	c["first_k_dense_replace"] = k.denseLayers()
	c["n_routed_experts"], c["num_experts_per_tok"] = k.size("expert_count"), k.size("expert_used_count")
	c["n_shared_experts"] = k.int("expert_shared_count", 0)
	c["moe_intermediate_size"] = k.size("expert_feed_forward_length")
	c["routed_scaling_factor"] = k.float("expert_weights_scale", 1)
	c["norm_topk_prob"] = k.bool("expert_weights_norm", true)
	c["n_group"], c["topk_group"] = k.int("expert_group_count", 1), k.int("expert_group_used_count", 1)
	k.sigmoid()
}

// postNormNames are those of blocks whose second norm is called after attention.
var postNormNames = map[string]string{"post_attention_norm": "post_attention_layernorm"}

var minimaxNames = map[string]string{"exp_probs_b.bias": "block_sparse_moe.e_score_correction_bias"}

func graniteMoEConfig(k *keys, c object) {
	graniteConfig(k, c)
	c["num_local_experts"], c["num_experts_per_tok"] = k.size("expert_count"), k.size("expert_used_count")
	if inner := k.int("expert_shared_feed_forward_length", 0); inner > 0 {
		c["model_type"], c["shared_intermediate_size"] = "granitemoeshared", inner
	}
}

var graniteMoENames = map[string]string{
	"ffn_gate": "", "ffn_up": "", "ffn_down": "",
	"ffn_gate_inp": "block_sparse_moe.router.layer", "ffn_gate_exps": "block_sparse_moe.experts.{}.gate_proj",
	"ffn_up_exps": "block_sparse_moe.experts.{}.up_proj", "ffn_down_exps": "block_sparse_moe.experts.{}.down_proj",
	"ffn_gate_shexp": "shared_mlp.gate_proj", "ffn_up_shexp": "shared_mlp.up_proj", "ffn_down_shexp": "shared_mlp.output_linear",
}
