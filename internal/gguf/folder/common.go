package folder

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

// layerNorm reads the epsilon of torch's norms.
func (k *keys) layerNorm(c object, field string) {
	c[field] = k.float("attention.layer_norm_epsilon", 1e-5)
}

// partial reads which part of a head is rotated.
func (k *keys) partial(c object, field string) {
	if head, ok := c["head_dim"].(int64); ok && head > 0 {
		c[field] = float64(k.int("rope.dimension_count", head)) / float64(head)
	}
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

// softmaxGate is llama.cpp's number of scores of experts by the softmax.
const softmaxGate = 1

// limit returns the limit that all layers have, by each of the keys that files have.
func (k *keys) limit(names ...string) float64 {
	limit := 0.0
	for _, key := range names {
		if k.meta[k.arch+"."+key] == nil {
			continue
		}
		for i, x := range k.limits(key) {
			if limit == 0 {
				limit = x
			}
			if x <= 0 || x != limit {
				k.fail(k.arch+"."+key, "got %v in layer %d, want %v, the limit of all layers", x, i, limit)
			}
		}
	}
	return limit
}

// sigmoidGate is llama.cpp's number of scores of experts by the sigmoid.
const sigmoidGate = 2

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
