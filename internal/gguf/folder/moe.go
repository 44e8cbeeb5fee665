package folder

import "strconv"

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

func qwen2MoEConfig(k *keys, c object) {
	qwen3MoEConfig(k, c)
	c["norm_topk_prob"] = false
	c["shared_expert_intermediate_size"] = k.size("expert_shared_feed_forward_length")
}

func olmoeConfig(k *keys, c object) {
	c["num_experts"], c["num_experts_per_tok"] = k.size("expert_count"), k.size("expert_used_count")
	c["norm_topk_prob"] = false
}

func qwen3MoEConfig(k *keys, c object) {
	c["num_experts"], c["num_experts_per_tok"] = k.size("expert_count"), k.size("expert_used_count")
	c["moe_intermediate_size"] = k.size("expert_feed_forward_length")
	c["norm_topk_prob"] = true
}

var llama4Names = map[string]string{
	"ffn_gate": "feed_forward.gate_proj", "ffn_up": "feed_forward.up_proj", "ffn_down": "feed_forward.down_proj",
	"ffn_gate_inp": "feed_forward.router", "ffn_gate_exps": "feed_forward.experts.{}.gate_proj", "ffn_up_exps": "feed_forward.experts.{}.up_proj",
	"ffn_down_exps": "feed_forward.experts.{}.down_proj", "ffn_gate_up_exps": "feed_forward.experts.{}.gate_up_proj",
	"ffn_gate_shexp": "feed_forward.shared_expert.gate_proj", "ffn_up_shexp": "feed_forward.shared_expert.up_proj",
	"ffn_down_shexp": "feed_forward.shared_expert.down_proj",
}

// llama4Config: chunks, layers without rope and the scale of their queries are llama.cpp's constants, and
// files say only that there are none of them.
func llama4Config(k *keys, c object) {
	c["intermediate_size_mlp"], c["intermediate_size"] = c["intermediate_size"], k.size("expert_feed_forward_length")
	c["num_local_experts"], c["num_experts_per_tok"] = k.size("expert_count"), k.size("expert_used_count")
	c["interleave_moe_layer_step"] = k.size("interleave_moe_layer_step")
	c["attention_bias"] = k.queryBias()
	const wide = 128 // experts of Maverick, which has no norms of queries and keys
	c["use_qk_norm"] = k.size("expert_count") != wide
	if n, ok, err := k.meta.Int(k.arch + ".attention.sliding_window"); err == nil && ok && n == 0 {
		roped, types := make([]int, k.layers()), make([]string, k.layers())
		for i := range roped {
			roped[i], types[i] = 1, "full_attention"
		}
		c["no_rope_layers"], c["layer_types"], c["attn_temperature_tuning"] = roped, types, false
	}
}

// phiMoEConfig: one factor scales cos and sin at all lengths.
func phiMoEConfig(k *keys, c object) {
	phi3Config(k, c)
	delete(c, "partial_rotary_factor")
	k.layerNormOr(c)
	c["num_local_experts"], c["num_experts_per_tok"] = k.size("expert_count"), k.size("expert_used_count")
	c["attention_bias"], c["lm_head_bias"] = k.queryBias(), k.has("output.bias")
	if s, ok := c["rope_scaling"].(object); ok {
		factor := s["attention_factor"]
		if factor == nil {
			factor = 1
		}
		s["short_mscale"], s["long_mscale"] = factor, factor
	}
}

func exaoneMoEConfig(k *keys, c object) {
	exaoneConfig(k, c)
	k.routing(c, "num_experts", "num_shared_experts")
}

var ernieMoENames = map[string]string{"exp_probs_b.bias": "mlp.moe_statics.e_score_correction_bias"}

func ernieMoEConfig(k *keys, c object) {
	ernieConfig(k, c)
	c["moe_num_experts"], c["moe_k"] = k.size("expert_count"), k.size("expert_used_count")
	c["moe_intermediate_size"], c["moe_num_shared_experts"] = k.size("expert_feed_forward_length"), k.int("expert_shared_count", 0)
	c["moe_layer_start_index"], c["moe_layer_interval"] = k.denseLayers(), k.int("interleave_moe_layer_step", 1)
}

