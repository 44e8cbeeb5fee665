package cpu

import (
	"testing"

	"github.com/heftai/heft/internal/kernels/gemm"
)

// TestPromptsOfManyTokensPrefetchedHalfOrNothing: the groups of tokens that pass weights in place prefetch all of the next weights,
// in halves, which is what kernels can. With 81 tokens or more they asked for quarters, which are nothing.
func TestPromptsOfManyTokensPrefetchedHalfOrNothing(t *testing.T) {
	for tokens := 1; tokens <= smallTokens; tokens++ {
		op := bf16Product{linear: linear{tokens: tokens}}
		done := 0
		for first := 0; first < tokens; first += gemm.CoupleTokens {
			n := op.quarters(done)
			if n%2 != 0 {
				t.Errorf("%d tokens: got %d quarters beside token %d, want halves", tokens, n, first)
			}
			done += n
		}
		if done != 4 {
			t.Errorf("%d tokens: got %d quarters, want 4", tokens, done)
		}
	}
}
