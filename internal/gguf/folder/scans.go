package folder

import (
	"strconv"

	"github.com/heftai/heft/meta"
)

// scanning are the architectures with the first Mamba's scans or Kimi's delta attention.
var scanning = []architecture{
	{name: "mamba", modelType: "falcon_mamba", when: hasBareNorms, names: mambaNames, conventions: decays, config: mambaConfig},
	{name: "mamba", modelType: "mamba", names: mambaNames, conventions: decays, config: mambaConfig},
	{name: "jamba", modelType: "jamba", names: jambaNames, conventions: decays, config: jambaConfig, lists: sparse},
	{name: "kimi-linear", modelType: "kimi_linear", when: hasAnySplitLatent, names: kimiNames, conventions: meta.Conventions{DecayRates: true, SplitLatent: true},
		config: kimiConfig, lists: sparse},
	{name: "kimi-linear", modelType: "kimi_linear", names: kimiNames, conventions: decays, config: kimiConfig, lists: sparse},
}

// hasBareNorms: Falcon Mamba has norms without weights on steps, B and C. Their epsilon is not in files.
func hasBareNorms(k *keys) bool { return k.bool("ssm.dt_b_c_rms", false) }

// hasAnySplitLatent is hasSplitLatent of models whose first layers have no attention.
func hasAnySplitLatent(k *keys) bool { return k.hasIn("attn_k_b.weight") }

// scanNames are those of the first Mamba's mixers in a child of blocks.
func scanNames(child string) map[string]string {
	return map[string]string{
		"ssm_in": child + ".in_proj", "ssm_conv1d": child + ".conv1d", "ssm_x": child + ".x_proj", "ssm_dt": child + ".dt_proj", "ssm_a": child + ".A_log",
		"ssm_d": child + ".D", "ssm_out": child + ".out_proj", "ssm_dt_norm": child + ".dt_layernorm", "ssm_b_norm": child + ".b_layernorm",
		"ssm_c_norm": child + ".c_layernorm",
	}
}

// laid returns a copy of n with layouts of its own for tensors of blocks.
func (n names) laid(layouts map[string]Layout) names {
	n.layouts = layouts
	return n
}

// wholeRates: each channel of the first Mamba has a decay for each number of its state.
var wholeRates = map[string]Layout{"ssm_a": Same}

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

var kimiNames = llamaNames.with(expertNames).with(deepseekNames).with(map[string]string{
	"ssm_conv1d_q": "self_attn.q_conv1d", "ssm_conv1d_k": "self_attn.k_conv1d", "ssm_conv1d_v": "self_attn.v_conv1d",
	"ssm_f_a": "self_attn.forget_gate.f_a_proj", "ssm_f_b": "self_attn.forget_gate.f_b_proj", "ssm_a": "self_attn.forget_gate.A_log",
	"ssm_dt.bias": "self_attn.forget_gate.dt_bias", "ssm_beta": "self_attn.b_proj", "ssm_g_a": "self_attn.g_a_proj", "ssm_g_b": "self_attn.g_b_proj",
	"ssm_norm": "self_attn.o_norm",
}).laid(map[string]Layout{"ssm_a": Heads, "ssm_conv1d_q.weight": Taps, "ssm_conv1d_k.weight": Taps, "ssm_conv1d_v.weight": Taps})

// kimiConfig: layers without key heads have delta attention, whose heads the tensors tell.
func kimiConfig(k *keys, c object) {
	k.latent(c)
	k.routing(c, "num_experts", "n_shared_experts")
	c["norm_topk_prob"] = k.bool("expert_weights_norm", true)
	full := make([]bool, k.layers())
	for i := range full {
		full[i] = k.hasAt(i, "attn_kv_a_mqa.weight")
		if !full[i] && k.hasAt(i, "ssm_beta.weight") {
			c["linear_num_heads"] = k.rows("blk." + strconv.Itoa(i) + ".ssm_beta.weight")
		}
	}
	c["layer_types"] = kinds(full, "linear_attention", "full_attention")
	c["linear_head_dim"], c["linear_conv_kernel_dim"] = k.size("kda.head_dim"), k.size("ssm.conv_kernel")
}
