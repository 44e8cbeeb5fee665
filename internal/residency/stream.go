package residency

import (
	"sync"
	"time"

	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/residency/policy"
)

// A group is the set of segments of a unit that are read together: a matrix, and small tensors
// adjacent to it in the file. A group is both the source and the destination of its moves.
type group struct {
	*load
	stream   *stream
	unit     int
	at       int64          // offset in the window
	home     *hostmem.Block // memory of its own; nil if it uses the window
	chosen   bool           // to be kept
	state    slotState
	awaited  bool // a pass waits or has waited for it
	fresh    bool // read since it was last held
	released bool // its unit has run
	err      error
	transfer move
}

func (g *group) bytes() []byte {
	if g.home != nil {
		return g.home.Bytes()
	}
	return g.stream.window[g.at:][:g.slot]
}

// width returns the size of g in the window.
func (g *group) width() int64 {
	if g.home != nil {
		return 0
	}
	return g.slot
}

func (g *group) prepare() error       { return g.stream.reader.prepare(g.load) }
func (g *group) read(piece int) error { return g.stream.reader.read(g.load, piece, g.bytes()) }

func (g *group) done(err error) {
	s := g.stream
	if err == nil {
		err = s.reader.finish(g.load, g.bytes())
	}
	s.mu.Lock()
	g.state, g.err = slotReady, err
	if err != nil {
		g.state = slotFailed
	}
	wake := g.awaited || s.starved
	s.starved = false
	s.keep.landed.Broadcast()
	if g.released {
		s.pop()
		s.fill(Next)
	}
	s.mu.Unlock()
	if wake {
		s.wake.signal()
	}
	s.moves.Done()
}

// A stream reads groups in the order of use, across the end of a pass to the next one, into a
// window of memory. The window is a ring buffer: groups are added at one end as long as there is
// room, and freed at the other end when a unit has run. It holds at least the largest unit. A
// window that holds all groups keeps them.
//
// Only one goroutine calls begin, hold and release. Any goroutine may call prefetch.
type stream struct {
	groups []*group // in order of use
	first  []int    // index of each unit's first group; then the number of groups
	window []byte
	whole  bool // the window holds all groups
	keep   keeper
	mover  *Mover
	reader reader
	wake   wake // signals that an awaited group has changed

	mu      sync.Mutex
	current int // the running unit, or -1
	oldest  int // the first group in the window
	count   int // number of groups in the window, from oldest on, cyclically
	end     int64
	starved bool // the pass waits for room
	paused  bool // nothing is read ahead: begin waits for reads to end
	stall   time.Duration
	counted policy.Stats
	closed  bool
	moves   sync.WaitGroup // in flight
}

// newStream returns a stream for units with the given groups.
func newStream(units [][]*load, window []byte, m *Mover, r reader) *stream {
	s := &stream{window: window, mover: m, reader: r, wake: newWake()}
	s.setUnits(units)
	return s
}

// setUnits sets the groups of units. The window must be empty.
func (s *stream) setUnits(units [][]*load) {
	s.forgetAll()
	s.groups, s.first, s.oldest, s.count, s.current = nil, nil, 0, 0, -1
	var at int64
	for i, loads := range units {
		s.first = append(s.first, len(s.groups))
		for _, l := range loads {
			g := &group{load: l, stream: s, unit: i, at: at}
			g.transfer.source, g.transfer.done = g, g.done
			s.groups = append(s.groups, g)
			at += l.slot
		}
	}
	s.first = append(s.first, len(s.groups))
	s.whole = at <= int64(len(s.window))
	s.rank()
}

// holdsAll reports whether the window holds all groups.
func (s *stream) holdsAll() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.whole
}

// prefetch reads the first groups, if nothing was read yet.
func (s *stream) prefetch(p Priority) {
	s.mu.Lock()
	if s.count == 0 {
		s.fill(p)
	}
	s.mu.Unlock()
}

