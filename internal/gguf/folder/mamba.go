package folder

import (
	"slices"
	"strconv"
)

// mixerNames are those of Mamba2 mixers in a child of blocks.
func mixerNames(child string) map[string]string {
	return map[string]string{
		"ssm_in": child + ".in_proj", "ssm_conv1d": child + ".conv1d", "ssm_dt.bias": child + ".dt_bias", "ssm_a": child + ".A_log",
		"ssm_d": child + ".D", "ssm_norm": child + ".norm", "ssm_out": child + ".out_proj",
	}
}

// ending returns a copy of n with another name of the last norm.
func (n names) ending(norm string) names {
	whole := map[string]string{}
	for k, v := range n.whole {
		whole[k] = v
	}
	whole["output_norm"] = norm
	n.whole = whole
	return n
}

var mamba2Names = names{
	layers: "backbone.layers.",
	whole:  map[string]string{"token_embd": "backbone.embeddings", "output_norm": "backbone.norm_f", "output": "lm_head"},
	block:  map[string]string{"attn_norm": "norm"},
}.with(mixerNames("mixer"))

// mixer reads the sizes of Mamba2 mixers into fields of the given names.
func (k *keys) mixer(c object, heads, headDim, groups, state, kernel string) {
	n := k.size("ssm.time_step_rank")
	c[heads], c[headDim] = n, k.shared("ssm.inner_size", n)
	c[groups], c[state], c[kernel] = k.int("ssm.group_count", 1), k.size("ssm.state_size"), k.size("ssm.conv_kernel")
}

func mamba2Config(k *keys, c object) {
	k.mixer(c, "num_heads", "head_dim", "n_groups", "state_size", "conv_kernel")
	c["expand"] = k.shared("ssm.inner_size", k.size("embedding_length"))
	c["use_bias"], c["use_conv_bias"] = k.has("blk.0.ssm_in.bias"), k.has("blk.0.ssm_conv1d.bias")
	c["layer_norm_epsilon"] = k.float("attention.layer_norm_rms_epsilon", 1e-5)
}

var nemotronHNames = names{
	layers: "backbone.layers.",
	whole:  map[string]string{"token_embd": "backbone.embeddings", "output_norm": "backbone.norm_f", "output": "lm_head"},
	block: map[string]string{
		"attn_norm": "norm", "attn_q": "mixer.q_proj", "attn_k": "mixer.k_proj", "attn_v": "mixer.v_proj", "attn_output": "mixer.o_proj",
		"ffn_up": "mixer.up_proj", "ffn_down": "mixer.down_proj",
	},
}.with(mixerNames("mixer"))

var nemotronHMoENames = map[string]string{
	"ffn_gate_inp": "mixer.gate", "exp_probs_b.bias": "mixer.gate.e_score_correction_bias", "ffn_up_exps": "mixer.experts.{}.up_proj",
	"ffn_down_exps": "mixer.experts.{}.down_proj", "ffn_up_shexp": "mixer.shared_experts.up_proj", "ffn_down_shexp": "mixer.shared_experts.down_proj",
	"ffn_latent_down": "mixer.fc1_latent_proj", "ffn_latent_up": "mixer.fc2_latent_proj",
}

func nemotronHMoEConfig(k *keys, c object) {
	nemotronHConfig(k, c)
	c["n_routed_experts"], c["num_experts_per_tok"] = k.size("expert_count"), k.size("expert_used_count")
	c["moe_intermediate_size"] = k.size("expert_feed_forward_length")
	c["moe_shared_expert_intermediate_size"] = k.size("expert_shared_feed_forward_length")
	c["norm_topk_prob"], c["routed_scaling_factor"] = k.bool("expert_weights_norm", false), k.float("expert_weights_scale", 1)
	c["n_group"], c["topk_group"] = max(k.int("expert_group_count", 1), 1), max(k.int("expert_group_used_count", 1), 1)
	if n := k.int("moe_latent_size", 0); n > 0 {
		c["moe_latent_size"] = n
	}
}

