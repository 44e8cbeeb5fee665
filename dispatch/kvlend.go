package dispatch

import (
	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/kvcache"
)

// Pages of the KV cache that no sequence uses are lent to the cache of routed experts, and taken back
// before a sequence gets them. Pages that later prompts may reuse stay up to half of the plan's.

// lendable is the most that may be lent, in bytes.
func (m *Model) lendable() int64 {
	host := m.plan.Device(devicemap.CPU)
	if !hostmem.Lazy || host.LimitBytes == 0 || m.plan.ExpertCacheBytes == 0 {
		return 0
	}
	return host.KVBytes
}

// lends reports whether the model lends memory.
func (m *Model) lends() bool { return m.weights.Lends() }

// lendStep is the number of pages that come back together: an expert's memory.
func (m *Model) lendStep(page int64) int {
	return max(1, int((m.weights.ExpertSlotBytes()+page-1)/page))
}

// lend returns how many of so many pages the KV cache keeps now, and the bytes of the others.
func (m *Model) lend(pages int) (keep int, lent int64) {
	g := &m.limit.kv
	if !m.lends() || g.keep >= pages || g.bytes > 0 {
		return pages, 0
	}
	return g.keep, int64(pages-g.keep) * m.cache.PageBytes()
}

// startLending lends what no sequence uses of the KV cache.
func (m *Model) startLending() {
	if m.cache != nil && m.lends() {
		m.limit.Lock()
		defer m.limit.Unlock()
		m.shrinkTo(m.limitNow(), 0)
	}
}

// lendAgain lends what no sequence uses now. It needs the lock.
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
	m.shrinkTo(m.limitNow(), 0)
}
