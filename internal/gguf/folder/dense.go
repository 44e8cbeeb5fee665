package folder

import (
	"math"
	"slices"
	"strconv"
)

// llamaConfig also serves Mistral's files, which llama.cpp does not tell apart.
func llamaConfig(k *keys, c object) {
	c["attention_bias"] = k.queryBias()
	c["mlp_bias"] = k.has("blk.0.ffn_up.bias")
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

func cohereConfig(k *keys, c object) {
	k.layerNorm(c, "layer_norm_eps")
	c["logit_scale"] = k.float("logit_scale", 0.0625)
	c["use_qk_norm"] = k.has("blk.0.attn_q_norm.weight")
	c["attention_bias"] = k.queryBias()
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

func glm4Config(k *keys, c object) {
	k.partial(c, "partial_rotary_factor")
	c["attention_bias"] = k.queryBias()
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
		k.fail(k.arch+".rope.scaling.type", "yarn is missing beside %s", temperatureScaleKey)
		return
	}
	s["rope_theta"], s["llama_4_scaling_beta"] = c["rope_theta"], k.float(temperatureScaleKey, 0)
	s["mscale"], s["mscale_all_dim"] = 1, 1
	delete(c, "rope_scaling")
	c["rope_parameters"] = s
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

var graniteSWANames = llamaNames.with(sinkNames)

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

// olmo3Config gives the base of rope to all layers, and its scaling to those without a window.
func olmo3Config(k *keys, c object) {
	full, local := object{"rope_type": "default"}, object{"rope_type": "default"}
	if s, ok := c["rope_scaling"].(object); ok {
		full = s
		if x := k.float("rope.scaling.attn_factor", 0); x > 0 {
			full["attention_factor"] = x
		}
	}
	full["rope_theta"], local["rope_theta"] = c["rope_theta"], k.float("rope.freq_base_swa", c["rope_theta"].(float64))
	delete(c, "rope_scaling")
	delete(c, "rope_theta")
	c["rope_parameters"] = object{"full_attention": full, "sliding_attention": local}
	c["sliding_window"] = k.size("attention.sliding_window")
	c["attention_bias"] = k.queryBias()
	k.slidingLayers(c)
}

func cohere2Config(k *keys, c object) {
	cohereConfig(k, c)
	delete(c, "use_qk_norm")
	c["sliding_window"] = k.size("attention.sliding_window")
	k.slidingLayers(c)
}

// exaoneConfig: models without windows have rope in all layers.
func exaoneConfig(k *keys, c object) {
	c["sliding_window"] = nil
	if n := k.int("attention.sliding_window", 0); n > 0 {
		c["sliding_window"] = n
		k.slidingLayers(c)
	}
}

func seedConfig(k *keys, c object) {
	c["attention_bias"], c["attention_out_bias"] = k.queryBias(), k.has("blk.0.attn_output.bias")
	c["mlp_bias"] = k.has("blk.0.ffn_up.bias")
}

func ernieConfig(k *keys, c object) { c["use_bias"] = k.queryBias() }

// postNormNames are those of blocks whose second norm is called after attention.
var postNormNames = map[string]string{"post_attention_norm": "post_attention_layernorm"}

func phiConfig(k *keys, c object) {
	k.layerNorm(c, "layer_norm_eps")
	k.partial(c, "partial_rotary_factor")
	c["qk_layernorm"] = k.has("blk.0.attn_q_norm.weight")
}

func nemotronConfig(k *keys, c object) {
	k.layerNorm(c, "norm_eps")
	k.partial(c, "partial_rotary_factor")
	llamaConfig(k, c)
}

// hunyuanConfig: rope.freq_base includes the factor of the model's rope_scaling.
func hunyuanConfig(k *keys, c object) { c["attention_bias"] = k.queryBias() }

// falconConfig: only the newer models have several key heads.
func falconConfig(k *keys, c object) {
	k.layerNorm(c, "layer_norm_epsilon")
	c["num_kv_heads"], c["ffn_hidden_size"] = c["num_key_value_heads"], k.size("feed_forward_length")
	c["bias"] = k.has("blk.0.attn_qkv.bias")
	c["num_ln_in_parallel_attn"] = 1
	if k.int("attention.head_count_kv", 1) > 1 {
		c["new_decoder_architecture"] = true
	}
	if hasTwoNorms(k) {
		c["new_decoder_architecture"], c["num_ln_in_parallel_attn"] = true, 2
	}
}

func olmoConfig(k *keys, c object) {
	c["attention_bias"] = k.queryBias()
	if x := k.float("attention.clamp_kqv", 0); x > 0 {
		c["clip_qkv"] = x
	}
	if eps := k.float("attention.layer_norm_epsilon", 1e-5); eps != 1e-5 {
		k.fail(k.arch+".attention.layer_norm_epsilon", "got %v, want 1e-05", eps)
	}
}

var falconNames = names{
	layers: "transformer.h.",
	whole:  map[string]string{"token_embd": "transformer.word_embeddings", "output_norm": "transformer.ln_f", "output": "lm_head"},
	block: map[string]string{
		"attn_norm": "input_layernorm", "attn_qkv": "self_attention.query_key_value", "attn_output": "self_attention.dense",
		"ffn_up": "mlp.dense_h_to_4h", "ffn_down": "mlp.dense_4h_to_h",
	},
}

var falconTwoNorms = map[string]string{"attn_norm": "ln_mlp", "attn_norm_2": "ln_attn"}

var phiNames = names{
	layers: "model.layers.",
	whole:  map[string]string{"token_embd": "model.embed_tokens", "output_norm": "model.final_layernorm", "output": "lm_head"},
	block: map[string]string{
		"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
		"attn_output": "self_attn.dense", "attn_q_norm": "self_attn.q_layernorm", "attn_k_norm": "self_attn.k_layernorm",
		"ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2",
	},
}

var hunyuanNames = map[string]string{"attn_q_norm": "self_attn.query_layernorm", "attn_k_norm": "self_attn.key_layernorm"}
