package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/testenv"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// deepseekConfig is a mixture whose routers have a buffer, e_score_correction_bias.
const deepseekConfig = `{"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "vocab_size": 512, "hidden_size": 16, "intermediate_size": 24,
 "moe_intermediate_size": 8, "num_hidden_layers": 2, "first_k_dense_replace": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "kv_lora_rank": 8, "q_lora_rank": 8,
 "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8, "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1,
 "max_position_embeddings": 64, "torch_dtype": "float32"}`

const correction = "model.layers.1.mlp.gate.e_score_correction_bias"

// TestTrainingKeepsBuffers: checkpoints of a whole DeepSeek-V3 lacked the routers' correction,
// so that nothing could open them, and the model of a run in bfloat16 had it rounded.
func TestTrainingKeepsBuffers(t *testing.T) {
	dir, text, once := modelOf(t, deepseekConfig), lessons(t, 12), filepath.Join(t.TempDir(), "once")
	args := []string{"run", "--model", dir, "--data", text, "--batch", "2", "--max-steps", "4", "--save-steps", "1", "--log-steps", "1", "--threads", "1", "--lr", "0.01", "--dtype", "bfloat16"}
	if status, _, stderr := command(t, slices.Concat(args, []string{"--output", once})...); status != 0 {
		t.Fatal(stderr)
	}
	want, _ := bufferOf(t, dir)
	for _, trained := range []string{once, filepath.Join(once, "checkpoint-4")} {
		got, dtype := bufferOf(t, trained)
		if !bytes.Equal(got, want) || dtype != meta.Float32 {
			t.Errorf("%s has another %s, of %v", trained, correction, dtype)
		}
		answers(t, trained)
	}
	often := filepath.Join(t.TempDir(), "often")
	for range 2 {
		child(t, slices.Concat(args, []string{"--output", often}), 3, syscall.SIGKILL)
	}
	child(t, slices.Concat(args, []string{"--output", often}), 0, 0)
	if !bytes.Equal(weightsOf(t, once), weightsOf(t, often)) {
		t.Error("a run that was killed ends with other weights")
	}
}

// bufferOf is the elements of the routers' correction in a folder.
func bufferOf(t *testing.T, dir string) ([]byte, meta.DType) {
	t.Helper()
	ck, err := loader.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	x, ok := ck.Lookup(correction)
	if !ok {
		t.Fatalf("%s has no %s", dir, correction)
	}
	b, err := x.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Trim(string(b), "\x00") == "" {
		t.Fatalf("%s: %s is zero", dir, correction)
	}
	return bytes.Clone(b), x.DType
}

// answers fails unless serve could open the folder and answer.
func answers(t *testing.T, dir string) {
	t.Helper()
	m, err := dispatch.Open(dir, dispatch.Options{})
	if err != nil {
		t.Error(err)
		return
	}
	defer m.Close()
	for _, err := range m.Generate(t.Context(), []int32{1, 2}, dispatch.GenerateOptions{MaxTokens: 2}) {
		if err != nil {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

// TestQuantisedBases: an adapter is trained on one, and unsupported options are rejected before
// it takes hours.
func TestQuantisedBases(t *testing.T) {
	text, seen := lessons(t, 4), map[string]bool{}
	method := regexp.MustCompile(`"quant_method": *"(\w+)"`)
	for _, config := range golden.Glob(t, "infer/models/*/config.json") {
		b, err := os.ReadFile(config)
		if err != nil {
			t.Fatal(err)
		}
		format := method.FindSubmatch(b)
		if format == nil || seen[string(format[1])] {
			continue
		}
		seen[string(format[1])] = true
		t.Run(string(format[1]), func(t *testing.T) { checkQuantisedBase(t, filepath.Dir(config), text) })
	}
	testenv.Need(t, "golden", len(seen) > 0, "the fixtures have no quantised models")
}

func checkQuantisedBase(t *testing.T, dir, text string) {
	base, out := filepath.Join(t.TempDir(), "base"), filepath.Join(t.TempDir(), "out")
	if err := os.CopyFS(base, os.DirFS(golden.Unpacked(t, dir))); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(base, "tokenizer.json"), []byte(letters), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"run", "--model", base, "--data", text, "--output", out, "--max-steps", "1", "--batch", "1", "--threads", "1"}
	for _, refused := range [][]string{nil, {"--lora", "r=2", "--merge"}} {
		if status, _, stderr := command(t, slices.Concat(args, refused)...); status != 2 || !strings.Contains(stderr, "is stored as") {
			t.Errorf("%v: %d, %s", refused, status, stderr)
		}
	}
	if status, _, stderr := command(t, slices.Concat(args, []string{"--lora", "r=2,targets=all-linear"})...); status != 0 {
		t.Errorf("an adapter: %d, %s", status, stderr)
	}
}

// letters is a tokenizer of few ids, for models of small vocabularies.
const letters = `{"version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": {"type": "Split", "pattern": {"String": ""}, "behavior": "Isolated", "invert": false},
 "post_processor": null, "decoder": null, "model": {"type": "WordLevel", "vocab": {"?": 0, "a": 1, "e": 2, "n": 3, " ": 4}, "unk_token": "?"}}`