// nemotronHConfig: the tensors of a layer tell its kind. The lists of widths lack MLPs in some files.
func nemotronHConfig(k *keys, c object) {
	k.mixer(c, "mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size", "conv_kernel")
	types := make([]string, k.layers())
	for i := range types {
		switch {
		case k.hasAt(i, "ssm_in.weight"):
			types[i] = "mamba"
		case k.hasAt(i, "ffn_gate_inp.weight"):
			types[i] = "moe"
		case k.hasAt(i, "ffn_up.weight"):
			types[i] = "mlp"
			c["intermediate_size"] = k.rows("blk." + strconv.Itoa(i) + ".ffn_up.weight")
		default:
			types[i] = "attention"
		}
	}
	c["layers_block_type"] = types
	c["layer_norm_epsilon"] = k.float("attention.layer_norm_rms_epsilon", k.float("attention.layer_norm_epsilon", 1e-5))
	c["use_bias"], c["use_conv_bias"] = k.hasIn("ssm_in.bias"), k.hasIn("ssm_conv1d.bias")
	c["mlp_bias"], c["attention_bias"] = k.hasIn("ffn_up.bias"), k.queryBias()
}

var graniteHybridNames = llamaNames.with(map[string]string{
	"ffn_gate": "shared_mlp.gate_proj", "ffn_up": "shared_mlp.up_proj", "ffn_down": "shared_mlp.output_linear",
}).with(mixerNames("mamba"))

// hybridMixer reads the mixers of models that have attention too.
func (k *keys) hybridMixer(c object) {
	k.mixer(c, "mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv")
	c["mamba_proj_bias"], c["mamba_conv_bias"] = k.hasIn("ssm_in.bias"), k.hasIn("ssm_conv1d.bias")
	c["attention_bias"], c["mlp_bias"] = k.queryBias(), k.hasIn("ffn_up.bias")
}

// bambaConfig: rows of queries and keys are in an order that suits rope on whole heads, and Bamba turns half of each.
func bambaConfig(k *keys, c object) {
	k.hybridMixer(c)
	c["mamba_expand"] = k.shared("ssm.inner_size", k.size("embedding_length"))
	attended := k.attended()
	c["attn_layer_indices"] = attended
	k.keyHeads(c, attended)
}

// attended returns the layers with attention, never nil.
func (k *keys) attended() []int {
	layers := []int{}
	for i := range int(k.layers()) {
		if k.hasAt(i, "attn_k.weight") {
			layers = append(layers, i)
		}
	}
	return layers
}

// keyHeads reads the number of key heads from tensors where the list of them has none: folders saved by transformers 5
// have been converted so.
func (k *keys) keyHeads(c object, attended []int) {
	if head, ok := c["head_dim"].(int64); ok && len(attended) > 0 && c["num_key_value_heads"] == int64(0) {
		c["num_key_value_heads"] = k.rows("blk."+strconv.Itoa(attended[0])+".attn_k.weight") / max(head, 1)
	}
}

func graniteHybridConfig(k *keys, c object) {
	graniteConfig(k, c)
	k.hybridMixer(c)
	c["mamba_expand"] = k.shared("ssm.inner_size", k.size("embedding_length"))
	types, attended := slices.Repeat([]string{"mamba"}, int(k.layers())), k.attended()
	for _, i := range attended {
		types[i] = "attention"
	}
	k.keyHeads(c, attended)
	c["layer_types"], c["position_embedding_type"] = types, "nope"
	c["num_local_experts"], c["shared_intermediate_size"] = 0, k.int("expert_shared_feed_forward_length", k.int("feed_forward_length", 0))
	if hasExperts(k) {
		c["num_local_experts"], c["num_experts_per_tok"] = k.size("expert_count"), k.size("expert_used_count")
	}
}

var falconH1Names = llamaNames.with(map[string]string{
	"ffn_norm": "pre_ff_layernorm.weight", "ffn_norm.weight": "pre_ff_layernorm.weight", "ffn_gate": "feed_forward.gate_proj", "ffn_up": "feed_forward.up_proj", "ffn_down": "feed_forward.down_proj",
}).with(mixerNames("mamba")).ending("model.final_layernorm")

