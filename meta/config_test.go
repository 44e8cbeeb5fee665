package meta

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestConfigDialects(t *testing.T) {
	for _, c := range []struct {
		name, fields string
		want         DType
	}{
		{"published", `"torch_dtype": "bfloat16"`, BFloat16},
		{"transformers 5", `"dtype": "float16"`, Float16},
		{"with torch's prefix", `"torch_dtype": "torch.float32"`, Float32},
		{"both, the newer counts", `"torch_dtype": "float32", "dtype": "bfloat16"`, BFloat16},
		{"newer one null", `"torch_dtype": "float16", "dtype": null`, Float16},
		{"neither", `"vocab_size": 10`, NoDType},
		{"auto", `"torch_dtype": "auto"`, NoDType},
	} {
		cfg, err := ReadConfig([]byte(`{"model_type": "llama", ` + c.fields + `}`))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if cfg.DType != c.want {
			t.Errorf("%s: dtype %v, want %v", c.name, cfg.DType, c.want)
		}
	}
}

func TestConfigTokens(t *testing.T) {
	for _, c := range []struct {
		config   string
		bos, pad int
		eos      []int
	}{
		{`{"model_type": "llama"}`, 1, -1, []int{2}},
		{`{"model_type": "llama", "eos_token_id": null, "bos_token_id": null}`, -1, -1, nil},
		{`{"model_type": "llama", "eos_token_id": [2, 7.0], "pad_token_id": 0}`, 1, 0, []int{2, 7}},
		{`{"model_type": "llama", "eos_token_id": 128001, "bos_token_id": 128000, "pad_token_id": -1}`, 128000, -1, []int{128001}},
		{`{"model_type": "gpt2"}`, 50256, -1, []int{50256}},
		{`{"model_type": "qwen2"}`, -1, -1, nil},
		{`{"model_type": "unheard_of", "eos_token_id": 5}`, -1, -1, []int{5}},
	} {
		cfg, err := ReadConfig([]byte(c.config))
		if err != nil {
			t.Errorf("%s: %v", c.config, err)
			continue
		}
		if cfg.BOS != c.bos || cfg.Pad != c.pad || fmt.Sprint(cfg.EOS) != fmt.Sprint(c.eos) {
			t.Errorf("%s: bos %d, pad %d, eos %v", c.config, cfg.BOS, cfg.Pad, cfg.EOS)
		}
	}
}

