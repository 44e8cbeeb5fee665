package placement

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
		curve := correctHits(&usualCurve, points)
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
