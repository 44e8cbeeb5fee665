//go:build soak

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/lora"
	"github.com/heftai/heft/loader/demo"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/rng"
)

// soakConfigs are models of 5 to 20 MB with the demo's vocabulary.
var soakConfigs = map[string]string{
	"dense": `{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16", "hidden_size": 256, "intermediate_size": 768,
		"num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 1024, "max_position_embeddings": 512, "eos_token_id": 5}`,
	"windows": `{"model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"], "torch_dtype": "bfloat16", "hidden_size": 256, "intermediate_size": 512,
		"num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 1024, "sliding_window": 32,
		"max_position_embeddings": 512, "query_pre_attn_scalar": 64, "eos_token_id": 5}`,
	"experts": `{"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "torch_dtype": "bfloat16", "hidden_size": 256, "intermediate_size": 512,
		"moe_intermediate_size": 128, "num_experts": 16, "num_experts_per_tok": 4, "num_hidden_layers": 5, "num_attention_heads": 8, "num_key_value_heads": 2,
		"head_dim": 32, "norm_topk_prob": true, "vocab_size": 1024, "max_position_embeddings": 512, "eos_token_id": 5}`,
	"latent": `{"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], "torch_dtype": "bfloat16", "hidden_size": 256, "intermediate_size": 512,
		"moe_intermediate_size": 64, "n_routed_experts": 16, "num_experts_per_tok": 4, "n_shared_experts": 1, "n_group": 1, "topk_group": 1,
		"first_k_dense_replace": 1, "num_hidden_layers": 5, "num_attention_heads": 4, "num_key_value_heads": 4, "q_lora_rank": 64, "kv_lora_rank": 64,
		"qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32, "routed_scaling_factor": 1.0, "norm_topk_prob": true, "vocab_size": 1024,
		"max_position_embeddings": 512, "eos_token_id": 5}`,
}

// A soakModel is a model that a soak serves.
type soakModel struct {
	name, dir string
	vocab     int
	context   int      // tokens of a prompt and its answer
	texts     bool     // it has a tokenizer
	adapters  []string // names
}

// madeModel writes a model of soakConfigs with the demo's tokenizer and two adapters below shelf.
func madeModel(t *testing.T, r *rand.Rand, kind, name, shelf string) *soakModel {
	dir := filepath.Join(t.TempDir(), name)
	if err := os.Rename(randomFolder(t, soakConfigs[kind]), dir); err != nil {
		t.Fatal(err)
	}
	files := demo.Files()
	for _, file := range []string{"tokenizer.json", "tokenizer_config.json"} {
		text, err := fs.ReadFile(files, file)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	m := &soakModel{name: name, dir: dir, vocab: 1024, context: 512, texts: true}
	for i := range 2 {
		adapter := fmt.Sprintf("%s-adapter-%d", name, i)
		writeAdapter(t, r, soakConfigs[kind], name, filepath.Join(shelf, adapter))
		m.adapters = append(m.adapters, adapter)
	}
	return m
}

// writeAdapter writes an adapter of all linear maps of a model, with random values.
func writeAdapter(t *testing.T, r *rand.Rand, config, base, dir string) {
	parsed, err := meta.ReadConfig([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	model, err := meta.New(parsed, nil)
	if err != nil {
		t.Fatal(err)
	}
	values := rng.New(r.Uint64())
	c := &lora.Config{R: 1 + r.IntN(8), Alpha: 4, Targets: lora.Names{AllLinear: true}, BaseModel: base, TaskType: "CAUSAL_LM"}
	adapter, err := c.New(model.Root, values.Uniform)
	if err != nil {
		t.Fatal(err)
	}
	for i := range adapter.Pairs {
		values.Uniform(adapter.Pairs[i].B.F32(), -0.05, 0.05)
	}
	if err := adapter.Save(dir); err != nil {
		t.Fatal(err)
	}
}

// fixtureModel copies a random fixture of a model family.
func fixtureModel(t *testing.T, r *rand.Rand, name string) *soakModel {
	all, err := filepath.Glob(filepath.Join(golden.Module(t), "testdata", "golden", "infer", "models", "*"))
	if err != nil || len(all) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	from := all[r.IntN(len(all))]
	t.Logf("%s is %s", name, filepath.Base(from))
	dir := filepath.Join(t.TempDir(), name)
	if err := os.CopyFS(dir, os.DirFS(golden.Unpacked(t, from))); err != nil {
		t.Fatal(err)
	}
	var config struct {
		Vocab   int `json:"vocab_size"`
		Context int `json:"max_position_embeddings"`
		Text    struct {
			Vocab   int `json:"vocab_size"`
			Context int `json:"max_position_embeddings"`
		} `json:"text_config"`
	}
	text, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err == nil {
		err = json.Unmarshal(text, &config)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &soakModel{name: name, dir: dir, vocab: cmp.Or(config.Text.Vocab, config.Vocab, 40), context: max(min(config.Context+config.Text.Context, 512), 64)}
}

// weightFiles returns the checkpoint files of the models.
func weightFiles(t *testing.T, models []*soakModel) (files []string) {
	for _, m := range models {
		found, err := filepath.Glob(filepath.Join(m.dir, "*.safetensors"))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s has no weights: %v", m.dir, err)
		}
		files = append(files, found...)
	}
	return files
}
