package kv_test

import (
	"slices"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/meta"
)

// TestWindowsReleasePages runs a sequence as long as the context with the smallest number of pages that works,
// and compares its logits, bit by bit, with those of a run with plenty of pages.
func TestWindowsReleasePages(t *testing.T) {
	for name, test := range map[string]struct {
		windows []int
		pages   int // of 16 tokens, for 128 tokens in passes of 8
	}{
		"no window":     {[]int{0, 0}, 8},
		"all layers":    {[]int{6, 6}, 3},
		"half of them":  {[]int{0, 6}, 8 + 3},
		"two windows":   {[]int{20, 6}, 4 + 3},
		"wide as all":   {[]int{128, 300}, 8},
		"none and wide": {[]int{0, 128}, 8},
	} {
		t.Run(name, func(t *testing.T) {
			model := dispatchtest.Windowed(t, test.windows...)
			prompt := make([]int32, 70)
			for i := range prompt {
				prompt[i] = int32(7 * i % 90)
			}
			plenty := model(dispatch.Options{KVTokens: 1024})
			want, exact := dispatchtest.InChunks(t, plenty, plenty.NewSequence(), prompt, len(prompt), 58)
			m := model(dispatch.Options{MaxBatchTokens: 8})
			if kv := m.KV(); kv.Pages != test.pages || kv.Capacity != 128 {
				t.Errorf("%d pages for %d tokens, want %d for 128", kv.Pages, kv.Capacity, test.pages)
			}
			s := m.NewSequence()
			if err := s.Reserve(128); err != nil {
				t.Fatal(err)
			}
			got, logits := dispatchtest.InChunks(t, m, s, prompt, 8, 58)
			if at := dispatchtest.FirstDifference(logits, exact); at >= 0 || !slices.Equal(got, want) {
				t.Errorf("token %d of %v is another than in %v", at/m.Vocab(), got, want)
			}
			s.Free()

			again := plenty.NewSequence()
			if n := again.Reuse(prompt); n != 64 {
				t.Errorf("reused %d tokens, want 64", n)
			}
			if _, logits := dispatchtest.InChunks(t, plenty, again, prompt, 3, 58); dispatchtest.FirstDifference(logits, exact) >= 0 {
				t.Error("logits after reuse are others")
			}
		})
	}
}

// TestKVTokensHoldInAnyDivision: many short sequences too have as many tokens as KVTokens asks for, though none of
// them has pages beyond its window to release.
func TestKVTokensHoldInAnyDivision(t *testing.T) {
	for _, windows := range [][]int{{0, 0}, {6, 6}, {0, 6}} {
		m := dispatchtest.Windowed(t, windows...)(dispatch.Options{KVTokens: 256, MaxBatchTokens: 8})
		for i := range 16 {
			if err := m.NewSequence().Reserve(16); err != nil {
				t.Errorf("windows %v: sequence %d of 16 tokens in 256: %v", windows, i, err)
			}
		}
	}
}

// TestPlanCountsWindows: the same memory holds more tokens of a model whose layers have a sliding window.
func TestPlanCountsWindows(t *testing.T) {
	limits, err := devicemap.ParseMaxMemory("cpu=1MB")
	if err != nil {
		t.Fatal(err)
	}
	tokens, bytes := map[int]int{}, map[int]int64{}
	for _, window := range []int{0, 6} {
		skeleton, _ := dispatchtest.OpenCheckpoint(t, golden.OwnDir(t, "small-llama-bf16"))
		for _, layer := range skeleton.Root.Find("model.layers").Children {
			layer.Find("self_attn").Spec.(*meta.AttentionSpec).Window = window
		}
		o := dispatch.Options{Threads: 1, MaxBatchTokens: 8, MaxSequences: 8, MaxMemory: limits}
		plan, o, err := dispatch.Plan(skeleton, o)
		if err != nil {
			t.Fatal(err)
		}
		tokens[window], bytes[window] = o.KVTokens, plan.Device(devicemap.CPU).KVBytes
	}
	if tokens[0] != 8*128 || tokens[6] != 8*128 || bytes[6]*8 != bytes[0]*3 {
		t.Errorf("%v tokens in %v bytes", tokens, bytes)
	}
}
