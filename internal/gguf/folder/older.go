package folder

import "math"

// older are models without rope (BLOOM, MPT), BitNet, and descendants of llama whose folders have code of their own.
var older = []architecture{
	{name: "bloom", modelType: "bloom", names: bloomNames, conventions: fusedInParts, config: bloomConfig},
	{name: "mpt", modelType: "mpt", names: mptNames, config: mptConfig},
	{name: "bitnet", modelType: "bitnet", names: llamaNames.with(bitnetNames), config: bitnetConfig},
	{name: "xverse", modelType: "llama", names: llamaNames, conventions: pairs, config: llamaConfig},
	{name: "internlm2", modelType: "llama", names: llamaNames, conventions: pairs, config: llamaConfig},
	{name: "pangu-embedded", modelType: "llama", names: llamaNames, config: llamaConfig},
	{name: "paddleocr", modelType: "llama", names: llamaNames, config: llamaConfig},
	{name: "minicpm", modelType: "granite", names: llamaNames, conventions: pairs, config: miniCPMConfig},
	{name: "minicpm3", modelType: "minicpm3", names: llamaNames.with(deepseekNames), config: miniCPM3Config},
}

// miniCPM3Config: files state neither the factors of embeddings, branches and logits, which are those of MiniCPM3-4B, nor the
// size of a head of values.
func miniCPM3Config(k *keys, c object) {
	rope := k.size("rope.dimension_count")
	c["qk_rope_head_dim"], c["qk_nope_head_dim"] = rope, k.size("attention.key_length")-rope
	c["kv_lora_rank"], c["q_lora_rank"] = k.size("attention.kv_lora_rank"), k.size("attention.q_lora_rank")
	c["attention_bias"] = k.has("blk.0.attn_kv_a_mqa.bias")
	delete(c, "head_dim")
}

var bloomNames = names{
	layers: "transformer.h.",
	whole: map[string]string{
		"token_embd": "transformer.word_embeddings", "token_embd_norm": "transformer.word_embeddings_layernorm",
		"output_norm": "transformer.ln_f", "output": "lm_head",
	},
	block: map[string]string{
		"attn_norm": "input_layernorm", "attn_qkv": "self_attention.query_key_value", "attn_output": "self_attention.dense",
		"ffn_norm": "post_attention_layernorm", "ffn_up": "mlp.dense_h_to_4h", "ffn_down": "mlp.dense_4h_to_h",
	},
}

// bloomConfig: MLPs are four times as wide as the embeddings.
func bloomConfig(k *keys, c object) {
	k.layerNorm(c, "layer_norm_epsilon")
	k.fourfold(c)
	c["n_layer"], c["n_head"], c["seq_length"] = c["num_hidden_layers"], c["num_attention_heads"], c["max_position_embeddings"]
}

// fourfold refuses MLPs that are not four times as wide as the embeddings.
func (k *keys) fourfold(c object) {
	if hidden, ok := c["hidden_size"].(int64); ok && c["intermediate_size"] != nil && c["intermediate_size"] != 4*hidden {
		k.fail(k.arch+".feed_forward_length", "got %v, want four times the embedding_length of %d", c["intermediate_size"], hidden)
	}
}

var mptNames = names{
	layers: "transformer.blocks.",
	whole:  map[string]string{"token_embd": "transformer.wte", "output_norm": "transformer.norm_f", "output": "lm_head"},
	block: map[string]string{
		"attn_norm": "norm_1", "attn_qkv": "attn.Wqkv", "attn_output": "attn.out_proj",
		"ffn_norm": "norm_2", "ffn_up": "ffn.up_proj", "ffn_down": "ffn.down_proj",
	},
}

// mptConfig refuses what the model in transformers does not compute.
func mptConfig(k *keys, c object) {
	k.layerNorm(c, "layer_norm_epsilon")
	k.fourfold(c)
	c["d_model"], c["n_layers"], c["n_heads"] = c["hidden_size"], c["num_hidden_layers"], c["num_attention_heads"]
	c["max_seq_len"] = c["max_position_embeddings"]
	if x := k.float("attention.max_alibi_bias", 0); x != 8 {
		k.fail(k.arch+".attention.max_alibi_bias", "got %v, want 8: biases by distance are the only positions that are supported", x)
	}
	if x := k.float("attention.clamp_kqv", 0); x > 0 {
		c["attn_config"] = object{"clip_qkv": x}
	}
	if heads := c["num_attention_heads"]; c["num_key_value_heads"] != heads {
		k.fail(k.arch+".attention.head_count_kv", "%v beside %v heads is not supported", c["num_key_value_heads"], heads)
	}
	for _, tensor := range []string{"attn_qkv.bias", "attn_norm.bias", "attn_q_norm.weight", "ffn_act.scales"} {
		if k.hasIn(tensor) {
			k.fail("blk.0."+tensor, "the tensor is not supported: the model has no biases, norms of queries or scales")
		}
	}
}

var bitnetNames = map[string]string{"attn_sub_norm": "self_attn.attn_sub_norm", "ffn_sub_norm": "mlp.ffn_sub_norm"}

// bitnetConfig: files do not state the activation. llama.cpp's converter takes the models of 2024 alone, whose activation is
// SiLU; those of 2025 have squares of ReLU, and Llama 3's vocabulary.
func bitnetConfig(k *keys, c object) {
	c["attention_bias"], c["hidden_act"] = k.queryBias(), "silu"
	if model, _, err := k.meta.Text("tokenizer.ggml.model"); err == nil && model == "gpt2" {
		c["hidden_act"] = "relu2"
	}
	if k.hasIn("attn_q.scale") {
		k.fail("blk.0.attn_q.scale", "scales beside weights are not supported")
	}
}

// miniCPMConfig: the model is Granite's with the usual scale of attention. The first files have no keys for the others.
func miniCPMConfig(k *keys, c object) {
	graniteConfig(k, c)
	if head, ok := c["head_dim"].(int64); ok && head > 0 {
		c["attention_multiplier"] = 1 / math.Sqrt(float64(head))
	}
	hidden := float64(k.size("embedding_length"))
	c["embedding_multiplier"] = k.float("embedding_scale", 12)
	c["residual_multiplier"] = k.float("residual_scale", 1.4/math.Sqrt(float64(max(k.layers(), 1))))
	c["logits_scaling"] = k.float("logit_scale", hidden/256)
	if hasExperts(k) {
		k.fail(k.arch+".expert_count", "mixtures are not supported in this architecture")
	}
}