// begin frees the groups before those of unit i, which are needed next, and reads ahead.
func (s *stream) begin(i int) error {
	k := s.first[i]
	if k == s.first[i+1] {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused, s.current = true, i
	if !s.whole && !s.inside(k) && k != (s.oldest+s.count)%len(s.groups) {
		s.jump()
	}
	for !s.whole && s.passed(k) > 0 && !s.closed {
		s.starved = true
		s.sleep()
	}
	s.paused = false
	if s.closed {
		return errClosed
	}
	if s.count == 0 {
		s.oldest = k
	}
	for ; k < s.first[i+1] && s.inside(k); k++ { // after a failed pass they may be released
		s.groups[k].released, s.groups[k].awaited = false, false
	}
	s.fill(Next)
	return nil
}

// inside reports whether group k is in the window.
func (s *stream) inside(k int) bool {
	return (k-s.oldest+len(s.groups))%len(s.groups) < s.count
}

// jump drops all groups, because the next one needed is not in the window.
func (s *stream) jump() {
	var loading []*group
	for n := range s.count {
		g := s.groups[(s.oldest+n)%len(s.groups)]
		if g.released = true; g.state == slotLoading {
			loading = append(loading, g)
		}
	}
	for _, g := range loading { // meanwhile others may end and leave the window
		s.mu.Unlock()
		s.mover.cancel(&g.transfer, errSkipped)
		s.mu.Lock()
	}
	s.pop()
}

// passed releases the groups before k. It returns the number of those that are still in the
// window because they are being read.
func (s *stream) passed(k int) (n int) {
	for n := 0; n < s.count && (s.oldest+n)%len(s.groups) != k; n++ {
		s.groups[(s.oldest+n)%len(s.groups)].released = true
	}
	s.pop()
	for n < s.count && (s.oldest+n)%len(s.groups) != k {
		n++
	}
	return n
}

// sleep waits until done has changed the state.
func (s *stream) sleep() {
	s.mu.Unlock()
	since := time.Now()
	s.wake.wait()
	s.mu.Lock()
	s.stall += time.Since(since)
}

// hold waits for group k of the unit that has begun, and returns its bytes, which are valid until
// release. A read that failed before a pass waited for it is retried.
func (s *stream) hold(k int) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.groups[k]
	for !s.closed {
		switch {
		case !s.inside(k):
			s.starved = true
			if s.fill(Demand); s.inside(k) {
				continue
			}
		case g.state == slotReady:
			if !g.fresh {
				s.counted.Hits++
			}
			g.fresh = false
			return g.bytes(), nil
		case g.state == slotLoading:
			g.awaited = true
			s.mover.raise(&g.transfer, Demand)
		case g.awaited && g.err != errSkipped: // shed may have cancelled the read before the unit began
			g.awaited = false
			return nil, g.err
		default:
			s.submit(g, Demand)
			g.awaited = true
		}
		s.sleep()
	}
	return nil, errClosed
}

// release frees the groups of unit i and reads ahead.
func (s *stream) release(i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.whole {
		return
	}
	for k := s.first[i]; k < s.first[i+1]; k++ {
		s.groups[k].released = true
	}
	if s.current == i {
		s.current = -1
	}
	s.pop()
	s.fill(Next)
}

// pop removes released groups from the window, up to the first one that is being read.
func (s *stream) pop() {
	for s.count > 0 {
		g := s.groups[s.oldest]
		if !g.released || g.state == slotLoading {
			break
		}
		if g.home == nil || g.state == slotFailed {
			g.state, g.err = slotEmpty, nil
		}
		if g.home == nil {
			s.counted.Evictions++
		}
		s.oldest = (s.oldest + 1) % len(s.groups)
		s.count--
	}
	s.forgetIdle()
}

// fill reads groups as long as there is room.
func (s *stream) fill(p Priority) {
	for !s.closed && !s.paused && s.count < len(s.groups) {
		k := (s.oldest + s.count) % len(s.groups)
		g := s.groups[k]
		if k == s.first[g.unit] && !s.whole {
			s.settle(g.unit)
		}
		at, ok := s.room(g)
		if !ok || g.unit != s.current && (s.keep.shedding > 0 || g.rests() && !s.ahead(k)) {
			return
		}
		g.at, g.awaited, g.released = at, false, false
		s.end = at + g.width()
		s.count++
		if !g.rests() {
			s.submit(g, p)
		}
	}
}

func (s *stream) submit(g *group, p Priority) {
	_, request := s.mover.Depth()
	g.load.cut(request)
	g.state, g.err, g.fresh, g.transfer.pieces = slotLoading, nil, true, len(g.pieces)
	s.counted.Misses++
	s.moves.Add(1)
	s.mover.submit(&g.transfer, p)
}

// room returns the offset of the next group, if there is room.
func (s *stream) room(g *group) (at int64, ok bool) {
	if s.whole {
		return g.at, true
	}
	tail, some := s.tail()
	if !some {
		return 0, true
	}
	around := s.end <= tail // the used part wraps around the end of the window
	again := s.end+g.width() > int64(len(s.window)) || !s.unitFits(g, s.end)
	switch {
	case again && around:
		return 0, false
	case again:
		return 0, g.width() <= tail
	case around:
		return s.end, s.end+g.width() <= tail
	}
	return s.end, true
}

// tail returns the offset of the first group that takes room in the window, if there is one.
func (s *stream) tail() (at int64, some bool) {
	for n := range s.count {
		if g := s.groups[(s.oldest+n)%len(s.groups)]; g.home == nil {
			return g.at, true
		}
	}
	return 0, false
}

// unitFits reports whether the groups of a unit fit into the window together, if g, the first of
// them, is at the given offset. It returns true for groups that are not the first.
func (s *stream) unitFits(g *group, at int64) bool {
	first, last := s.first[g.unit], s.first[g.unit+1]
	if s.groups[first] != g {
		return true
	}
	begin, around := at, false
	for _, g := range s.groups[first:last] {
		if at+g.width() > int64(len(s.window)) {
			if around {
				return false
			}
			at, around = 0, true
		}
		if at += g.width(); around && at > begin {
			return false
		}
	}
	return true
}

// close ends the reads and waits for those in flight. A waiting holder returns errClosed.
func (s *stream) close() {
	s.mu.Lock()
	s.closed = true
	s.keep.landed.Broadcast()
	s.mu.Unlock()
	s.wake.signal()
	for _, g := range s.groups {
		s.mover.cancel(&g.transfer, errClosed)
	}
	s.moves.Wait()
	s.mu.Lock()
	s.forgetAll()
	s.mu.Unlock()
}

// stats returns the counters and the time that holders have waited.
func (s *stream) stats() (policy.Stats, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counted, s.stall
}
