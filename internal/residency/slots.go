package residency

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/residency/policy"
)

// errClosed is returned to goroutines that wait for weights of a store that is closed.
var errClosed = errors.New("residency: the model was closed")

// errSkipped ends reads that are no longer needed.
var errSkipped = errors.New("residency: not needed any more")

// An expertSlots keeps streamed loads, which are experts, in slots of equal size of an arena. A
// policy.Cache decides which loads stay. A Mover fills slots in the order of the list of
// requests.
//
// Only one goroutine calls choose, hold, release and await. Any goroutine may call request.
type expertSlots struct {
	loads  []*load
	mover  *Mover
	reader reader
	wake   wake // signals that an awaited slot has changed

	mu       sync.Mutex
	arena    *hostmem.Arena
	each     int // bytes of a slot
	slots    []slot
	planned  int   // slots of the plan; the others use memory that is lent
	where    []int // load → slot, or -1
	cache    *policy.Cache
	home     []int // load → the slot that it is in, was in last, or will be in; -1 at first
	free     []int // slots that are no load's home; the next one to use is last
	without  []int // slots without memory
	requests []int // loads that are needed, in order
	expected []int // loads that are predicted to be needed next, in order
	clock    int64
	stall    time.Duration
	starved  bool // hold found no slot for a load
	closed   bool
	moves    sync.WaitGroup // in flight
	fills    sync.WaitGroup // those of fill
	filling  sync.Mutex     // held while fill begins a read; locked before mu
}

// A reader fills slots with loads. The Mover's workers call its methods: prepare before the pieces,
// finish after them.
type reader interface {
	prepare(l *load) error
	read(l *load, piece int, slot []byte) error
	finish(l *load, slot []byte) error
}

type slotState uint8

const (
	slotEmpty slotState = iota
	slotLoading
	slotReady
	slotFailed
)

type slot struct {
	table    *expertSlots
	block    *hostmem.Block // nil if the slot has no memory
	load     int
	state    slotState
	held     int
	used     int64 // clock of the last release
	awaited  bool  // a pass waits or has waited for this load
	err      error
	filled   chan<- struct{} // signalled when the read ends, if fill started it
	transfer move
}

// prepare, read and done implement the source of the slot's transfer.
func (s *slot) prepare() error { return s.table.reader.prepare(s.table.loads[s.load]) }

func (s *slot) read(piece int) error {
	return s.table.reader.read(s.table.loads[s.load], piece, s.block.Bytes())
}

func (s *slot) done(err error) {
	r := s.table
	if err == nil {
		err = r.reader.finish(r.loads[s.load], s.block.Bytes())
	}
	r.mu.Lock()
	s.state, s.err = slotReady, err
	if err != nil {
		s.state = slotFailed
	}
	s.endFill()
	awaited := s.awaited || r.starved
	if r.starved { // there may be a slot now
		r.start(Demand)
		r.starved = false
	}
	r.mu.Unlock()
	if awaited {
		r.wake.signal()
	}
	r.moves.Done()
}

// slotSizes holds the number of slots that the plan has memory for, the number of those that have
// memory only while it is lent, and the bytes of each slot.
type slotSizes struct{ planned, lent, bytes int }

// newExpertSlots returns slots for loads. The planned slots get their memory at once. cache must
// have room for as many loads. newExpertSlots returns an error if memory is short.
func newExpertSlots(loads []*load, cache *policy.Cache, arena *hostmem.Arena, size slotSizes) (*expertSlots, error) {
	n := size.planned + size.lent
	r := &expertSlots{
		loads:    loads,
		wake:     newWake(),
		arena:    arena,
		each:     size.bytes,
		slots:    make([]slot, n),
		planned:  size.planned,
		where:    make([]int, len(loads)),
		cache:    cache,
		home:     make([]int, len(loads)),
		requests: make([]int, 0, n+1),
	}
	for i := range r.slots {
		s := &r.slots[i]
		*s = slot{table: r, load: -1}
		s.transfer.source, s.transfer.done = s, s.done
		r.without = append(r.without, i)
	}
	for i := range r.where {
		r.where[i], r.home[i] = -1, -1
	}
	if err := r.grow(size.planned); err != nil {
		r.free = nil
		r.freeMemory()
		return nil, err
	}
	return r, nil
}

