package folder

import (
	"strings"
	"testing"

	"github.com/heftai/heft/internal/gguf"
)

// TestTablesOfQwen4: the table of n-grams belongs to the layer that the file says. Two layers, for which a file has
// no two tables, are refused.
func TestTablesOfQwen4(t *testing.T) {
	open := func(layers ...int64) (*Folder, error) {
		table := &gguf.Tensor{Type: gguf.F32, Shape: []int{64, 32}, Size: 8192}
		m := gguf.Metadata{"general.architecture": "qwen4exp", "qwen4exp.ple.layers": layers}
		for key, n := range map[string]int64{
			"block_count": 4, "context_length": 64, "embedding_length": 32, "attention.head_count": 4, "expert_count": 4, "expert_used_count": 2,
			"expert_feed_forward_length": 16, "expert_shared_feed_forward_length": 16, "ssm.time_step_rank": 4, "ssm.group_count": 2, "ssm.state_size": 8,
			"ssm.conv_kernel": 4, "ssm.inner_size": 32, "hyper_connection.count": 2, "hyper_connection.low_rank": 8, "attention.indexer.head_count": 2,
			"attention.indexer.key_length": 8, "attention.indexer.top_k": 8, "ple.ngram_size": 2, "ple.heads_per_ngram": 1, "ple.conv_kernel": 3,
			"ple.eos_token_id": 2, "embedding_length_per_layer_input": 8,
		} {
			m["qwen4exp."+key] = n
		}
		for key, list := range map[string][]int64{"layer_multipliers": {1 << 60, 3}, "head_vocab_sizes": {23}, "head_offsets": {0}} {
			m["qwen4exp.ple."+key] = list
		}
		return Open(m, Source{Tensor: func(name string) (*gguf.Tensor, bool) {
			return table, name == "token_embd.weight" || name == qwen4Table
		}})
	}
	f, err := open(2)
	if err != nil {
		t.Fatal(err)
	}
	const at = "model.layers.2.ple.ple_embedding."
	if got, _ := f.Tensor(qwen4Table); got.Name != at+"ngram_embedding.weight" {
		t.Errorf("got a table of the name %s", got.Name)
	}
	if e := f.Extras[0]; len(f.Extras) != 3 || e.Name != at+"layer_multipliers" || e.Integers[0] != 1<<60 {
		t.Errorf("got constants %v", f.Extras)
	}
	if _, err := open(1, 2); err == nil || !strings.Contains(err.Error(), "ple.layers") {
		t.Errorf("two layers: got %v, want an error that names the key", err)
	}
}
