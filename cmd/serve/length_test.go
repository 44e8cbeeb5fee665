package main

import (
	"maps"
	"path/filepath"
	"strings"
	"testing"
)

// TestALengthBeyondTheModelIsRefused: --max-model-len 99999999 planned a KV cache of 119 GiB for a model of 2,048
// positions. The error names the maximum and how to allow more; rope scalings that extend the stated length count, and
// a table of positions cannot be exceeded.
func TestALengthBeyondTheModelIsRefused(t *testing.T) {
	config := func(more map[string]any) string {
		c := maps.Clone(llamaConfig)
		c["max_position_embeddings"] = 2048
		maps.Copy(c, more)
		return filepath.Join(writeConfig(t, c), "config.json")
	}
	scaled := func(kind string) map[string]any {
		return map[string]any{"rope_scaling": map[string]any{"rope_type": kind, "factor": 4.0, "original_max_position_embeddings": 2048}}
	}
	table := filepath.Join(writeConfig(t, map[string]any{"model_type": "gpt2", "architectures": []string{"GPT2LMHeadModel"}, "n_positions": 64, "n_embd": 32, "n_layer": 1, "n_head": 2, "vocab_size": 100}), "config.json")
	const allow = "--allow-long-max-model-len"
	for name, c := range map[string]struct {
		path, length string
		more         []string
		want         string // of the error; "" for none
	}{
		"all":                   {config(nil), "2048", nil, ""},
		"one more":              {config(nil), "2049", nil, "want at most 2048"},
		"says how":              {config(nil), "99999999", nil, allow},
		"allowed":               {config(nil), "2049", []string{allow}, ""},
		"yarn":                  {config(scaled("yarn")), "8192", nil, ""},
		"beyond yarn":           {config(scaled("yarn")), "8193", nil, "want at most 8192"},
		"dynamic":               {config(scaled("dynamic")), "8192", nil, ""},
		"linear":                {config(scaled("linear")), "8193", nil, "want at most 8192"},
		"beyond a table":        {table, "65", []string{allow}, "position embeddings"},
		"of the table, at most": {table, "64", nil, ""},
	} {
		args := append([]string{"plan", c.path, "--no-probe", "--max-memory", "cpu=64GiB", "--max-model-len", c.length}, c.more...)
		status := 0
		if c.want != "" {
			status = 2
		}
		if _, errs := command(t, status, args...); !strings.Contains(errs, c.want) {
			t.Errorf("%s: %q, want %q", name, errs, c.want)
		}
	}
	for _, args := range []string{"--max-model-len 99999999", "bench --max-model-len 99999999"} { // of the demo model
		if _, errs := command(t, 2, strings.Fields(args)...); !strings.Contains(errs, "want at most 2048") {
			t.Errorf("serve %s: %q", args, errs)
		}
	}
}