// falconH1Config: the multipliers are within the weights.
func falconH1Config(k *keys, c object) {
	k.hybridMixer(c)
	c["mamba_d_ssm"] = k.size("ssm.inner_size")
	c["projectors_bias"] = k.hasIn("ssm_out.bias")
	c["mamba_rms_norm"], c["mamba_norm_before_gate"] = k.hasIn("ssm_norm.weight"), false
}

// scanNames are those of the first Mamba's mixers in a child of blocks.
func scanNames(child string) map[string]string {
	return map[string]string{
		"ssm_in": child + ".in_proj", "ssm_conv1d": child + ".conv1d", "ssm_x": child + ".x_proj", "ssm_dt": child + ".dt_proj", "ssm_a": child + ".A_log",
		"ssm_d": child + ".D", "ssm_out": child + ".out_proj", "ssm_dt_norm": child + ".dt_layernorm", "ssm_b_norm": child + ".b_layernorm",
		"ssm_c_norm": child + ".c_layernorm",
	}
}

var mambaNames = names{
	layers: "backbone.layers.",
	whole:  map[string]string{"token_embd": "backbone.embeddings", "output_norm": "backbone.norm_f", "output": "lm_head"},
	block:  map[string]string{"attn_norm": "norm"},
}.with(scanNames("mixer")).laid(wholeRates)

func mambaConfig(k *keys, c object) {
	c["expand"] = k.shared("ssm.inner_size", k.size("embedding_length"))
	c["state_size"], c["conv_kernel"], c["time_step_rank"] = k.size("ssm.state_size"), k.size("ssm.conv_kernel"), k.size("ssm.time_step_rank")
	c["use_bias"], c["use_conv_bias"] = k.hasIn("ssm_in.bias"), k.hasIn("ssm_conv1d.bias")
	c["layer_norm_epsilon"] = k.float("attention.layer_norm_rms_epsilon", 1e-5)
}

var jambaNames = llamaNames.with(map[string]string{
	"ffn_norm": "pre_ff_layernorm", "ffn_gate": "feed_forward.gate_proj", "ffn_up": "feed_forward.up_proj", "ffn_down": "feed_forward.down_proj",
	"ffn_gate_inp": "feed_forward.router", "ffn_gate_exps": "feed_forward.experts.{}.gate_proj", "ffn_up_exps": "feed_forward.experts.{}.up_proj",
	"ffn_down_exps": "feed_forward.experts.{}.down_proj",
}).with(scanNames("mamba")).laid(wholeRates).ending("model.final_layernorm")

func jambaConfig(k *keys, c object) {
	c["mamba_expand"] = k.shared("ssm.inner_size", k.size("embedding_length"))
	c["mamba_d_state"], c["mamba_d_conv"], c["mamba_dt_rank"] = k.size("ssm.state_size"), k.size("ssm.conv_kernel"), k.size("ssm.time_step_rank")
	c["mamba_proj_bias"], c["mamba_conv_bias"] = k.hasIn("ssm_in.bias"), k.hasIn("ssm_conv1d.bias")
	k.everyLayer(c, "attn_layer", "attn_k.weight")
	if c["num_experts"], c["num_experts_per_tok"] = 1, 1; k.hasIn("ffn_gate_inp.weight") {
		c["num_experts"], c["num_experts_per_tok"] = k.size("expert_count"), k.size("expert_used_count")
		k.everyLayer(c, "expert_layer", "ffn_gate_inp.weight")
	}
}

// everyLayer states the layers with a tensor as a period and an offset.
func (k *keys) everyLayer(c object, name, tensor string) {
	n := int(k.layers())
	period, offset, found := n+1, n, 0
	for i := range n {
		if !k.hasAt(i, tensor) {
			continue
		}
		switch found++; {
		case found == 1:
			offset = i
		case found == 2:
			period = i - offset
		}
	}
	for i := range n {
		if period > offset && k.hasAt(i, tensor) == (i%period == offset) {
			continue
		}
		k.fail(k.arch+".block_count", "the layers with %s are not every so many from an offset on", tensor)
		return
	}
	c[name+"_period"], c[name+"_offset"] = period, offset
}