// grow allocates memory for slots until n have some.
func (r *expertSlots) grow(n int) error {
	for r.size() < n {
		last := len(r.without) - 1
		at := r.without[last]
		var err error
		if r.slots[at].block, err = r.arena.Alloc(hostmem.Staging, r.each); err != nil {
			return fmt.Errorf("residency: %d slots of %d bytes for experts: %w", n, r.each, err)
		}
		r.without, r.free = r.without[:last], append(r.free, at)
	}
	return nil
}

// withdraw frees the memory of a slot that is empty and no load's home.
func (r *expertSlots) withdraw(at int) {
	_ = r.slots[at].block.Release() // released nowhere else
	r.slots[at].block = nil
	r.without = append(r.without, at)
}

// size returns the number of slots that have memory.
func (r *expertSlots) size() int { return len(r.slots) - len(r.without) }

// resize sets the number of slots that have memory. If it falls, the least valuable loads are
// evicted. It does nothing while loads are held or being read. It returns an error if memory is
// short.
func (r *expertSlots) resize(n int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n == r.size() || r.busy() {
		return nil
	}
	err := r.grow(n)
	if err != nil {
		n = r.size()
	}
	r.cache.SetAhead(policy.Ahead(n))
	for _, m := range r.cache.Resize(int64(n)) {
		r.free = append(r.free, r.home[m.ID])
		r.home[m.ID] = -1
	}
	for r.size() > n {
		last := len(r.free) - 1
		at := r.free[last]
		r.drop(&r.slots[at])
		r.free = r.free[:last]
		r.withdraw(at)
	}
	return err
}

// busy reports whether the load of a slot is held or being read.
func (s *slot) busy() bool { return s.held > 0 || s.state == slotLoading }

// busy reports whether any load is held or being read.
func (r *expertSlots) busy() bool {
	for i := range r.slots {
		if r.slots[i].busy() {
			return true
		}
	}
	return false
}

// request replaces the list of needed loads, in order, and starts to read those that get a slot.
func (r *expertSlots) request(ids []int, p Priority) {
	r.mu.Lock()
	r.requests = append(r.requests[:0], ids...)
	r.start(p)
	r.mu.Unlock()
}

// forget drops the waits of an earlier pass for some loads. That pass ended with the error of one
// load and left the others, whose errors do not concern the next pass.
func (r *expertSlots) forget(ids []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		if at := r.where[id]; at >= 0 {
			r.slots[at].awaited = false
		}
	}
}

// choose assigns slots to loads of some segments of a layer, as the cache decides. Call request
// next, with the loads in the same order. Loads that were expected and not chosen are not read,
// unless their reads have begun.
func (r *expertSlots) choose(layer int, segments []int32, ids []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.disappoint(ids)
	r.assign(r.cache.Request(layer, segments))
}

// assign assigns slots as the cache has decided.
func (r *expertSlots) assign(moves []policy.Move) {
	free := -1
	for _, m := range moves {
		switch {
		case m.Evict:
			free = r.home[m.ID] // home stays set: the load may have to be read before it is evicted
		case free >= 0:
			r.home[m.ID], free = free, -1
		default:
			last := len(r.free) - 1
			r.home[m.ID], r.free = r.free[last], r.free[:last]
		}
	}
}

// cached returns the counters of the cache.
func (r *expertSlots) cached() policy.Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cache.Stats()
}

