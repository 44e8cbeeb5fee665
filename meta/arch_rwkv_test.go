package meta

import "testing"

// TestUnsupportedValuesOfRWKV: the reference keeps averages in rows of the hidden size.
func TestUnsupportedValuesOfRWKV(t *testing.T) {
	unsupported(t, `{"model_type": "rwkv", "attention_hidden_size": 64}`, "attention_hidden_size: 64 is not supported, want the hidden size of 4096")
}

// TestRWKVHalvesHiddenStates: blocks behind each rescale_every others begin with half of the hidden states and add less.
func TestRWKVHalvesHiddenStates(t *testing.T) {
	root := build(t, []byte(`{"model_type": "rwkv", "num_hidden_layers": 4, "rescale_every": 2}`)).Root
	for i, want := range []BlockSpec{{ResidualScale: 1}, {ResidualScale: 1}, {ResidualScale: 0.5, Entry: &EntrySpec{Scale: 0.5}}, {ResidualScale: 0.5}} {
		got := root.Find("rwkv.blocks").Children[i].Spec.(*BlockSpec)
		if got.ResidualScale != want.ResidualScale || i > 0 && (got.Entry == nil) != (want.Entry == nil) || i == 2 && *got.Entry != *want.Entry {
			t.Errorf("block %d: %+v, want %+v", i, got, want)
		}
	}
	if by := root.Spec.(*CausalLMSpec).NormScale; by != 0.5 {
		t.Errorf("factor in front of the final norm: %g, want 0.5", by)
	}
}
