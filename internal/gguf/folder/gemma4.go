package folder

import (
	"slices"
	"strconv"
)

var gemma4Names = names{
	layers: "model.layers.",
	whole: map[string]string{
		"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head", "per_layer_token_embd": "model.embed_tokens_per_layer",
		"per_layer_model_proj": "model.per_layer_model_projection", "per_layer_proj_norm": "model.per_layer_projection_norm",
	},
	block: llamaNames.block,
}.with(sandwichNames).with(map[string]string{
	"post_ffw_norm_1": "post_feedforward_layernorm_1", "pre_ffw_norm_2": "pre_feedforward_layernorm_2", "post_ffw_norm_2": "post_feedforward_layernorm_2",
	"layer_output_scale.weight": "layer_scalar", "inp_gate": "per_layer_input_gate", "proj": "per_layer_projection", "post_norm": "post_per_layer_input_norm",
	"ffn_gate_inp": "router.proj", "ffn_gate_inp.scale": "router.scale", "ffn_down_exps.scale": "router.per_expert_scale",
	"ffn_gate_up_exps": "experts.{}.gate_up_proj", "ffn_gate_exps": "experts.{}.gate_proj", "ffn_up_exps": "experts.{}.up_proj",
	"ffn_down_exps": "experts.{}.down_proj",
})

// gemma4Config: heads and rope differ between layers with a window and the others.
func gemma4Config(k *keys, c object) {
	layers := k.layers()
	sliding := k.flagsOrInts("attention.sliding_window_pattern")
	if sliding == nil {
		k.fail(k.arch+".attention.sliding_window_pattern", "the key is missing")
		return
	}
	c["layer_types"], c["sliding_window"] = kinds(sliding, "full_attention", "sliding_attention"), k.size("attention.sliding_window")
	shared := k.int("attention.shared_kv_layers", 0)
	c["num_kv_shared_layers"] = shared
	k.gemma4Heads(c, sliding, layers-shared)
	k.gemma4Ropes(c)
	c["attention_bias"] = k.queryBias()
	if inner := k.byLayer("feed_forward_length"); len(inner) > 0 {
		last := inner[len(inner)-1]
		c["use_double_wide_mlp"] = shared > 0 && last == 2*inner[0]
		for i, n := range inner {
			if want := inner[0]; n != want && (int64(i) < layers-shared || n != last || last != 2*want) {
				k.fail(k.arch+".feed_forward_length", "layer %d has %d, want %d, or twice it in layers that share keys and values", i, n, want)
				break
			}
		}
	}
	if cap := k.float("final_logit_softcapping", 0); cap > 0 {
		c["final_logit_softcapping"] = cap
	}
	c["hidden_size_per_layer_input"] = k.int("embedding_length_per_layer_input", 0)
	if t, ok := k.from.Tensor("per_layer_token_embd.weight"); ok && len(t.Shape) == 2 {
		c["vocab_size_per_layer_input"] = t.Shape[0]
	}
	if hasExperts(k) {
		c["enable_moe_block"], c["num_experts"], c["top_k_experts"] = true, k.size("expert_count"), k.size("expert_used_count")
		c["moe_intermediate_size"] = k.size("expert_feed_forward_length")
	}
}

// gemma4Heads reads the heads. own is the number of layers that have keys and values of their own.
func (k *keys) gemma4Heads(c object, sliding []bool, own int64) {
	heads := k.byLayer("attention.head_count_kv")
	local, full := int64(0), int64(0)
	for i := range sliding {
		n := &full
		if sliding[i] {
			n = &local
		}
		if i < len(heads) && *n == 0 {
			*n = heads[i]
		} else if i < len(heads) && *n != heads[i] {
			k.fail(k.arch+".attention.head_count_kv", "layer %d has %d key heads beside %d in layers of its kind", i, heads[i], *n)
		}
	}
	wide := k.size("attention.key_length")
	c["global_head_dim"], c["head_dim"] = wide, k.int("attention.key_length_swa", wide)
	if local == 0 {
		local = full
	}
	c["num_key_value_heads"] = local
	layers := object{}
	for i, is := range sliding {
		if !is {
			layers[strconv.Itoa(i)] = object{"head_dim": wide, "num_key_value_heads": full}
			if int64(i) < own && !k.hasAt(i, "attn_v.weight") && !k.hasAt(i, "attn_qkv.weight") {
				c["attention_k_eq_v"] = true
			}
		}
	}
	c["per_layer_config"] = layers
}

// gemma4Ropes: full layers turn a part of each head. The file has a huge factor for the frequencies of the
// rest.
func (k *keys) gemma4Ropes(c object) {
	part := 1.0
	if factors := k.factors("rope_freqs.weight"); len(factors) > 0 {
		turned := 0
		for _, x := range factors {
			if x == 1 {
				turned++
			}
		}
		still := slices.IndexFunc(factors, func(x float64) bool { return x != 1 })
		if still >= 0 && (still != turned || slices.Min(factors[still:]) < 1e10) {
			k.fail("rope_freqs.weight", "got %v, want ones and then factors that stop the rotation", factors[:min(len(factors), 8)])
		}
		part = float64(turned) / float64(len(factors))
	}
	if n, size := k.int("rope.dimension_count_swa", -1), c["head_dim"]; n >= 0 && size != n {
		k.fail(k.arch+".rope.dimension_count_swa", "got %d, want %v, the whole head", n, size)
	}
	theta, _ := c["rope_theta"].(float64)
	c["rope_parameters"] = object{
		"full_attention":    object{"rope_type": "proportional", "rope_theta": theta, "partial_rotary_factor": part},
		"sliding_attention": object{"rope_type": "default", "rope_theta": k.float("rope.freq_base_swa", 10000)},
	}
	delete(c, "rope_scaling")
	delete(c, "rope_theta")
}

// hasAt reports whether a layer has a tensor.
func (k *keys) hasAt(layer int, tensor string) bool {
	return k.has("blk." + strconv.Itoa(layer) + "." + tensor)
}

// flagsOrInts returns a list of flags, one for each layer, that may be written as numbers, or nil where it is
// missing.
func (k *keys) flagsOrInts(key string) []bool {
	full := k.arch + "." + key
	if list := k.flags(key); list != nil {
		return list
	}
	switch k.meta[full].(type) {
	case []int64, []uint64:
		flags := make([]bool, k.layers())
		for i, n := range k.byLayer(key) {
			if i < len(flags) {
				flags[i] = n != 0
			}
		}
		return flags
	case nil, []bool:
		return nil
	}
	k.fail(full, "got a %T, want a list", k.meta[full])
	return nil
}
