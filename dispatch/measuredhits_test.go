package dispatch

import (
	"testing"

	"github.com/heftai/heft/internal/residency/policy"
)

// TestTheFirstWindowFillsTheCache: the rate is that of the passes after the first 16, and passes of
// prompts and of several sequences do not count.
func TestTheFirstWindowFillsTheCache(t *testing.T) {
	var c hitCounter
	var s policy.Stats
	run := func(passes int, counts bool, hits, misses int64) {
		for range passes {
			s.Hits, s.Misses = s.Hits+hits, s.Misses+misses
			c.passed(counts, s)
		}
	}
	run(3, false, 0, 100)
	run(16, true, 1, 3)
	run(7, true, 0, 4) // part of a window, which a prompt ends
	run(1, false, 0, 1000)
	run(16, true, 3, 1)
	if c.windows != 2 || c.rate != 0.75 {
		t.Errorf("got a rate of %v after %d windows, want 0.75 after 2", c.rate, c.windows)
	}
	run(16, true, 4, 0)
	if c.rate <= 0.75 || c.rate >= 1 {
		t.Errorf("got %v, want a rate between 0.75 and 1", c.rate)
	}
}

// TestMeasuredHitsAreBounded: a new rate replaces an older one of the same size, and only the latest
// ones are kept.
func TestMeasuredHitsAreBounded(t *testing.T) {
	h := &ExpertHits{}
	for i := range 30 {
		h = h.with(policy.Point{Share: 0.02 * float64(i+1), Hits: 0.5})
	}
	h = h.with(policy.Point{Share: 0.601, Hits: 0.9})
	if n := len(h.points); n != mostHits || h.points[n-1].Hits != 0.9 || h.points[n-2].Share > 0.59 {
		t.Errorf("%d points: %v", n, h.points)
	}
}