var mimoNames = map[string]string{"attn_sinks.weight": "self_attn.sinks"}

// mimoConfig: layers with a window have twice the key heads.
func mimoConfig(k *keys, c object) {
	heads, windows := k.byLayer("attention.head_count_kv"), k.flagsOrInts("attention.sliding_window_pattern")
	full := int64(0)
	for i, n := range heads {
		if i < len(windows) && windows[i] {
			n /= 2
		}
		if full != 0 && n != full || n == 0 {
			k.fail(k.arch+".attention.head_count_kv", "layer %d has %d key heads beside %d, want twice as many in layers with a window", i, heads[i], full)
		}
		full = n
	}
	c["num_key_value_heads"], c["v_head_dim"] = full, k.size("attention.value_length")
	c["layer_types"], c["sliding_window"] = kinds(windows, "full_attention", "sliding_attention"), k.size("attention.sliding_window")
	k.partial(c, "partial_rotary_factor")
	part, theta := c["partial_rotary_factor"], c["rope_theta"]
	delete(c, "partial_rotary_factor")
	delete(c, "rope_theta")
	c["rope_parameters"] = object{
		"full_attention":    object{"rope_type": "default", "rope_theta": theta, "partial_rotary_factor": part},
		"sliding_attention": object{"rope_type": "default", "rope_theta": k.float("rope.freq_base_swa", theta.(float64)), "partial_rotary_factor": part},
	}
	c["attention_value_scale"] = nil
	if x := k.float("attention.value_scale", 1); x != 1 {
		c["attention_value_scale"] = x
	}
	c["attention_bias"] = k.queryBias()
	k.routing(c, "n_routed_experts", "n_shared_experts")
	c["norm_topk_prob"] = true
	k.sparseLayers(c)
}

var afMoENames = map[string]string{
	"attn_gate": "self_attn.gate_proj", "post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_mlp_layernorm", "post_ffw_norm": "post_mlp_layernorm",
	"ffn_gate_inp": "mlp.router.gate", "exp_probs_b.bias": "mlp.expert_bias",
}

func afMoEConfig(k *keys, c object) {
	k.routing(c, "num_experts", "num_shared_experts")
	c["num_dense_layers"], c["route_norm"], c["route_scale"] = c["first_k_dense_replace"], k.bool("expert_weights_norm", true), c["routed_scaling_factor"]
	c["sliding_window"] = k.size("attention.sliding_window")
	c["mup_enabled"], c["attention_bias"] = true, k.queryBias()
	k.slidingLayers(c)
	if n, ok := c["sliding_window_pattern"]; ok {
		c["global_attn_every_n_layers"] = n
	}
}

var hyV3Names = map[string]string{"exp_probs_b.bias": "mlp.e_score_correction_bias"}

func hyV3Config(k *keys, c object) {
	k.routing(c, "num_experts", "num_shared_experts")
	inner := k.size("expert_feed_forward_length")
	if shared := k.int("expert_shared_feed_forward_length", inner); inner > 0 {
		c["num_shared_experts"] = shared / inner
	}
	c["router_scaling_factor"] = c["routed_scaling_factor"]
	c["attention_bias"], c["mlp_bias"] = k.queryBias(), k.has("blk.0.ffn_up.bias")
	if !k.bool("expert_weights_norm", true) {
		k.fail(k.arch+".expert_weights_norm", "false is not supported")
	}
	k.sparseLayers(c)
}

func cohere2MoEConfig(k *keys, c object) {
	cohere2Config(k, c)
	if k.float("attention.layer_norm_rms_epsilon", 0) == 0 {
		delete(c, "rms_norm_eps")
	}
	c["prefix_dense_intermediate_size"], c["intermediate_size"] = c["intermediate_size"], k.size("expert_feed_forward_length")
	c["num_experts"], c["num_experts_per_tok"] = k.size("expert_count"), k.size("expert_used_count")
	c["num_shared_experts"], c["norm_topk_prob"] = k.int("expert_shared_count", 0), k.bool("expert_weights_norm", false)
	c["expert_selection_fn"] = "softmax"
	if k.int("expert_gating_func", 1) == sigmoidGate {
		c["expert_selection_fn"] = "sigmoid"
	}
	k.sparseLayers(c)
}

