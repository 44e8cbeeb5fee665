package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const benchConfig = `{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2,
"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 100, "max_position_embeddings": 64,
"rms_norm_eps": 1e-5, "tie_word_embeddings": true, "torch_dtype": "float32"}`

// TestBench measures a model that consists of its config only.
func TestBench(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(benchConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dtype := range []string{"float32", "bfloat16"} {
		var stdout, stderr bytes.Buffer
		if status := run([]string{"bench", "--model", dir, "--batch", "2", "--sequence", "8", "--dtype", dtype, "--steps", "2", "--json"}, &stdout, &stderr); status != 0 {
			t.Fatalf("%s: status %d: %s", dtype, status, stderr.String())
		}
		var r benchResult
		if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
			t.Fatalf("%s: %v: %s", dtype, err, stdout.String())
		}
		if r.TokensPerSecond <= 0 || r.ForwardSeconds <= 0 || r.BackwardSeconds <= 0 || r.OptimizerSeconds <= 0 || len(r.Losses) != 4 || r.DType != dtype {
			t.Errorf("%s: %+v", dtype, r)
		}
	}
	var stderr bytes.Buffer
	if status := run([]string{"bench", "--model", dir, "--steps", "0"}, &stderr, &stderr); status != 2 || !strings.Contains(stderr.String(), "--steps") {
		t.Errorf("no steps: status %d: %s", status, stderr.String())
	}
}
