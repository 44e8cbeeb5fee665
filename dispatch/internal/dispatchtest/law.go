package dispatchtest

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/atomicfile"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// LawConfig is the config of a model that is small, and wide enough that threads share its
// products.
const LawConfig = `{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16", "hidden_size": 192,
	"intermediate_size": 352, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2, "vocab_size": 230,
	"max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000, "tie_word_embeddings": false}`

// LawFolder returns the folder of a checkpoint with random weights, none of which is aligned to
// 64 bytes.
func LawFolder(t *testing.T) string { return LawFolderOf(t, 2) }

// LawFolderOf is LawFolder with the given number of blocks.
func LawFolderOf(t *testing.T, blocks int) string {
	t.Helper()
	dir := t.TempDir()
	config := strings.Replace(LawConfig, `"num_hidden_layers": 2`, fmt.Sprintf(`"num_hidden_layers": %d`, blocks), 1)
	if err := atomicfile.WriteFile(filepath.Join(dir, "config.json"), []byte(config)); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(4, 4))
	shift := []byte{1, 2, 3, 4, 5, 6}
	tensors := []loader.NamedTensor{{Name: "a", DType: meta.Uint8, Shape: []int{len(shift)}, Bytes: func() ([]byte, error) { return shift, nil }}}
	add := func(name string, scale, centre float64, shape ...int) {
		var b []byte
		for range meta.Elements(shape) {
			b = binary.LittleEndian.AppendUint16(b, mat.ToBFloat16(float32(centre+scale*rng.NormFloat64())))
		}
		tensors = append(tensors, loader.NamedTensor{Name: name, DType: meta.BFloat16, Shape: shape, Bytes: func() ([]byte, error) { return b, nil }})
	}
	add("model.embed_tokens.weight", 1, 0, 230, 192)
	for i := range blocks {
		at := fmt.Sprintf("model.layers.%d.", i)
		add(at+"input_layernorm.weight", 0.1, 1, 192)
		add(at+"self_attn.q_proj.weight", 0.1, 0, 192, 192)
		add(at+"self_attn.k_proj.weight", 0.1, 0, 64, 192)
		add(at+"self_attn.v_proj.weight", 0.1, 0, 64, 192)
		add(at+"self_attn.o_proj.weight", 0.1, 0, 192, 192)
		add(at+"post_attention_layernorm.weight", 0.1, 1, 192)
		add(at+"mlp.gate_proj.weight", 0.1, 0, 352, 192)
		add(at+"mlp.up_proj.weight", 0.1, 0, 352, 192)
		add(at+"mlp.down_proj.weight", 0.1, 0, 192, 352)
	}
	add("model.norm.weight", 0.1, 1, 192)
	add("lm_head.weight", 0.1, 0, 230, 192)
	if err := loader.Save(dir, slices.Values(tensors), loader.SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// LawIDs returns a prompt that is longer than a page of the KV cache, and the tokens after it.
func LawIDs() (ids []int32, prompt int) {
	for i := range 26 {
		ids = append(ids, int32(i*37%223+3))
	}
	return ids, 18
}

// LogitsInPieces returns the logits of ids as sequence own of n that run together. Their prompts
// run in chunks of unequal size. The tokens after the prompt run draft at a time, as if drafts
// were verified.
func LogitsInPieces(t *testing.T, m *dispatch.Model, own, n int, ids []int32, prompt, chunk, draft int) [][]float32 {
	t.Helper()
	sequences := make([]*dispatch.Sequence, n)
	for i := range sequences {
		sequences[i] = m.NewSequence()
		defer sequences[i].Free()
	}
	var out [][]float32
	for sequences[own].Len() < len(ids) {
		var rows []dispatch.BatchRow
		at := -1
		for i, s := range sequences {
			length := max(prompt-(i+n-own)%n, 1) // the other sequences begin to generate sooner
			k := min(draft, len(ids)-s.Len())
			if s.Len() < length {
				k = min(chunk+i, length-s.Len())
			}
			if i == own {
				at = len(rows)
			}
			if k > 0 {
				rows = append(rows, dispatch.BatchRow{Sequence: s, Tokens: OtherIDs(ids[s.Len():][:k], i-own, m.Vocab()), PromptLen: length})
			}
		}
		rows[at].Logits = dispatch.LogitsAll
		got, err := m.Forward(context.Background(), &dispatch.Batch{Rows: rows})
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, Rows(got, at)...)
	}
	return out
}

// OtherIDs returns ids shifted by by, for another sequence.
func OtherIDs(ids []int32, by, vocab int) []int32 {
	ids = slices.Clone(ids)
	for i := range ids {
		ids[i] = (ids[i] + int32((23*by%vocab)+vocab)) % int32(vocab)
	}
	return ids
}

// RunAtOnce lets Go run at least the given number of threads at once.
func RunAtOnce(t *testing.T, threads int) {
	before := runtime.GOMAXPROCS(max(threads, runtime.GOMAXPROCS(0)))
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}