// mellumConfig gives each kind of layers its rope, as olmo3Config does.
func mellumConfig(k *keys, c object) {
	qwen3MoEConfig(k, c)
	window := k.int("attention.sliding_window", 0)
	if window > 0 {
		olmo3Config(k, c)
		return
	}
	c["sliding_window"], c["layer_types"] = nil, kinds(make([]bool, k.layers()), "full_attention", "")
}

// gatedNames are those of models with a gate for each head, and DeepSeek's mixtures.
var gatedNames = llamaNames.with(expertNames).with(deepseekNames).with(map[string]string{"attn_gate": "self_attn.g_proj"})

// step35Config: layers with a window have other query heads. llama.cpp turns half of each head in the others, of which files say nothing.
func step35Config(k *keys, c object) {
	k.typedAttention(c, k.flagsOrInts("attention.sliding_window_pattern"))
	layers := object{}
	for i, n := range k.byLayer("attention.head_count") {
		layers[strconv.Itoa(i)] = object{"num_attention_heads": n}
	}
	c["per_layer_config"] = layers
	head, _ := c["head_dim"].(int64)
	k.typedRopes(c, k.int("rope.dimension_count", head)/2, head)
	c["attention_bias"], c["mlp_bias"] = k.queryBias(), k.hasIn("ffn_up.bias")
	c["n_routed_experts"], c["num_experts_per_tok"] = k.size("expert_count"), k.size("expert_used_count")
	c["moe_intermediate_size"], c["share_expert_dim"] = k.size("expert_feed_forward_length"), k.size("expert_shared_feed_forward_length")
	c["moe_router_scaling_factor"] = k.float("expert_weights_scale", 1)
	c["swiglu_limits"], c["swiglu_limits_shared"] = k.limits("swiglu_clamp_exp"), k.limits("swiglu_clamp_shexp")
	k.normalised()
	k.sigmoid()
	k.sparseLayers(c)
}

// lagunaConfig: files without a list have full attention in every fourth layer.
func lagunaConfig(k *keys, c object) {
	var sliding []bool
	if hasWindow(k) {
		sliding = k.windows(4)
	}
	k.typedAttention(c, sliding)
	c["num_attention_heads_per_layer"] = k.byLayer("attention.head_count")
	head, _ := c["head_dim"].(int64)
	turned := k.int("rope.dimension_count", head)
	k.typedRopes(c, turned, k.int("rope.dimension_count_swa", turned))
	if c["gating"] = "per-head"; k.rows("blk.0.attn_gate.weight") != k.int("attention.head_count", 0) {
		c["gating"] = "per-element"
	}
	c["attention_bias"] = k.queryBias()
	c["num_experts"], c["num_experts_per_tok"] = k.size("expert_count"), k.size("expert_used_count")
	c["moe_intermediate_size"], c["shared_expert_intermediate_size"] = k.size("expert_feed_forward_length"), k.size("expert_shared_feed_forward_length")
	c["moe_routed_scaling_factor"], c["moe_router_logit_softcapping"] = k.float("expert_weights_scale", 1), k.float("router_logit_softcapping", 0)
	k.normalised()
	k.sigmoid()
	k.sparseLayers(c)
}

// mistral4Config: files of llama.cpp's converter do not state how queries grow, which is the published model's then.
func mistral4Config(k *keys, c object) {
	k.latent(c)
	s, ok := c["rope_scaling"].(object)
	if !ok || s["rope_type"] != "yarn" {
		k.fail(k.arch+".rope.scaling.type", "yarn is missing")
		return
	}
	s["rope_theta"], s["llama_4_scaling_beta"] = c["rope_theta"], k.float(temperatureScaleKey, 0.1)
	delete(c, "rope_scaling")
	delete(c, "rope_theta")
	c["rope_parameters"] = s
	c["first_k_dense_replace"] = k.denseLayers()
	c["n_routed_experts"], c["num_experts_per_tok"] = k.size("expert_count"), k.size("expert_used_count")
	c["n_shared_experts"], c["moe_intermediate_size"] = k.int("expert_shared_count", 1), k.size("expert_feed_forward_length")
	c["norm_topk_prob"], c["routed_scaling_factor"] = k.bool("expert_weights_norm", false), k.float("expert_weights_scale", 1)
	c["n_group"], c["topk_group"] = max(k.int("expert_group_count", 1), 1), max(k.int("expert_group_used_count", 1), 1)
	if f := k.int("expert_gating_func", softmaxGate); f != softmaxGate {
		k.fail(k.arch+".expert_gating_func", "got %d, want %d, the softmax", f, softmaxGate)
	}
}

