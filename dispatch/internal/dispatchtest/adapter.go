package dispatchtest

import (
	"context"
	"encoding/binary"
	"path/filepath"
	"slices"
	"sort"
	"testing"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/testenv"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// OpenBase opens the base of the adapter fixtures with the weights at path.
func OpenBase(t testing.TB, path string) (*meta.Model, *loader.Checkpoint) {
	t.Helper()
	text, err := golden.Read(filepath.Join(filepath.Dir(path), "config.json"))
	if err != nil { // merged weights have none
		text, err = golden.Read(filepath.Join(filepath.Dir(golden.AdapterBase(t)), "config.json"))
	}
	if err != nil {
		t.Fatal(err)
	}
	config, err := meta.ReadConfig(text)
	if err != nil {
		t.Fatal(err)
	}
	checkpoint, err := loader.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { checkpoint.Close() })
	skeleton, err := meta.New(config, checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	return skeleton, checkpoint
}

// AdapterPrompts returns the prompts of a fixture.
func AdapterPrompts(t *testing.T, c *loader.Checkpoint) [][]int32 {
	t.Helper()
	x, ok := c.Lookup("input_ids")
	if !ok || x.DType != meta.Int64 {
		t.Fatal("no input_ids of int64")
	}
	data, err := x.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	var all []int32
	for ; len(data) > 0; data = data[8:] {
		all = append(all, int32(binary.LittleEndian.Uint64(data)))
	}
	return slices.Collect(slices.Chunk(all, x.Shape[len(x.Shape)-1]))
}

// AdaptedLogits returns the logits of all tokens of each prompt. It computes each prompt alone.
func AdaptedLogits(t *testing.T, m *dispatch.Model, ids [][]int32, name string) [][]float32 {
	t.Helper()
	var out [][]float32
	for _, p := range ids {
		s, err := m.NewAdaptedSequence(name)
		if err != nil {
			t.Fatal(err)
		}
		logits, err := m.Forward(context.Background(), &dispatch.Batch{Rows: []dispatch.BatchRow{{Sequence: s, Tokens: p, Logits: dispatch.LogitsAll}}})
		if err != nil {
			t.Fatal(err)
		}
		_, v := logits.Row(0)
		out = append(out, slices.Clone(v))
		s.Free()
	}
	return out
}

// AdapterDir returns the folder of an adapter for OwnBase. It is in the repository, whatever
// fixtures are used.
func AdapterDir(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(golden.Module(t), "testdata", "golden", "train", "lora", "*", "final"))
	if err != nil || len(found) == 0 {
		t.Fatalf("no adapter: %v", err)
	}
	return found[0]
}

// OwnBase returns the weights of the base of AdapterDir.
func OwnBase(t *testing.T) string {
	return filepath.Join(golden.Module(t), "testdata", "golden", "train", "models", "llama", "init.safetensors")
}

// BesideOthers runs all prompts in one batch: with the adapter, with another adapter and with
// none.
func BesideOthers(t *testing.T, m *dispatch.Model, ids [][]int32, want [][]float32) {
	t.Helper()
	plain, other := AdaptedLogits(t, m, ids, ""), AdaptedLogits(t, m, ids, "init")
	Close(t, "an adapter as it begins", slices.Concat(other...), slices.Concat(plain...), 1e-5)
	var batch dispatch.Batch
	var all [][]float32
	for i, p := range ids {
		for k, name := range []string{"", "final", "init", "final", ""} {
			s, err := m.NewAdaptedSequence(name)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Free()
			batch.Rows = append(batch.Rows, dispatch.BatchRow{Sequence: s, Tokens: p, Logits: dispatch.LogitsLast})
			w := [][]float32{plain[i], want[i], other[i], want[i], plain[i]}[k]
			all = append(all, w[len(w)-m.Vocab():])
		}
	}
	logits, err := m.Forward(context.Background(), &batch)
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range all {
		_, v := logits.Row(i)
		SameLogits(t, "in one batch", [][]float32{v}, [][]float32{w})
	}
}

// LorasModel returns the base of the adapter fixtures with memory for adapters that are loaded on
// demand.
func LorasModel(t *testing.T, o dispatch.Options) *dispatch.Model {
	t.Helper()
	skeleton, checkpoint := OpenBase(t, OwnBase(t))
	o.Threads, o.Variant, o.KVTokens = 2, testenv.Variant(), 4096
	m, err := dispatch.New(skeleton, checkpoint, FiveMaps(skeleton)["cpu"], o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// AdapterMemory returns the memory that one adapter needs, including activations.
func AdapterMemory(t *testing.T, dir string) int64 {
	t.Helper()
	return int64(sort.Search(1<<20, func(n int) bool {
		return LorasModel(t, dispatch.Options{AdapterMemory: int64(n)}).AddAdapter(dispatch.Adapter{Name: "a", Dir: dir}) == nil
	}))
}
