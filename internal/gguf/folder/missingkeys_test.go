package folder

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/gguf"
)

// openTwoLayers opens a file of an architecture with two layers and the given tensors in addition to the embedding.
func openTwoLayers(arch string, more gguf.Metadata, tensors ...string) (object, error) {
	m := gguf.Metadata{"general.architecture": arch}
	for key, n := range map[string]int64{"block_count": 2, "context_length": 64, "embedding_length": 32, "feed_forward_length": 128, "attention.head_count": 4} {
		m[arch+"."+key] = n
	}
	for key, v := range more {
		m[key] = v
	}
	table := &gguf.Tensor{Type: gguf.F32, Shape: []int{8, 32}, Size: 1024}
	f, err := Open(m, Source{Tensor: func(name string) (*gguf.Tensor, bool) {
		if name == "token_embd.weight" {
			return table, true
		}
		for _, t := range tensors {
			if name == t {
				return table, true
			}
		}
		return nil, false
	}})
	if err != nil {
		return nil, err
	}
	var c object
	return c, json.Unmarshal(f.config, &c)
}

// TestUnsupportedKeysOfMPTAndBLOOM: what MPT and BLOOM files may not say is refused with the key or the tensor.
func TestUnsupportedKeysOfMPTAndBLOOM(t *testing.T) {
	biases := gguf.Metadata{"mpt.attention.max_alibi_bias": 8.0}
	if _, err := openTwoLayers("mpt", biases); err != nil {
		t.Fatal(err)
	}
	clamped := gguf.Metadata{"mpt.attention.max_alibi_bias": 8.0, "mpt.attention.clamp_kqv": 6.0}
	if c, err := openTwoLayers("mpt", clamped); err != nil || fmt.Sprint(c["attn_config"]) != "map[clip_qkv:6]" {
		t.Errorf("attn_config %v, error %v, want a clip_qkv of 6", c["attn_config"], err)
	}
	grouped := gguf.Metadata{"mpt.attention.max_alibi_bias": 8.0, "mpt.attention.head_count_kv": int64(2)}
	for _, c := range []struct {
		arch    string
		meta    gguf.Metadata
		tensors []string
		want    string
	}{
		{"mpt", nil, nil, `"mpt.attention.max_alibi_bias": got 0, want 8`},
		{"mpt", grouped, nil, `"mpt.attention.head_count_kv": 2 beside 4 heads`},
		{"mpt", biases, []string{"blk.1.attn_qkv.bias"}, "attn_qkv.bias"},
		{"bloom", gguf.Metadata{"bloom.feed_forward_length": int64(96)}, nil, `"bloom.feed_forward_length": got 96, want four times the embedding_length of 32`},
		{"bitnet", nil, []string{"blk.0.attn_q.scale"}, "blk.0.attn_q.scale"},
		{"minicpm", gguf.Metadata{"minicpm.expert_count": int64(4)}, nil, "minicpm.expert_count"},
	} {
		if _, err := openTwoLayers(c.arch, c.meta, c.tensors...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s of %v: got %v, want an error with %q", c.arch, c.meta, err, c.want)
		}
	}
}

// TestFieldsThatFilesLack: BitNet's activation follows from the vocabulary, and MiniCPM's first files have llama.cpp's
// factors.
func TestFieldsThatFilesLack(t *testing.T) {
	for model, want := range map[string]string{"gpt2": "relu2", "llama": "silu"} {
		c, err := openTwoLayers("bitnet", gguf.Metadata{"tokenizer.ggml.model": model})
		if err != nil || c["hidden_act"] != want {
			t.Errorf("a file with the vocabulary %s: activation %v, %v, want %s", model, c["hidden_act"], err, want)
		}
	}
	c, err := openTwoLayers("minicpm", nil)
	if err != nil || c["embedding_multiplier"] != 12.0 || c["logits_scaling"] != 0.125 || c["residual_multiplier"] != 0.9899494936611664 {
		t.Errorf("MiniCPM: %v, %v", c, err)
	}
}
