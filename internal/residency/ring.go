package residency

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/heftai/heft/internal/residency/policy"
)

// errClosed is returned to goroutines that wait on a closed ring.
var errClosed = errors.New("residency: the model was closed")

// errSkipped ends reads that were not needed.
var errSkipped = errors.New("residency: not needed any more")

// A ring keeps streamed loads in a fixed number of slots of equal size. A Mover fills slots in the
// order of the list of requests, before they are used. Loads that are neither held nor on the list
// are evicted: least recently used first, or as a cache decides.
//
// One goroutine calls choose, hold, release and await. Any goroutine may call request.
type ring struct {
	loads  []*load
	mover  *Mover
	reader reader
	wake   chan struct{} // an awaited slot has changed

	mu       sync.Mutex
	slots    []slot
	where    []int         // load → slot, or -1
	cache    *policy.Cache // nil for LRU
	home     []int         // with cache: load → the slot that it is in or was in last, or will be; -1 before
	homes    int           // slots that have been some load's home
	spare    []int         // of these, those that resize has emptied
	withheld int           // slots that resize has taken away
	requests []int         // loads that are needed, in order
	clock    int64
	stall    time.Duration
	counted  policy.Stats // without a cache
	starved  bool         // hold found no slot for a load
	closed   bool
	moves    sync.WaitGroup // under way
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
	ring     *ring
	buf      []byte
	load     int
	state    slotState
	held     int
	used     int64 // clock of the last release
	awaited  bool  // a pass waits, or has waited, for this load
	fresh    bool  // read since it was held last
	err      error
	transfer move
}

// prepare, read and done are those of the slot's transfer.
func (s *slot) prepare() error       { return s.ring.reader.prepare(s.ring.loads[s.load]) }
func (s *slot) read(piece int) error { return s.ring.reader.read(s.ring.loads[s.load], piece, s.buf) }

func (s *slot) done(err error) {
	r := s.ring
	if err == nil {
		err = r.reader.finish(r.loads[s.load], s.buf)
	}
	r.mu.Lock()
	s.state, s.err = slotReady, err
	if err != nil {
		s.state = slotFailed
	}
	awaited := s.awaited || r.starved
	if r.starved { // there may be a slot now
		r.start(Demand)
		r.starved = false
	}
	r.mu.Unlock()
	if awaited {
		r.signal()
	}
	r.moves.Done()
}

// signal wakes the goroutine in await.
func (r *ring) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// newRing returns a ring over buffers of the size of the largest load.
func newRing(loads []*load, buffers [][]byte, m *Mover, reader reader) *ring {
	r := &ring{
		loads:    loads,
		mover:    m,
		reader:   reader,
		wake:     make(chan struct{}, 1),
		slots:    make([]slot, len(buffers)),
		where:    make([]int, len(loads)),
		requests: make([]int, 0, len(buffers)+1),
	}
	for i, b := range buffers {
		s := &r.slots[i]
		*s = slot{ring: r, buf: b, load: -1}
		s.transfer.source, s.transfer.done = s, s.done
	}
	for i := range r.where {
		r.where[i] = -1
	}
	return r
}

// decide lets a cache decide which loads stay in the slots. It must be called before the first
// request.
func (r *ring) decide(c *policy.Cache) {
	r.cache = c
	r.home = make([]int, len(r.loads))
	for i := range r.home {
		r.home[i] = -1
	}
}

// request replaces the list of loads that are needed, in order, and starts to read those that find
// a slot. Without a cache, loads beyond the number of slots are dropped.
func (r *ring) request(ids []int, p Priority) {
	r.mu.Lock()
	if r.cache == nil {
		ids = ids[:min(len(ids), len(r.slots))]
	}
	r.requests = append(r.requests[:0], ids...)
	r.start(p)
	r.mu.Unlock()
}

