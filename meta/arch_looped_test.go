package meta

import "testing"

// TestUnsupportedValuesOfLoops checks the errors of fields that say how often blocks run.
func TestUnsupportedValuesOfLoops(t *testing.T) {
	for config, want := range map[string]string{
		`{"model_type": "dory", "recurrent_kv_cache_mode": "last_loop"}`:                             "recurrent_kv_cache_mode: \"last_loop\" is not supported, want per_loop",
		`{"model_type": "dory", "n_recurrent_layers": 21}`:                                           "n_recurrent_layers: 21 between 8 and 8 layers, want 1 or more, and 36 together",
		`{"model_type": "dory", "num_hidden_layers": 16}`:                                            "n_recurrent_layers: 0 between 8 and 8 layers",
		`{"model_type": "dory", "n_recurrent_loops": 0}`:                                             "n_recurrent_loops: 0 is not within 1 and 1024",
		`{"model_type": "hrm_text", "L_cycles": 0}`:                                                  "L_cycles: 0 is not within 1 and 1024",
		`{"model_type": "hrm_text", "H_cycles": 100, "L_cycles": 100, "num_layers_per_stack": 1000}`: "H_cycles: 100 with 100 low ones of 1000 blocks is not supported",
	} {
		unsupported(t, config, want)
	}
}

// TestPublishedLayersOfDoryArePairs: published configs count attention and MLP as two layers, and their files name them so.
func TestPublishedLayersOfDoryArePairs(t *testing.T) {
	m := build(t, []byte(`{"model_type": "dory", "hidden_size": 16, "vocab_size": 40, "intermediate_size": 12, "num_hidden_layers": 6, "n_input_layers": 2, "n_output_layers": 2, "n_recurrent_layers": 2,
		"layer_types": ["full_attention", "mlp", "sliding_attention", "mlp", "full_attention", "mlp"]}`))
	s := m.Root.Spec.(*CausalLMSpec)
	if n := len(m.Root.Find(s.Layers).Children); n != 3 || len(s.Runs) != 4 || s.Runs[2].Offset != 2 {
		t.Errorf("%d blocks in runs %+v", n, s.Runs)
	}
	for path, want := range map[string]string{
		"model.layers.1.self_attn.gate_proj": "backbone.layers.2.mixer.g_proj.weight",
		"model.layers.1.mlp.gate_proj":       "backbone.layers.3.mixer.gate_proj.weight",
		"model.embed_tokens":                 "backbone.embeddings.weight",
	} {
		if got := m.Root.Find(path).Param("weight").Sources[0].Tensor; got != want {
			t.Errorf("%s is %s in files, want %s", path, got, want)
		}
	}
}
