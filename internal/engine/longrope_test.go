package engine_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/loader"
)

// TestChoicesThatAreComputedAgainWaitForPages: choices of one prompt that grow beyond the original context of longrope
// are computed again, each with pages of its own. Where the KV cache had too few, they failed.
func TestChoicesThatAreComputedAgainWaitForPages(t *testing.T) {
	from, dir := golden.OwnDir(t, "family-phimoe-3"), t.TempDir()
	config, err := os.ReadFile(filepath.Join(from, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	const short = `"original_max_position_embeddings": 10`
	if !bytes.Contains(config, []byte(short)) {
		t.Fatalf("%s has no %s", from, short)
	}
	weights, err := os.ReadFile(filepath.Join(from, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	config = bytes.ReplaceAll(config, []byte(short), []byte(`"original_max_position_embeddings": 40`)) // in the third page
	for name, data := range map[string][]byte{"config.json": config, "model.safetensors": weights} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	skeleton, checkpoint, err := loader.OpenModel(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = checkpoint.Close() })
	asked := prompt(1, 36)
	for i := range asked {
		asked[i] %= 60 // the vocabulary
	}
	answers := func(tokens int) (all [][]int32) {
		m, err := dispatch.New(skeleton, checkpoint, devicemap.NewMap(devicemap.Entry{Device: devicemap.CPU}),
			dispatch.Options{Threads: 1, Precision: dispatch.PrecisionHigh, KVTokens: tokens})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.Close)
		e := engine.New(engine.ForDispatch(m), engine.Options{MaxBatchTokens: 64})
		t.Cleanup(e.Close)
		got, err := collect(submit(t, e, engine.Request{Prompt: asked, N: 3, MaxTokens: 20}), 3)
		if err != nil {
			t.Fatalf("%d tokens of KV cache: %v", tokens, err)
		}
		for _, c := range got {
			all = append(all, c.tokens)
		}
		return all
	}
	want, got := answers(1024), answers(8*16)
	for i := range want {
		if len(want[i]) != 20 || !slices.Equal(got[i], want[i]) {
			t.Errorf("choice %d: %v, want %v", i, got[i], want[i])
		}
	}
}
