package cpu

import (
	"runtime"
	"slices"
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
		p := newPool(threads, nil, nil, func(r any) { t.Errorf("recovered %v", r) })
		for i := range 3000 {
			c := &counted{ran: make([]atomic.Int32, 1+i%40), panic: -1}
			p.run(c, len(c.ran), i%7*worthSharing)
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

// TestPoolRunsEachUnitOnceDuringReads goes through workers that park at once, that yield while they
// compute, and that are roused.
func TestPoolRunsEachUnitOnceDuringReads(t *testing.T) {
	for _, how := range []Waiting{Spin, Yield, Sleep} {
		p := newPool(5, nil, func() (Waiting, bool) { return how, true }, func(r any) { t.Errorf("recovered %v", r) })
		for i := range 2000 {
			c := &counted{ran: make([]atomic.Int32, 1+i%40), panic: -1}
			if i%3 == 0 {
				p.rouseAfter(p.workers[0])
			}
			p.run(c, len(c.ran), len(c.ran)*glanceSteps)
			for u := range c.ran {
				if n := c.ran[u].Load(); n != 1 {
					t.Fatalf("waiting %d, task %d: unit %d ran %d times", how, i, u, n)
				}
			}
		}
		p.close()
	}
}

// TestParkedThreadsWereWokenAfterTheCaller: Rouse wakes a parked thread without an operation, so that
// it is awake when the caller of the next one is. It parks again if none follows.
func TestParkedThreadsWereWokenAfterTheCaller(t *testing.T) {
	var looked atomic.Int64
	p := newPool(2, nil, func() (Waiting, bool) { looked.Add(1); return Spin, false }, func(r any) { t.Errorf("recovered %v", r) })
	defer p.close()
	until := func(what string, ok func() bool) {
		for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the thread did not %s", what)
			}
		}
	}
	parked := p.workers[1].parked.Load
	until("park without work", parked)
	before := looked.Load()
	p.rouseAfter(p.workers[0])
	until("wake", func() bool { return looked.Load() > before })
	until("park again", parked)
}

// TestPoolSurvivesPanic: a panic in a unit ends the task, not the pool.
func TestPoolSurvivesPanic(t *testing.T) {
	var failures atomic.Int32
	p := newPool(3, nil, nil, func(any) { failures.Add(1) })
	defer p.close()
	for range 200 {
		p.run(&counted{ran: make([]atomic.Int32, 64), panic: 31}, 64, worthSharing)
	}
	if failures.Load() != 200 {
		t.Errorf("%d of 200 panics were reported", failures.Load())
	}
	whole := &counted{ran: make([]atomic.Int32, 64), panic: -1}
	p.run(whole, 64, worthSharing)
	for u := range whole.ran {
		if whole.ran[u].Load() != 1 {
			t.Fatalf("unit %d did not run after the panics", u)
		}
	}
}

// uneven has units of which one waits until few of the others are left.
type uneven struct {
	done  atomic.Int32
	units int
	slow  int
	left  atomic.Int32 // the units left when the slow unit ended
}

func (t *uneven) run(_ *worker, unit int) {
	if unit == t.slow {
		// Other workers may wake late on a busy machine.
		end, left := time.Now().Add(time.Minute), t.units-int(t.done.Load())
		for ; left > t.units/8 && time.Now().Before(end); left = t.units - int(t.done.Load()) {
			time.Sleep(time.Millisecond)
		}
		t.left.Store(int32(left))
	}
	t.done.Add(1)
}

// TestPoolTakesFromTheSlow: units that wait behind a slow one are done by others.
func TestPoolTakesFromTheSlow(t *testing.T) {
	p := newPool(4, nil, nil, func(r any) { t.Errorf("recovered %v", r) })
	defer p.close()
	for _, slow := range []int{0, 200, 399} {
		task := &uneven{units: 400, slow: slow}
		p.run(task, task.units, worthSharing)
		if n := task.done.Load(); n != 400 {
			t.Fatalf("%d of 400 units ran", n)
		}
		if left := task.left.Load(); left > 50 {
			t.Errorf("%d of 400 units waited for slow unit %d, as if no other worker was there", left, slow)
		}
	}
}

