package deviceweights

import (
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// TestARingNeverGivesOutWhatIsInUse takes and releases at random, and compares with a list of the users of each
// byte last.
func TestARingNeverGivesOutWhatIsInUse(t *testing.T) {
	const size = 64 * ringAlign
	type use struct {
		held  bool
		fence backend.Fence
	}
	rng := rand.New(rand.NewPCG(1, 2))
	r := ring{memory: tensor.Tensor{DType: meta.Uint8, Rank: 1, Data: make([]byte, size)}}
	r.memory.Dims[0] = size
	var bytes [size]use
	var fence backend.Fence
	refused := 0
	for range 20000 {
		switch rng.IntN(12) {
		case 0:
			fence++
			r.release(fence)
			for i := range bytes {
				if bytes[i].held {
					bytes[i] = use{false, fence}
				}
			}
		default:
			n := 1 + rng.IntN(size/8)
			m, after, err := r.take(n)
			if err != nil {
				refused++
				continue
			}
			begin := size - len(m.Data)
			if m.Elements() != n || begin%ringAlign != 0 {
				t.Fatalf("%d bytes at %d, want %d", m.Elements(), begin, n)
			}
			for i := begin; i < begin+n; i++ {
				if bytes[i].held || bytes[i].fence > after {
					t.Fatalf("byte %d is %+v, and is given out behind fence %d", i, bytes[i], after)
				}
				bytes[i] = use{held: true}
			}
			if rng.IntN(6) == 0 { // a band
				fence++
				r.releaseLast(1, fence)
				for i := begin; i < begin+n; i++ {
					bytes[i] = use{false, fence}
				}
			}
		}
	}
	if refused == 0 || fence == 0 {
		t.Errorf("%d refused, %d fences: the test tries too little", refused, fence)
	}
	if _, _, err := r.take(size + 1); err == nil {
		t.Error("more than a ring was given out")
	}
}
