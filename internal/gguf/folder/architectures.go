package folder

import (
	"slices"

	"github.com/heftai/heft/meta"
)

// Conventions of llama.cpp's files. A model that it rotates by neighbouring dimensions has permuted rows of
// queries and keys, unless transformers rotates it so as well.
var (
	pairs        = meta.Conventions{RopePairs: true}
	wholeNorms   = meta.Conventions{WholeNorms: true}
	fusedInParts = meta.Conventions{FusedInParts: true}
)

// architectures is the table. Of rows of one name the first counts whose condition holds.
var architectures = slices.Concat(attentive, newer, newest, streamed, older, stateful, scanning)

// attentive are the architectures all of whose layers have attention.
var attentive = []architecture{
	{name: "llama", modelType: "mixtral", when: hasExperts, names: llamaNames.with(mixtralNames), conventions: pairs, config: mixtralConfig},
	{name: "llama", modelType: "llama", names: llamaNames, conventions: pairs, config: llamaConfig},
	{name: "qwen2", modelType: "qwen2", names: llamaNames},
	{name: "qwen3", modelType: "qwen3", names: llamaNames},
	{name: "qwen3moe", modelType: "qwen3_moe", names: llamaNames.with(expertNames), config: qwen3MoEConfig},
	{name: "qwen2moe", modelType: "qwen2_moe", names: llamaNames.with(expertNames).with(sharedNames), config: qwen2MoEConfig},
	{name: "olmoe", modelType: "olmoe", names: llamaNames.with(expertNames), config: olmoeConfig},
	{name: "smollm3", modelType: "smollm3", names: llamaNames, conventions: pairs, config: llamaConfig},
	{name: "glm4", modelType: "glm4", when: hasSections, names: llamaNames.with(glm4Names), conventions: meta.Conventions{RopeHalves: true}, config: glm4Config},
	{name: "glm4", modelType: "glm4", names: llamaNames.with(glm4Names), config: glm4Config},
	{name: "gemma", modelType: "gemma", names: llamaNames, conventions: wholeNorms},
	{name: "gemma2", modelType: "gemma2", names: llamaNames.with(sandwichNames), conventions: wholeNorms, config: gemma2Config},
	{name: "gemma3", modelType: "gemma3_text", names: llamaNames.with(sandwichNames), conventions: wholeNorms, config: gemma3Config},
	{name: "phi3", modelType: "phi3", names: llamaNames.with(phi3Names), config: phi3Config},
	{name: "gpt-oss", modelType: "gpt_oss", names: llamaNames.with(expertNames).with(gptOSSNames), conventions: meta.Conventions{SeparateGates: true}, config: gptOSSConfig},
	{name: "deepseek2", modelType: "youtu", when: lacksExperts, names: llamaNames.with(deepseekNames), conventions: meta.Conventions{SplitLatent: true}, config: (*keys).latent},
	{name: "deepseek2", modelType: "deepseek_v3", when: hasSplitLatent, others: []string{"deepseek_v2"}, names: llamaNames.with(expertNames).with(deepseekNames), conventions: meta.Conventions{SplitLatent: true}, config: deepseekConfig},
	{name: "deepseek2", modelType: "deepseek_v3", names: llamaNames.with(expertNames).with(deepseekNames), config: deepseekConfig},
	{name: "granite", modelType: "granite", names: llamaNames, conventions: pairs, config: graniteConfig},
	{name: "granitemoe", modelType: "granitemoe", others: []string{"granitemoeshared"}, names: llamaNames.with(graniteMoENames), conventions: meta.Conventions{RopePairs: true, SeparateGates: true}, config: graniteMoEConfig},
	{name: "qwen2vl", modelType: "qwen2", names: llamaNames},
	{name: "qwen3vl", modelType: "qwen3", names: llamaNames},
	{name: "qwen3vlmoe", modelType: "qwen3_moe", names: llamaNames.with(expertNames), config: qwen3MoEConfig},
	{name: "olmo2", modelType: "olmo3", when: hasWindow, names: llamaNames.with(sandwichNames), config: olmo3Config},
	{name: "olmo2", modelType: "olmo2", names: llamaNames.with(sandwichNames)},
	{name: "command-r", modelType: "cohere", names: llamaNames, config: cohereConfig},
	{name: "cohere2", modelType: "cohere2", names: llamaNames, config: cohere2Config},
	{name: "exaone4", modelType: "exaone4", names: llamaNames.with(sandwichNames), config: exaoneConfig},
	{name: "seed_oss", modelType: "seed_oss", names: llamaNames.with(postNormNames), config: seedConfig},
	{name: "ernie4_5", modelType: "ernie4_5", names: llamaNames, config: ernieConfig},
	{name: "minimax-m2", modelType: "minimax_m2", names: llamaNames.with(mixtralNames).with(minimaxNames), config: minimaxConfig},
	{name: "glm4moe", modelType: "glm4_moe", names: llamaNames.with(expertNames).with(deepseekNames).with(postNormNames), config: glm4MoEConfig},
	{name: "stablelm", modelType: "stablelm", names: llamaNames, config: stableLMConfig},
	{name: "starcoder2", modelType: "starcoder2", names: llamaNames.with(starcoderNames), config: starcoderConfig},
	{name: "arcee", modelType: "arcee", names: llamaNames, conventions: pairs, config: llamaConfig},
	{name: "phi2", modelType: "phi", names: phiNames, config: phiConfig},
	{name: "nemotron", modelType: "nemotron", names: llamaNames, conventions: wholeNorms, config: nemotronConfig},
	{name: "hunyuan-dense", modelType: "hunyuan_v1_dense", names: llamaNames.with(hunyuanNames), config: hunyuanConfig},
	{name: "hunyuan-moe", modelType: "hunyuan_v1_moe", names: llamaNames.with(hunyuanNames).with(hunyuanMoENames), config: hunyuanMoEConfig},
	{name: "dots1", modelType: "dots1", names: llamaNames.with(expertNames).with(deepseekNames), config: dotsConfig},
	{name: "falcon", modelType: "falcon", when: hasTwoNorms, names: falconNames.with(falconTwoNorms), conventions: fusedInParts, config: falconConfig},
	{name: "falcon", modelType: "falcon", names: falconNames, conventions: fusedInParts, config: falconConfig},
	{name: "olmo", modelType: "olmo", names: llamaNames, conventions: pairs, config: olmoConfig},
	{name: "gpt2", modelType: "gpt2", names: gpt2Names, config: gpt2Config},
	{name: "gptneox", modelType: "gpt_neox", names: neoXNames, conventions: fusedInParts, config: neoXConfig},
}

