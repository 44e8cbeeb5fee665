package folder

// sparseConfig reads the indexers of sparse attention.
func sparseConfig(k *keys, c object) {
	deepseekConfig(k, c)
	c["model_type"] = k.row.modelType
	c["index_n_heads"], c["index_head_dim"] = k.size("attention.indexer.head_count"), k.size("attention.indexer.key_length")
	c["index_topk"] = k.size("attention.indexer.top_k")
	k.sigmoid()
}

// glmSparseConfig: in files without a list, GLM 5.2 and later, which have the longest context, share the
// choices of every fourth layer, and the others of none.
func glmSparseConfig(k *keys, c object) {
	sparseConfig(k, c)
	c["n_group"], c["topk_group"] = max(k.int("expert_group_count", 1), 1), max(k.int("expert_group_used_count", 1), 1)
	full := k.flagsOrInts("attention.indexer.types")
	if full == nil {
		full = make([]bool, k.layers())
		for i := range full {
			full[i] = k.size("context_length") < 1<<20 || i < 2 || (i-2)%4 == 0
		}
	}
	c["indexer_types"] = kinds(full, "shared", "full")
}

// streams returns a copy of n with the weights of residual streams.
func (n names) streams() names {
	whole := map[string]string{}
	for k, v := range n.whole {
		whole[k] = v
	}
	block := map[string]string{}
	for _, part := range []string{"fn", "base", "scale"} {
		whole["output_hc_"+part+".weight"] = "model.hc_head.hc_" + part
		block["hc_attn_"+part+".weight"], block["hc_ffn_"+part+".weight"] = "attn_hc."+part, "ffn_hc."+part
	}
	n.whole = whole
	return n.with(block)
}

// sinkNames are those of sinks.
var sinkNames = map[string]string{"attn_sinks.weight": "self_attn.sinks"}

var deepseek4Names = names{layers: llamaNames.layers, whole: llamaNames.whole, block: map[string]string{
	"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
	"attn_q_a": "self_attn.q_a_proj", "attn_q_a_norm": "self_attn.q_a_norm", "attn_q_b": "self_attn.q_b_proj", "attn_kv": "self_attn.kv_proj",
	"attn_kv_a_norm": "self_attn.kv_norm", "attn_output_a": "self_attn.o_a_proj", "attn_output_b": "self_attn.o_b_proj",
	"attn_compressor_kv": "self_attn.compressor.kv_proj", "attn_compressor_gate": "self_attn.compressor.gate_proj",
	"attn_compressor_ape.weight": "self_attn.compressor.position_bias", "attn_compressor_norm": "self_attn.compressor.kv_norm",
	"indexer.attn_q_b": "self_attn.compressor.indexer.q_b_proj", "indexer.proj": "self_attn.compressor.indexer.scorer.weights_proj",
	"indexer_compressor_kv": "self_attn.compressor.indexer.kv_proj", "indexer_compressor_gate": "self_attn.compressor.indexer.gate_proj",
	"indexer_compressor_ape.weight": "self_attn.compressor.indexer.position_bias", "indexer_compressor_norm": "self_attn.compressor.indexer.kv_norm",
	"ffn_gate_inp": "mlp.gate", "ffn_gate_tid2eid.weight": "mlp.gate.tid2eid", "exp_probs_b.bias": "mlp.gate.e_score_correction_bias", "exp_probs_b_vl.bias": unread,
	"ffn_gate_exps": "mlp.experts.{}.w1", "ffn_up_exps": "mlp.experts.{}.w3", "ffn_down_exps": "mlp.experts.{}.w2", "ffn_gate_up_exps": "mlp.experts.{}.gate_up_proj",
	"ffn_gate_shexp": "mlp.shared_experts.gate_proj", "ffn_up_shexp": "mlp.shared_experts.up_proj", "ffn_down_shexp": "mlp.shared_experts.down_proj",
}}.with(sinkNames).streams()

