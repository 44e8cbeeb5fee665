package dispatch_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// lawConfig is a model that is small, and wide enough that threads share its products.
const lawConfig = `{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16", "hidden_size": 192,
	"intermediate_size": 352, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2, "vocab_size": 230,
	"max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000, "tie_word_embeddings": false}`

// lawFolder is a checkpoint of random weights, of which none lies on a boundary of 64 bytes.
func lawFolder(t *testing.T) string { return lawFolderOf(t, 2) }

// lawFolderOf is lawFolder with so many blocks.
func lawFolderOf(t *testing.T, blocks int) string {
	t.Helper()
	dir := t.TempDir()
	config := strings.Replace(lawConfig, `"num_hidden_layers": 2`, fmt.Sprintf(`"num_hidden_layers": %d`, blocks), 1)
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600); err != nil {
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

// lawIDs is a prompt, over a page of keys and values long, and the tokens behind it.
func lawIDs() (ids []int32, prompt int) {
	for i := range 26 {
		ids = append(ids, int32(i*37%223+3))
	}
	return ids, 18
}

// TestPlacementNeverChangesTheAnswer holds law 4, bit by bit, in every variant that the
// processor has: the logits of a sequence are those that it has alone, on one thread and from
// mapped weights, whatever runs beside it, in what pieces it comes, how many threads there
// are, and whether its weights have moved.
func TestPlacementNeverChangesTheAnswer(t *testing.T) {
	dir := lawFolder(t)
	runAtOnce(t, 4)
	for _, variant := range kernels.Names() {
		for name, o := range map[string]dispatch.Options{
			"bfloat16": {}, "keys of eight bits": {KVDType: meta.Int8}, "q8_0": {Quantize: meta.QuantQ8}, "q4_0": {Quantize: meta.QuantQ4},
		} {
			if o.Variant = variant; variant == "go" && (testing.Short() || o.KVDType != meta.NoDType) {
				continue // slow
			}
			t.Run(variant+"/"+name, func(t *testing.T) { holdsLaw(t, dir, o) })
			o.Precision = dispatch.PrecisionHigh
			t.Run(variant+"/"+name+"/high", func(t *testing.T) { holdsLaw(t, dir, o) })
		}
	}
}

// runAtOnce lets Go run so many threads or more at once, for a test of as many that compute.
func runAtOnce(t *testing.T, threads int) {
	before := runtime.GOMAXPROCS(max(threads, runtime.GOMAXPROCS(0)))
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

func holdsLaw(t *testing.T, dir string, o dispatch.Options) {
	ids, prompt := lawIDs()
	threads := []int{1, 2, 3, 4}
	switch o.Variant {
	case kernels.Names()[0]:
	case "go":
		threads = []int{1, 4}
	default:
		threads = []int{1, 3}
	}
	holdsLawOn(t, dir, o, ids, prompt, threads)
}

// holdsLawOn runs ids, of which the first prompt are a prompt of more than a page, in all ways on
// so many threads.
func holdsLawOn(t *testing.T, dir string, o dispatch.Options, ids []int32, prompt int, threads []int) {
	t.Helper()
	var alone [][]float32
	for _, o.Threads = range threads {
		m := cpuModel(t, dir, o)
		for _, weights := range []string{"mapped", "promoted"} {
			if weights == "promoted" {
				m.Warm(context.Background())
				m.Promote(context.Background())
				await(t, m)
			}
			whole := forced(t, m, ids, prompt, prompt)
			if alone == nil {
				alone = whole
			}
			same := func(how string, got [][]float32) {
				t.Helper()
				sameLogits(t, fmt.Sprintf("%d threads, %s, %s", o.Threads, weights, how), got, alone)
			}
			same("alone", whole)
			same("in chunks", forced(t, m, ids, prompt, 5))
			same("drafted", pieces(t, m, 0, 1, ids, prompt, 8, 4))
			same("drafted, all at once", pieces(t, m, 0, 1, ids, prompt, 8, len(ids)))
			same("in a batch of 8", pieces(t, m, 3, 8, ids, prompt, 4, 1))
			same("drafted in a batch of 8", pieces(t, m, 7, 8, ids, prompt, 6, 3))
			if o.Precision == dispatch.PrecisionHigh {
				same("behind a reused prefix", reused(t, m, ids, prompt, alone))
				same("computed again", forced(t, m, ids, len(ids), 7))
			}
		}
		m.Close()
		tiled := cpuModel(t, dir, dispatchtest.InTiles(o, 5))
		same := func(how string, got [][]float32) {
			t.Helper()
			sameLogits(t, fmt.Sprintf("%d threads, in tiles, %s", o.Threads, how), got, alone)
		}
		same("alone", forced(t, tiled, ids, prompt, prompt))
		same("in a batch of 8", pieces(t, tiled, 3, 8, ids, prompt, 8, 2))
		tiled.Close()
	}
}

// pieces are the logits of ids as sequence own of n that run together, their prompts in
// chunks of unequal size, the tokens behind so many at a time, as where drafts are verified.
func pieces(t *testing.T, m *dispatch.Model, own, n int, ids []int32, prompt, chunk, draft int) [][]float32 {
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
			length := max(prompt-(i+n-own)%n, 1) // those beside it begin to generate sooner
			k := min(draft, len(ids)-s.Len())
			if s.Len() < length {
				k = min(chunk+i, length-s.Len())
			}
			if i == own {
				at = len(rows)
			}
			if k > 0 {
				rows = append(rows, dispatch.BatchRow{Sequence: s, Tokens: other(ids[s.Len():][:k], i-own, m.Vocab()), PromptLen: length})
			}
		}
		rows[at].Logits = dispatch.LogitsAll
		got, err := m.Forward(context.Background(), &dispatch.Batch{Rows: rows})
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, split(got, at)...)
	}
	return out
}

// other is ids, or for another sequence, other ids.
func other(ids []int32, by, vocab int) []int32 {
	ids = slices.Clone(ids)
	for i := range ids {
		ids[i] = (ids[i] + int32((23*by%vocab)+vocab)) % int32(vocab)
	}
	return ids
}

// reused are the logits of ids behind the pages that an earlier run has left. What lies in
// these is not computed again: its logits are those given.
func reused(t *testing.T, m *dispatch.Model, ids []int32, prompt int, alone [][]float32) [][]float32 {
	t.Helper()
	s := m.NewSequence()
	defer s.Free()
	n := s.Reuse(ids)
	if n == 0 {
		t.Error("nothing of the prompt is reused")
	}
	out := slices.Clone(alone[:n])
	for s.Len() < len(ids) {
		got, err := m.Forward(context.Background(), &dispatch.Batch{Rows: []dispatch.BatchRow{
			{Sequence: s, Tokens: ids[s.Len():][:min(3, len(ids)-s.Len())], PromptLen: prompt, Logits: dispatch.LogitsAll}}})
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, split(got, 0)...)
	}
	return out
}
