package meta

import (
	"strings"
	"testing"
)

// TestJambaOfOneExpertHasNoRouter: num_experts_per_tok is 2 by default, and was more than the one
// expert has.
func TestJambaOfOneExpertHasNoRouter(t *testing.T) {
	m, err := newFrom(`{"model_type": "jamba", "num_experts": 1, "num_hidden_layers": 8}`)
	if err != nil {
		t.Fatal(err)
	}
	for path, n := range m.Root.Walk() {
		if n.Class == "JambaSparseMoeBlock" {
			t.Errorf("%s is an MoE layer", path)
		}
	}
}

// TestRemaindersOfHiddenSizesAreLeftOut: transformers rounds hidden_size / num_attention_heads down, as in
// phi3, qwen2 and olmo2.
func TestRemaindersOfHiddenSizesAreLeftOut(t *testing.T) {
	for _, kind := range []string{"phi3", "qwen2", "olmo2", "mistral", "granite", "starcoder2", "nemotron"} {
		m, err := newFrom(`{"model_type": "` + kind + `", "hidden_size": 35, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 1}`)
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		if s := m.Root.Find("model.layers.0.self_attn").Spec.(*AttentionSpec); s.HeadDim != 8 {
			t.Errorf("%s: heads of %d, want 8", kind, s.HeadDim)
		}
	}
}

// TestLongCatRopesOfAnotherSizeWereAccepted: the reference computes frequencies for head_dim, so its answers differed.
func TestLongCatRopesOfAnotherSizeWereAccepted(t *testing.T) {
	config := func(dim string) string {
		return `{"model_type": "longcat_flash", "num_layers": 1, "qk_rope_head_dim": 64` + dim + `}`
	}
	for _, fits := range []string{"", `, "head_dim": 64`} {
		if _, err := newFrom(config(fits)); err != nil {
			t.Errorf("with %q: %v", fits, err)
		}
	}
	if _, err := newFrom(config(`, "head_dim": 2`)); err == nil || !strings.Contains(err.Error(), "head_dim: 2, want qk_rope_head_dim, 64") {
		t.Errorf("got error %v", err)
	}
}

// TestTypesOfIndexersBeyondTheLayersAreIgnored: transformers looks up the type of each layer, and a list may be longer.
func TestTypesOfIndexersBeyondTheLayersAreIgnored(t *testing.T) {
	for _, modelType := range []string{"hy_v4", "glm_moe_dsa"} {
		build(t, []byte(`{"model_type": "`+modelType+`", "num_hidden_layers": 2, "indexer_types": ["full", "shared", "shared"]}`))
		cfg, err := ReadConfig([]byte(`{"model_type": "` + modelType + `", "num_hidden_layers": 2, "indexer_types": ["full"]}`))
		if err == nil {
			_, err = New(cfg, nil)
		}
		if err == nil || !strings.Contains(err.Error(), "indexer_types: 1 types for 2 layers") {
			t.Errorf("%s: error %v", modelType, err)
		}
	}
}
