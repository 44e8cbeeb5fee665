package folder

import (
	"strings"
	"testing"

	"github.com/heftai/heft/internal/gguf"
)

// TestStacksOfHRMText: the layers of the file are those of the low stack and then those of the high one. A file
// whose counts disagree is refused, as one whose stacks are empty.
func TestStacksOfHRMText(t *testing.T) {
	open := func(blocks, perStack int64) (*Folder, error) {
		table := &gguf.Tensor{Type: gguf.F32, Shape: []int{8, 32}, Size: 1024}
		m := gguf.Metadata{"general.architecture": "hrm_text"}
		for key, n := range map[string]int64{"block_count": blocks, "context_length": 64, "embedding_length": 32, "attention.head_count": 4, "hrm.layers_per_stack": perStack, "hrm.h_cycles": 2, "hrm.l_cycles": 3} {
			m["hrm_text."+key] = n
		}
		return Open(m, Source{Tensor: func(name string) (*gguf.Tensor, bool) { return table, name == "token_embd.weight" }})
	}
	f, err := open(16, 2)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"blk.1.attn_gate.weight": "model.L_module.layers.1.self_attn.gate_proj.weight", "blk.2.ffn_up.weight": "model.H_module.layers.0.mlp.up_proj.weight", "hrm.z_l_init": "model.z_L_init",
		"blk.4.ffn_up.weight": "model.H_module.layers.2.mlp.up_proj.weight", // which no model has
	} {
		if got, _ := f.Tensor(name); got.Name != want {
			t.Errorf("%s: got %s, want %s", name, got.Name, want)
		}
	}
	for blocks, perStack := range map[int64]int64{15: 2, 0: 0, 16: 1 << 40} {
		if _, err := open(blocks, perStack); err == nil || !strings.Contains(err.Error(), "hrm_text.") {
			t.Errorf("%d layers of stacks of %d: got %v, want an error that names the key", blocks, perStack, err)
		}
	}
}
