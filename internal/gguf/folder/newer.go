package folder

import (
	"slices"
	"strconv"

	"github.com/heftai/heft/meta"
)

// newer are further architectures all of whose layers have attention.
var newer = []architecture{
	{name: "gemma4", modelType: "gemma4_text", names: gemma4Names, config: gemma4Config, lists: uneven},
	{name: "gemma3n", modelType: "gemma3n_text", names: gemma3nNames, config: gemma3nConfig, lists: uneven},
	{name: "mistral3", modelType: "ministral3", when: growsQueries, names: llamaNames, conventions: pairs, config: ministral3Config},
	{name: "mistral3", modelType: "mistral", names: llamaNames, conventions: pairs, config: mistralConfig},
	{name: "llama4", modelType: "llama4_text", names: llamaNames.with(llama4Names), conventions: meta.Conventions{SeparateGates: true}, config: llama4Config},
	{name: "phimoe", modelType: "phimoe", names: llamaNames.with(mixtralNames), config: phiMoEConfig},
	{name: "exaone", modelType: "llama", names: llamaNames, config: llamaConfig},
	{name: "exaone-moe", modelType: "exaone_moe", names: llamaNames.with(expertNames).with(deepseekNames), config: exaoneMoEConfig},
	{name: "ernie4_5-moe", modelType: "ernie4_5_moe", names: llamaNames.with(expertNames).with(deepseekNames).with(ernieMoENames), config: ernieMoEConfig},
	{name: "mimo2", modelType: "mimo_v2_flash", names: llamaNames.with(expertNames).with(deepseekNames).with(mimoNames), config: mimoConfig, lists: uneven},
	{name: "afmoe", modelType: "afmoe", names: llamaNames.with(expertNames).with(deepseekNames).with(afMoENames), config: afMoEConfig},
	{name: "hy_v3", modelType: "hy_v3", names: llamaNames.with(expertNames).with(deepseekNames).with(hyV3Names), config: hyV3Config},
	{name: "cohere2moe", modelType: "cohere2_moe", names: llamaNames.with(expertNames).with(deepseekNames), config: cohere2MoEConfig},
	{name: "mellum", modelType: "mellum", names: llamaNames.with(expertNames), config: mellumConfig},
	{name: "apertus", modelType: "apertus", names: llamaNames.with(apertusNames), config: apertusConfig, extras: xielu},
	{name: "jais2", modelType: "jais2", names: llamaNames, config: jais2Config},
	{name: "starcoder", modelType: "gpt_bigcode", names: gpt2Names, config: bigCodeConfig},
	{name: "chatglm", modelType: "glm", names: llamaNames.with(map[string]string{"ffn_up": "mlp.gate_up_proj"}), config: glm4Config},
	{name: "bailingmoe2", modelType: "glm4_moe", names: llamaNames.with(expertNames).with(deepseekNames), config: glm4MoEConfig},
	{name: "deepseek32", modelType: "deepseek_v32", names: llamaNames.with(expertNames).with(deepseekNames), conventions: splitLatent, config: sparseConfig},
	{name: "glm-dsa", modelType: "glm_moe_dsa", names: llamaNames.with(expertNames).with(deepseekNames), conventions: splitLatent, config: glmSparseConfig},
}

var splitLatent = meta.Conventions{SplitLatent: true}

const growth = "attention.temperature_scale"

// growsQueries: of Mistral's models of 2025, Ministral 3 scales queries by their position.
func growsQueries(k *keys) bool { return k.float(growth, 0) != 0 }

func mistralConfig(k *keys, c object) {
	c["sliding_window"] = nil
	if k.queryBias() {
		k.fail("blk.0.attn_q.bias", "biases are not supported in this architecture")
	}
}

