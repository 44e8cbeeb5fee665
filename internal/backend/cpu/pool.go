package cpu

import (
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heftai/heft/internal/kernels/attention"
	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/topology"
)

// task is an operation in units that may run in any order, on any worker.
type task interface {
	run(w *worker, unit int)
}

// A worker holds the scratch memory of one thread. Fields that other threads read are on cache
// lines of their own.
type worker struct {
	scratch scratch
	next    []byte          // what its next unit reads from memory; see taskGroup
	paged   attention.Paged // of the current head, for a kernel
	tiles   gemm.StepTiles  // of the current step, for a kernel
	sums    gemm.StepSums   // of the current panel, for a kernel
	ran     uint32          // a bit for each kernel that computed its units
	decoded *decodedProduct // nil before the first use
	index   int
	victims []topology.Span // workers to steal units from, those on its own node first
	wake    chan struct{}

	_      [128]byte
	inside atomic.Uint64 // 2 × the generation that it is in or was in last, + 1 while it is in
	parked atomic.Bool
	roused atomic.Bool // woken by rouse: there is no task for it yet
	_      [128]byte
	share  atomic.Uint64 // its remaining units; see workstealing.go
	_      [128]byte

	steps   int           // since it last read the clock
	yielded time.Duration // when it last yielded, relative to the start of the pool
}

// A waiting thread spins on one word, yields now and then, and parks after some tenths of a
// millisecond. That is longer than the time between two operations and between two tokens. With
// Sleep it parks after about a microsecond while weights are being read, unless Rouse has woken it.
// With more than maxYielding threads, waking takes longer than spinning saves.
const (
	looks      = 2000 // checks between two yields
	yields     = 48   // yields before it parks
	briefLooks = 200  // checks before it parks during reads
)

// maxYielding is the largest number of threads that may yield that often, because yielding takes a
// lock of the scheduler.
const maxYielding = 8

// If there are as many threads as processors, a computing thread yields once in restEvery.
// Otherwise goroutines that pass on a signal, a request or a token would wait until the scheduler
// preempts a thread, after tens of milliseconds. It reads the clock once in glanceSteps.
const (
	restEvery   = 500 * time.Microsecond
	roomEvery   = 200 * time.Microsecond // with Yield, during reads
	glanceSteps = 1 << 19
)

// worthSharing is the number of elementary steps from which a second thread makes an operation
// faster.
const worthSharing = 1 << 15

// pool runs tasks on the caller and a fixed number of workers. One goroutine calls run
// at a time.
//
// Each shared run is a generation, which is open while its caller works. A worker joins by storing
// the generation and then checking that it is still open; the caller closes it and then checks
// which workers have joined. The caller does not wait for late workers, and no shared word is
// written while others read it.
type pool struct {
	workers []*worker // the first is the caller's
	task    task
	units   units
	steps   int // about the number of steps in a unit
	looks   int // see the constants; depends on the number of threads
	yields  int
	reads   func() (Waiting, bool) // Options.Waiting; nil if reads never need the threads' processors
	began   time.Time

	_       [128]byte
	open    atomic.Uint64 // the generation that may be joined, or 0
	stop    atomic.Bool
	_       [128]byte
	waiting atomic.Bool // the caller is parked
	last    uint64      // the latest generation; used only by the caller
	failed  atomic.Bool // a unit of the current task has panicked
	done    chan struct{}
	ended   sync.WaitGroup
	fail    func(recovered any)
}

// newPool starts the workers of a pool of the given number of threads. With a layout, which must
// be for that number, each worker is pinned to the processors of its memory node. The system
// places the caller's thread where the workers leave room. reads is Options.Waiting, or nil.
// fail is called with the values of panics.
func newPool(threads int, layout *topology.Layout, reads func() (Waiting, bool), fail func(any)) *pool {
	threads = max(threads, 1)
	p := &pool{done: make(chan struct{}, 1), fail: fail, began: time.Now(), looks: looks, yields: yields, reads: reads}
	if groups := threads / maxYielding; groups > 1 {
		p.looks, p.yields = looks*groups, max(4, yields/groups)
	}
	for i := range threads {
		p.workers = append(p.workers, &worker{index: i, victims: layout.Helped(i, threads), wake: make(chan struct{}, 1)})
	}
	if threads > 1 {
		prime()
	}
	for _, w := range p.workers[1:] {
		keep := layout.Keep(w.index)
		p.ended.Go(func() { p.loop(w, keep) })
	}
	return p
}

// prime makes the runtime allocate what goroutines need to park. The runtime allocates it once
// per goroutine and then reuses it, so that parking between two tokens does not allocate.
func prime() {
	const stock = 192 // more than one processor's list holds
	var all sync.WaitGroup
	gate := make(chan struct{})
	for range stock {
		all.Go(func() { <-gate })
	}
	runtime.Gosched() // lets them wait
	close(gate)
	all.Wait()
}

// run calls t.run for each unit and returns when all are done. steps is the number of elementary
// steps of all units. If there are few steps, the caller runs all units, which is faster.
func (p *pool) run(t task, count, steps int) {
	p.steps = steps/max(count, 1) + 1
	if steps < worthSharing || count < 2 || len(p.workers) == 1 {
		p.alone(t, count)
		p.reset()
		return
	}
	if p.last++; p.last > lastGeneration {
		p.last = 1
		for _, w := range p.workers {
			w.share.Store(0)
		}
	}
	p.task, p.units = t, newUnits(p.last, count, len(p.workers))
	p.open.Store(p.last)
	p.wakeAfter(p.workers[0])
	p.callerUnits()
	p.await()
	p.task = nil
	p.reset()
}

// reset discards the units that a failed task did not run.
func (p *pool) reset() {
	if p.failed.Load() {
		for _, w := range p.workers {
			w.share.Store(0)
		}
		p.failed.Store(false)
	}
}

