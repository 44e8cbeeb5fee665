package cpu

import (
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// task is one operation in units that may run in any order, on any worker.
type task interface {
	run(w *worker, unit int)
}

// A worker has the scratch memory of one thread.
type worker struct {
	scratch scratch
	parked  atomic.Bool
	wake    chan struct{}
}

// spins is how often a waiting thread looks before it yields, and yields how often it
// does that before it parks: some microseconds, the gap between two operations.
const (
	spins  = 2000
	yields = 20
)

// The state of a pool is generation<<32 | open | number of workers inside. A worker
// joins while the generation is open; one that comes late finds it closed and is not
// waited for.
const (
	open       = 1 << 31
	insideMask = open - 1
	generation = 1 << 32
)

// pool runs tasks on the caller and a fixed number of workers. One goroutine calls run
// at a time.
type pool struct {
	workers []*worker // the first is the caller's
	state   atomic.Uint64
	next    atomic.Int64 // the next unit
	units   int64
	task    task
	stop    atomic.Bool
	waiting atomic.Bool // the caller is parked
	done    chan struct{}
	ended   sync.WaitGroup
	fail    func(recovered any)
}

func newPool(threads int, fail func(any)) *pool {
	p := &pool{done: make(chan struct{}, 1), fail: fail}
	for range max(threads, 1) {
		p.workers = append(p.workers, &worker{wake: make(chan struct{}, 1)})
	}
	for _, w := range p.workers[1:] {
		p.ended.Go(func() { p.loop(w) })
	}
	return p
}

// run calls t.run for each unit and returns when all are done. With share false the
// caller does them alone, which is quicker for little work.
func (p *pool) run(t task, units int, share bool) {
	share = share && units > 1 && len(p.workers) > 1
	p.task, p.units = t, int64(units)
	p.next.Store(0)
	if share {
		p.state.Store(p.state.Load()&^insideMask + generation | open)
		for _, w := range p.workers[1:min(len(p.workers), units)] {
			if w.parked.CompareAndSwap(true, false) {
				w.wake <- struct{}{}
			}
		}
	}
	p.callerUnits()
	if share {
		p.await()
	}
	p.task = nil
}

// await closes the generation and waits for the workers that are inside.
func (p *pool) await() {
	p.state.And(^uint64(open))
	for i := 0; p.state.Load()&insideMask != 0; i++ {
		switch {
		case i < spins:
		case i < spins+yields:
			runtime.Gosched()
		default:
			// A worker of an earlier task may be the one that signals, so look again.
			p.waiting.Store(true)
			if p.state.Load()&insideMask != 0 || !p.waiting.CompareAndSwap(true, false) {
				<-p.done
			}
		}
	}
}

func (p *pool) loop(w *worker) {
	debug.SetPanicOnFault(true)
	seen := uint64(0)
	for p.waitFor(w, &seen) {
		p.work(w)
		if p.state.Add(^uint64(0))&(open|insideMask) == 0 && p.waiting.CompareAndSwap(true, false) {
			p.done <- struct{}{}
		}
	}
}

// waitFor joins the next generation after seen. It returns false when the pool stops.
func (p *pool) waitFor(w *worker, seen *uint64) bool {
	for i := 0; !p.stop.Load(); i++ {
		s := p.state.Load()
		if s&open != 0 && s/generation != *seen {
			if p.state.CompareAndSwap(s, s+1) {
				*seen = s / generation
				return true
			}
			continue
		}
		switch {
		case i < spins:
		case i < spins+yields:
			runtime.Gosched()
		default:
			w.parked.Store(true)
			s = p.state.Load()
			news := s&open != 0 && s/generation != *seen || p.stop.Load()
			if !news || !w.parked.CompareAndSwap(true, false) {
				<-w.wake
			}
			i = 0
		}
	}
	return false
}

// callerUnits is work on the calling goroutine, whose way to treat faults is restored.
func (p *pool) callerUnits() {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	p.work(p.workers[0])
}

// work takes units until none is left. A panic ends the task for all.
func (p *pool) work(w *worker) {
	defer func() {
		if r := recover(); r != nil {
			p.next.Store(p.units)
			p.fail(r)
		}
	}()
	for {
		unit := p.next.Add(1) - 1
		if unit >= p.units {
			return
		}
		p.task.run(w, int(unit))
	}
}

// close ends the workers. No run is under way.
func (p *pool) close() {
	p.stop.Store(true)
	for _, w := range p.workers[1:] {
		if w.parked.CompareAndSwap(true, false) {
			w.wake <- struct{}{}
		}
	}
	p.ended.Wait()
}
