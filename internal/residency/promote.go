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
	all    bool // everything was promoted that the budget has room for
	err    error
}

// Promote moves the weights of the cpu tier that are used in the mapping to memory of their own, in the
// background and in the order of use. They are read faster there, and leave the page cache. Beside the
// cpu tier's bytes it takes those of one segment. Results stay bitwise the same. It returns at once, and
// begins when Warm is done, if that was called before. It continues when Budget rises, until ctx ends.
// Call it once.
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

// Promoted reports whether Promote has moved all that the budget has room for, and the error that
// stopped it. Weights that were not moved are used in the mapping.
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
