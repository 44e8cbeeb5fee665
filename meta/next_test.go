package meta

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestModulesForMultiTokenPrediction: the module of a published checkpoint, planned from its config, has the bytes that the
// model leaves unread, one block with its own KV cache, and the inputs that it joins.
func TestModulesForMultiTokenPrediction(t *testing.T) {
	const folder = "../testdata/known"
	n := 0
	files, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if file.IsDir() || filepath.Ext(file.Name()) != ".json" {
			continue
		}
		var known struct {
			Config json.RawMessage `json:"config"`
		}
		text, err := os.ReadFile(filepath.Join(folder, file.Name()))
		if err == nil {
			err = json.Unmarshal(text, &known)
		}
		if err != nil {
			t.Fatal(err)
		}
		cfg, err := ReadConfig(known.Config)
		if err != nil {
			t.Fatal(err)
		}
		m, err := New(cfg, nil)
		if err != nil {
			t.Fatal(err)
		}
		next, err := NewNext(cfg, nil)
		if m.UnreadBytes == 0 {
			var bad *ConfigError
			if !errors.As(err, &bad) || !strings.Contains(err.Error(), "multi-token prediction") {
				t.Errorf("%s: %v; want a ConfigError", file.Name(), err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", file.Name(), err)
			continue
		}
		n++
		bytes := int64(0)
		for _, p := range next.Root.AllParams() {
			bytes += p.Bytes()
		}
		if bytes != m.UnreadBytes {
			t.Errorf("%s: %d bytes, and the model leaves %d unread", file.Name(), bytes, m.UnreadBytes)
		}
		spec := next.Root.Spec.(*CausalLMSpec)
		layers := next.Root.Find(spec.Layers).Children
		if spec.Join == nil || len(layers) != 1 || layers[0].Find("self_attn").Spec.(*AttentionSpec).Layer != 0 {
			t.Errorf("%s: joins %v, %d layers", file.Name(), spec.Join, len(layers))
		}
	}
	if n < 3 {
		t.Errorf("%d models with a module, want 3 at least", n)
	}
}

// hybridWithModule is a config of Qwen3.5's, with further fields.
func hybridWithModule(t *testing.T, wrapped bool, more string) *Config {
	t.Helper()
	text := `{"model_type": "qwen3_5_moe_text", "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
		"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2,
		"moe_intermediate_size": 16, "shared_expert_intermediate_size": 16` + more + `}`
	if wrapped {
		text = `{"model_type": "qwen3_5_moe", "tie_word_embeddings": false, "text_config": ` + text + `}`
	}
	cfg, err := ReadConfig([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// TestModulesForMultiTokenPredictionBesideTheModel: modules under mtp share the model's embedding and head, also in
// wrappers, where they are next to the model and not within it; the model leaves their bytes unread.
func TestModulesForMultiTokenPredictionBesideTheModel(t *testing.T) {
	for _, wrapped := range []bool{false, true} {
		cfg := hybridWithModule(t, wrapped, `, "mtp_num_hidden_layers": 1`)
		m, err := New(cfg, nil)
		if err != nil {
			t.Fatal(err)
		}
		next, err := NewNext(cfg, nil)
		if err != nil {
			t.Fatal(err)
		}
		own, shared := int64(0), map[string]bool{}
		for path, module := range next.Root.Walk() {
			for _, p := range module.Params {
				switch source := p.Sources[0].Tensor; {
				case strings.HasPrefix(source, "mtp."):
					own += p.Bytes()
				case strings.HasPrefix(path, "mtp"):
					t.Errorf("%s.%s comes from %s", path, p.Name, source)
				default:
					shared[source] = true
				}
			}
		}
		if own != m.UnreadBytes || own == 0 {
			t.Errorf("wrapped %v: %d bytes, and the model leaves %d unread", wrapped, own, m.UnreadBytes)
		}
		embed := "model.embed_tokens.weight"
		if wrapped {
			embed = "model.language_model.embed_tokens.weight"
		}
		if len(shared) != 2 || !shared[embed] || !shared["lm_head.weight"] {
			t.Errorf("wrapped %v: of the model it takes %v", wrapped, shared)
		}
	}
}

// TestModulesForMultiTokenPredictionThatCannotBe: the error names the unsupported field of the config.
func TestModulesForMultiTokenPredictionThatCannotBe(t *testing.T) {
	for more, want := range map[string]string{
		``:                               "mtp_num_hidden_layers",
		`, "mtp_num_hidden_layers": 0`:   "mtp_num_hidden_layers",
		`, "mtp_num_hidden_layers": "x"`: "mtp_num_hidden_layers",
		`, "num_mtp_layers": 1, "mtp_use_dedicated_embeddings": true`: "mtp_use_dedicated_embeddings",
	} {
		_, err := NewNext(hybridWithModule(t, false, more), nil)
		var bad *ConfigError
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want a ConfigError of %s", more, err, want)
		}
	}
}

// withoutModule is a header of all tensors but those of a layer.
type withoutModule struct{ layer string }

func (h withoutModule) Tensor(name string) ([]int, DType, bool) {
	return []int{32, 64}, BFloat16, !strings.Contains(name, h.layer) && strings.HasSuffix(name, ".weight")
}

// TestModulesThatFollowEachOther: of a config with several modules there are as many skeletons, each of a layer further back, and
// those that a checkpoint lacks are left out.
func TestModulesThatFollowEachOther(t *testing.T) {
	cfg, err := ReadConfig([]byte(`{"model_type": "glm4_moe", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "moe_intermediate_size": 16, "num_hidden_layers": 2,
		"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "n_routed_experts": 4, "num_experts_per_tok": 2, "num_nextn_predict_layers": 3}`))
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	all, err := NewNexts(cfg, nil)
	if err != nil || len(all) != 3 {
		t.Fatalf("%d modules: %v", len(all), err)
	}
	bytes := int64(0)
	for i, next := range all {
		own := "model.layers." + string(rune('2'+i)) + "."
		for _, p := range next.Root.AllParams() {
			bytes += p.Bytes()
			if source := p.Sources[0].Tensor; !strings.HasPrefix(source, own) {
				t.Errorf("module %d has %s", i, source)
			}
		}
	}
	if bytes != m.UnreadBytes {
		t.Errorf("%d bytes, and the model leaves %d unread", bytes, m.UnreadBytes)
	}
	if all, err = NewNexts(cfg, withoutModule{"layers.3."}); err != nil || len(all) != 1 {
		t.Errorf("%d modules of a checkpoint with one: %v", len(all), err)
	}
	if _, err = NewNexts(cfg, withoutModule{"layers."}); err == nil {
		t.Error("no error for a checkpoint without modules")
	}
}
