package folder

import (
	"slices"
	"strconv"

	"github.com/heftai/heft/meta"
)

// stateful are the architectures that have layers with a state for each sequence.
var stateful = []architecture{
	{name: "qwen3next", modelType: "qwen3_next", when: hasGateOfDelta, names: qwen3NextNames, conventions: splitDelta, config: qwen3NextConfig},
	{name: "qwen3next", modelType: "qwen3_next", names: qwen3NextNames, conventions: meta.Conventions{WholeNorms: true, DecayRates: true}, config: qwen3NextConfig},
	{name: "qwen35", modelType: "qwen3_5_text", names: deltaNames, conventions: tiledDelta, config: qwen35Config},
	{name: "qwen35moe", modelType: "qwen3_5_moe_text", names: qwen3NextNames, conventions: tiledDelta, config: qwen35MoEConfig},
	{name: "mamba2", modelType: "mamba2", names: mamba2Names, conventions: decays, config: mamba2Config},
	{name: "nemotron_h", modelType: "nemotron_h", names: nemotronHNames, conventions: decayPairs, config: nemotronHConfig, lists: sparse},
	{name: "nemotron_h_moe", modelType: "nemotron_h", names: nemotronHNames.with(nemotronHMoENames), conventions: decayPairs, config: nemotronHMoEConfig, lists: sparse},
	{name: "granitehybrid", modelType: "bamba", when: isBamba, names: falconH1Names, conventions: meta.Conventions{RopeSpread: true, DecayRates: true}, config: bambaConfig, lists: sparse},
	{name: "granitehybrid", modelType: "granitemoehybrid", when: hasExperts, names: graniteHybridNames.with(graniteMoENames),
		conventions: graniteHybridWays, config: graniteHybridConfig, lists: sparse},
	{name: "granitehybrid", modelType: "granitemoehybrid", names: graniteHybridNames, conventions: graniteHybridWays, config: graniteHybridConfig, lists: sparse},
	{name: "falcon-h1", modelType: "falcon_h1", names: falconH1Names, conventions: meta.Conventions{DecayRates: true, Scaled: true}, config: falconH1Config},
	{name: "lfm2", modelType: "lfm2", names: lfm2Names, config: lfm2Config, lists: sparse},
	{name: "lfm2moe", modelType: "lfm2_moe", names: lfm2Names.with(lfm2MoENames), config: lfm2MoEConfig, lists: sparse},
}

var (
	decays            = meta.Conventions{DecayRates: true}
	decayPairs        = meta.Conventions{DecayRates: true, RopePairs: true}
	splitDelta        = meta.Conventions{WholeNorms: true, DecayRates: true, SplitDelta: true}
	tiledDelta        = meta.Conventions{WholeNorms: true, DecayRates: true, TiledHeads: true}
	graniteHybridWays = meta.Conventions{RopePairs: true, DecayRates: true, SeparateGates: true}
)

// hasGateOfDelta: files of 2026 have the output gates of delta nets apart.
func hasGateOfDelta(k *keys) bool { return k.hasIn("attn_gate.weight") }

var deltaNames = llamaNames.with(postNormNames).with(map[string]string{
	"attn_qkv": "linear_attn.in_proj_qkv", "attn_gate": "linear_attn.in_proj_z", "ssm_in": "linear_attn.in_proj_qkvz", "ssm_ba": "linear_attn.in_proj_ba",
	"ssm_beta": "linear_attn.in_proj_b", "ssm_alpha": "linear_attn.in_proj_a", "ssm_conv1d": "linear_attn.conv1d",
	"ssm_dt.bias": "linear_attn.dt_bias", "ssm_a": "linear_attn.A_log", "ssm_norm": "linear_attn.norm", "ssm_out": "linear_attn.out_proj",
})

var qwen3NextNames = deltaNames.with(expertNames).with(sharedNames)

