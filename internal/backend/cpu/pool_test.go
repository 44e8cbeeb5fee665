package cpu

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heftai/heft/internal/topology"
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
		p := newPool(threads, nil, func(r any) { t.Errorf("recovered %v", r) })
		for i := range 3000 {
			c := &counted{ran: make([]atomic.Int32, 1+i%40), panic: -1}
			p.run(c, len(c.ran), i%7 != 0)
			for u := range c.ran {
				if n := c.ran[u].Load(); n != 1 {
					t.Fatalf("%d threads, task %d: unit %d ran %d times", threads, i, u, n)
				}
			}
			if i%500 == 0 {
				time.Sleep(5 * time.Millisecond) // long enough to park
			}
		}
		p.close()
	}
}

// TestPoolSurvivesPanic: a panic in a unit ends the task, not the pool.
func TestPoolSurvivesPanic(t *testing.T) {
	var failures atomic.Int32
	p := newPool(3, nil, func(any) { failures.Add(1) })
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

// uneven has units of which one takes as long as all others, and notes who ran each.
type uneven struct {
	by   []atomic.Int32
	slow int
}

func (t *uneven) run(w *worker, unit int) {
	if unit == t.slow {
		time.Sleep(20 * time.Millisecond)
	}
	t.by[unit].Store(int32(w.index) + 1)
}

// TestPoolTakesFromTheSlow: units that wait behind a slow one are done by others.
func TestPoolTakesFromTheSlow(t *testing.T) {
	p := newPool(4, nil, func(r any) { t.Errorf("recovered %v", r) })
	defer p.close()
	task := &uneven{by: make([]atomic.Int32, 400)}
	for _, task.slow = range []int{0, 399} {
		p.run(task, 400, true)
		slow, own := task.by[task.slow].Load(), 0
		for u := range task.by {
			switch task.by[u].Load() {
			case 0:
				t.Fatalf("unit %d did not run", u)
			case slow:
				own++
			}
			task.by[u].Store(0)
		}
		if own > 350 {
			t.Errorf("the worker of slow unit %d did %d of 400 units, as if nobody else was there", task.slow, own)
		}
	}
}

// TestPoolOfManyWorkers has more workers than processors, of places on two nodes, and more
// units than shares count one by one.
func TestPoolOfManyWorkers(t *testing.T) {
	defer goleak.VerifyNone(t)
	var places []topology.CPU
	for i := range 64 {
		places = append(places, topology.CPU{ID: i % 2, Node: i / 32, Speed: 1})
	}
	p := newPool(64, places, func(r any) { t.Errorf("recovered %v", r) })
	defer p.close()
	for _, n := range []int{2, 63, 64, 65, 1000, 3*mostGroups + 5} {
		c := &counted{ran: make([]atomic.Int32, n), panic: -1}
		p.run(c, n, true)
		for u := range c.ran {
			if got := c.ran[u].Load(); got != 1 {
				t.Fatalf("%d units: unit %d ran %d times", n, u, got)
			}
		}
	}
}

// TestPoolCountsGenerationsAnew: the word of a share holds 32 bits of the generation, and
// what is left over from one of the same number is not taken for it.
func TestPoolCountsGenerationsAnew(t *testing.T) {
	p := newPool(3, nil, func(r any) { t.Errorf("recovered %v", r) })
	defer p.close()
	for range 3 {
		p.last = lastGeneration - 5
		for i := range 20 {
			c := &counted{ran: make([]atomic.Int32, 2+i), panic: -1}
			p.run(c, len(c.ran), true)
			for u := range c.ran {
				if got := c.ran[u].Load(); got != 1 {
					t.Fatalf("task %d: unit %d ran %d times", i, u, got)
				}
			}
		}
	}
}

// TestPoolAllocatesNothing: a task costs no memory.
func TestPoolAllocatesNothing(t *testing.T) {
	p := newPool(2, nil, func(r any) { t.Errorf("recovered %v", r) })
	defer p.close()
	c := &counted{ran: make([]atomic.Int32, 64), panic: -1}
	for _, share := range []bool{true, false} {
		if n := testing.AllocsPerRun(200, func() { p.run(c, 64, share) }); n != 0 {
			t.Errorf("share %t: %v allocations a task", share, n)
		}
	}
}

// BenchmarkPoolTask is what it costs to share a task of no work.
func BenchmarkPoolTask(b *testing.B) {
	for _, threads := range []int{1, 2} {
		b.Run(fmt.Sprintf("threads=%d", threads), func(b *testing.B) {
			p := newPool(threads, nil, func(r any) { b.Errorf("recovered %v", r) })
			defer p.close()
			task := new(nothing)
			b.ReportAllocs()
			for b.Loop() {
				p.run(task, 8, true)
			}
		})
	}
}

type nothing struct{}

func (*nothing) run(*worker, int) {}
