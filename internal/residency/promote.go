package residency

import (
	"context"
	"sync"
)

// promoter is the state of Promote.
type promoter struct {
	mu     sync.Mutex
	cancel context.CancelFunc
	done   chan struct{}
	all    bool // everything that fits into the budget was promoted
	err    error
}

// Promote moves the weights of the cpu tier that are used in the mapping to memory of their own,
// in the background and in the order of use. There they are read faster, and they leave the page
// cache. During the move the cpu tier takes one segment more. Results stay bitwise the same.
// Promote returns at once. It begins when Warm is done if Warm was called before, and continues
// whenever Budget rises, until ctx ends. Call it once.
func (s *Store) Promote(ctx context.Context) {
	p := &s.promoter
	ctx, cancel := context.WithCancel(ctx)
	p.mu.Lock()
	p.cancel, p.done = cancel, make(chan struct{})
	p.mu.Unlock()
	warmed := s.warm.finished()
	go func() {
		defer close(p.done)
		select {
		case <-warmed:
		case <-ctx.Done():
		}
		for err := error(nil); err == nil; {
			err = s.copyAll(ctx)
			s.unmapCopied()
			p.mu.Lock()
			p.all, p.err = err == nil, err
			p.mu.Unlock()
			select {
			case <-s.copies.raised:
			case <-ctx.Done():
				return
			}
		}
	}()
}

// Promoted reports whether Promote has moved everything that fits into the budget, and returns
// the error that stopped it. Other weights are used in the mapping.
func (s *Store) Promoted() (bool, error) {
	s.promoter.mu.Lock()
	defer s.promoter.mu.Unlock()
	return s.promoter.all, s.promoter.err
}

func (p *promoter) stop() {
	p.mu.Lock()
	cancel, done := p.cancel, p.done
	p.mu.Unlock()
	if cancel != nil {
		cancel()
		<-done
	}
}
