package meta

import (
	"reflect"
	"testing"
)

const dots3Sizes = `{"model_type": "dots3_note_text", "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 4, "q_lora_rank": 10, "head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, `

// TestDots3NoteAsTransformersSavesIt: per_layer_config was refused. Fields that it leaves out, here v_head_dim, are those of all layers.
func TestDots3NoteAsTransformersSavesIt(t *testing.T) {
	published := dots3Sizes + `"layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
		"swa_num_attention_heads": 3, "swa_num_key_value_heads": 3, "swa_q_lora_rank": 8, "swa_kv_lora_rank": 6, "swa_head_dim": 8, "swa_qk_nope_head_dim": 4}`
	const own = `{"num_attention_heads": 3, "num_key_value_heads": 3, "q_lora_rank": 8, "kv_lora_rank": 6, "head_dim": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 4}`
	saved := dots3Sizes + `"layer_types": ["indexed_attention", "sliding_attention", "sliding_attention"], "per_layer_config": {"1": ` + own + `, "2": ` + own + `},
		"rope_parameters": {"indexed_attention": {"rope_theta": 8e7, "rope_type": "default"}, "sliding_attention": {"rope_theta": 5e4, "rope_type": "default"}}}`
	if got, want := modelOf(t, saved, nil).Root, modelOf(t, published, nil).Root; !reflect.DeepEqual(got, want) {
		t.Error("the two forms are different models")
	}
	for more, want := range map[string]string{
		`"layer_types": ["indexed_attention", "sliding_attention", "sliding_attention"], "per_layer_config": {"1": {"head_dim": 8}}}`:       "per_layer_config: layers 1 and 2 have windows and different values",
		`"layer_types": ["indexed_attention", "sliding_attention", "full_attention"], "per_layer_config": {"1": {"head_dim": 8}}}`:          "layer_types: indexed_attention and full_attention together",
		`"layer_types": ["indexed_attention", "sliding_attention", "indexed_attention"], "per_layer_config": {"2": {"head_dim": 8}}}`:       "per_layer_config: layer 2 has no window",
		`"layer_types": ["indexed_attention", "sliding_attention", "indexed_attention"], "per_layer_config": {"1": {"rms_norm_eps": 0.1}}}`: "per_layer_config.1.rms_norm_eps: is not supported by layer",
	} {
		unsupported(t, dots3Sizes+more, want)
	}
}