// hold keeps load id in its slot until release and returns the bytes of the slot, laid out as the
// load says. If the load is not in a slot yet, hold requests it and returns nil: call await, then
// hold again. A read that failed before a pass waited for it is retried, because its cause may be
// gone.
func (r *expertSlots) hold(id int) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errClosed
	}
	if at := r.where[id]; at >= 0 {
		s := &r.slots[at]
		switch s.state {
		case slotReady:
			s.held++
			return s.block.Bytes(), nil
		case slotLoading:
			s.awaited = true
			r.mover.raise(&s.transfer, Demand)
			return nil, nil
		}
		err, awaited := s.err, s.awaited
		r.drop(s)
		if awaited {
			return nil, err
		}
	}
	if !slices.Contains(r.requests, id) {
		r.requests = slices.Insert(r.requests, 0, id)
	}
	r.start(Demand)
	if at := r.where[id]; at >= 0 {
		r.slots[at].awaited = true
	} else {
		r.starved = true
	}
	return nil, nil
}

// await waits until a load that hold has requested was read or has failed.
func (r *expertSlots) await() {
	since := time.Now()
	r.wake.wait()
	r.mu.Lock()
	r.stall += time.Since(since)
	r.mu.Unlock()
}

// release ends the hold on load id.
func (r *expertSlots) release(id int) {
	r.mu.Lock()
	if at := r.where[id]; at >= 0 && r.slots[at].held > 0 {
		r.clock++
		r.slots[at].held--
		r.slots[at].used = r.clock
		r.requests = slices.DeleteFunc(r.requests, func(w int) bool { return w == id })
		r.start(Next)
	}
	r.mu.Unlock()
}

// waiting returns the number of requests without a slot.
func (r *expertSlots) waiting() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range r.requests {
		if r.where[id] < 0 {
			n++
		}
	}
	return n
}

// stalled returns the total time that holders have waited for bytes.
func (r *expertSlots) stalled() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stall
}

// close ends the reads, waits for those in flight and frees the memory. Waiting holders return
// errClosed.
func (r *expertSlots) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.wake.signal()
	for i := range r.slots {
		r.mover.cancel(&r.slots[i].transfer, errClosed)
	}
	r.moves.Wait()
	r.freeMemory()
}

func (r *expertSlots) freeMemory() {
	for i := range r.slots {
		if r.slots[i].block != nil {
			r.withdraw(i)
		}
	}
}

// start submits the requests that are in no slot, as far as slots are available.
func (r *expertSlots) start(p Priority) {
	_, request := r.mover.Depth()
	for !r.closed {
		id, at := r.next()
		if at < 0 {
			id, at = r.nextExpected()
			p = Next
		}
		if at < 0 {
			return
		}
		r.read(id, at, request, p)
	}
}

// read submits the read of a load into a slot that is neither held nor being read.
func (r *expertSlots) read(id, at int, request int64, p Priority) {
	s := &r.slots[at]
	r.drop(s)
	s.load, s.state, s.awaited = id, slotLoading, false
	r.where[id] = at
	r.loads[id].cut(request)
	s.transfer.pieces = len(r.loads[id].pieces)
	r.moves.Add(1)
	r.mover.submit(&s.transfer, p)
}

// next returns the first request that is not in a slot, and the slot to read it into, or -1.
func (r *expertSlots) next() (id, best int) {
	for i, id := range r.requests {
		if r.where[id] >= 0 {
			continue
		}
		if at := r.home[id]; at >= 0 && r.slots[at].block != nil {
			if s := &r.slots[at]; !s.busy() && (s.load < 0 || !slices.Contains(r.requests[:i], s.load)) {
				return id, at
			}
			r.hurry(at)
			continue // until the load in the slot has been used
		}
		best = -1
		for i := range r.slots {
			s := &r.slots[i]
			if s.block == nil || s.busy() || s.load >= 0 && slices.Contains(r.requests, s.load) {
				continue
			}
			if best < 0 || s.used < r.slots[best].used {
				best = i
			}
		}
		return id, best
	}
	return 0, -1
}

// drop empties a slot that is not held.
func (r *expertSlots) drop(s *slot) {
	if s.load >= 0 {
		r.where[s.load] = -1
	}
	s.load, s.state, s.err = -1, slotEmpty, nil
}
