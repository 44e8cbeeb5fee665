package batches

import (
	"context"
	"sync"
)

// places limits the number of lines that run at once and their total bytes, to leave most of the
// memory for requests to clients. It is safe for concurrent use.
type places struct {
	most  int
	bytes int64

	mu    sync.Mutex
	used  int
	held  int64
	freed chan struct{} // closed when a place becomes free; nil if no goroutine waits
}

// lineShare: running lines take at most 1/lineShare of the maximum line size together. A line that
// runs alone may be longer.
const lineShare = 4

func newPlaces(b *Backend) *places {
	return &places{most: max(b.Parallel, 1), bytes: b.MaxLine / lineShare}
}

// take waits for a place for a line of size bytes. It returns the cause of ctx when ctx ends.
func (p *places) take(ctx context.Context, size int64) error {
	for {
		p.mu.Lock()
		if ctx.Err() == nil && p.used < p.most && (p.used == 0 || p.held+size <= p.bytes) {
			p.used++
			p.held += size
			p.mu.Unlock()
			return nil
		}
		if p.freed == nil {
			p.freed = make(chan struct{})
		}
		freed := p.freed
		p.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (p *places) free(size int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used--
	p.held -= size
	if p.freed != nil {
		close(p.freed)
		p.freed = nil
	}
}
