package meta

import "testing"

// TestLatentExpansionsWereCoded: the map of latent attention that is multiplied transposed, too, stays as it is, and its
// neighbours are coded.
func TestLatentExpansionsWereCoded(t *testing.T) {
	cfg, err := ReadConfig([]byte(`{"model_type": "deepseek_v3", "torch_dtype": "bfloat16", "num_hidden_layers": 2, "first_k_dense_replace": 2}`))
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	coded := m.Root.Coded(CodedShare)
	for path, want := range map[string]bool{"kv_b_proj": false, "q_b_proj": true, "o_proj": true} {
		n := m.Root.Find("model.layers.0.self_attn." + path)
		if n == nil {
			t.Fatalf("no %s", path)
		}
		if got := coded[n.Param("weight")] > 0; got != want {
			t.Errorf("%s is coded: got %t, want %t", path, got, want)
		}
	}
}