func hasExperts(k *keys) bool { return k.int("expert_count", 0) > 0 }

// lacksExperts: of the models with latent attention, Youtu's have MLPs alone.
func lacksExperts(k *keys) bool { return !hasExperts(k) && hasSplitLatent(k) }

// hasSections: models with images have positions in three dimensions, for which llama.cpp has no rope that
// rotates neighbours.
func hasSections(k *keys) bool { return k.meta[k.arch+".rope.dimension_sections"] != nil }

func hasWindow(k *keys) bool { return k.int("attention.sliding_window", 0) > 0 }

// hasSplitLatent: files of 2025 and later have the expansion of keys and values in two, of keys transposed.
func hasSplitLatent(k *keys) bool {
	return k.has("blk.0.attn_k_b.weight") && !k.has("blk.0.attn_kv_b.weight")
}

// llamaConfig also serves Mistral's files, which llama.cpp does not tell apart.
func llamaConfig(k *keys, c object) {
	c["attention_bias"] = k.queryBias()
	c["mlp_bias"] = k.has("blk.0.ffn_up.bias")
}

func mixtralConfig(k *keys, c object) {
	c["num_local_experts"], c["num_experts_per_tok"] = k.size("expert_count"), k.size("expert_used_count")
	c["sliding_window"] = nil
}

func gptOSSConfig(k *keys, c object) {
	c["num_local_experts"], c["num_experts_per_tok"] = k.size("expert_count"), k.size("expert_used_count")
	c["intermediate_size"] = k.size("expert_feed_forward_length")
	c["sliding_window"] = k.int("attention.sliding_window", 128)
	if s, ok := c["rope_scaling"].(object); ok {
		s["truncate"] = false
	}
	k.slidingLayers(c)
}

// deepseekConfig reads latent attention and the routing of experts.
func deepseekConfig(k *keys, c object) {
	k.latent(c)
	gate := int64(1)
	if k.hasIn("exp_probs_b.bias") {
		gate = sigmoidGate // files that do not state it
	}
	if k.int("expert_gating_func", gate) != sigmoidGate {
		c["model_type"] = "deepseek_v2"
		if k.int("expert_group_count", 1) > 1 {
			c["topk_method"] = "group_limited_greedy"
		}
	}
	c["first_k_dense_replace"] = k.denseLayers()
	c["n_routed_experts"], c["num_experts_per_tok"] = k.size("expert_count"), k.size("expert_used_count")
	c["n_shared_experts"] = k.int("expert_shared_count", 0)
	c["moe_intermediate_size"] = k.size("expert_feed_forward_length")
	c["routed_scaling_factor"] = k.float("expert_weights_scale", 1)
	c["norm_topk_prob"] = k.bool("expert_weights_norm", false)
	groups, used := int64(1), int64(1)
	if k.size("expert_count") == 256 && k.size("block_count") >= 61 {
		groups, used = 8, 4 // DeepSeek-V3's, which older files do not state
	}
	c["n_group"], c["topk_group"] = k.int("expert_group_count", groups), k.int("expert_group_used_count", used)
}