// choose gives the loads of some segments of a layer slots, as the cache decides. Request requests
// them in the same order.
func (r *ring) choose(layer int, segments []int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	free := -1
	for _, m := range r.cache.Request(layer, segments) {
		switch {
		case m.Evict:
			free = r.home[m.ID] // stays set: the load may have to be read before it is evicted
		case free >= 0:
			r.home[m.ID], free = free, -1
		case len(r.spare) > 0:
			last := len(r.spare) - 1
			r.home[m.ID], r.spare = r.spare[last], r.spare[:last]
		default:
			r.home[m.ID] = r.homes
			r.homes++
		}
	}
}

// cached returns the counters of the cache. Without one, a load that was read for its use is a miss.
func (r *ring) cached() policy.Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cache == nil {
		return r.counted
	}
	return r.cache.Stats()
}

// hold keeps load id in its slot until release. It returns the bytes of the slot; their layout is
// the load's. If the load is not in a slot yet, hold requests it and returns nil: call await, then
// hold again. A read that failed before a pass waited for it is tried again: what was wrong may be
// mended.
func (r *ring) hold(id int) ([]byte, error) {
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
			if !s.fresh {
				r.counted.Hits++
			}
			s.fresh = false
			return s.buf, nil
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
		r.requests = r.requests[:min(len(r.requests), len(r.slots))]
	}
	r.start(Demand)
	if at := r.where[id]; at >= 0 {
		r.slots[at].awaited = true
	} else {
		r.starved = true
	}
	return nil, nil
}

// await waits until a load that hold has requested has arrived or failed.
func (r *ring) await() {
	since := time.Now()
	<-r.wake
	r.mu.Lock()
	r.stall += time.Since(since)
	r.mu.Unlock()
}

// keep waits for load id and holds it.
func (r *ring) keep(id int) ([]byte, error) {
	for {
		if buf, err := r.hold(id); buf != nil || err != nil {
			return buf, err
		}
		r.await()
	}
}

// release ends the hold on load id.
func (r *ring) release(id int) {
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

// waiting returns how many requests have no slot.
func (r *ring) waiting() (n int) {
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
func (r *ring) stalled() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stall
}

// close ends the reads and waits for those under way; waiting holders return errClosed.
func (r *ring) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.signal()
	for i := range r.slots {
		r.mover.cancel(&r.slots[i].transfer, errClosed)
	}
	r.moves.Wait()
}

// start submits the requests that are in no slot, as far as there are slots for them.
func (r *ring) start(p Priority) {
	_, request := r.mover.Depth()
	for !r.closed {
		id, at := r.next()
		if at < 0 {
			return
		}
		s := &r.slots[at]
		r.counted.Misses++
		if s.load >= 0 {
			r.counted.Evictions++
		}
		r.drop(s)
		s.load, s.state, s.awaited, s.fresh = id, slotLoading, false, true
		r.where[id] = at
		r.loads[id].cut(request)
		s.transfer.pieces = len(r.loads[id].pieces)
		r.moves.Add(1)
		r.mover.submit(&s.transfer, p)
	}
}

// next returns the first request that is not in a slot, and the slot to read it into, or -1.
func (r *ring) next() (id, best int) {
	for i, id := range r.requests {
		if r.where[id] >= 0 {
			continue
		}
		if r.cache != nil && r.home[id] >= 0 {
			if s := &r.slots[r.home[id]]; s.held == 0 && s.state != slotLoading && (s.load < 0 || !slices.Contains(r.requests[:i], s.load)) {
				return id, r.home[id]
			}
			continue // until the load in the slot has been used
		}
		best = -1
		for i := range r.slots {
			s := &r.slots[i]
			if s.held > 0 || s.state == slotLoading || s.load >= 0 && slices.Contains(r.requests, s.load) || slices.Contains(r.spare, i) {
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
func (r *ring) drop(s *slot) {
	if s.load >= 0 {
		r.where[s.load] = -1
	}
	s.load, s.state, s.err = -1, slotEmpty, nil
}
