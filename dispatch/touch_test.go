package dispatch

import (
	"sync/atomic"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/loader/demo"
)

// toucher is a backend that counts calls of TouchActivations that find no request.
type toucher struct {
	backend.Backend
	idle atomic.Int32
}

func (b *toucher) TouchActivations(more func() bool) {
	if more() {
		b.idle.Add(1)
	}
}

// TestTheFirstPromptWaitedForFreshMemory: Warm touches the memory that a first prompt needs, unless a
// sequence came first.
func TestTheFirstPromptWaitedForFreshMemory(t *testing.T) {
	for _, busy := range []bool{false, true} {
		m, err := OpenFS(demo.Name, demo.Files(), Options{Threads: 1, Context: 64, MeasurementsDir: "none"})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		b := &toucher{Backend: m.backend}
		m.backend = b
		if busy {
			if err := m.cache.NewSequence(0).Reserve(1, 1); err != nil {
				t.Fatal(err)
			}
		}
		m.Warm(t.Context())
		m.touch.running.Wait()
		if got := b.idle.Load() == 1; got == busy {
			t.Errorf("with a sequence %v: touched %v", busy, got)
		}
	}
}