// latent reads multi-head latent attention, whose heads newer files describe by keys that end in _mla.
func (k *keys) latent(c object) {
	rope := k.size("rope.dimension_count")
	c["qk_rope_head_dim"] = rope
	c["qk_nope_head_dim"] = k.int("attention.key_length_mla", k.size("attention.key_length")) - rope
	c["v_head_dim"] = k.int("attention.value_length_mla", k.size("attention.value_length"))
	delete(c, "head_dim")
	c["num_key_value_heads"], c["attention_bias"] = c["num_attention_heads"], k.has("blk.0.attn_kv_a_mqa.bias")
	c["kv_lora_rank"] = k.size("attention.kv_lora_rank")
	c["q_lora_rank"] = nil
	if n := k.int("attention.q_lora_rank", 0); n > 0 {
		c["q_lora_rank"] = n
	}
	if s, ok := c["rope_scaling"].(object); ok {
		if x := k.float("rope.scaling.yarn_log_multiplier", 0); x > 0 {
			s["mscale"], s["mscale_all_dim"] = shortest(x*10), shortest(x*10)
		}
	}
}

// graniteConfig: the width of MLPs is that of the tensors, as hybrids without mixers state another.
func graniteConfig(k *keys, c object) {
	llamaConfig(k, c)
	if inner := k.rows("blk.0.ffn_up.weight"); inner > 0 {
		c["intermediate_size"] = inner
	}
	c["attention_multiplier"] = k.float("attention.scale", 1)
	c["embedding_multiplier"] = k.float("embedding_scale", 1)
	c["residual_multiplier"] = k.float("residual_scale", 1)
	c["logits_scaling"] = k.float("logit_scale", 1)
}

// layerNorm reads the epsilon of torch's norms.
func (k *keys) layerNorm(c object, field string) {
	c[field] = k.float("attention.layer_norm_epsilon", 1e-5)
}

func cohereConfig(k *keys, c object) {
	k.layerNorm(c, "layer_norm_eps")
	c["logit_scale"] = k.float("logit_scale", 0.0625)
	c["use_qk_norm"] = k.has("blk.0.attn_q_norm.weight")
	c["attention_bias"] = k.queryBias()
}

// partial reads which part of a head is rotated.
func (k *keys) partial(c object, field string) {
	if head, ok := c["head_dim"].(int64); ok && head > 0 {
		c[field] = float64(k.int("rope.dimension_count", head)) / float64(head)
	}
}

func stableLMConfig(k *keys, c object) {
	k.layerNorm(c, "layer_norm_eps")
	k.partial(c, "partial_rotary_factor")
	c["use_parallel_residual"] = k.bool("use_parallel_residual", false) || !k.has("blk.0.ffn_norm.weight")
	c["use_qkv_bias"] = k.queryBias()
	if k.has("blk.0.attn_q_norm.weight") {
		k.fail("blk.0.attn_q_norm.weight", "norms of each head are not supported in GGUF files")
	}
}

func starcoderConfig(k *keys, c object) {
	k.layerNorm(c, "norm_epsilon")
	c["use_bias"] = k.queryBias()
	c["sliding_window"] = nil
}

func gpt2Config(k *keys, c object) {
	k.layerNorm(c, "layer_norm_epsilon")
	c["n_embd"], c["n_layer"], c["n_head"] = c["hidden_size"], c["num_hidden_layers"], c["num_attention_heads"]
	c["n_inner"], c["n_positions"] = c["intermediate_size"], c["max_position_embeddings"]
}

func neoXConfig(k *keys, c object) {
	k.layerNorm(c, "layer_norm_eps")
	k.partial(c, "rotary_pct")
	c["rotary_emb_base"] = c["rope_theta"]
	c["use_parallel_residual"] = k.bool("use_parallel_residual", true)
	c["attention_bias"] = k.has("blk.0.attn_qkv.bias")
	c["hidden_act"] = "gelu"
}

func qwen2MoEConfig(k *keys, c object) {
	qwen3MoEConfig(k, c)
	c["norm_topk_prob"] = false
	c["shared_expert_intermediate_size"] = k.size("expert_shared_feed_forward_length")
}

func olmoeConfig(k *keys, c object) {
	c["num_experts"], c["num_experts_per_tok"] = k.size("expert_count"), k.size("expert_used_count")
	c["norm_topk_prob"] = false
}

func glm4Config(k *keys, c object) {
	k.partial(c, "partial_rotary_factor")
	c["attention_bias"] = k.queryBias()
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
	if _, ok := k.meta[k.arch+"."+key].([]bool); !ok {
		if n := k.int(key, 0); n > 0 {
			c["sliding_window_pattern"] = n
		}
		return
	}
	c["layer_types"] = kinds(k.flags(key), "full_attention", "sliding_attention")
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
