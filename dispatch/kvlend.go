package dispatch

import (
	"sync"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch/internal/placement"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/kvcache"
)

// KV cache pages that no sequence uses are lent to weights of the disk tier: first to matrices
// that would stream, then to the cache of routed experts. They are taken back before a sequence
// gets them. Pages that later prompts may reuse are kept, up to half of the plan's pages. Memory
// for requests that no request uses is lent only to matrices, because these return it at once.

const (
	// kvStep is the part of the KV cache, 1/kvStep, that matrices return at once. mostKVStep
	// bounds it.
	kvStep     = 16
	mostKVStep = 8 << 20
)

// A lending is the memory that is lent to streamed weights. Its lock is taken after the lock of
// limited. While it is held, only the locks of the weights may be taken.
type lending struct {
	sync.Mutex
	others   int64 // bytes of the KV cache, and beyond the plan
	scratch  int64 // bytes of activations that passes do not use
	requests int64 // bytes of the memory for requests
	unused   int64 // bytes that requests did not use at the last change
}

// lendToStream sets how much memory streamed weights borrow. It returns the bytes that they do
// not use.
func (m *Model) lendToStream(others, scratch, requests int64) (rest int64) {
	l := &m.lending
	l.Lock()
	defer l.Unlock()
	l.others, l.scratch, l.requests = others, scratch, requests
	unused := placement.UnusedByRequests(requests, m.ledger.Held(hostmem.Requests))
	l.unused = unused
	return min(others, m.weights.KeepBudget(others+scratch+unused))
}

// CountRequests adds n bytes to the requests of the ledger; see [Ledger.CountRequests].
func (m *Model) CountRequests(n int64) { m.options.Ledger.CountRequests(n) }

// followRequests lends the memory that requests of all models leave unused.
func (m *Model) followRequests() {
	l := &m.lending
	l.Lock()
	defer l.Unlock()
	if unused := placement.UnusedByRequests(l.requests, m.ledger.Held(hostmem.Requests)); unused != l.unused {
		l.unused = unused
		m.weights.KeepBudget(l.others + l.scratch + unused)
	}
}

// lendable returns the maximum that may be lent, in bytes.
func (m *Model) lendable() int64 {
	host := m.plan.Device(devicemap.CPU)
	if !hostmem.Lazy || host.LimitBytes == 0 || m.stations.of != nil || m.plan.Device(devicemap.Disk).WeightsBytes == 0 {
		return 0
	}
	return host.KVBytes
}

// lends reports whether the model lends memory.
func (m *Model) lends() bool { return m.weights.Lends() }

// lendStep returns the number of pages that are taken back at once: the size of an expert or of a
// matrix.
func (m *Model) lendStep(page int64) int {
	step := m.weights.ExpertSlotBytes()
	if step == 0 {
		step = min(mostKVStep, m.plan.Device(devicemap.CPU).KVBytes/kvStep)
	}
	return max(1, int((step+page-1)/page))
}

// lend returns how many of the given pages the KV cache keeps now, and the bytes of the others.
func (m *Model) lend(pages int) (keep int, lent int64) {
	g := &m.limit.kv
	if !m.lends() || g.keep >= pages || g.bytes > 0 {
		return pages, 0
	}
	return g.keep, int64(pages-g.keep) * m.cache.PageBytes()
}

// startLending lends the pages that no sequence uses.
func (m *Model) startLending() {
	if m.cache != nil && m.lends() {
		m.options.Ledger.lenders.add(m)
		m.limit.Lock()
		defer m.limit.Unlock()
		m.shrinkTo(m.keptLimit(), 0)
	}
}

// lendAgain lends the pages that no sequence uses now. The caller holds the lock.
func (m *Model) lendAgain() {
	g, st := &m.limit.kv, m.cache.Stats()
	g.keep = min(g.start, st.Used+min(st.Cached, g.start/2)+m.lendStep(m.cache.PageBytes()))
}

// takeBackKV takes lent pages back if n more tokens of a sequence need them. No unit may compute
// meanwhile.
func (m *Model) takeBackKV(kv *kvcache.Sequence, n, pass int) {
	if !m.lends() {
		return
	}
	m.limit.Lock()
	defer m.limit.Unlock()
	g, st := &m.limit.kv, m.cache.Stats()
	usable, _ := m.cache.PageMemory()
	need := kv.Needs(n, pass) - (usable - st.Used - st.Cached)
	if need <= 0 || g.keep >= g.start {
		return
	}
	step := m.lendStep(m.cache.PageBytes())
	g.keep = min(g.start, max(g.keep, usable)+(need+step-1)/step*step)
	m.shrinkTo(m.keptLimit(), 0)
}
