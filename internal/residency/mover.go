package residency

import (
	"sync"
	"sync/atomic"
	"time"
)

// A Priority orders the moves of a [Mover].
type Priority uint8

// The priorities, highest first.
const (
	Demand     Priority = iota // a pass waits for the bytes
	Next                       // the next blocks in execution order, also across the end of a pass
	Background                 // warming and promotion
	LookAhead                  // predicted to be needed

	priorities = int(LookAhead) + 1
)

const (
	// defaultDepth is the number of reads in flight if the disk was not measured.
	defaultDepth = 4
	// maxDepth bounds the number of workers.
	maxDepth = 64
)

// A Mover fills memory with weights. Its workers read the pieces of moves, several at once: those
// of the highest priority first, and within a priority in the order of submission. The zero value
// is ready to use. One Mover serves all stores of a process. It is safe for concurrent use.
//
// The workers start with the first move. They end when the last store is closed.
type Mover struct {
	// Intercept is called instead of each read if it is not nil. A test may delay the read or
	// return an error. It must be set before the first read.
	Intercept func(read func() error) error
	// InterceptWrite is called instead of each write of converted weights if it is not nil. A
	// test may make the write fail.
	InterceptWrite func(write func() error) error

	mu      sync.Mutex
	wanted  sync.Cond // signals pieces to read, or the end
	queues  [priorities]moveQueue
	work    func()
	depth   int // number of workers; 0 means defaultDepth
	request int64
	workers int // running
	idle    int
	stores  int       // open stores
	ended   sync.Cond // signals that a worker has ended

	pending atomic.Int64 // pieces of moves that are not finished

	stats   MoverStats
	flight  int // pieces that are being read
	flights [priorities]int
	started time.Time // when flight became 1
}

// MoverStats holds the counters of a Mover.
type MoverStats struct {
	Reads   int64         // pieces read
	Repeats int64         // pieces read again after an error
	Latency time.Duration // sum over all pieces
	Busy    time.Duration // time with at least one read in flight
	Most    int           // maximum of Flight
	Flight  int           // reads in flight now
	// Within counts the pieces whose reads took at most LatencyBuckets[i], but more than the
	// preceding bucket.
	Within [len(LatencyBuckets)]int64
}

// LatencyBuckets are the upper bounds of MoverStats.Within.
var LatencyBuckets = [...]time.Duration{100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond, time.Millisecond, 2500 * time.Microsecond,
	5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, time.Second}

// add counts a read of the given duration.
func (s *MoverStats) add(took time.Duration) {
	s.Reads++
	s.Latency += took
	for i, most := range LatencyBuckets {
		if took <= most {
			s.Within[i]++
			return
		}
	}
}

// A source fills one place, piece by piece. The Mover first calls prepare, then read for all
// pieces, in any order and several at once. An error ends the move.
type source interface {
	prepare() error
	read(piece int) error
}

// A move is the task of filling one place. Its owner may reuse it when it is done.
type move struct {
	source source
	pieces int
	done   func(err error) // called by a worker, or by cancel

	priority   Priority
	prepared   bool
	next, left int // the next piece to start, and the number of pieces that are not finished
	flying     int // pieces that are being read
	err        error

	queued     bool
	prev, succ *move
}

// A moveQueue is a list of moves with pieces that are not started.
type moveQueue struct{ first, last *move }

func (q *moveQueue) push(v *move) {
	v.queued, v.prev, v.succ = true, q.last, nil
	if q.last == nil {
		q.first = v
	} else {
		q.last.succ = v
	}
	q.last = v
}

func (q *moveQueue) pushFirst(v *move) {
	v.queued, v.prev, v.succ = true, nil, q.first
	if q.first == nil {
		q.last = v
	} else {
		q.first.prev = v
	}
	q.first = v
}

func (q *moveQueue) remove(v *move) {
	if v.prev == nil {
		q.first = v.succ
	} else {
		v.prev.succ = v.succ
	}
	if v.succ == nil {
		q.last = v.prev
	} else {
		v.succ.prev = v.prev
	}
	v.queued, v.prev, v.succ = false, nil, nil
}

// Tune sets the number of reads in flight and the size of a read, as measured for the disk. Zero
// leaves a value unchanged.
func (m *Mover) Tune(depth int, request int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if depth > 0 {
		m.depth = min(depth, maxDepth)
	}
	if request > 0 {
		m.request = min(max(request&^(blockSize-1), blockSize), maxRead)
	}
	if m.wanted.L != nil {
		m.wanted.Broadcast() // to end workers; more of them start with the next move
	}
}

// Depth returns the maximum number of reads in flight, and the size of a read.
func (m *Mover) Depth() (depth int, request int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.depthNow(), m.requestNow()
}

func (m *Mover) depthNow() int {
	if m.depth == 0 {
		return defaultDepth
	}
	return m.depth
}

func (m *Mover) requestNow() int64 {
	if m.request == 0 {
		return maxRead
	}
	return m.request
}

// Reading reports whether pieces are being read or are about to be. It takes no lock.
func (m *Mover) Reading() bool { return m.pending.Load() > 0 }

// Stats returns the counters.
func (m *Mover) Stats() MoverStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.stats
	out.Flight = m.flight
	if m.flight > 0 {
		out.Busy += time.Since(m.started)
	}
	return out
}

// open registers a store. close unregisters it.
func (m *Mover) open() {
	m.mu.Lock()
	m.stores++
	m.mu.Unlock()
}

// close unregisters a store whose moves are done. For the last store it waits for the workers to
// end.
func (m *Mover) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stores--
	for m.stores == 0 && m.workers > 0 {
		m.wanted.Broadcast()
		m.ended.Wait()
	}
}

