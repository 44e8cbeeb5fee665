package folder

import (
	"errors"
	"testing"

	"github.com/heftai/heft/internal/gguf"
)

// TestHostileMetadata: whatever numbers a file states, of each architecture, are answered with an error or a config, at once.
func TestHostileMetadata(t *testing.T) {
	numbers := []string{
		"block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count", "attention.head_count_kv", "attention.key_length",
		"attention.value_length", "attention.key_length_swa", "attention.key_length_mla", "attention.value_length_mla", "attention.kv_lora_rank", "rope.dimension_count",
		"expert_count", "expert_used_count", "expert_feed_forward_length", "expert_shared_feed_forward_length", "expert_shared_count", "attention.sliding_window",
		"ssm.conv_kernel", "ssm.inner_size", "ssm.state_size", "ssm.time_step_rank", "ssm.group_count", "shortconv.l_cache", "interleave_moe_layer_step",
		"attention.indexer.head_count", "attention.indexer.key_length", "attention.indexer.top_k", "nextn_predict_layers", "attention.shared_kv_layers",
	}
	lists := []string{"attention.head_count_kv", "feed_forward_length", "attention.sliding_window_pattern", "attention.recurrent_layers", "attention.indexer.types"}
	tensor := gguf.Tensor{Type: gguf.F32, Shape: []int{2, 2}, Size: 16}
	for _, has := range []bool{false, true} {
		from := Source{
			Tensor: func(name string) (*gguf.Tensor, bool) { return &tensor, has || name == "token_embd.weight" },
			Floats: func(*gguf.Tensor) ([]float64, error) { return []float64{1, 2}, nil },
		}
		for _, a := range Architectures() {
			for _, n := range []int64{-1 << 63, -1, 0, 1, 3, 1 << 62} {
				for _, list := range []any{nil, []int64{}, []int64{0, n}, []int64{n, n, n}, []bool{true}, []bool{true, false, true}} {
					m := gguf.Metadata{"general.architecture": a.Name}
					for _, key := range numbers {
						m[a.Name+"."+key] = n
					}
					for _, key := range lists {
						if list != nil {
							m[a.Name+"."+key] = list
						}
					}
					f, err := Open(m, from)
					var own *gguf.Error
					if err != nil && !errors.As(err, &own) || err == nil && len(f.config) == 0 {
						t.Errorf("%s of %d and %v: %v", a.Name, n, list, err)
					}
					if err == nil {
						f.Tensor("blk.1.attn_qkv.weight")
					}
				}
			}
		}
	}
}
