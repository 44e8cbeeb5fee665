package dispatch

import (
	"context"
	"time"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/kvcache"
	"github.com/heftai/heft/internal/nn"
)

// kvGrowth is the state of a KV cache that takes memory from weights while requests need it. The
// lock of limited guards it.
type kvGrowth struct {
	start int   // pages of the plan
	keep  int   // of these, pages that are not lent to the expert cache; see lends
	bytes int64 // bytes beyond the plan; 0 while the plan's size suffices
	idle  *time.Timer
	ended bool
}

// kvIdle is how long the planned pages must suffice before the KV cache returns memory to the
// weights.
const kvIdle = 10 * time.Second

// takeKV allocates the KV cache. It reserves addresses for all pages to which the cache may grow;
// the plan's pages are usable at once.
func (m *Model) takeKV(memory backend.Memory, config kvcache.Config) error {
	m.placeKV(&config, memory)
	config.Start = config.Pages
	planned := config.Pages
	if n := int(m.settings.KVGrown / config.PageBytes()); n > config.Pages && m.stations.of == nil {
		config.Pages = n
	}
	if m.lends() {
		config.Start = min(config.Start, m.lendStep(config.PageBytes()))
	}
	var err error
	if m.cache, err = kvcache.New(memory, config); err != nil && config.Pages > planned {
		config.Pages = planned // a system that promises no memory that it may lack
		m.cache, err = kvcache.New(memory, config)
	}
	if err != nil {
		return m.kvError(err)
	}
	m.limit.kv.start, m.limit.kv.keep = planned, config.Start
	m.ledger.Add(hostmem.KV, int64(config.Start-config.Pages)*config.PageBytes()-config.AddressedBytes())
	m.pass.groups = make([]nn.Group, m.cache.Groups())
	m.capacity = config.SequenceTokens(config.Pages, m.settings.MaxBatchTokens, m.settings.Context)
	return nil
}

// touchedTokens is how many tokens of a first prompt find the memory of the KV cache touched.
const touchedTokens = 512

// touchFirst brings memory for a first prompt in, in the background: of the KV cache, and of
// activations unless it is lent. It stops when the prompt comes.
func (m *Model) touchFirst(ctx context.Context) {
	host, ok := m.backend.(interface{ TouchActivations(more func() bool) })
	if m.cache == nil || !ok {
		return
	}
	ctx, m.touch.stop = context.WithCancel(ctx)
	more := func() bool {
		_, used := m.cache.PageMemory()
		return used == 0 && ctx.Err() == nil
	}
	m.touch.running.Go(func() {
		if m.tuned != nil {
			<-m.tuned // it measures undisturbed
		}
		if m.cache.Touch(touchedTokens, more) && !m.lends() {
			host.TouchActivations(more)
		}
	})
}

// growKV makes room for more pages in the KV cache within the model's limit. It evicts experts
// first, then copies of weights. It reports whether there is room now. No unit may compute
// meanwhile.
func (m *Model) growKV(pages int) bool {
	m.limit.Lock()
	defer m.limit.Unlock()
	g, page := &m.limit.kv, m.cache.PageBytes()
	limit := m.keptLimit()
	_, used := m.cache.PageMemory()
	want := used + pages
	if limit == 0 || pages == 0 || m.stations.of != nil || want > m.cache.Config().Pages {
		return false
	}
	before := g.bytes
	g.bytes = int64(want) * page
	m.shrinkTo(limit, 0)
	if usable, _ := m.cache.PageMemory(); usable < want {
		g.bytes = before
		m.shrinkTo(limit, 0)
		return false
	}
	return true
}

// restKV schedules the return of the KV cache to its planned size after a sequence was freed, if
// that size suffices then.
func (m *Model) restKV() {
	m.limit.Lock()
	defer m.limit.Unlock()
	g := &m.limit.kv
	switch {
	case g.ended || g.bytes == 0 && !m.lends():
	case g.idle == nil:
		g.idle = time.AfterFunc(kvIdle, m.ungrowKV)
	default:
		g.idle.Reset(kvIdle)
	}
}

// ungrowKV returns memory to the weights.
func (m *Model) ungrowKV() {
	m.limit.Lock()
	defer m.limit.Unlock()
	g := &m.limit.kv
	if g.ended {
		return
	}
	if m.lends() {
		m.lendAgain()
	}
	if _, used := m.cache.PageMemory(); used <= g.start {
		g.bytes = 0 // else restKV comes by again
	}
	m.shrinkTo(m.keptLimit(), 0)
}

// endKV stops the timer and touchFirst.
func (m *Model) endKV() {
	if m.touch.stop != nil {
		m.touch.stop()
		m.touch.running.Wait()
	}
	m.limit.Lock()
	defer m.limit.Unlock()
	m.limit.kv.ended = true
	if m.limit.kv.idle != nil {
		m.limit.kv.idle.Stop()
	}
}
