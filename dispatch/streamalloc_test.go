package dispatch_test

import (
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/meta"
)

// TestStreamingAllocatesNothing: a token whose weights stream from the disk takes nothing from the Go heap:
// blocks, bands and experts, as stored and converted, with a window for everything or for little.
func TestStreamingAllocatesNothing(t *testing.T) {
	for name, s := range map[string]shape{
		"dense":   {hidden: 320, inner: 352, heads: 4, kv: 2, dim: 32, vocab: 515, layers: 2, dtype: meta.Float32, shift: 3},
		"experts": {hidden: 96, inner: 96, heads: 4, kv: 2, dim: 24, vocab: 230, layers: 3, dtype: meta.BFloat16, shift: 5, experts: true, choose: 2},
	} {
		dir := s.folder(t, rand.New(rand.NewPCG(9, 9)))
		for _, format := range []meta.QuantFormat{meta.QuantNone, meta.QuantQ8} {
			for _, part := range []int64{0, 2} {
				o := dispatch.Options{Threads: 2, Context: 128, MaxSequences: 8, MaxBatchTokens: 32, KVTokens: 8 * 128, Quantize: format}
				if format != meta.QuantNone {
					o.CacheDir = t.TempDir()
				}
				skeleton, _ := open(t, dir)
				need, err := dispatch.EstimateMemory(skeleton, o, "")
				if err != nil {
					t.Fatal(err)
				}
				o.MaxMemory = []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: float64(need.Least + (need.All-need.Least)*part/4 - dispatch.RuntimeBytes)}}
				m := cpuModel(t, dir, o)
				runRandomTokens(t, m, 12)
				for _, batch := range []int{1, 8} {
					if n := allocations(t, m, batch); n != 0 {
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
