package folder

import "strconv"

// qwen4Names are those of Qwen4-Exp. A projection of the indexer is two tensors of the file.
var qwen4Names = names{
	layers: llamaNames.layers,
	whole: map[string]string{
		"token_embd": "model.embed_tokens", "output": "lm_head", "output_hc_norm": "model.hyper_connection_mixer.hc_norm",
		"output_hc_down": "model.hyper_connection_mixer.input_mix_weight_down", "output_hc_up": "model.hyper_connection_mixer.input_mix_weight_up",
	},
	block: qwen3NextNames.with(map[string]string{
		"hc_attn_norm": "attn_hyper_connection.hc_norm", "hc_attn_inject": "attn_hyper_connection.block_inject_weight",
		"hc_attn_down": "attn_hyper_connection.input_mix_weight_down", "hc_attn_up": "attn_hyper_connection.input_mix_weight_up",
		"hc_ffn_norm": "mlp_hyper_connection.hc_norm", "hc_ffn_inject": "mlp_hyper_connection.block_inject_weight",
		"hc_ffn_down": "mlp_hyper_connection.input_mix_weight_down", "hc_ffn_up": "mlp_hyper_connection.input_mix_weight_up",
		"indexer.q_proj": "self_attn.indexer.index_q_proj", "indexer.k_proj": "self_attn.indexer.index_k_proj",
		"indexer.q_norm": "self_attn.indexer.q_layernorm", "indexer.k_norm": "self_attn.indexer.k_layernorm",
		"ple_key": "ple.key_proj", "ple_value": "ple.value_proj", "ple_conv1d": "ple.conv1d",
		"ple_norm_key": "ple.norm_key", "ple_norm_query": "ple.norm_query", "ple_norm_conv": "ple.norm_conv",
	}).block,
	layouts: map[string]Layout{"ple_conv1d.weight": Taps},
}

// qwen4Table is the tensor of the embeddings of n-grams.
const qwen4Table = "per_layer_token_embd.weight"

// qwen4Config reads the streams, the indexers and the embeddings of n-grams beside Qwen3.5's fields.
func qwen4Config(k *keys, c object) {
	qwen35MoEConfig(k, c)
	c["norm_topk_prob"] = true
	c["hc_count"], c["hc_lowrank"] = k.size("hyper_connection.count"), k.size("hyper_connection.low_rank")
	c["indexer_n_heads"], c["indexer_head_dim"] = k.size("attention.indexer.head_count"), k.size("attention.indexer.key_length")
	c["indexer_kv_heads"], c["indexer_budget"] = 1, k.size("attention.indexer.top_k")
	for _, ratio := range k.byLayer("attention.compress_ratios") {
		if ratio > 0 {
			c["indexer_compress_ratio"] = ratio
		}
	}
	layer, sizes := k.ngramLayer(), k.whole("ple.head_vocab_sizes")
	c["ple_layer_ids"] = []int64{}
	if layer < 0 || len(sizes) == 0 {
		return
	}
	c["ple_layer_ids"], c["ngram_size"], c["heads_per_ngram"] = []int64{layer + 1}, k.size("ple.ngram_size"), k.size("ple.heads_per_ngram")
	c["ple_conv_kernel_size"], c["own_eos_token_id"] = k.size("ple.conv_kernel"), k.size("ple.eos_token_id")
	c["ple_embed_dim"] = k.size("embedding_length_per_layer_input") * int64(len(sizes))
	c["ngram_vocab_size_base"], c["make_ngram_vocab_size_divisible_by"] = sizes[0], k.rows(qwen4Table)
}

// ngramLayer returns the layer with embeddings of n-grams, or -1.
func (k *keys) ngramLayer() int64 {
	switch list := k.whole("ple.layers"); len(list) {
	case 0:
		return -1
	case 1:
		return list[0]
	default:
		k.fail(k.arch+".ple.layers", "got %d layers, want one, as the file has one table", len(list))
		return -1
	}
}

// whole returns a list of whole numbers, or nil.
func (k *keys) whole(key string) []int64 {
	list, err := k.meta.Ints(k.arch + "." + key)
	k.note(err)
	return list
}

// qwen4Hashes are the constants of the hashes of n-grams.
func qwen4Hashes(k *keys) []Extra {
	layer := k.ngramLayer()
	if layer < 0 {
		return nil
	}
	var all []Extra
	at := "model.layers." + strconv.FormatInt(layer, 10) + ".ple.ple_embedding."
	for _, names := range [][2]string{
		{"ple.layer_multipliers", "layer_multipliers"}, {"ple.head_vocab_sizes", "ngram_heads_vocab_sizes"}, {"ple.head_offsets", "ngram_heads_offsets"},
	} {
		list := k.whole(names[0])
		all = append(all, Extra{Name: at + names[1], Shape: []int{len(list)}, Integers: list})
	}
	return all
}

// qwen4Tables names the table of n-grams by its layer.
func qwen4Tables(k *keys) map[string]string {
	layer := k.ngramLayer()
	if layer < 0 {
		return nil
	}
	return map[string]string{qwen4Table: "model.layers." + strconv.FormatInt(layer, 10) + ".ple.ple_embedding.ngram_embedding.weight"}
}
