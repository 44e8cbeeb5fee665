package residency

import (
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/internal/residency/policy"
)

// TestSlotsReadWhatTheCacheMisses drives slots as a store does, with requests that fit and that do
// not, and compares the reads with the replay of the same requests.
func TestSlotsReadWhatTheCacheMisses(t *testing.T) {
	const experts, layers = 12, 5
	for _, slots := range []int{2, 3, 5, 13, 30, experts * layers} {
		trace := &policy.Trace{}
		for range layers {
			trace.Layers = append(trace.Layers, policy.Layer{Segments: experts, Size: 1})
		}
		rng := rand.New(rand.NewPCG(1, uint64(slots)))
		for pass := range 40 {
			for layer := range layers {
				s := policy.Step{Layer: layer}
				for e := range int32(experts) {
					if rng.IntN(experts) < 3 || pass%10 == 0 && e != 3 {
						s.Segments = append(s.Segments, e)
					}
				}
				trace.Steps = append(trace.Steps, s)
			}
		}
		r, reads := newTestSlots(t, trace.Layers, slots, nil)
		for _, s := range trace.Steps {
			var ids []int
			for _, e := range s.Segments {
				ids = append(ids, s.Layer*experts+int(e))
			}
			r.choose(s.Layer, s.Segments, ids)
			r.request(ids, Demand)
			for i, id := range ids {
				hold(t, r, id)
				r.release(id)
				r.request(ids[i+1:], Demand)
			}
		}
		want := policy.Replay(trace, policy.Forecast, int64(slots), policy.Ahead(slots))
		if got := r.cached(); got != want || reads.Load() != want.Misses {
			t.Errorf("%d slots: %d reads and %+v, want %d reads and %+v", slots, reads.Load(), got, want.Misses, want)
		}
	}
}
