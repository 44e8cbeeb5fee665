package folder

import (
	"strings"
	"testing"

	"github.com/heftai/heft/internal/gguf"
)

// TestNormsOfMuseGlimmerAreNumbers: the norms of queries and keys that the converter adds are one number each. Others are refused.
func TestNormsOfMuseGlimmerAreNumbers(t *testing.T) {
	for _, c := range []struct {
		queries, keys []float64
		want          string
	}{
		{[]float64{1.5, 1.5}, []float64{1, 1}, ""},
		{[]float64{1.5, 2}, []float64{1, 1}, "blk.0.attn_q_norm.weight"},
		{[]float64{1.5, 1.5}, []float64{2, 2}, "attn_k_norm.weight"},
		{nil, []float64{1, 1}, "blk.0.attn_q_norm.weight"},
	} {
		table := &gguf.Tensor{Type: gguf.F32, Shape: []int{8, 32}, Size: 1024}
		m := gguf.Metadata{"general.architecture": "muse-glimmer", "muse-glimmer.final_logit_softcapping": 20.0}
		for key, n := range map[string]int64{"block_count": 2, "context_length": 64, "embedding_length": 32, "feed_forward_length": 128, "attention.head_count": 4, "attention.sliding_window": 8} {
			m["muse-glimmer."+key] = n
		}
		values := map[*gguf.Tensor][]float64{}
		queries, keys := &gguf.Tensor{Type: gguf.F32, Shape: []int{2}, Size: 8}, &gguf.Tensor{Type: gguf.F32, Shape: []int{2}, Size: 8}
		values[queries], values[keys] = c.queries, c.keys
		_, err := Open(m, Source{
			Tensor: func(name string) (*gguf.Tensor, bool) {
				switch {
				case name == "token_embd.weight":
					return table, true
				case strings.HasSuffix(name, "attn_q_norm.weight"):
					return queries, c.queries != nil
				case strings.HasSuffix(name, "attn_k_norm.weight"):
					return keys, true
				}
				return nil, false
			},
			Floats: func(t *gguf.Tensor) ([]float64, error) { return values[t], nil },
		})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v and %v: got %v, want an error with %q", c.queries, c.keys, err, c.want)
		}
	}
}
