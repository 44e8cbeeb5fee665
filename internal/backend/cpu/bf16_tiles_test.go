package cpu

import (
	"bytes"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/fetch"
)

// TestPackingPatternsNeverChangePrompts: prompts have the same bits however weights are packed and prefetched.
func TestPackingPatternsNeverChangePrompts(t *testing.T) {
	before := fetch.Current()
	defer fetch.Use(before)
	for _, variant := range kernels.Names() {
		b, err := New(Options{Threads: 2, Variant: variant})
		if err != nil {
			t.Fatal(err)
		}
		for _, shape := range [][2]int{{100, 96}, {75, 2081}, {300, 640}} {
			plain, code := bothWeights(t, NewCoder(2), shape[0], shape[1])
			for v, view := range codedViews(shape[0]) {
				for _, tokens := range []int{1, 7, 9, 16, 17, 24, 25, 48, 300} {
					var want []byte
					for _, pattern := range fetch.Candidates(fetch.Packing) {
						fetch.UseFor(fetch.Packing, pattern)
						for _, w := range []backend.Matrix{plain, code} {
							got := productOf(t, b, view(w), tokens, true, backend.Prompt)
							if want == nil {
								want = got
							}
							if !bytes.Equal(got, want) {
								t.Fatalf("%s, %v, view %d, %d tokens, %v: got other bits than with the first pattern", variant, shape, v, tokens, pattern)
							}
						}
					}
				}
			}
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
