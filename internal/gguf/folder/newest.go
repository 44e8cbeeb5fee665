package folder

import (
	"strconv"

	"github.com/heftai/heft/meta"
)

// newest are the architectures that llama.cpp added last.
var newest = []architecture{
	{name: "step35", modelType: "step3p5", names: gatedNames, conventions: wholeNorms, config: step35Config, lists: uneven},
	{name: "laguna", modelType: "laguna", names: gatedNames, config: lagunaConfig, lists: uneven},
	{name: "mistral4", modelType: "mistral4", names: llamaNames.with(expertNames).with(deepseekNames), conventions: splitLatent, config: mistral4Config},
	{name: "bailingmoe3", modelType: "bailing_hybrid", names: bailing3Names, conventions: meta.Conventions{DecayRates: true, SplitLatent: true},
		config: bailing3Config, extras: bailing3Rates, lists: sparse},
	{name: "dbrx", modelType: "dbrx", names: dbrxNames, config: dbrxConfig},
	{name: "granite_swa", modelType: "granitemoe_swa", when: hasExperts, names: graniteSWANames.with(graniteMoESWANames), conventions: pairs, config: graniteMoESWAConfig},
	{name: "granite_swa", modelType: "granite_swa", names: graniteSWANames, conventions: pairs, config: graniteSWAConfig},
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

// windows reads which layers have a window: a list, or all but each n-th from the first on, where files do not say another n.
func (k *keys) windows(n int64) []bool {
	const key = "attention.sliding_window_pattern"
	switch k.meta[k.arch+"."+key].(type) {
	case []bool, []int64, []uint64:
		return k.flagsOrInts(key)
	}
	n = max(k.int(key, n), 1)
	list := make([]bool, k.layers())
	for i := range list {
		list[i] = int64(i)%n != 0
	}
	return list
}

// typedAttention reads the layers with a window, none if sliding is nil, and checks that all have equally many key heads.
func (k *keys) typedAttention(c object, sliding []bool) {
	if sliding == nil {
		sliding = make([]bool, k.layers())
	} else {
		c["sliding_window"] = k.size("attention.sliding_window")
	}
	c["layer_types"] = kinds(sliding, "full_attention", "sliding_attention")
	for i, n := range k.byLayer("attention.head_count_kv") {
		if c["num_key_value_heads"] != n {
			k.fail(k.arch+".attention.head_count_kv", "layer %d has %d key heads beside %v", i, n, c["num_key_value_heads"])
			break
		}
	}
}

// typedRopes gives the layers without a window the scaling of rope, and each type its base and how many channels of a head turn.
func (k *keys) typedRopes(c object, full, local int64) {
	head, ok := c["head_dim"].(int64)
	if !ok || head < 1 || full < 2 || local < 2 {
		k.fail(k.arch+".rope.dimension_count", "got %d and %d of a head of %v", full, local, c["head_dim"])
		return
	}
	all, window := object{"rope_type": "default"}, object{"rope_type": "default"}
	if s, ok := c["rope_scaling"].(object); ok {
		all = s
		for _, name := range []string{"long_factor", "short_factor"} { // padded to whole heads
			if list, ok := s[name].([]float64); ok && int64(len(list)) > full/2 {
				s[name] = list[:full/2]
			}
		}
	}
	theta, _ := c["rope_theta"].(float64)
	all["rope_theta"], window["rope_theta"] = theta, k.float("rope.freq_base_swa", theta)
	all["partial_rotary_factor"], window["partial_rotary_factor"] = float64(full)/float64(head), float64(local)/float64(head)
	delete(c, "rope_scaling")
	delete(c, "rope_theta")
	c["rope_parameters"] = object{"full_attention": all, "sliding_attention": window}
}

// limits reads a limit for each layer, or one for all of them. 0 is none.
func (k *keys) limits(key string) []float64 {
	list := make([]float64, k.layers())
	full := k.arch + "." + key
	if k.meta[full] == nil {
		return list
	}
	all, err := k.meta.Floats(full)
	if x, one, _ := k.meta.Float(full); one {
		all, err = nil, nil
		for range list {
			all = append(all, x)
		}
	}
	if k.note(err); len(all) < len(list) {
		k.fail(full, "%d numbers for %d layers", len(all), len(list))
		return list
	}
	for i := range list {
		list[i] = shortest(all[i])
	}
	return list
}

// normalised refuses weights of experts that are not divided by their sum.
func (k *keys) normalised() {
	if !k.bool("expert_weights_norm", true) {
		k.fail(k.arch+".expert_weights_norm", "false is not supported")
	}
}

// mistral4Config: files of llama.cpp's converter do not state how queries grow, which is the published model's then.
func mistral4Config(k *keys, c object) {
	k.latent(c)
	s, ok := c["rope_scaling"].(object)
	if !ok || s["rope_type"] != "yarn" {
		k.fail(k.arch+".rope.scaling.type", "yarn is missing")
		return
	}
	s["rope_theta"], s["llama_4_scaling_beta"] = c["rope_theta"], k.float(growth, 0.1)
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

// softmaxGate is llama.cpp's number of scores of experts by the softmax.
const softmaxGate = 1

// bailing3Names: rates of decay are [bailing3Rates].
var bailing3Names = kimiNames.with(map[string]string{
	"ssm_f_a": "self_attn.forget_gate.f_proj", "ssm_f_b": "", "ssm_g_a": "self_attn.g_proj", "ssm_g_b": "", "attn_gate": "self_attn.g_proj", "ssm_a": unread,
})

// bailing3Config is kimiConfig with the other names of Ling's sizes.
func bailing3Config(k *keys, c object) {
	kimiConfig(k, c)
	heads := c["num_attention_heads"]
	if n := c["linear_num_heads"]; n != heads {
		k.fail(k.arch+".attention.head_count", "got %v, but delta attention has %v heads", heads, n)
	}
	wide := k.size("expert_feed_forward_length") * k.int("expert_shared_count", 1)
	if n := k.int("expert_shared_feed_forward_length", wide); n != wide {
		k.fail(k.arch+".expert_shared_feed_forward_length", "got %d, want %d, that of the shared experts together", n, wide)
	}
	c["head_dim"], c["short_conv_kernel_size"] = c["linear_head_dim"], c["linear_conv_kernel_dim"]
	c["kda_safe_gate"], c["kda_lower_bound"] = k.bool("kda.safe_gate", true), k.float("kda.gate_lower_bound", -5)
	for _, key := range []string{"swiglu_clamp_exp", "swiglu_clamp_shexp"} {
		for i, x := range k.limits(key) {
			if x != 0 {
				k.fail(k.arch+"."+key, "a limit of %v in layer %d is not supported", x, i)
				return
			}
		}
	}
	if hasSections(k) {
		k.fail(k.arch+".rope.dimension_sections", "positions in several dimensions are not supported")
	}
}

// bailing3Rates returns the rates of decay as other files have them: with a minus before them.
func bailing3Rates(k *keys) []Extra {
	var all []Extra
	for i := range k.layers() {
		layer := strconv.FormatInt(i, 10)
		name := "blk." + layer + ".ssm_a"
		if !k.has(name) {
			continue
		}
		list := k.factors(name)
		rates := make([]float32, len(list))
		for j, x := range list {
			rates[j] = -float32(x)
		}
		all = append(all, Extra{Name: "model.layers." + layer + ".self_attn.forget_gate.A_log", Shape: []int{len(rates)}, Values: rates})
	}
	return all
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

var graniteSWANames = llamaNames.with(sinkNames)

// graniteMoESWANames: gates and up projections are one tensor, as in transformers.
var graniteMoESWANames = map[string]string{
	"ffn_gate": "", "ffn_up": "", "ffn_down": "",
	"ffn_gate_inp": "block_sparse_moe.router.layer", "ffn_gate_up_exps": "block_sparse_moe.experts.{}.gate_up_proj", "ffn_down_exps": "block_sparse_moe.experts.{}.down_proj",
	"ffn_up_shexp": "shared_mlp.input_linear", "ffn_down_shexp": "shared_mlp.output_linear",
}

// graniteSWAConfig: layers without rope have 0 for its base.
func graniteSWAConfig(k *keys, c object) {
	graniteConfig(k, c)
	c["sliding_window"] = k.size("attention.sliding_window")
	k.slidingLayers(c)
	if roped := k.flagsOrInts("attention.rope_pattern"); roped != nil {
		bases := make([]float64, len(roped))
		for i, is := range roped {
			if is {
				bases[i], _ = c["rope_theta"].(float64)
			}
		}
		c["layer_rope_theta"] = bases
	}
}

func graniteMoESWAConfig(k *keys, c object) {
	graniteSWAConfig(k, c)
	c["num_local_experts"], c["num_experts_per_tok"] = k.size("expert_count"), k.size("expert_used_count")
	c["shared_intermediate_size"] = k.int("expert_shared_feed_forward_length", 0)
}