// TestConfigErrors: every error names the file and the field.
func TestConfigErrors(t *testing.T) {
	for _, c := range []struct{ config, want string }{
		{``, "meta: config.json: the JSON object does not end: 0 bytes are there"},
		{`[]`, "meta: config.json: not a JSON object"},
		{`null`, "meta: config.json: null instead of a JSON object"},
		{"{\n\n\"a\": }", "meta: config.json: line 3: invalid character"},
		{`{} {}`, "meta: config.json: text after the JSON object"},
		{`{"model_type": 5}`, "meta: config.json: model_type: a number instead of a text"},
		{`{"model_type": "llama", "torch_dtype": "float17"}`, `meta: config.json: torch_dtype: unknown dtype "float17"`},
		{`{"model_type": "llama", "eos_token_id": "x"}`, "meta: config.json: eos_token_id: a text instead of a number"},
		{`{"model_type": "llama", "hidden_size": "x"}`, "meta: config.json: hidden_size: a text instead of a number"},
		{`{"model_type": "llama", "hidden_size": true}`, "meta: config.json: hidden_size: a boolean instead of a number"},
		{`{"model_type": "llama", "hidden_size": -4096}`, "meta: config.json: hidden_size: -4096 is not within 1 and"},
		{`{"model_type": "llama", "hidden_size": 0}`, "meta: config.json: hidden_size: 0 is not within 1 and"},
		{`{"model_type": "llama", "hidden_size": 4096.5}`, "meta: config.json: hidden_size: 4096.5 is not a whole number"},
		{`{"model_type": "llama", "hidden_size": 1e300}`, "meta: config.json: hidden_size: 1e+300 is not within"},
		{`{"model_type": "llama", "hidden_size": 1e999}`, "meta: config.json: hidden_size: number 1e999 out of range"},
		{`{"model_type": "llama", "num_hidden_layers": 1000000000}`, "meta: config.json: num_hidden_layers: 1e+09 is not within 1 and 4096"},
		{`{"model_type": "llama", "num_attention_heads": 3}`, "meta: config.json: num_attention_heads: 3 does not divide"},
		{`{"model_type": "llama", "num_attention_heads": 8192}`, "meta: config.json: num_attention_heads: 8192 does not divide"},
		{`{"model_type": "llama", "num_key_value_heads": 5}`, "meta: config.json: num_key_value_heads: 5 does not divide"},
		{`{"model_type": "llama", "head_dim": 127}`, "meta: config.json: head_dim: rope cannot rotate 127"},
		{`{"model_type": "llama", "rms_norm_eps": 0}`, "meta: config.json: rms_norm_eps: 0 is not above 0"},
		{`{"model_type": "llama", "hidden_act": "xielu"}`, `meta: config.json: hidden_act: activation "xielu" is not supported`},
		{`{"model_type": "llama", "rope_scaling": 3}`, "meta: config.json: rope_scaling: a number instead of an object"},
		{`{"model_type": "llama", "rope_scaling": {"type": "xdrope"}}`, `meta: config.json: rope_scaling.type: "xdrope" is not supported`},
		{`{"model_type": "llama", "rope_parameters": {"rope_type": "linear"}}`, "meta: config.json: rope_parameters.factor: missing"},
		{`{"model_type": "llama", "rope_scaling": {"type": "linear", "factor": -1}}`, "meta: config.json: rope_scaling.factor: -1 is not above 0"},
		{`{"model_type": "llama", "rope_scaling": {"type": "longrope", "short_factor": [1], "long_factor": []}}`, "meta: config.json: rope_scaling.short_factor: 1 factors for 64"},
		{`{"model_type": "llama", "rope_scaling": {"type": "longrope", "short_factor": [1, "a"]}}`, "meta: config.json: rope_scaling.short_factor[1]: a text"},
		{`{"model_type": "qwen2", "layer_types": ["full_attention"]}`, "meta: config.json: layer_types: 1 types for 32 layers"},
		{`{"model_type": "qwen2", "num_hidden_layers": 1, "layer_types": ["linear_attention"]}`, `meta: config.json: layer_types: "linear_attention" is not supported`},
		{`{"model_type": "mistral", "sliding_window": 0}`, "meta: config.json: sliding_window: 0 is not within"},
		{`{"model_type": "mixtral", "num_experts_per_tok": 9}`, "meta: config.json: num_experts_per_tok: 9 of 8 experts"},
		{`{"model_type": "gpt2", "n_head": 7}`, "meta: config.json: n_head: 7 does not divide"},
		{`{"model_type": "gpt2", "add_cross_attention": true}`, "meta: config.json: add_cross_attention: "},
		{`{"model_type": "mixtral", "num_local_experts": 65536, "intermediate_size": 67108864, "hidden_size": 67108864, "head_dim": 16}`, "meta: model.layers.0.mlp.experts.gate_up_proj: shape"},
	} {
		_, err := newFrom(c.config)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%.120s:\n got  %v\n want %s", c.config, err, c.want)
		}
	}
}

func newFrom(config string) (*Model, error) {
	cfg, err := ReadConfig([]byte(config))
	if err != nil {
		return nil, err
	}
	return New(cfg, nil)
}

// TestUnsupportedModelTypesAreShort: the error listed all types, some 2,500 characters, and not the one that a misspelled
// type may mean.
func TestUnsupportedModelTypesAreShort(t *testing.T) {
	for config, want := range map[string]string{
		`{}`:                         "model_type: missing; docs/models.md lists the ",
		`{"model_type": "whisper"}`:  `model_type: "whisper" is not supported; docs/models.md lists the `,
		`{"model_type": "lama"}`:     `model_type: "lama" is not supported; did you mean llama`,
		`{"model_type": "qwen3_mo"}`: "did you mean qwen3_moe",
		`{"architectures": ["WhisperForCausalLM"]}`: `docs/models.md`,
	} {
		_, err := newFrom(config)
		var unsupported *UnsupportedError
		if !errors.As(err, &unsupported) || !strings.Contains(err.Error(), want) || len(err.Error()) > 160 {
			t.Errorf("%s: got %v, want %q", config, err, want)
		}
	}
}

// TestModelTypeFromClass: a config that states only its class is enough.
func TestModelTypeFromClass(t *testing.T) {
	m, err := newFrom(`{"architectures": ["MistralForCausalLM"]}`)
	if err != nil || m.Config.ModelType != "mistral" {
		t.Errorf("%v, %v", m, err)
	}
	for class, want := range map[string]string{"LlamaForCausalLM": "llama", "DeepseekV3ForCausalLM": "deepseek_v3", "Gemma3ForCausalLM": "gemma3_text"} {
		if got := modelTypeOf([]string{class}); got != want {
			t.Errorf("%s: %q, want %q", class, got, want)
		}
	}
}

