package cpu

import (
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// counted counts how often each unit ran.
type counted struct {
	ran   []atomic.Int32
	panic int // the unit that panics
}

func (t *counted) run(_ *worker, unit int) {
	if unit == t.panic {
		panic("unit failed")
	}
	t.ran[unit].Add(1)
}

// TestPoolRunsEachUnitOnce goes through spinning, yielding and parked workers, and
// through workers that come too late.
func TestPoolRunsEachUnitOnce(t *testing.T) {
	defer goleak.VerifyNone(t)
	for _, threads := range []int{1, 2, 5} {
		p := newPool(threads, func(r any) { t.Errorf("recovered %v", r) })
		for i := range 3000 {
			c := &counted{ran: make([]atomic.Int32, 1+i%40), panic: -1}
			p.run(c, len(c.ran), i%7 != 0)
			for u := range c.ran {
				if n := c.ran[u].Load(); n != 1 {
					t.Fatalf("%d threads, task %d: unit %d ran %d times", threads, i, u, n)
				}
			}
			if i%500 == 0 {
				time.Sleep(3 * time.Millisecond) // long enough to park
			}
		}
		p.close()
	}
}

// TestPoolSurvivesPanic: a panic in a unit ends the task, not the pool.
func TestPoolSurvivesPanic(t *testing.T) {
	var failures atomic.Int32
	p := newPool(3, func(any) { failures.Add(1) })
	defer p.close()
	for range 200 {
		p.run(&counted{ran: make([]atomic.Int32, 64), panic: 31}, 64, true)
	}
	if failures.Load() != 200 {
		t.Errorf("%d of 200 panics were reported", failures.Load())
	}
	whole := &counted{ran: make([]atomic.Int32, 64), panic: -1}
	p.run(whole, 64, true)
	for u := range whole.ran {
		if whole.ran[u].Load() != 1 {
			t.Fatalf("unit %d did not run after the panics", u)
		}
	}
}