// qwen35Config reads the delta nets, and which layers have them.
func qwen35Config(k *keys, c object) {
	k.partial(c, "partial_rotary_factor")
	values := k.size("ssm.time_step_rank")
	c["linear_num_key_heads"], c["linear_num_value_heads"] = k.size("ssm.group_count"), values
	c["linear_key_head_dim"], c["linear_conv_kernel_dim"] = k.size("ssm.state_size"), k.size("ssm.conv_kernel")
	c["linear_value_head_dim"] = k.shared("ssm.inner_size", values)
	c["full_attention_interval"] = k.int("full_attention_interval", 4)
	c["attention_bias"] = k.queryBias()
	if list := k.flags("attention.recurrent_layers"); list != nil {
		c["layer_types"] = kinds(list, "full_attention", "linear_attention")
	}
}

// kinds names each flag.
func kinds(list []bool, no, yes string) []string {
	names := make([]string, len(list))
	for i, is := range list {
		if names[i] = no; is {
			names[i] = yes
		}
	}
	return names
}

// shared is a size divided by a number of heads.
func (k *keys) shared(key string, heads int64) int64 {
	n := k.size(key)
	if heads < 1 || n%heads != 0 {
		k.fail(k.arch+"."+key, "%d channels are not a multiple of %d heads", n, heads)
		return 0
	}
	return n / heads
}

func qwen35MoEConfig(k *keys, c object) {
	qwen35Config(k, c)
	qwen3MoEConfig(k, c)
	c["shared_expert_intermediate_size"] = k.size("expert_shared_feed_forward_length")
}

func qwen3NextConfig(k *keys, c object) {
	qwen35MoEConfig(k, c)
	c["decoder_sparse_step"] = 1
}

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

// isBamba: Bamba's files have the name of Granite's hybrids, and say that they have rope.
func isBamba(k *keys) bool { return k.bool("rope.scaling.finetuned", false) }

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

var lfm2Names = names{
	layers: "model.layers.",
	whole:  map[string]string{"token_embd": "model.embed_tokens", "token_embd_norm": "model.embedding_norm", "output_norm": "model.embedding_norm", "output": "lm_head"},
	block: map[string]string{
		"attn_norm": "operator_norm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
		"attn_output": "self_attn.out_proj", "attn_q_norm": "self_attn.q_layernorm", "attn_k_norm": "self_attn.k_layernorm",
		"shortconv.in_proj": "conv.in_proj", "shortconv.out_proj": "conv.out_proj", "shortconv.conv": "conv.conv",
		"ffn_norm": "ffn_norm", "ffn_gate": "feed_forward.w1", "ffn_up": "feed_forward.w3", "ffn_down": "feed_forward.w2",
	},
}

var lfm2MoENames = map[string]string{
	"ffn_gate_inp": "feed_forward.gate", "exp_probs_b.bias": "feed_forward.expert_bias", "ffn_gate_exps": "feed_forward.experts.{}.w1",
	"ffn_up_exps": "feed_forward.experts.{}.w3", "ffn_down_exps": "feed_forward.experts.{}.w2",
}

// lfm2Config: layers without key heads have a convolution.
func lfm2Config(k *keys, c object) {
	c["block_auto_adjust_ff_dim"], c["conv_L_cache"] = false, k.size("shortconv.l_cache")
	c["norm_eps"], c["conv_bias"] = c["rms_norm_eps"], k.hasIn("shortconv.conv.bias")
	heads := k.byLayer("attention.head_count_kv")
	types := make([]string, len(heads))
	for i := range types {
		if types[i] = "conv"; heads[i] > 0 {
			types[i] = "full_attention"
		}
	}
	c["layer_types"] = types
}

func lfm2MoEConfig(k *keys, c object) {
	lfm2Config(k, c)
	c["num_experts"], c["num_experts_per_tok"] = k.size("expert_count"), k.size("expert_used_count")
	c["moe_intermediate_size"], c["num_dense_layers"] = k.size("expert_feed_forward_length"), k.denseLayers()
	c["use_expert_bias"], c["norm_topk_prob"] = k.hasIn("exp_probs_b.bias"), true
	c["routed_scaling_factor"] = k.float("expert_weights_scale", 1)
	k.sigmoid()
}
