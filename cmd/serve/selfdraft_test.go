package main

import (
	"fmt"
	"maps"
	"strings"
	"testing"
)

// TestPlansOfDraftsSayWhatTheyCost: plan has what a draft of a model by itself takes, and what streams with and without it, and
// declines one beside which more streams than its guesses are expected to save.
func TestPlansOfDraftsSayWhatTheyCost(t *testing.T) {
	config := maps.Clone(llamaConfig)
	maps.Copy(config, map[string]any{"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
		"head_dim": 128, "vocab_size": 128256, "torch_dtype": "bfloat16", "max_position_embeddings": 2048})
	dir := writeConfig(t, config)
	for _, c := range []struct {
		memory string
		paid   bool
	}{{"cpu=8GiB", true}, {"cpu=17GiB", false}} {
		args := []string{"plan", "--no-probe", "--compress", "none", "--max-model-len", "2048", "--draft", "self", "--max-memory", c.memory, dir}
		var got struct {
			Predicted rates
			Self      *struct {
				Bytes  int64 `json:"bytes"`
				Beside int64 `json:"disk_bytes_per_token"`
				Alone  int64 `json:"disk_bytes_per_token_alone"`
			} `json:"self_draft"`
		}
		parse(t, &got, append(args, "--json")...)
		if got.Self == nil || got.Self.Bytes < 1<<30 || got.Self.Beside <= got.Self.Alone {
			t.Fatalf("%s: the draft is %+v", c.memory, got.Self)
		}
		want := got.Self.Alone // of the plan that is printed
		if c.paid {
			want = got.Self.Beside
		}
		if n := int64(*got.Predicted["disk_bytes_per_token"]); n != want {
			t.Errorf("%s: the plan streams %d bytes for a token, want %d of %+v", c.memory, n, want, *got.Self)
		}
		if text, _ := command(t, 0, args...); !strings.Contains(text, "draft self: ") || strings.Contains(text, "declines") == c.paid {
			t.Errorf("%s: declined, want %v:\n%s", c.memory, !c.paid, text)
		}
	}
}

// TestADraftThatDoesNotPayLeaves: beside its draft a model streams more. Where no guess is right, the draft and its memory
// leave, and answers go on.
func TestADraftThatDoesNotPayLeaves(t *testing.T) {
	var log string
	for range 5 { // the draft is read in the background: on a busy machine it may miss the requests
		p := start(t, "--draft", "self", "--model", demoOnDisk(t), "--max-memory", "cpu=156MiB", "--max-model-len", "600")
		for i := range 40 {
			status, r := p.ask(t, "POST", "/v1/completions", fmt.Sprintf(`{"prompt": [1, %d], "max_tokens": 60, "seed": %d, "temperature": 2}`, 300+i, i))
			if status != 200 {
				t.Errorf("%d %v", status, r)
			}
		}
		_ = p.Process.Kill()
		<-p.end
		if log = fmt.Sprint(p.log); strings.Contains(log, "guesses save less time than the memory that it takes costs") {
			return
		}
	}
	t.Errorf("the draft guesses still\n%s", log)
}
