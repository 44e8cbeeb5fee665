package folder

import (
	"testing"

	"github.com/heftai/heft/internal/gguf"
)

// TestTensorsOfModules: tensors behind the last layer are the module's for multi-token prediction, as the model is published, or are ignored.
func TestTensorsOfModules(t *testing.T) {
	for _, c := range []struct {
		modelType, tensor, want string
	}{
		{"glm4_moe", "blk.2.nextn.eh_proj.weight", "model.layers.2.eh_proj.weight"},
		{"glm4_moe", "blk.3.nextn.shared_head_head.weight", "model.layers.3.shared_head.head.weight"},
		{"glm4_moe", "blk.2.attn_q.weight", "model.layers.2.self_attn.q_proj.weight"},
		{"glm4_moe", "blk.2.nextn.unknown.weight", ""},
		{"glm4_moe", "blk.2.unknown.weight", ""},
		{"qwen3_5_text", "blk.2.nextn.eh_proj.weight", "mtp.fc.weight"},
		{"qwen3_5_text", "blk.2.nextn.embed_tokens.weight", ""},
		{"qwen3_5_text", "blk.3.ffn_up.weight", "mtp.layers.1.mlp.up_proj.weight"},
		{"exaone_moe", "blk.2.nextn.eh_proj.weight", ""},
		{"exaone_moe", "blk.2.attn_q.weight", ""},
	} {
		for i := range architectures {
			if architectures[i].modelType != c.modelType {
				continue
			}
			f := &Folder{arch: &architectures[i], layers: 2, from: Source{Tensor: func(string) (*gguf.Tensor, bool) { return nil, false }}}
			n, ok := f.Tensor(c.tensor)
			if ok != (c.want != "") || ok && n.Name != c.want {
				t.Errorf("%s of %s: got %q, %v, want %q", c.tensor, architectures[i].name, n.Name, ok, c.want)
			}
		}
	}
}