// submit queues v, which must not be queued or running.
func (m *Mover) submit(v *move, p Priority) {
	m.mu.Lock()
	v.priority, v.prepared, v.next, v.left, v.err = p, false, 0, v.pieces, nil
	m.pending.Add(int64(v.left))
	m.enqueue(v, false)
	m.mu.Unlock()
}

// enqueue queues v and wakes or starts workers for its pieces.
func (m *Mover) enqueue(v *move, first bool) {
	if m.work == nil {
		m.work, m.wanted.L, m.ended.L = m.worker, &m.mu, &m.mu
	}
	if first {
		m.queues[v.priority].pushFirst(v)
	} else {
		m.queues[v.priority].push(v)
	}
	want := max(v.pieces-v.next, 1)
	for range min(want, m.idle) {
		m.wanted.Signal()
	}
	for n := want - m.idle; n > 0 && m.workers < m.depthNow(); n-- {
		m.workers++
		go m.work()
	}
}

// raise gives v a higher priority if it has pieces that are not started.
func (m *Mover) raise(v *move, p Priority) {
	m.mu.Lock()
	if p < v.priority {
		if v.queued {
			m.queues[v.priority].remove(v)
			m.queues[p].push(v)
		}
		m.flights[v.priority] -= v.flying
		m.flights[p] += v.flying
		v.priority = p
	}
	m.mu.Unlock()
}

// cancel drops the pieces of v that are not started. done is called as soon as the others have
// ended, with err if v is not complete.
func (m *Mover) cancel(v *move, err error) {
	m.mu.Lock()
	if !v.queued {
		if !v.prepared {
			v.err = err // read at the end of prepare
		}
		m.mu.Unlock()
		return
	}
	m.drop(v, err)
	over := v.left == 0
	m.mu.Unlock()
	if over {
		v.done(err)
	}
}

// withdraw removes v if nothing of it was started, and reports whether it did. It does not call
// done.
func (m *Mover) withdraw(v *move) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !v.queued || v.next > 0 {
		return false
	}
	m.queues[v.priority].remove(v)
	m.pending.Add(int64(-v.left))
	return true
}

// drop removes the pieces of v that are not started.
func (m *Mover) drop(v *move, err error) {
	if v.queued {
		m.queues[v.priority].remove(v)
	}
	if v.err == nil {
		v.err = err
	}
	m.pending.Add(int64(v.next - v.pieces))
	v.left -= v.pieces - v.next
	v.next = v.pieces
}

// take returns a move and the index of its piece to read, or -1 to prepare the move. It returns
// nil if there is nothing to do. While a pass waits for a piece, background moves do not compete
// with it for the disk.
func (m *Mover) take() (*move, int) {
	for i := range m.queues {
		v := m.queues[i].first
		if Priority(i) >= Background && m.flights[Demand] > 0 {
			break
		}
		if v == nil {
			continue
		}
		if !v.prepared {
			m.queues[i].remove(v)
			return v, -1
		}
		if v.next++; v.next == v.pieces {
			m.queues[i].remove(v)
		}
		return v, v.next - 1
	}
	return nil, 0
}

// worker reads pieces until the last store is closed.
func (m *Mover) worker() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for {
		if m.workers > m.depthNow() {
			break
		}
		v, piece := m.take()
		if v == nil {
			if m.stores == 0 {
				break
			}
			m.idle++
			m.wanted.Wait()
			m.idle--
			continue
		}
		if piece < 0 {
			m.prepare(v)
			continue
		}
		m.readPiece(v, piece)
	}
	m.workers--
	m.ended.Broadcast()
}

// prepare calls the source's prepare without the lock and queues the pieces.
func (m *Mover) prepare(v *move) {
	m.mu.Unlock()
	err := v.source.prepare()
	m.mu.Lock()
	v.prepared = true
	if err == nil {
		err = v.err
	}
	if err == nil && v.pieces > 0 {
		m.enqueue(v, true)
		return
	}
	m.drop(v, err)
	m.finish(v)
}

// readPiece reads a piece without holding the lock. It retries once.
func (m *Mover) readPiece(v *move, piece int) {
	if m.flight++; m.flight == 1 {
		m.started = time.Now()
	}
	m.stats.Most = max(m.stats.Most, m.flight)
	v.flying++
	m.flights[v.priority]++
	m.mu.Unlock()
	start := time.Now()
	err := m.read(v, piece)
	repeated := err != nil
	if repeated {
		err = m.read(v, piece)
	}
	took := time.Since(start)
	m.mu.Lock()
	m.stats.add(took)
	if repeated {
		m.stats.Repeats++
	}
	if m.flight--; m.flight == 0 {
		m.stats.Busy += time.Since(m.started)
	}
	v.flying--
	if m.flights[v.priority]--; m.flights[Demand] == 0 && m.idle > 0 && (m.queues[Background].first != nil || m.queues[LookAhead].first != nil) {
		m.wanted.Broadcast() // background moves continue
	}
	if err != nil {
		m.drop(v, err)
	}
	m.pending.Add(-1)
	if v.left--; v.left == 0 {
		m.finish(v)
	}
}

func (m *Mover) read(v *move, piece int) error {
	if m.Intercept != nil {
		return m.Intercept(func() error { return v.source.read(piece) })
	}
	return v.source.read(piece)
}

// finish calls done without the lock.
func (m *Mover) finish(v *move) {
	err := v.err
	m.mu.Unlock()
	v.done(err)
	m.mu.Lock()
}
