package disk_test

import (
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/meta"
)

// TestStreamingAllocatesNothing: a token whose weights stream from the disk takes nothing from the Go heap:
// blocks, bands and experts, as stored and converted, with a window for everything or for little.
func TestStreamingAllocatesNothing(t *testing.T) {
	for name, s := range map[string]dispatchtest.Shape{
		"dense":   {Hidden: 320, Inner: 352, Heads: 4, KV: 2, Dim: 32, Vocab: 515, Layers: 2, DType: meta.Float32, Shift: 3},
		"experts": {Hidden: 96, Inner: 96, Heads: 4, KV: 2, Dim: 24, Vocab: 230, Layers: 3, DType: meta.BFloat16, Shift: 5, Experts: true, Choose: 2},
	} {
		dir := s.Folder(t, rand.New(rand.NewPCG(9, 9)))
		for _, format := range []meta.QuantFormat{meta.QuantNone, meta.QuantQ8} {
			for _, part := range []int64{0, 2} {
				o := dispatch.Options{Threads: 2, Context: 128, MaxSequences: 8, MaxBatchTokens: 32, KVTokens: 8 * 128, Quantize: format}
				if format != meta.QuantNone {
					o.CacheDir = t.TempDir()
				}
				skeleton, _ := dispatchtest.OpenCheckpoint(t, dir)
				need, err := dispatch.EstimateMemory(skeleton, o, "")
				if err != nil {
					t.Fatal(err)
				}
				o.MaxMemory = []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: float64(need.Least + (need.All-need.Least)*part/4 - need.Runtime)}}
				m := dispatchtest.OpenModel(t, dir, o)
				dispatchtest.RunRandomTokens(t, m, 12)
				for _, batch := range []int{1, 8} {
					if n := dispatchtest.Allocations(t, m, batch); n != 0 {
						t.Errorf("%s %v, part %d, %d sequences: %v allocations per token", name, format, part, batch, n)
					}
				}
				if part == 0 && m.Status().TierReadBytes == 0 {
					t.Errorf("%s %v: nothing is streamed", name, format)
				}
				m.Close()
			}
		}
	}
}
