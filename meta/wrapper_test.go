package meta

import (
	"strings"
	"testing"
)

// TestWrapperTextModels reads the fields that a wrapper's config and its text_config decide.
func TestWrapperTextModels(t *testing.T) {
	const qwen = `"hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 1, "intermediate_size": 8, "vocab_size": 20`
	for _, c := range []struct {
		config string
		tied   bool
		eos    int
		dtype  DType
	}{
		// Qwen2.5-VL is published without text_config.
		{`{"model_type": "qwen2_5_vl", "tie_word_embeddings": true, "torch_dtype": "bfloat16", "rope_scaling": {"type": "mrope", "mrope_section": [2, 1, 1]}, ` + qwen + `}`, true, 151645, BFloat16},
		{`{"model_type": "qwen2_5_vl", "text_config": {"tie_word_embeddings": true, "eos_token_id": 3, "dtype": "float16", ` + qwen + `}}`, true, 3, Float16},
		{`{"model_type": "qwen3_vl", "eos_token_id": 4, "text_config": {"tie_word_embeddings": true, "eos_token_id": 3, "head_dim": 8, ` + qwen + `}}`, false, 4, NoDType},
		{`{"model_type": "llava", "text_config": {` + qwen + `}}`, false, 2, NoDType},
		// PaddleOCR-VL's field is in the text model there, next to the default of the wrapper.
		{`{"model_type": "paddleocr_vl", "tie_word_embeddings": false, ` + qwen + `}`, true, 2, NoDType},
		{`{"model_type": "paddleocr_vl", "tie_word_embeddings": false, "text_config": {` + qwen + `}}`, true, 2, NoDType},
		{`{"model_type": "paddleocr_vl", "tie_word_embeddings": false, "text_config": {"tie_word_embeddings": false, ` + qwen + `}}`, false, 2, NoDType},
		// LFM2-VL's configs have tie_embedding, which the text model's is not asked about.
		{`{"model_type": "lfm2_vl", "tie_embedding": false, "text_config": {"tie_embedding": true, "full_attn_idxs": [0], ` + qwen + `}}`, false, 2, NoDType},
		// Qwen2.5-Omni's parts have a config each; the dtype is the whole's.
		{`{"model_type": "qwen2_5_omni", "torch_dtype": "bfloat16", "talker_config": {"vocab_size": 9}, "thinker_config": {"model_type": "qwen2_5_omni_thinker", "eos_token_id": 5, "text_config": {"model_type": "qwen2_5_omni_text", "tie_word_embeddings": true, ` + qwen + `}}}`, false, 5, BFloat16},
		{`{"architectures": ["Gemma3ForConditionalGeneration"], "text_config": {"num_hidden_layers": 1}}`, true, 1, NoDType},
	} {
		m := build(t, []byte(c.config))
		if tied := m.Root.Find("lm_head").Params[0].SameAs != nil; tied != c.tied {
			t.Errorf("%s: tied is %v", c.config, tied)
		}
		if m.Root.Find("model.language_model.layers.0.self_attn") == nil {
			t.Errorf("%s: no layers of a language model", c.config)
		}
		if len(m.Config.EOS) != 1 || m.Config.EOS[0] != c.eos || m.Config.DType != c.dtype {
			t.Errorf("%s: eos %v, dtype %v", c.config, m.Config.EOS, m.Config.DType)
		}
	}
}

// TestTextOfOmniIsItsThinkers: a model that answers in speech has the text model of its thinker_config, which may be a
// model of its own.
func TestTextOfOmniIsItsThinkers(t *testing.T) {
	const size = `"hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 1, "intermediate_size": 8, "vocab_size": 20, "num_experts": 2, "num_experts_per_tok": 1`
	for _, name := range []string{"qwen2_5_omni", "qwen3_omni_moe"} {
		thinker := `{"model_type": "` + name + `_thinker", "text_config": {"model_type": "` + name + `_text", ` + size + `}}`
		whole := build(t, []byte(`{"model_type": "`+name+`", "talker_config": {"text_config": {"vocab_size": 9}}, "thinker_config": `+thinker+`}`))
		var trees [2]string
		for i, m := range []*Model{whole, build(t, []byte(thinker))} {
			tree, err := WriteTree(m.Root)
			if err != nil {
				t.Fatal(err)
			}
			trees[i] = strings.Replace(string(tree), m.Root.Class, "", 1)
		}
		if trees[0] != trees[1] {
			t.Errorf("%s: the tree is %s, that of the thinker %s", name, trees[0], trees[1])
		}
		if !whole.OtherPart("talker.model.embed_tokens.weight") || !whole.OtherPart("thinker.visual.patch_embed.proj.weight") || whole.OtherPart("thinker.model.norm.weight") {
			t.Errorf("%s: the parts besides text are not those of the files", name)
		}
	}
}

func TestWrapperErrorsNameTheTextModel(t *testing.T) {
	for config, want := range map[string]string{
		`{"model_type": "llava", "text_config": {"model_type": "opt"}}`:                  `text_config.model_type: "opt" is not supported`,
		`{"model_type": "llava", "text_config": {"hidden_act": "tanhshrink"}}`:           `text_config.hidden_act: activation "tanhshrink" is not supported`,
		`{"model_type": "llava", "quantization": {"group_size": 64, "bits": 4}}`:         "quantization: weights quantised by MLX are not supported",
		`{"model_type": "llava", "text_config": 3}`:                                      "text_config: a number instead of an object",
		`{"model_type": "qwen3_vl_text"}`:                                                `model_type: "qwen3_vl_text" is not supported`,
		`{"model_type": "mistral3", "text_config": {"rope_scaling": {"type": "ntk"}}}`:   `text_config.rope_scaling.type: "ntk" is not supported`,
		`{"model_type": "qwen2_vl", "rope_scaling": {"type": "mrope", "factor": "two"}}`: "",
		// Models whose trees have paths of their own were served with no tensor of a wrapper's files.
		`{"model_type": "llava", "text_config": {"model_type": "gpt2"}}`:     `text_config.model_type: "gpt2" is not supported`,
		`{"model_type": "llava", "text_config": {"model_type": "gpt_neox"}}`: `text_config.model_type: "gpt_neox" is not supported`,
	} {
		cfg, err := ReadConfig([]byte(config))
		if err == nil {
			_, err = New(cfg, nil)
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", config, err, want)
		}
	}
}

func TestOtherParts(t *testing.T) {
	m := build(t, []byte(`{"model_type": "llava", "text_config": {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1}}`))
	for name, other := range map[string]bool{
		"vision_tower.vision_model.embeddings.class_embedding": true,
		"multi_modal_projector.linear_1.weight":                true,
		"model.visual.blocks.0.norm1.weight":                   true,
		"image_newline":                                        true,
		"language_model.model.layers.1.extra.weight":           false,
		"model.layers.0.extra":                                 false,
		"lm_head.bias":                                         false,
	} {
		if m.OtherPart(name) != other {
			t.Errorf("%s: %v, want %v", name, !other, other)
		}
	}
	if build(t, []byte(`{"model_type": "llama", "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1}`)).OtherPart("vision_tower.x") {
		t.Error("a text model has another part")
	}
}