// deepseek4Config reads the fields of published files.
func deepseek4Config(k *keys, c object) {
	c["qk_rope_head_dim"], c["q_lora_rank"] = k.size("rope.dimension_count"), k.size("attention.q_lora_rank")
	c["sliding_window"], c["num_key_value_heads"] = k.size("attention.sliding_window"), 1
	c["o_groups"], c["o_lora_rank"] = k.size("attention.output_group_count"), k.size("attention.output_lora_rank")
	c["compress_ratios"], c["num_hash_layers"] = k.byLayer("attention.compress_ratios"), k.int("hash_layer_count", 0)
	c["compress_rope_theta"] = k.float("attention.compress_rope_freq_base", 160000)
	k.indexer(c)
	k.hyper(c)
	c["hc_sinkhorn_iters"] = k.size("hyper_connection.sinkhorn_iterations")
	c["n_routed_experts"], c["num_experts_per_tok"] = k.size("expert_count"), k.size("expert_used_count")
	c["n_shared_experts"], c["moe_intermediate_size"] = k.int("expert_shared_count", 1), k.size("expert_feed_forward_length")
	c["routed_scaling_factor"], c["swiglu_limit"] = k.float("expert_weights_scale", 1), k.limit("swiglu_clamp_exp", "swiglu_clamp_shexp")
	k.normalised()
	switch f := k.int("expert_gating_func", rootGate); f {
	case rootGate:
		c["scoring_func"] = "sqrtsoftplus"
	case sigmoidGate:
		c["scoring_func"] = "sigmoid"
	default:
		k.fail(k.arch+".expert_gating_func", "got %d, want %d, the root of the softplus, or %d, the sigmoid", f, rootGate, sigmoidGate)
	}
}

// rootGate is llama.cpp's number of scores of experts by the root of the softplus.
const rootGate = 4

// indexer reads the sizes of indexers.
func (k *keys) indexer(c object) {
	c["index_n_heads"], c["index_head_dim"] = k.size("attention.indexer.head_count"), k.size("attention.indexer.key_length")
	c["index_topk"] = k.size("attention.indexer.top_k")
}

// hyper reads what all hyper-connections have.
func (k *keys) hyper(c object) {
	c["hc_mult"], c["hc_eps"] = k.size("hyper_connection.count"), k.float("hyper_connection.epsilon", 1e-6)
}

var minimax3Names = llamaNames.with(mixtralNames).with(minimaxNames).with(map[string]string{
	"ffn_gate_shexp": "block_sparse_moe.shared_experts.gate_proj", "ffn_up_shexp": "block_sparse_moe.shared_experts.up_proj",
	"ffn_down_shexp": "block_sparse_moe.shared_experts.down_proj",
	"indexer.q_proj": "self_attn.index_q_proj", "indexer.k_proj": "self_attn.index_k_proj", "indexer.q_norm": "self_attn.index_q_norm", "indexer.k_norm": "self_attn.index_k_norm",
})

// minimax3Config: the tensors tell which layers have an indexer, and which a mixture.
func minimax3Config(k *keys, c object) {
	c["dense_intermediate_size"], c["intermediate_size"] = c["intermediate_size"], k.size("expert_feed_forward_length")
	if inner := k.rows("blk.0.ffn_up.weight"); inner > 0 {
		c["dense_intermediate_size"] = inner
	}
	c["shared_intermediate_size"] = k.size("expert_feed_forward_length") * k.int("expert_shared_count", 1)
	c["num_local_experts"], c["num_experts_per_tok"] = k.size("expert_count"), k.size("expert_used_count")
	c["routed_scaling_factor"] = k.float("expert_weights_scale", 1)
	k.partial(c, "partial_rotary_factor")
	c["index_n_heads"], c["index_head_dim"] = k.size("attention.indexer.head_count"), k.size("attention.indexer.key_length")
	c["index_topk_blocks"], c["index_block_size"] = k.size("attention.indexer.top_k"), k.size("attention.indexer.block_size")
	c["index_local_blocks"] = k.size("attention.indexer.local_blocks")
	sparse := make([]bool, k.layers())
	for i := range sparse {
		sparse[i] = k.hasAt(i, "indexer.q_proj.weight")
	}
	c["layer_types"] = kinds(sparse, "full_attention", "minimax_m3_sparse")
	k.normalised()
	k.sigmoid()
	k.sparseLayers(c)
}

var hy4Names = llamaNames.with(expertNames).with(deepseekNames).with(sinkNames).with(map[string]string{"attn_gate": "self_attn.gate_proj"}).streams()

// hy4Config reads DeepSeek-V3.2's fields beside the streams.
func hy4Config(k *keys, c object) {
	k.latent(c)
	k.routing(c, "n_routed_experts", "n_shared_experts")
	k.hyper(c)
	c["hc_magnitude"], c["swiglu_limit"] = k.float("hyper_connection.magnitude", 2), k.limit("swiglu_clamp_exp")
	k.indexer(c)
	if full := k.flagsOrInts("attention.indexer.types"); full != nil {
		c["indexer_types"] = kinds(full, "shared", "full")
	}
	k.sparseLayers(c)
}