// TestPoolOfManyWorkers has more workers than processors, of places on two nodes, and more
// units than shares count one by one.
func TestPoolOfManyWorkers(t *testing.T) {
	defer goleak.VerifyNone(t)
	p := newPool(64, onTwoNodes(64), nil, func(r any) { t.Errorf("recovered %v", r) })
	defer p.close()
	for _, n := range []int{2, 63, 64, 65, 1000, 3*mostGroups + 5} {
		c := &counted{ran: make([]atomic.Int32, n), panic: -1}
		p.run(c, n, worthSharing)
		for u := range c.ran {
			if got := c.ran[u].Load(); got != 1 {
				t.Fatalf("%d units: unit %d ran %d times", n, u, got)
			}
		}
	}
}

// TestPoolLetsOthersRun: while all processors compute, one more goroutine waits for its turn far
// shorter than the scheduler alone would let it, 10 ms. Its waits are counted in units that the pool
// begins meanwhile, so that other processes may use the processors as well.
func TestPoolLetsOthersRun(t *testing.T) {
	const unit = 200 * time.Microsecond
	threads := runtime.GOMAXPROCS(0)
	p := newPool(threads, nil, nil, func(r any) { t.Errorf("recovered %v", r) })
	defer p.close()
	var begun atomic.Int64
	var waits []int64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				before := begun.Load()
				runtime.Gosched()
				if wait := begun.Load() - before; wait > 0 {
					waits = append(waits, wait)
				}
			}
		}
	}()
	p.run(taskFunc(func(*worker, int) {
		begun.Add(1)
		for until := time.Now().Add(unit); time.Now().Before(until); {
		}
	}), 500*threads, 500*threads*glanceSteps)
	close(stop)
	<-stopped
	slices.Sort(waits)
	if n, most := len(waits), int64(threads)*int64(5*time.Millisecond/unit); n > 0 && waits[n/2] > most {
		t.Errorf("another goroutine waited for %d units until its turn, as the middle one of %d times, want %d at most", waits[n/2], n, most)
	}
}

// TestPoolTakesNearUnitsFirst: threads of a node do the units of their own node, as long as
// these have any, and then those of others.
func TestPoolTakesNearUnitsFirst(t *testing.T) {
	p := newPool(4, onTwoNodes(4), nil, func(r any) { t.Errorf("recovered %v", r) })
	defer p.close()
	u := newUnits(1, 400, 4)
	p.units = u
	// Worker 3 takes alone: first its own units, then those of its node, then the others'.
	var order []int
	for begin, _, ok := p.take(p.workers[3]); ok; begin, _, ok = p.take(p.workers[3]) {
		order = append(order, begin/100)
	}
	if len(order) != 400 {
		t.Fatalf("%d units of 400 were taken", len(order))
	}
	for i, owner := range order {
		if want := map[int]bool{0: owner == 3, 1: owner == 2}[i/100]; i < 200 && !want {
			t.Fatalf("as its unit %d thread 3 took one of thread %d", i, owner)
		}
	}
}

// TestPoolCountsGenerationsAnew: the word of a share holds 32 bits of the generation, and
// units left over from one of the same number are not taken for it.
func TestPoolCountsGenerationsAnew(t *testing.T) {
	p := newPool(3, nil, nil, func(r any) { t.Errorf("recovered %v", r) })
	defer p.close()
	for range 3 {
		p.last = lastGeneration - 5
		for i := range 20 {
			c := &counted{ran: make([]atomic.Int32, 2+i), panic: -1}
			p.run(c, len(c.ran), worthSharing)
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
	p := newPool(2, nil, nil, func(r any) { t.Errorf("recovered %v", r) })
	defer p.close()
	c := &counted{ran: make([]atomic.Int32, 64), panic: -1}
	for _, steps := range []int{worthSharing, 0} {
		if n := testing.AllocsPerRun(200, func() { p.run(c, 64, steps) }); n != 0 {
			t.Errorf("%d steps: %v allocations a task", steps, n)
		}
	}
}