// TestEveryFieldMayBeMissing builds each architecture from its defaults, and from nulls
// for all fields that its builder reads.
func TestEveryFieldMayBeMissing(t *testing.T) {
	for _, name := range Architectures() {
		config := `{"model_type": "` + name + `"}`
		if name == "glm4_moe" { // its defaults are heads of 4096/96, which no file has
			config = `{"model_type": "glm4_moe", "head_dim": 128}`
		}
		if name == "qwen3_omni_moe" || name == "qwen3_omni_moe_thinker" { // their defaults are heads of 2048/28
			config = `{"model_type": "` + name + `", "text_config": {"head_dim": 128}}`
		}
		if name == "lfm2_moe" { // has no default for the types of layers
			config = `{"model_type": "lfm2_moe", "num_hidden_layers": 1, "layer_types": ["conv"]}`
		}
		if name == "dots1" { // has no default for its experts
			config = `{"model_type": "dots1", "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1}`
		}
		const indexer = `"indexer_n_heads": 8, "indexer_kv_heads": 1, "indexer_head_dim": 256, "indexer_budget": 64, "indexer_compress_ratio": 8`
		switch name { // have no default for the indexer
		case "qwen4_exp":
			config = `{"model_type": "qwen4_exp", "text_config": {` + indexer + `}}`
		case "qwen4_exp_text":
			config = `{"model_type": "qwen4_exp_text", ` + indexer + `}`
		}
		m, err := newFrom(config)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if m.Root.Kind != KindCausalLM || m.Root.NumParameters() == 0 {
			t.Errorf("%s: %+v", name, m.Root)
		}
	}
	if _, err := newFrom(`{"model_type": "llama", "vocab_size": null, "hidden_size": null, "num_key_value_heads": null,
		"head_dim": null, "rope_scaling": null, "rope_theta": null, "hidden_act": null, "tie_word_embeddings": null,
		"torch_dtype": null, "architectures": null, "max_position_embeddings": null, "rms_norm_eps": null}`); err != nil {
		t.Error(err)
	}
}

func TestReadConfigFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.json")
	if _, err := ReadConfigFile(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	if err := os.WriteFile(file, []byte(`{"model_type": "llama", "x": [1]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := ReadConfigFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Field("x") == nil || cfg.Field("y") != nil || len(cfg.Raw()) == 0 {
		t.Errorf("%v, %v, %q", cfg.Field("x"), cfg.Field("y"), cfg.Raw())
	}
	if _, err := ReadConfig(make([]byte, maxConfigBytes+1)); err == nil {
		t.Error("a config of 16 MiB is read")
	}
}

func TestGenerationConfig(t *testing.T) {
	g, err := ReadGenerationConfig([]byte(`{"bos_token_id": 1, "eos_token_id": [2, 7], "do_sample": true, "temperature": 0.6,
		"top_k": 20.0, "top_p": 0.9, "min_p": null, "repetition_penalty": 1.05, "max_new_tokens": 128, "stop_strings": "END",
		"_from_model_config": true, "transformers_version": "4.51.3"}`))
	if err != nil {
		t.Fatal(err)
	}
	yes, temperature, k, p, penalty, tokens := true, 0.6, 20, 0.9, 1.05, 128
	want := &GenerationConfig{
		BOS: 1, Pad: -1, EOS: []int{2, 7}, DoSample: &yes, Temperature: &temperature, TopK: &k, TopP: &p,
		RepetitionPenalty: &penalty, MaxNewTokens: &tokens, StopStrings: []string{"END"},
	}
	if !reflect.DeepEqual(g, want) {
		t.Errorf("%+v", g)
	}
	for config, want := range map[string]string{
		`{"temperature": -1}`:        "meta: generation_config.json: temperature: -1 is not within 0",
		`{"top_p": 1.5}`:             "meta: generation_config.json: top_p: 1.5",
		`{"top_k": "many"}`:          "meta: generation_config.json: top_k: a text",
		`{"repetition_penalty": 0}`:  "meta: generation_config.json: repetition_penalty: 0",
		`{"do_sample": 1}`:           "meta: generation_config.json: do_sample: a number",
		`{"stop_strings": [1]}`:      "meta: generation_config.json: stop_strings[0]: a number",
		`{"eos_token_id": [[1]]}`:    "meta: generation_config.json: eos_token_id: a list",
		`{"max_new_tokens": -3}`:     "meta: generation_config.json: max_new_tokens: -3",
		`{"eos_token_id": 1e10}`:     "meta: generation_config.json: eos_token_id: 1e+10",
		`{"suppress_tokens": "all"}`: "meta: generation_config.json: suppress_tokens: a text",
	} {
		if _, err := ReadGenerationConfig([]byte(config)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", config, err, want)
		}
	}
}
