package tensor

import (
	"sync"
	"testing"
)

// TestIdleBackendsAreBounded: tapes of many numbers of threads, some at once, leave a bounded number of backends.
func TestIdleBackendsAreBounded(t *testing.T) {
	var all sync.WaitGroup
	for threads := range 2 * idleBackends {
		all.Go(func() {
			tp := NewTape(Options{Threads: threads + 1})
			x := NewParameter([]float32{1, 2, 3, 4})
			if err := Backward(tp.Sum(tp.SiLU(tp.Use(x))), 1); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	backends.Lock()
	defer backends.Unlock()
	if n := len(backends.idle); n < 1 || n > idleBackends {
		t.Errorf("%d backends wait, want 1 to %d", n, idleBackends)
	}
}