// ministral3Config reads the rope, whose mscale has no effect where it is equal to mscale_all_dim.
func ministral3Config(k *keys, c object) {
	mistralConfig(k, c)
	s, ok := c["rope_scaling"].(object)
	if !ok || s["rope_type"] != "yarn" {
		k.fail(k.arch+".rope.scaling.type", "yarn is missing beside %s", growth)
		return
	}
	s["rope_theta"], s["llama_4_scaling_beta"] = c["rope_theta"], k.float(growth, 0)
	s["mscale"], s["mscale_all_dim"] = 1, 1
	delete(c, "rope_scaling")
	c["rope_parameters"] = s
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

// layerNormOr reads the epsilon of norms that the reference calls rms_norm_eps, although they subtract the
// mean.
func (k *keys) layerNormOr(c object) {
	if eps := k.float("attention.layer_norm_epsilon", 0); eps > 0 {
		c["rms_norm_eps"] = eps
	}
}

// routing reads the mixtures of models that have DeepSeek-V3's.
func (k *keys) routing(c object, experts, shared string) {
	c[experts], c["num_experts_per_tok"] = k.size("expert_count"), k.size("expert_used_count")
	c[shared] = k.int("expert_shared_count", 1)
	c["moe_intermediate_size"] = k.size("expert_feed_forward_length")
	c["first_k_dense_replace"] = k.denseLayers()
	c["norm_topk_prob"], c["routed_scaling_factor"] = k.bool("expert_weights_norm", false), k.float("expert_weights_scale", 1)
	c["n_group"], c["topk_group"] = max(k.int("expert_group_count", 1), 1), max(k.int("expert_group_used_count", 1), 1)
	k.sigmoid()
}

// sigmoid checks that scores of experts are sigmoids.
func (k *keys) sigmoid() {
	if f := k.int("expert_gating_func", sigmoidGate); f != sigmoidGate {
		k.fail(k.arch+".expert_gating_func", "got %d, want %d, the sigmoid", f, sigmoidGate)
	}
}

// sparseLayers names the layers with a mixture in mlp_layer_types.
func (k *keys) sparseLayers(c object) {
	list := make([]bool, k.layers())
	for i := range list {
		list[i] = k.hasAt(i, "ffn_gate_inp.weight")
	}
	c["mlp_layer_types"] = kinds(list, "dense", "sparse")
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

var apertusNames = map[string]string{"attn_norm": "attention_layernorm", "ffn_norm": "feedforward_layernorm"}

func apertusConfig(k *keys, c object) {
	c["hidden_act"], c["attention_bias"] = "xielu", k.queryBias()
	if c["rope_scaling"] == nil {
		c["rope_scaling"] = object{"rope_type": "default"} // the reference's default is another
	}
}

// xielu returns the numbers of Apertus's activation, which are lists by layer.
func xielu(k *keys) []Extra {
	var all []Extra
	for _, name := range []string{"alpha_p", "alpha_n", "beta", "eps"} {
		key, n := "xielu."+name, k.layers()
		list, err := k.meta.Floats(key)
		if x, one, _ := k.meta.Float(key); one {
			list, err = slices.Repeat([]float64{x}, int(n)), nil
		}
		if k.note(err); int64(len(list)) < n {
			k.fail(key, "got %d numbers for %d layers", len(list), n)
			return nil
		}
		shape := []int{}
		if name == "alpha_p" || name == "alpha_n" {
			shape = []int{1}
		}
		for i := range n {
			all = append(all, Extra{Name: "model.layers." + strconv.FormatInt(i, 10) + ".mlp.act_fn." + name, Shape: shape, Values: []float32{float32(list[i])}})
		}
	}
	return all
}

func jais2Config(k *keys, c object) {
	k.layerNorm(c, "layer_norm_eps")
	c["attention_bias"], c["mlp_bias"] = k.queryBias(), k.has("blk.0.ffn_up.bias")
}

func bigCodeConfig(k *keys, c object) {
	gpt2Config(k, c)
	c["multi_query"] = true
	if heads := k.int("attention.head_count_kv", 1); heads != 1 {
		k.fail(k.arch+".attention.head_count_kv", "got %d, want 1", heads)
	}
}

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
