package folder

import "github.com/heftai/heft/meta"

// architectures is the table. A model that llama.cpp reads with rope over neighbouring dimensions has
// permuted rows of queries and keys, unless transformers rotates it so as well.
var architectures = []architecture{
	{name: "llama", modelType: "llama", names: llamaNames, conventions: meta.Conventions{RopePairs: true}, config: llamaConfig},
	{name: "qwen2", modelType: "qwen2", names: llamaNames},
	{name: "qwen3", modelType: "qwen3", names: llamaNames},
	{name: "qwen3moe", modelType: "qwen3_moe", names: llamaNames.with(expertNames), config: qwen3MoEConfig},
	{name: "gemma2", modelType: "gemma2", names: llamaNames.with(sandwichNames), conventions: meta.Conventions{WholeNorms: true}, config: gemma2Config},
	{name: "gemma3", modelType: "gemma3_text", names: llamaNames.with(sandwichNames), conventions: meta.Conventions{WholeNorms: true}, config: gemma3Config},
	{name: "phi3", modelType: "phi3", names: llamaNames.with(map[string]string{"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"}), config: phi3Config},
}

// llamaConfig also serves Mistral's files, which llama.cpp does not tell apart.
func llamaConfig(k *keys, c object) {
	c["attention_bias"] = k.has("blk.0.attn_q.bias")
	c["mlp_bias"] = k.has("blk.0.ffn_up.bias")
}

func qwen3MoEConfig(k *keys, c object) {
	c["num_experts"], c["num_experts_per_tok"] = k.size("expert_count"), k.size("expert_used_count")
	c["moe_intermediate_size"] = k.size("expert_feed_forward_length")
	c["norm_topk_prob"] = true
}

// gemmaScale is the size of a head, or for the largest of each generation the hidden size by heads.
func gemmaScale(k *keys, c object, largest int64) {
	c["query_pre_attn_scalar"] = c["head_dim"]
	heads := k.size("attention.head_count")
	if k.size("block_count") == largest && heads > 0 {
		c["query_pre_attn_scalar"] = k.size("embedding_length") / heads
	}
}

func gemma2Config(k *keys, c object) {
	gemmaScale(k, c, 46)
	c["attn_logit_softcapping"] = k.float("attn_logit_softcapping", 50)
	c["final_logit_softcapping"] = k.float("final_logit_softcapping", 30)
	c["sliding_window"] = k.int("attention.sliding_window", 4096)
}

func gemma3Config(k *keys, c object) {
	gemmaScale(k, c, 62)
	c["sliding_window"] = k.int("attention.sliding_window", 1024)
	c["rope_theta"] = k.float("rope.freq_base", 1e6)
	c["rope_local_base_freq"] = k.float("rope.freq_base_swa", 10000)
	if x := k.float("final_logit_softcapping", 0); x > 0 {
		c["final_logit_softcapping"] = x
	}
	k.slidingLayers(c)
}

// slidingLayers reads which layers have a window: every layer but each n-th, or a list.
func (k *keys) slidingLayers(c object) {
	const key = "attention.sliding_window_pattern"
	list, ok := k.meta[k.arch+"."+key].([]bool)
	if !ok {
		if n := k.int(key, 0); n > 0 {
			c["sliding_window_pattern"] = n
		}
		return
	}
	types := make([]string, len(list))
	for i, sliding := range list {
		types[i] = "full_attention"
		if sliding {
			types[i] = "sliding_attention"
		}
	}
	c["layer_types"] = types
}

func phi3Config(k *keys, c object) {
	delete(c, "head_dim")
	c["sliding_window"] = nil
	if n := k.int("attention.sliding_window", 0); n > 0 {
		c["sliding_window"] = n
	}
	if heads, hidden := k.size("attention.head_count"), k.size("embedding_length"); heads > 0 && hidden > 0 {
		c["partial_rotary_factor"] = float64(k.int("rope.dimension_count", hidden/heads)) / float64(hidden/heads)
	}
}
