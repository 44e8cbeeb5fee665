package residency

import (
	"errors"
	"slices"
	"sync"
	"time"
)

// errClosed is returned to goroutines that wait on a closed ring.
var errClosed = errors.New("residency: the model was closed")

// A ring stores streamed loads in a fixed number of slots of equal size. A reader goroutine fills
// slots in the order of the wish list, before they are used. Loads that are neither held nor on the
// list are evicted, least recently used first.
//
// One goroutine calls wish, hold and release; the reader is the only other one.
type ring struct {
	loads []*load
	read  func(l *load, buf []byte) error

	mu      sync.Mutex
	changed *sync.Cond
	slots   []slot
	where   []int // load → slot, or -1
	wishes  []int
	clock   int64
	stall   time.Duration
	closed  bool
	done    chan struct{}
}

type slotState uint8

const (
	slotEmpty slotState = iota
	slotLoading
	slotReady
	slotFailed
)

type slot struct {
	buf   []byte
	load  int
	state slotState
	held  int
	used  int64 // clock of the last release
	err   error
}

// newRing starts a ring over buffers of the size of the largest load.
func newRing(loads []*load, buffers [][]byte, read func(*load, []byte) error) *ring {
	r := &ring{
		loads:  loads,
		read:   read,
		slots:  make([]slot, len(buffers)),
		where:  make([]int, len(loads)),
		wishes: make([]int, 0, len(buffers)+1),
		done:   make(chan struct{}),
	}
	r.changed = sync.NewCond(&r.mu)
	for i, b := range buffers {
		r.slots[i] = slot{buf: b, load: -1}
	}
	for i := range r.where {
		r.where[i] = -1
	}
	go r.fill()
	return r
}

// wish replaces the list of loads to prefetch, in order of need. Loads beyond the number of slots
// are dropped.
func (r *ring) wish(ids []int) {
	r.mu.Lock()
	r.wishes = append(r.wishes[:0], ids[:min(len(ids), len(r.slots))]...)
	r.mu.Unlock()
	r.changed.Broadcast()
}

// hold waits until load id is in a slot and keeps it there until release. It returns the bytes of
// the slot; their layout is the load's. Without wait it returns nil if the load is not in a slot
// yet.
func (r *ring) hold(id int, wait bool) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var since time.Time
	for {
		if r.closed {
			return nil, errClosed
		}
		if at := r.where[id]; !wait && (at < 0 || r.slots[at].state != slotReady) {
			return nil, nil
		} else if at >= 0 {
			s := &r.slots[at]
			switch s.state {
			case slotReady:
				s.held++
				if !since.IsZero() {
					r.stall += time.Since(since)
				}
				return s.buf, nil
			case slotFailed:
				err := s.err
				r.drop(s)
				r.changed.Broadcast() // the reader may have gone to sleep over it
				if !since.IsZero() {
					return nil, err
				}
				continue // read ahead, a while ago: what was wrong may be mended
			}
		} else if !slices.Contains(r.wishes, id) {
			r.wishes = slices.Insert(r.wishes, 0, id)
			if len(r.wishes) > len(r.slots) {
				r.wishes = r.wishes[:len(r.slots)]
			}
			r.changed.Broadcast()
		}
		if since.IsZero() {
			since = time.Now()
		}
		r.changed.Wait()
	}
}

// release ends the hold on load id.
func (r *ring) release(id int) {
	r.mu.Lock()
	if at := r.where[id]; at >= 0 && r.slots[at].held > 0 {
		r.clock++
		r.slots[at].held--
		r.slots[at].used = r.clock
		r.wishes = slices.DeleteFunc(r.wishes, func(w int) bool { return w == id })
	}
	r.mu.Unlock()
	r.changed.Broadcast()
}

// stalled returns the total time that holders have waited for bytes.
func (r *ring) stalled() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stall
}

// close stops the reader and waits for it; waiting holders return errClosed.
func (r *ring) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.changed.Broadcast()
	<-r.done
}

func (r *ring) fill() {
	defer close(r.done)
	r.mu.Lock()
	defer r.mu.Unlock()
	for !r.closed {
		id, s := r.next()
		if s == nil {
			r.changed.Wait()
			continue
		}
		r.drop(s)
		s.load, s.state = id, slotLoading
		r.where[id] = slices.IndexFunc(r.slots, func(o slot) bool { return o.load == id })
		r.mu.Unlock()
		err := r.read(r.loads[id], s.buf)
		r.mu.Lock()
		s.state, s.err = slotReady, err
		if err != nil {
			s.state = slotFailed
		}
		r.changed.Broadcast()
	}
}

// next returns the first wish that is not in a slot and the slot to read it into, or nil.
func (r *ring) next() (int, *slot) {
	for _, id := range r.wishes {
		if r.where[id] >= 0 {
			continue
		}
		var best *slot
		for i := range r.slots {
			s := &r.slots[i]
			if s.held > 0 || s.state == slotLoading || s.load >= 0 && slices.Contains(r.wishes, s.load) {
				continue
			}
			if best == nil || s.used < best.used {
				best = s
			}
		}
		return id, best
	}
	return 0, nil
}

// drop empties a slot that is not held.
func (r *ring) drop(s *slot) {
	if s.load >= 0 {
		r.where[s.load] = -1
	}
	s.load, s.state, s.err = -1, slotEmpty, nil
}
