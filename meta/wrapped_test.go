package meta

import (
	"strings"
	"testing"
)

// TestFieldsOfMolmoAndErnie checks errors of fields that only the newest models of images have.
func TestFieldsOfMolmoAndErnie(t *testing.T) {
	for config, want := range map[string]string{
		`{"model_type": "molmo2", "text_config": {"qk_norm_type": "gemma"}}`:                      `text_config.qk_norm_type: "gemma" is not supported (supported: qwen3, olmo)`,
		`{"model_type": "molmo2", "text_config": {"rope_scaling_layers": ["a"]}}`:                 "text_config.rope_scaling_layers[0]",
		`{"model_type": "molmo2", "text_config": {"additional_vocab_size": -1}}`:                  "text_config.additional_vocab_size",
		`{"model_type": "ernie4_5_vl_moe", "text_config": {"moe_intermediate_size": [0]}}`:        "text_config.moe_intermediate_size[0]",
		`{"model_type": "ernie4_5_moe_vl", "moe_num_experts": [4, 4], "moe_k": 5}`:                "moe_k: 5 of 4 experts",
		`{"model_type": "ernie4_5_moe_vl", "moe_layer_start_index": ["a"]}`:                       "moe_layer_start_index[0]",
		`{"model_type": "hunyuan_vl", "text_config": {"rope_scaling": {"type": "xrope"}}}`:        `"xrope" is not supported`,
		`{"model_type": "nemotron_h_omni", "llm_config": {"layers_block_type": ["convolution"]}}`: "llm_config.layers_block_type",
	} {
		cfg, err := ReadConfig([]byte(config))
		if err == nil {
			_, err = New(cfg, nil)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", config, err, want)
		}
	}
}

// TestVoxtralHasDefaultsOfItsOwn: its text model is llama's, but transformers completes its config with other sizes.
func TestVoxtralHasDefaultsOfItsOwn(t *testing.T) {
	m := build(t, []byte(`{"model_type": "voxtral", "text_config": {"model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 1}}`))
	s := attentionOf(t, m, "model.language_model.layers.0.self_attn")
	norm := m.Root.Find("model.language_model.norm").Spec.(*NormSpec)
	if s.KVHeads != 8 || s.HeadDim != 128 || s.Rope.Theta != 1e8 || s.Rope.Max != 131072 || norm.Dim != 3072 || norm.Eps != 1e-5 {
		t.Errorf("%+v, rope %+v, norm %+v", s, s.Rope, norm)
	}
	m = build(t, []byte(`{"model_type": "voxtral", "text_config": {"num_attention_heads": 32, "num_hidden_layers": 1, "head_dim": 64, "rope_theta": 500}}`))
	if s := attentionOf(t, m, "model.language_model.layers.0.self_attn"); s.HeadDim != 64 || s.Rope.Theta != 500 {
		t.Errorf("fields that are there: %+v, rope %+v", s, s.Rope)
	}
}

// TestThetaOfGLMASRIsIgnored: transformers adds rope_parameters to text_config, which come before rope_theta.
func TestThetaOfGLMASRIsIgnored(t *testing.T) {
	for more, want := range map[string]float64{`"rope_theta": 500`: 10000, `"rope_theta": 500, "rope_scaling": {"rope_type": "linear", "factor": 2}`: 500} {
		m := build(t, []byte(`{"model_type": "glmasr", "text_config": {"num_hidden_layers": 1, `+more+`}}`))
		if s := attentionOf(t, m, "model.language_model.layers.0.self_attn"); s.Rope.Theta != want {
			t.Errorf("%s: theta %v, want %v", more, s.Rope.Theta, want)
		}
	}
}

// TestGLMASRHasDefaultsOfItsOwn is TestVoxtralHasDefaultsOfItsOwn for GLM-ASR.
func TestGLMASRHasDefaultsOfItsOwn(t *testing.T) {
	m := build(t, []byte(`{"model_type": "glmasr", "text_config": {"model_type": "llama", "num_hidden_layers": 1}}`))
	s := attentionOf(t, m, "model.language_model.layers.0.self_attn")
	norm := m.Root.Find("model.language_model.norm").Spec.(*NormSpec)
	if s.Heads != 16 || s.KVHeads != 4 || s.HeadDim != 128 || s.Rope.Theta != 10000 || norm.Dim != 2048 || norm.Eps != 1e-5 {
		t.Errorf("%+v, rope %+v, norm %+v", s, s.Rope, norm)
	}
	m = build(t, []byte(`{"model_type": "glmasr", "text_config": {"num_hidden_layers": 1, "num_key_value_heads": 2, "rope_parameters": {"rope_theta": 500}}}`))
	if s := attentionOf(t, m, "model.language_model.layers.0.self_attn"); s.KVHeads != 2 || s.Rope.Theta != 500 {
		t.Errorf("fields that are there: %+v, rope %+v", s, s.Rope)
	}
}

// TestWrappersWithoutTextConfigHaveOtherDefaults: without a text_config transformers takes other fields than the text model's type
// has by default. TestReferenceSizes has the ties.
func TestWrappersWithoutTextConfigHaveOtherDefaults(t *testing.T) {
	for modelType, want := range map[string]struct {
		hidden, heads, kv, head int
		theta, eps              float64
		longest                 int64
	}{
		"fast_vlm":                {3584, 28, 4, 128, 10000, 1e-6, 32768},
		"fun_asr_nano":            {1024, 16, 8, 128, 10000, 1e-6, 40960},
		"got_ocr2":                {1024, 16, 16, 64, 1e6, 1e-6, 32768},
		"idefics2":                {4096, 32, 8, 128, 10000, 1e-5, 32768},
		"idefics3":                {4096, 32, 32, 128, 10000, 1e-5, 2048},
		"lighton_ocr":             {1024, 16, 8, 128, 1e6, 1e-6, 40960},
		"mistral3":                {5120, 32, 8, 128, 1e9, 1e-5, 131072},
		"moss_transcribe_diarize": {1024, 16, 8, 128, 1e6, 1e-6, 131072},
		"omniasr":                 {4096, 8, 8, 512, 10000, 1e-5, 8192},
		"qwen3_asr":               {2048, 16, 8, 128, 10000, 1e-6, 65536},
		"smolvlm":                 {4096, 32, 32, 128, 10000, 1e-5, 2048},
	} {
		m := build(t, []byte(`{"model_type": "`+modelType+`"}`))
		path := "model.language_model"
		if m.Root.Find(path) == nil {
			path = "model.text_model"
		}
		s, norm := attentionOf(t, m, path+".layers.0.self_attn"), m.Root.Find(path+".norm").Spec.(*NormSpec)
		if int(norm.Dim) != want.hidden || int(s.Heads) != want.heads || int(s.KVHeads) != want.kv || int(s.HeadDim) != want.head || s.Rope.Theta != want.theta || norm.Eps != float32(want.eps) || int64(s.Rope.Max) != want.longest || s.Window != 0 && modelType == "mistral3" {
			t.Errorf("%s: %+v, rope %+v, norm %+v", modelType, s, s.Rope, norm)
		}
	}
	// A text_config that lacks fields has those of its own type.
	m := build(t, []byte(`{"model_type": "qwen3_asr", "text_config": {"num_hidden_layers": 1}}`))
	if norm := m.Root.Find("model.language_model.norm").Spec.(*NormSpec); norm.Dim != 4096 {
		t.Errorf("qwen3_asr with a text_config: hidden size %d", norm.Dim)
	}
}
