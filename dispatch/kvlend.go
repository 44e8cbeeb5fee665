package dispatch

import (
	"sync"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/kvcache"
)

// Pages of the KV cache that no sequence uses are lent to weights of the disk tier: to matrices that
// would stream, then to the cache of routed experts. They are taken back before a sequence gets them. Pages
// that later prompts may reuse stay up to half of the plan's. Memory for requests that no request uses is
// lent to matrices alone, because these return it at once.

const (
	// requestStep is the part of the memory for requests, 1/requestStep, that is never lent, and by which
	// it comes back; mostRequestStep is the most.
	requestStep     = 4
	mostRequestStep = 16 << 20
	// kvStep is the part of the KV cache, 1/kvStep, that comes back together for matrices; mostKVStep is
	// the most.
	kvStep     = 16
	mostKVStep = 8 << 20
)

// unusedByRequests returns how much of the memory for requests is lent while they hold some of it. What
// they hold counts twice, as Go's heap has garbage besides.
func unusedByRequests(all, held int64) int64 {
	step := max(1, min(mostRequestStep, all/requestStep))
	return max(0, all-(2*held+2*step-1)/step*step)
}

// lendsToMatrices reports whether matrices of the disk use memory of plan that nothing else uses.
func lendsToMatrices(plan *devicemap.Plan) bool {
	host := plan.Device(devicemap.CPU)
	return hostmem.Lazy && host.LimitBytes > 0 && host.KVBytes > 0 && plan.Policy != devicemap.Manual
}

// freeBytes is the memory that plan leaves free and that matrices use.
func freeBytes(plan *devicemap.Plan) int64 {
	if !lendsToMatrices(plan) {
		return 0
	}
	host := plan.Device(devicemap.CPU)
	return max(0, host.LimitBytes-host.Used())
}

// A lending is what streamed weights are lent. Its lock is taken after that of limited, and not held
// while another one is taken, but for those of the weights.
type lending struct {
	sync.Mutex
	others   int64 // bytes of the KV cache, and beyond the plan
	scratch  int64 // bytes of activations that passes do not use
	requests int64 // bytes of the memory for requests
	unused   int64 // by requests, at the last change
}

// lendToStream sets how much memory streamed weights borrow, and returns the bytes that they do not
// use.
func (m *Model) lendToStream(others, scratch, requests int64) (rest int64) {
	l := &m.lending
	l.Lock()
	defer l.Unlock()
	l.others, l.scratch, l.requests = others, scratch, requests
	unused := unusedByRequests(requests, m.ledger.Held(hostmem.Requests))
	l.unused = unused
	return min(others, m.weights.KeepBudget(others+scratch+unused))
}

// CountRequests counts n more bytes for requests in the ledger; see [Ledger.CountRequests].
func (m *Model) CountRequests(n int64) { m.options.Ledger.CountRequests(n) }

// followRequests lends the memory that requests of all models do not use now.
func (m *Model) followRequests() {
	l := &m.lending
	l.Lock()
	defer l.Unlock()
	if unused := unusedByRequests(l.requests, m.ledger.Held(hostmem.Requests)); unused != l.unused {
		l.unused = unused
		m.weights.KeepBudget(l.others + l.scratch + unused)
	}
}

// lendable is the most that may be lent, in bytes.
func (m *Model) lendable() int64 {
	host := m.plan.Device(devicemap.CPU)
	if !hostmem.Lazy || host.LimitBytes == 0 || m.stations.of != nil || m.plan.Device(devicemap.Disk).WeightsBytes == 0 {
		return 0
	}
	return host.KVBytes
}

// lends reports whether the model lends memory.
func (m *Model) lends() bool { return m.weights.Lends() }

// lendStep is the number of pages that come back together: an expert's memory, or that of a matrix.
func (m *Model) lendStep(page int64) int {
	step := m.weights.ExpertSlotBytes()
	if step == 0 {
		step = min(mostKVStep, m.plan.Device(devicemap.CPU).KVBytes/kvStep)
	}
	return max(1, int((step+page-1)/page))
}

// lend returns how many of so many pages the KV cache keeps now, and the bytes of the others.
func (m *Model) lend(pages int) (keep int, lent int64) {
	g := &m.limit.kv
	if !m.lends() || g.keep >= pages || g.bytes > 0 {
		return pages, 0
	}
	return g.keep, int64(pages-g.keep) * m.cache.PageBytes()
}

// startLending lends the part of the KV cache that no sequence uses.
func (m *Model) startLending() {
	if m.cache != nil && m.lends() {
		m.options.Ledger.lenders.add(m)
		m.limit.Lock()
		defer m.limit.Unlock()
		m.shrinkTo(m.keptLimit(), 0)
	}
}

// lendAgain lends the part that no sequence uses now. The lock is held.
func (m *Model) lendAgain() {
	g, st := &m.limit.kv, m.cache.Stats()
	g.keep = min(g.start, st.Used+min(st.Cached, g.start/2)+m.lendStep(m.cache.PageBytes()))
}

// takeBackKV takes lent pages back, if n more tokens of a sequence need some. No unit computes.
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