var dbrxNames = names{
	layers: "transformer.blocks.",
	whole:  map[string]string{"token_embd": "transformer.wte", "output_norm": "transformer.norm_f", "output": "lm_head"},
	block: map[string]string{
		"attn_norm": "norm_attn_norm.norm_1", "attn_qkv": "norm_attn_norm.attn.Wqkv", "attn_output": "norm_attn_norm.attn.out_proj",
		"attn_output_norm": "norm_attn_norm.norm_2", "ffn_gate_inp": "ffn.router.layer", "ffn_gate_exps": "ffn.experts.mlp.{}.gate_proj",
		"ffn_up_exps": "ffn.experts.mlp.{}.up_proj", "ffn_down_exps": "ffn.experts.mlp.{}.down_proj", "ffn_gate_up_exps": "ffn.experts.mlp.{}.gate_up_proj",
	},
}

func dbrxConfig(k *keys, c object) {
	c["d_model"], c["n_heads"], c["n_layers"], c["max_seq_len"] = c["hidden_size"], c["num_attention_heads"], c["num_hidden_layers"], c["max_position_embeddings"]
	attention := object{"kv_n_heads": c["num_key_value_heads"], "rope_theta": c["rope_theta"], "clip_qkv": nil}
	if x := k.float("attention.clamp_kqv", 0); x > 0 {
		attention["clip_qkv"] = x
	}
	c["attn_config"] = attention
	c["ffn_config"] = object{
		"ffn_hidden_size": c["intermediate_size"], "moe_num_experts": k.size("expert_count"), "moe_top_k": k.size("expert_used_count"), "moe_normalize_expert_weights": 1,
	}
	if eps := k.float("attention.layer_norm_epsilon", 1e-5); eps != 1e-5 {
		k.fail(k.arch+".attention.layer_norm_epsilon", "got %v, want 1e-05", eps)
	}
}

// graniteMoESWANames: gates and up projections are one tensor, as in transformers.
var graniteMoESWANames = map[string]string{
	"ffn_gate": "", "ffn_up": "", "ffn_down": "",
	"ffn_gate_inp": "block_sparse_moe.router.layer", "ffn_gate_up_exps": "block_sparse_moe.experts.{}.gate_up_proj", "ffn_down_exps": "block_sparse_moe.experts.{}.down_proj",
	"ffn_up_shexp": "shared_mlp.input_linear", "ffn_down_shexp": "shared_mlp.output_linear",
}

func graniteMoESWAConfig(k *keys, c object) {
	graniteSWAConfig(k, c)
	c["num_local_experts"], c["num_experts_per_tok"] = k.size("expert_count"), k.size("expert_used_count")
	c["shared_intermediate_size"] = k.int("expert_shared_feed_forward_length", 0)
}

func minimaxConfig(k *keys, c object) {
	c["num_local_experts"], c["num_experts_per_tok"] = k.size("expert_count"), k.size("expert_used_count")
	c["intermediate_size"] = k.size("expert_feed_forward_length")
	c["rotary_dim"] = k.size("rope.dimension_count")
	k.sigmoid()
}

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

var hunyuanMoENames = map[string]string{
	"ffn_gate": "", "ffn_up": "", "ffn_down": "",
	"ffn_gate_inp": "mlp.gate.wg", "ffn_gate_exps": "mlp.experts.{}.gate_proj", "ffn_up_exps": "mlp.experts.{}.up_proj",
	"ffn_down_exps": "mlp.experts.{}.down_proj", "ffn_gate_shexp": "mlp.shared_mlp.gate_proj", "ffn_up_shexp": "mlp.shared_mlp.up_proj",
	"ffn_down_shexp": "mlp.shared_mlp.down_proj",
}