// alone runs all units on the caller.
func (p *pool) alone(t task, count int) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer p.recovered()
	for unit := range count {
		t.run(p.workers[0], unit)
		p.worked(p.workers[0], 1)
	}
}

// callerUnits runs units on the calling goroutine. It restores how that goroutine handles faults.
func (p *pool) callerUnits() {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	p.work(p.workers[0])
}

// recovered ends the task on all workers if a unit has panicked. It must be deferred.
func (p *pool) recovered() {
	if r := recover(); r != nil {
		p.failed.Store(true)
		p.fail(r)
	}
}

// wakeAfter wakes two parked workers after w, which do the same, so that many wake up soon.
func (p *pool) wakeAfter(w *worker) {
	for i := 2*w.index + 1; i <= 2*w.index+2 && i < len(p.workers); i++ {
		p.unpark(p.workers[i])
	}
}

// rouseAfter is wakeAfter without a task.
func (p *pool) rouseAfter(w *worker) {
	for i := 2*w.index + 1; i <= 2*w.index+2 && i < len(p.workers); i++ {
		next := p.workers[i]
		if next.parked.Load() {
			next.roused.Store(true)
			p.unpark(next)
		}
	}
}

func (p *pool) unpark(w *worker) {
	if w.parked.Load() && w.parked.CompareAndSwap(true, false) {
		w.wake <- struct{}{}
	}
}

// await closes the generation and waits for the workers that have joined it.
func (p *pool) await() {
	p.open.Store(0)
	for _, w := range p.workers[1:] {
		for i := 1; w.isIn(p.last); i++ {
			if !p.patient(i, false) {
				// Any worker that leaves may be the one that signals, so check again.
				p.waiting.Store(true)
				if w.isIn(p.last) || !p.waiting.CompareAndSwap(true, false) {
					<-p.done
				}
			}
		}
	}
}

func (w *worker) isIn(generation uint64) bool { return w.inside.Load() == 2*generation+1 }

// join reports whether w has joined generation g. g is 0 if none is open.
func (p *pool) join(w *worker, g uint64) bool {
	if g == 0 || w.inside.Load() == 2*g {
		return false
	}
	w.inside.Store(2*g + 1)
	if p.open.Load() == g {
		return true
	}
	p.leave(w, g) // it was closed meanwhile
	return false
}

func (p *pool) leave(w *worker, g uint64) {
	w.inside.Store(2 * g)
	if p.waiting.Load() && p.waiting.CompareAndSwap(true, false) {
		p.done <- struct{}{}
	}
}

func (p *pool) loop(w *worker, keep []int) {
	if len(keep) > 0 {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		_ = topology.Pin(keep) // an error only means that work is farther from its memory
	}
	debug.SetPanicOnFault(true)
	for {
		g := p.waitFor(w)
		if g == 0 {
			return
		}
		p.wakeAfter(w)
		p.work(w)
		p.leave(w, g)
	}
}

// waitFor joins the next generation. It returns 0 when the pool stops.
func (p *pool) waitFor(w *worker) uint64 {
	roused := false
	for i := 1; !p.stop.Load(); i++ {
		if g := p.open.Load(); p.join(w, g) {
			return g
		}
		if p.patient(i, roused) {
			continue
		}
		w.parked.Store(true)
		g := p.open.Load()
		news := p.stop.Load() || g != 0 && w.inside.Load() != 2*g
		if !news || !w.parked.CompareAndSwap(true, false) {
			<-w.wake
		}
		if i, roused = 0, w.roused.Swap(false); roused {
			p.rouseAfter(w)
		}
	}
	return 0
}

// patient is called after the i-th unsuccessful check. It returns false when it is time to park.
// A worker that was roused does not park early for reads.
func (p *pool) patient(i int, roused bool) bool {
	if i%briefLooks == 0 && !roused && p.waits(Sleep, true) {
		return false
	}
	if i%p.looks != 0 {
		return true
	}
	if i/p.looks > p.yields {
		return false
	}
	p.rest()
	if p.waits(Yield, false) { // the thread to wait for may need this processor
		topology.Yield()
	}
	return true
}

// waits reports whether threads wait in that way, and if during is set, whether weights are being
// read.
func (p *pool) waits(how Waiting, during bool) bool {
	if p.reads == nil {
		return false
	}
	now, reading := p.reads()
	return now == how && (reading || !during)
}

// rest lets other goroutines run that have no processor of Go's scheduler.
func (p *pool) rest() {
	if len(p.workers) >= runtime.GOMAXPROCS(0) { // otherwise there is a processor for other goroutines
		runtime.Gosched()
	}
}

// work runs units until none is left. A panic ends the task for all workers.
func (p *pool) work(w *worker) {
	defer p.recovered()
	t := p.task
	for begin, end, ok := p.take(w); ok; begin, end, ok = p.take(w) {
		for unit := begin; unit < end && !p.failed.Load(); unit++ {
			t.run(w, unit)
		}
		p.worked(w, end-begin)
	}
}

// worked counts units that w has run, and yields now and then.
func (p *pool) worked(w *worker, units int) {
	if w.steps += units * p.steps; w.steps < glanceSteps {
		return
	}
	w.steps = 0
	now := time.Since(p.began)
	room := now-w.yielded >= roomEvery && p.waits(Yield, true)
	if room || now-w.yielded >= restEvery {
		w.yielded = now
		p.rest()
	}
	if room {
		topology.Yield()
	}
}

// close stops the workers. It must not be called during a run.
func (p *pool) close() {
	p.stop.Store(true)
	for _, w := range p.workers[1:] {
		p.unpark(w)
	}
	p.ended.Wait()
}
