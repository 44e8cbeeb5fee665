package dispatch

import (
	"testing"

	"github.com/heftai/heft/internal/residency/policy"
)

// TestMeasuredHitsCorrectTheCurve: a curve goes through what was measured, never falls with a larger
// cache, and ends where all experts are in memory.
func TestMeasuredHitsCorrectTheCurve(t *testing.T) {
	for _, points := range [][]policy.Point{
		{{Share: 0.5, Hits: 0.95}},
		{{Share: 0.5, Hits: 0.5}},
		{{Share: 0.25, Hits: 0.25}, {Share: 0.5, Hits: 0.5}, {Share: 0.1, Hits: 0.1}}, // uniform routing
		{{Share: 0.33, Hits: 0.9}, {Share: 0.02, Hits: 0}},
		{{Share: 1, Hits: 1}},
	} {
		curve := (&ExpertHits{points}).correct(&usualCurve)
		for _, p := range points {
			if got := curve.Hits(p.Share); got < p.Hits-1e-9 || got > p.Hits+1e-9 {
				t.Errorf("%v: got %v hits with a share of %v", points, got, p.Share)
			}
		}
		last := 0.0
		for i := range 1001 {
			hits := curve.Hits(float64(i) / 1000)
			if hits < last || hits > 1 {
				t.Fatalf("%v: %v hits with a share of %v, %v with less", points, hits, float64(i)/1000, last)
			}
			last = hits
		}
		if last < 0.99 {
			t.Errorf("%v: %v hits with all experts in memory", points, last)
		}
	}
}

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
