package residency

import (
	"context"
	"sync"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/stored"
	"github.com/heftai/heft/loader"
)

// A promotion is a copy of pieces in anonymous memory, with huge pages and every range on a 64-byte
// boundary; in a mapping, alignment depends on the file. The promoter makes it once in the
// background, and the computing goroutine switches to it between two uses.
type promotion struct {
	block  *hostmem.Block
	slot   []byte
	places []int64 // of each range in it
}

// promoter is the state of Promote.
type promoter struct {
	mu     sync.Mutex
	cancel context.CancelFunc
	done   chan struct{}
	all    bool // everything was promoted that the budget has room for
	err    error
}

// Promote copies the weights of the cpu tier, in the order of use and in the background,
// from the checkpoint's mapping to memory of our own, where they are read faster, and lets
// the mapped pages go as it goes on, whether a pass computes or not: beside the cpu tier's
// bytes it takes those of one parameter. Results stay bitwise the same. What is to be converted is converted, unless Warm has done it. It returns at once
// and begins when Warm is done, where that was called before. It continues when Budget rises, until ctx ends. Call it once.
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
			err = s.promoteAll(ctx)
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

// Promoted reports whether Promote has copied all that the budget has room for, and the error that
// stopped it; what was not promoted is used in place.
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

// promoteAll copies weights until everything is copied or the budget has no room.
func (s *Store) promoteAll(ctx context.Context) error {
	moved, err := s.copyAll(ctx)
	letGo(moved) // once more, see quantizer.letGo
	s.quantizer.letGo()
	return err
}

// promote copies pieces. Bytes that lie in memory already are left where they are: nil. It fails with
// errNoRoom if the budget has no room.
func (s *Store) promote(ctx context.Context, pieces []stored.Piece) (*promotion, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	size, made := 0, &promotion{}
	for i := range pieces {
		for _, r := range pieces[i].Ranges {
			if path, _, _ := r.Tensor.Location(); path == "" {
				return nil, nil
			}
			made.places = append(made.places, int64(size))
			size += hostmem.Up(int(r.Size), hostmem.Align)
		}
	}
	size = max(size, 1)
	if !s.copies.reserve(int64(size)) {
		return nil, errNoRoom
	}
	var err error
	if made.block, err = hostmem.Alloc(s.ledger, hostmem.Weights, size); err != nil {
		s.copies.release(int64(size))
		return nil, err
	}
	made.slot = made.block.Bytes()
	k := 0
	for i := range pieces {
		for _, r := range pieces[i].Ranges {
			settle(made.slot, int(made.places[k]), int(r.Size), s.homes)
			if err := s.copyRange(made.slot[made.places[k]:], r); err != nil {
				_ = made.block.Release() // the error tells more
				s.copies.release(int64(size))
				return nil, err
			}
			k++
		}
	}
	letGo(pieces) // whoever uses them at this moment finds them in the page cache
	return made, nil
}

// letGo gives the mapped pages of pieces back.
func letGo(pieces []stored.Piece) {
	for i := range pieces {
		for _, r := range pieces[i].Ranges {
			_ = r.Tensor.Advise(r.Begin, r.Size, loader.DontNeed) // only a hint
		}
	}
}

// copyRange copies mapped bytes.
func (s *Store) copyRange(to []byte, r stored.Range) error {
	data, err := r.Tensor.Bytes()
	if err != nil {
		return err
	}
	read := func() error { return reading(r.Tensor, func() { copy(to, data[r.Begin:r.Begin+r.Size]) }) }
	if s.sidecar.holds(r.Tensor) {
		return read()
	}
	return r.Tensor.File.ReadUnchanged(read)
}

// takeUp points parts to the promoted bytes and lets go what a pass has mapped again meanwhile.
func (m *promotion) takeUp(pieces []stored.Piece, part func(k int) *backend.Part) {
	at := 0
	for k := range pieces {
		inSlot(&pieces[k], part(k), m.slot, m.places[at:])
		at += len(pieces[k].Ranges)
	}
	letGo(pieces)
}
