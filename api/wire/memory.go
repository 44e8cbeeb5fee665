package wire

import (
	"container/list"
	"context"
	"errors"
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

// DefaultMemory is the memory for requests of a server whose plan has no such memory.
const DefaultMemory = 144 << 20

const (
	// requestBytes is the memory of a request that is not counted otherwise: its goroutines and
	// buffers.
	requestBytes = 32 << 10
	// heldParts/allParts of the memory are for what requests hold until they are answered. The rest
	// is for decoding, which waits for nothing. So no request waits for another waiting request.
	heldParts, allParts = 4, 9
	// largeBytes is the amount of garbage from which on a collection returns memory to the system
	// at once.
	largeBytes = 4 << 20
	// cacheShare: for requests, caches that outlive them count at most 1/cacheShare of the held
	// memory. So the largest body fits even if caches are full.
	cacheShare = 8
	// garbageShare: at most 1/garbageShare of the memory may be garbage before it is collected.
	garbageShare = 4
	// waitShare: requests that wait for memory take at most 1/waitShare of it in their connections,
	// waitBytes each. At least fewWaits requests may wait.
	waitShare, waitBytes, fewWaits = 16, 16 << 10, 256
)

// Memory limits the memory of all requests together: bodies, decoded fields, and answers that wait
// to be sent. A request reserves memory before it uses it. Released memory counts until the garbage
// collector has freed it. A Memory is safe for concurrent use.
type Memory struct {
	limit int64
	wait  time.Duration // maximum time to wait for memory
	count func(bytes int64)

	held, work pool

	mu         sync.Mutex
	waiting    list.List      // of *newcomer, in the order of their arrival
	ofClient   map[string]int // newcomers of each client
	blocked    int            // requests that wait for what others hold, new ones included
	arrivals   list.List      // of *arrival, in the order of their begin
	stopping   bool           // stopSlow runs
	cached     int64          // bytes of caches that outlive requests
	admitted   int64          // limit of the total for new requests
	garbage    int64
	collecting bool
	freed      chan struct{} // closed when memory is released; nil if no request waits
}

// A pool is a part of the memory.
type pool struct{ most, used int64 }

// NewMemory returns a Memory with a limit in bytes. count, if not nil, is called with each change
// of the bytes that requests take, which may be negative.
func NewMemory(limit int64, count func(bytes int64)) *Memory {
	if count == nil {
		count = func(int64) {}
	}
	held := limit / allParts * heldParts
	return &Memory{limit: limit, admitted: limit, wait: roomWait, count: count, ofClient: map[string]int{}, held: pool{most: held}, work: pool{most: limit - held}}
}

// MaxBody returns the maximum size of a body in bytes. Its decoded form must fit, too.
func (m *Memory) MaxBody() int64 {
	return max(0, min(maxBody, m.held.most-m.held.most/cacheShare-requestBytes, (m.work.most-smallWork)/textCopies))
}

// Admit sets the memory that requests may take together to n bytes, at most the limit. Running
// requests keep their memory and may still reserve more. New requests wait, unless no other request
// runs. MaxBody does not change.
func (m *Memory) Admit(n int64) {
	m.mu.Lock()
	m.admitted = min(max(n, 0), m.limit)
	m.wake()
	m.mu.Unlock()
}

// admit waits until a new request may take n bytes. It returns false if that takes too long.
func (m *Memory) admit(ctx context.Context, n int64) bool {
	var late <-chan time.Time
	for {
		m.mu.Lock()
		used := m.held.used + m.work.used
		if used == m.cachesHold() || m.admitted == m.limit || used+m.garbage+n <= m.admitted {
			m.mu.Unlock()
			return true
		}
		if m.garbage > 0 && !m.collecting {
			m.mu.Unlock()
			m.collect()
			continue
		}
		if late == nil {
			late = time.After(m.wait)
		}
		if !m.await(ctx, late, true) {
			return false
		}
	}
}

// take waits until n bytes of p are free and reserves them. It returns false if the wait is too
// long or ctx ends first. who is nil if the request already has memory.
func (m *Memory) take(ctx context.Context, p *pool, n int64, wait time.Duration, who *newcomer) bool {
	var late <-chan time.Time
	for {
		m.mu.Lock()
		fits := p.used+n <= p.most && (who == nil || !m.outranked(who))
		if fits && m.held.used+m.work.used+m.garbage+n <= m.limit {
			p.used += n
			m.count(n)
			m.mu.Unlock()
			return true
		}
		if fits && !m.collecting {
			m.mu.Unlock()
			m.collect()
			continue
		}
		if !fits && wait <= 0 {
			m.mu.Unlock()
			return false
		}
		if late == nil {
			late = time.After(max(wait, time.Second)) // at least long enough for a collection
		}
		if !m.await(ctx, late, p == &m.held && !fits) {
			return false
		}
	}
}

// await waits until memory is released, and unlocks m.mu. It returns false if late or ctx ends
// first. If others hold the memory, it stops slow bodies meanwhile.
func (m *Memory) await(ctx context.Context, late <-chan time.Time, others bool) bool {
	if m.freed == nil {
		m.freed = make(chan struct{})
	}
	freed := m.freed
	if others {
		if m.blocked++; !m.stopping {
			m.stopping = true
			go m.stopSlow()
		}
		defer func() { m.mu.Lock(); m.blocked--; m.mu.Unlock() }()
	}
	m.mu.Unlock()
	select {
	case <-freed:
		return true
	case <-late:
		return false
	case <-ctx.Done():
		return false
	}
}

// cachesHold returns the bytes of caches that count as held. The caller holds m.mu.
func (m *Memory) cachesHold() int64 { return min(m.cached, m.held.most/cacheShare) }

// release makes n bytes of p garbage.
func (m *Memory) release(p *pool, n int64) {
	if n == 0 {
		return
	}
	m.mu.Lock()
	p.used -= n
	m.garbage += n
	collect := !m.collecting && (n >= largeBytes || m.garbage > m.limit/garbageShare)
	m.wake()
	m.mu.Unlock()
	if collect {
		go m.collect()
	}
}

// wake wakes waiting requests. The caller holds m.mu.
func (m *Memory) wake() {
	if m.freed != nil {
		close(m.freed)
		m.freed = nil
	}
}

// collect frees the current garbage. Only one goroutine collects at a time.
func (m *Memory) collect() {
	m.mu.Lock()
	n := m.garbage
	if m.collecting || n == 0 {
		m.mu.Unlock()
		return
	}
	m.collecting = true
	m.mu.Unlock()
	if n >= largeBytes {
		debug.FreeOSMemory()
	} else {
		runtime.GC()
	}
	m.mu.Lock()
	m.garbage -= n
	m.collecting = false
	m.count(-n)
	m.wake()
	m.mu.Unlock()
}

// A Claim is the memory that one request has reserved. A nil Claim reserves nothing and never
// fails. It is safe for concurrent use.
type Claim struct {
	m          *Memory
	ctx        context.Context // of the request: waiting stops at its end
	mu         sync.Mutex
	held, work int64
	ended      bool
}

type claimKey struct{}

// ClaimOf returns the claim of the request that ctx belongs to, or nil if its memory is not
// counted.
func ClaimOf(ctx context.Context) *Claim {
	c, _ := ctx.Value(claimKey{}).(*Claim)
	return c
}

// Keep reserves n more bytes until the request is answered. It does not wait, because other
// requests may wait for memory that this one holds. Errors are of type *Error.
func (c *Claim) Keep(n int) error {
	if c == nil || n <= 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.grow(&c.m.held, &c.held, int64(n), 0)
}

// KeepAnswer is Keep for a part of the answer. It waits for memory, so that generation pauses. The
// wait is limited, because other requests may wait for memory that this one holds.
func (c *Claim) KeepAnswer(n int) error {
	if c == nil || n <= 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.grow(&c.m.held, &c.held, int64(n), c.m.wait)
	var own *Error
	if errors.As(err, &own) && own.Kind != Interrupted {
		return errLargeAnswer()
	}
	return err
}

// Work reserves n more bytes until WorkDone. The first call waits for memory. Errors are of type
// *Error.
func (c *Claim) Work(n int) error {
	if c == nil || n <= 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	wait := c.m.wait
	if c.work > 0 {
		wait = 0
	}
	return c.grow(&c.m.work, &c.work, int64(n), wait)
}

func (c *Claim) grow(p *pool, have *int64, n int64, wait time.Duration) error {
	switch {
	case *have+n > p.most:
		return errTooMuch()
	case c.ended || !c.m.take(c.ctx, p, n, wait, nil):
		if c.ctx.Err() != nil {
			return Closed(c.ctx.Err())
		}
		return errFull()
	}
	*have += n
	return nil
}

// WorkDone releases what Work has reserved. It may be called more than once.
func (c *Claim) WorkDone() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.m.release(&c.m.work, c.work)
	c.work = 0
}

// Cache counts n more bytes, or fewer if n is negative, that a cache keeps after the request. It
// neither waits nor fails: a cache has its own limit.
func (c *Claim) Cache(n int) {
	if c == nil || n == 0 {
		return
	}
	m := c.m
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.cachesHold()
	m.cached += int64(n)
	m.held.used += m.cachesHold() - before
	m.count(int64(n))
	if n < 0 {
		m.wake()
	}
}

// drop releases n bytes that Keep has reserved.
func (c *Claim) drop(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n = min(n, c.held)
	c.m.release(&c.m.held, n)
	c.held -= n
}

// end releases all memory. Nothing can be reserved afterwards.
func (c *Claim) end() {
	c.WorkDone()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	c.m.release(&c.m.held, c.held)
	c.held = 0
}
