package folder

// dots3Names: the norm of keys is one of their rotary part.
var dots3Names = llamaNames.with(expertNames).with(deepseekNames).with(map[string]string{
	"attn_gate": "self_attn.g_proj", "attn_k_norm": "self_attn.k_rope_only_layernorm",
})

// dots3Config: layers with a window have heads and sizes of their own.
func dots3Config(k *keys, c object) {
	k.latent(c)
	k.routing(c, "n_routed_experts", "n_shared_experts")
	k.indexer(c)
	c["shared_experts_intermediate_size"] = k.size("expert_feed_forward_length")
	sliding := k.windows(1)
	c["layer_types"], c["sliding_window"] = kinds(sliding, "full_attention", "sliding_attention"), k.size("attention.sliding_window")
	rope, head := k.size("rope.dimension_count"), k.size("attention.key_length_mla_swa")
	c["swa_head_dim"], c["swa_qk_rope_head_dim"], c["swa_qk_nope_head_dim"] = head, rope, head-rope
	c["swa_q_lora_rank"], c["swa_kv_lora_rank"] = k.size("attention.q_lora_rank"), k.size("attention.kv_lora_rank_swa")
	c["swa_v_head_dim"], c["swa_rope_theta"] = k.size("attention.value_length_mla_swa"), k.float("rope.freq_base_swa", 10000)
	for i, heads := range k.byLayer("attention.head_count") {
		field := "num_attention_heads"
		if i < len(sliding) && sliding[i] {
			field = "swa_num_attention_heads"
		}
		c[field] = heads
	}
	c["num_key_value_heads"], c["swa_num_key_value_heads"] = c["num_attention_heads"], c["swa_num_attention_heads"]
}
