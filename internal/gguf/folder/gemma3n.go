package folder

import (
	"math"
	"strconv"
)

// gemma3nNames are those of gemma4 without experts, with streams of hidden states (AltUp) and a low-rank branch
// (Laurel).
var gemma3nNames = names{
	layers: gemma4Names.layers,
	whole: map[string]string{
		"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head", "per_layer_token_embd": "model.embed_tokens_per_layer",
		"per_layer_model_proj": "model.per_layer_model_projection", "per_layer_proj_norm": "model.per_layer_projection_norm",
		"altup_proj": "model.altup_projections.{}", "altup_unembd_proj": "model.altup_unembed_projections.{}",
	},
	block: llamaNames.block,
}.with(sandwichNames).with(map[string]string{
	"inp_gate": "per_layer_input_gate", "proj": "per_layer_projection", "post_norm": "post_per_layer_input_norm",
	"altup_correct_coef": "altup.correction_coefs", "altup_correct_scale.weight": "altup.correct_output_scale", "altup_predict_coef": "altup.prediction_coefs",
	"altup_router": "altup.modality_router", "altup_router_norm": "altup.router_norm",
	"laurel_l": "laurel.linear_left", "laurel_r": "laurel.linear_right", "laurel_post_norm": "laurel.post_laurel_norm",
})

// gemma3nConfig: the file has no rank of the low-rank branch, and gates' cutoffs instead of their shares of zeros.
func gemma3nConfig(k *keys, c object) {
	c["sliding_window"] = k.size("attention.sliding_window")
	if sliding := k.flagsOrInts("attention.sliding_window_pattern"); sliding != nil {
		c["layer_types"] = kinds(sliding, "full_attention", "sliding_attention")
	}
	c["rope_theta"] = k.float("rope.freq_base", 1e6)
	c["rope_local_base_freq"] = k.float("rope.freq_base_swa", 10000)
	c["attention_bias"] = k.queryBias()
	c["final_logit_softcapping"] = k.float("final_logit_softcapping", 30)
	if inner := k.byLayer("feed_forward_length"); len(inner) > 0 {
		c["intermediate_size"] = inner
	}
	c["hidden_size_per_layer_input"] = k.size("embedding_length_per_layer_input")
	if rows := k.rows("per_layer_token_embd.weight"); rows > 0 {
		c["vocab_size_per_layer_input"] = rows
	}
	c["num_kv_shared_layers"] = k.int("attention.shared_kv_layers", 15)
	c["laurel_rank"] = k.rows("blk.0.laurel_l.weight")
	c["altup_num_inputs"], c["altup_active_idx"] = k.size("altup.num_inputs"), k.int("altup.active_idx", 0)
	c["altup_correct_scale"] = k.has("blk.0.altup_correct_scale.weight")
	k.sparsity(c)
}

// sparsity reads the shares of the gates that are 0. The file has the quantiles of the normal distribution for
// them, and -Inf for gates that keep all.
func (k *keys) sparsity(c object) {
	key := k.arch + ".activation_sparsity_scale"
	if k.meta[key] == nil {
		return
	}
	scales, err := k.meta.Floats(key)
	if k.note(err); len(scales) < int(k.layers()) {
		k.fail(key, "%d numbers for %d layers", len(scales), k.layers())
		return
	}
	shares := make([]float64, k.layers())
	for i := range shares {
		share := math.Erfc(-scales[i]/math.Sqrt2) / 2
		if !(share >= 0 && share < 1) {
			k.fail(key, "layer %d has %v, want a quantile below +Inf", i, scales[i])
			return
		}
		// The quantile has seven digits, so the share has six: 0.95.
		shares[i], _ = strconv.ParseFloat(strconv.FormatFloat(share, 'g', 6, 64), 64)
	}
	c["activation_sparsity_pattern"] = shares
}
