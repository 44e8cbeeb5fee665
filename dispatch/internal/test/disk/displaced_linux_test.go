package disk_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/meta"
)

// TestDisplacedWeightsStream: weights that a falling limit displaced were used by page faults from then on. They
// stream like those of the disk tier, no page of theirs is mapped, and they come back when the limit rises.
func TestDisplacedWeightsStream(t *testing.T) {
	for _, tied := range []bool{false, true} {
		s := dispatchtest.LargeShape
		s.DType, s.Tied, s.Layers = meta.BFloat16, tied, 4
		dir := s.Folder(t, rand.New(rand.NewPCG(8, 8)))
		ids, prompt := dispatchtest.LawIDs()
		m := dispatchtest.OpenModel(t, dir, dispatch.Options{Threads: 2, MaxSequences: 4})
		want := dispatchtest.ForcedLogits(t, m, ids, prompt, 7)
		dispatchtest.LoadAll(t, m)
		dispatchtest.ForcedLogits(t, m, ids, prompt, 7)
		before, all := m.Status().Held, dispatchtest.UsedBytes(m)
		if n := m.Status().TierReadBytes; n != 0 {
			t.Fatalf("%d bytes were streamed with all weights in memory", n)
		}
		least := m.SetMemoryLimit(0)
		for _, limit := range []int64{least, (least + 3*all) / 4, (3*least + all) / 4, least} {
			m.SetMemoryLimit(limit)
			mapped := resident(t, dir)
			dispatchtest.ForcedLogits(t, m, ids, prompt, 7) // passes after the limit
			read := m.Status().TierReadBytes
			dispatchtest.SameLogits(t, "displaced", dispatchtest.ForcedLogits(t, m, ids, prompt, 7), want)
			if m.Status().TierReadBytes == read {
				t.Errorf("tied %v, a limit of %d of %d: nothing streams", tied, limit, all)
			}
			table := int64(s.Vocab * s.Hidden * 2)
			if now := resident(t, dir); now > mapped+table+128<<10 {
				t.Errorf("tied %v, a limit of %d of %d: %d KiB of weights were faulted in", tied, limit, all, (now-mapped)>>10)
			}
			if held := dispatchtest.Sum(m.Status().Held); held > limit {
				t.Errorf("tied %v: %v is held under a limit of %d", tied, m.Status().Held, limit)
			}
		}
		m.SetMemoryLimit(all)
		for end := time.Now().Add(time.Minute); m.Status().Held["weights"] != before["weights"]; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("tied %v: %v is held, want %v again", tied, m.Status().Held, before)
			}
		}
		dispatchtest.ForcedLogits(t, m, ids, prompt, 7)
		read := m.Status().TierReadBytes
		dispatchtest.SameLogits(t, "back in memory", dispatchtest.ForcedLogits(t, m, ids, prompt, 7), want)
		if n := m.Status().TierReadBytes - read; n != 0 {
			t.Errorf("tied %v: %d bytes are streamed with all weights in memory again", tied, n)
		}
		if held := m.Status().Held; held["staging"] != before["staging"] {
			t.Errorf("tied %v: %v is held, want %v again", tied, held, before)
		}
	}
}
