package folder

import "strconv"

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

// laid returns a copy of n with layouts of its own for tensors of blocks.
func (n names) laid(layouts map[string]Layout) names {
	n.layouts = layouts
	return n
}

// wholeRates: each channel of the first Mamba has a decay for each number of its state.
var wholeRates = map[string]Layout{"ssm_a": Same}

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
