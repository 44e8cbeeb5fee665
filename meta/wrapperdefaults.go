package meta

import (
	"encoding/json"
	"fmt"
	"maps"
)

// textDefaults are the fields of a wrapper's text model whose defaults are not those of the text
// model's own type.
type textDefaults struct {
	always bool // also with a text_config that lacks fields; otherwise only without text_config
	fields map[string]any
}

// wrapperText has what transformers has in sub_configs_defaults, by the wrapper's model_type.
var wrapperText = map[string]textDefaults{
	"fast_vlm":     {false, map[string]any{"vocab_size": 152128, "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4}},
	"fun_asr_nano": {false, qwen3Small(map[string]any{"max_position_embeddings": 40960, "tie_word_embeddings": true})},
	"glmasr": {true, map[string]any{
		"vocab_size": 59264, "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 4,
		"max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
	}},
	"got_ocr2": {false, map[string]any{
		"vocab_size": 151860, "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 24, "num_attention_heads": 16, "num_key_value_heads": 16,
		"tie_word_embeddings": true, "rope_theta": 1000000,
	}},
	"idefics2":    {false, map[string]any{"max_position_embeddings": 32768, "rms_norm_eps": 1e-5}},
	"idefics3":    {false, map[string]any{"rms_norm_eps": 1e-5}},
	"lighton_ocr": {false, qwen3Small(map[string]any{"max_position_embeddings": 40960, "rope_theta": 1000000})},
	"mistral3": {false, map[string]any{
		"vocab_size": 131072, "hidden_size": 5120, "intermediate_size": 32768, "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
		"max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 1000000000, "sliding_window": nil,
	}},
	"moss_transcribe_diarize": {false, qwen3Small(map[string]any{"max_position_embeddings": 131072, "rope_theta": 1000000})},
	"omniasr": {false, map[string]any{
		"vocab_size": 11984, "hidden_size": 4096, "intermediate_size": 2816, "num_hidden_layers": 12, "num_attention_heads": 8, "num_key_value_heads": 8,
		"max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
	}},
	"qwen3_asr": {false, map[string]any{
		"hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
		"max_position_embeddings": 65536, "tie_word_embeddings": true,
	}},
	"smolvlm": {false, map[string]any{"rms_norm_eps": 1e-5}},
	"voxtral": {true, map[string]any{
		"vocab_size": 131072, "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 30, "num_key_value_heads": 8, "head_dim": 128,
		"max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 100000000,
	}},
}

// qwen3Small has the sizes of Qwen3 0.6B, the text model of many small wrappers, and more fields.
func qwen3Small(more map[string]any) map[string]any {
	maps.Copy(more, map[string]any{"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8})
	return more
}

// completeText adds the defaults of a wrapper's text model to values. Without a text_config all
// wrappers of the table have such defaults.
func (w *wrapper) completeText(values map[string]any, bare bool) {
	d := wrapperText[w.modelType]
	if !d.always && !bare {
		return
	}
	for name, v := range d.fields {
		if _, there := values[name]; there {
			continue
		}
		switch v.(type) {
		case int, float64:
			v = json.Number(fmt.Sprint(v))
		}
		values[name] = v
	}
}
