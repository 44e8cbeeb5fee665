package folder

import (
	"maps"
	"strconv"
)

// museGlimmerNames are those of the text model. Norms of queries and keys are the converter's, which has the scale of queries in
// them.
var museGlimmerNames = names{
	layers: "model.language_model.layers.",
	whole:  map[string]string{"token_embd": "model.language_model.embed_tokens", "output_norm": "model.language_model.norm", "output": "lm_head"},
	block:  llamaNames.block,
}.with(sandwichNames).with(map[string]string{
	"attn_gate": "self_attn.gate_proj", "attn_q_norm.weight": unread, "attn_k_norm.weight": unread,
})

// museGlimmerConfig: layers with a window, and no others, have a rope.
func museGlimmerConfig(k *keys, c object) {
	c["attention_bias"] = k.queryBias()
	c["sliding_window"] = k.size("attention.sliding_window")
	c["output_multiplier"] = k.float("logit_scale", 1)
	if x := k.float("final_logit_softcapping", 0); x > 0 {
		c["final_logit_softcapping"] = x
	} else {
		k.fail(k.arch+".final_logit_softcapping", "got %v, want a limit", x)
	}
	sliding := k.flags("attention.sliding_window_pattern")
	if sliding == nil {
		sliding = make([]bool, k.layers())
		for i := range sliding {
			sliding[i] = (i+1)%int(max(k.int("attention.sliding_window_pattern", 4), 1)) != 0
		}
	}
	bases, theta := make([]float64, len(sliding)), k.float("rope.freq_base_swa", k.float("rope.freq_base", 10000))
	for i, is := range sliding {
		if is {
			bases[i] = theta
		}
	}
	c["layer_types"], c["layer_rope_theta"], c["rope_theta"] = kinds(sliding, "full_attention", "sliding_attention"), bases, theta
	c["qk_scale_factor"] = k.constantNorms("attn_q_norm.weight")
	if one := k.constantNorms("attn_k_norm.weight"); one != 1 {
		k.fail("attn_k_norm.weight", "got weights of %v, want 1", one)
	}
	within(c, "muse_glimmer_text")
}

// within makes the config of a text model that of the model of images that has it, without the images.
func within(c object, textType string) {
	text := maps.Clone(c)
	text["model_type"] = textType
	for field := range c {
		switch field {
		case "model_type", "tie_word_embeddings", "torch_dtype", "bos_token_id", "eos_token_id", "pad_token_id":
		default:
			delete(c, field)
		}
	}
	c["text_config"] = text
}

// constantNorms returns the one number that all weights of a norm are, in all layers.
func (k *keys) constantNorms(name string) float64 {
	number := 0.0
	for i := range k.layers() {
		full := "blk." + strconv.FormatInt(i, 10) + "." + name
		list := k.factors(full)
		if len(list) == 0 {
			k.fail(full, "the tensor is missing")
			return number
		}
		if i == 0 {
			number = list[0]
		}
		for _, x := range list {
			if x != number {
				k.fail(full, "got weights of %v and %v, want one number", number, x)
				return number
			}
		}
	}
	return number
}
