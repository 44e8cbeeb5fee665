package dispatch

import (
	"slices"
	"sync"

	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/residency"
)

// A Ledger counts the host memory of one or more models by purpose. The weights of these models
// share a memory region, the workers that read them, and a limit. The zero value is ready to use.
// A Ledger is safe for concurrent use.
type Ledger struct {
	host  hostmem.Ledger
	arena hostmem.Arena
	mover residency.Mover
	kept  residency.Policy
	begin sync.Once

	lenders  lenders
	adapters adapterPool
}

// SetLimit limits the memory of all models that l counts, in bytes, in addition to the limit of
// each model. A model that needs memory takes it from idle models: their promoted, converted and
// cached weights are evicted, and read or converted again when they are used. Results stay
// bitwise the same. Other memory is counted but not released, so a limit that is too small is
// exceeded. SetLimit is safe for concurrent use.
func (l *Ledger) SetLimit(bytes int64) { l.kept.SetLimit(bytes) }

// CountRequests adds n bytes to the memory of requests; n may be negative. Streamed weights of
// all models return memory that they borrowed from requests. It is safe for concurrent use.
func (l *Ledger) CountRequests(n int64) {
	l.host.Add(hostmem.Requests, n)
	l.lenders.Lock()
	defer l.lenders.Unlock()
	for _, m := range l.lenders.models {
		m.followRequests()
	}
}

// lenders are the models that lend memory to their streamed weights.
type lenders struct {
	sync.Mutex
	models []*Model
}

func (l *lenders) add(m *Model) {
	l.Lock()
	l.models = append(l.models, m)
	l.Unlock()
}

func (l *lenders) remove(m *Model) {
	l.Lock()
	l.models = slices.DeleteFunc(l.models, func(other *Model) bool { return other == m })
	l.Unlock()
}

// Held returns the bytes held now, by purpose: "weights", "kv", "activations", "staging", "cache",
// "requests", "other".
func (l *Ledger) Held() map[string]int64 {
	out := map[string]int64{}
	for _, p := range hostmem.Purposes() {
		out[p.String()] = l.host.Held(p)
	}
	return out
}

func (o *Options) ledger() *hostmem.Ledger {
	if o.Ledger == nil {
		o.Ledger = new(Ledger)
	}
	o.Ledger.begin.Do(func() {
		// The KV cache reserves addresses for more than the limit, because it can grow by
		// evicting weights.
		o.Ledger.arena.Ledger, o.Ledger.arena.Size = &o.Ledger.host, 2*DescribeHost().TotalBytes
	})
	return &o.Ledger.host
}
