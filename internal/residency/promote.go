package residency

import (
	"context"
	"fmt"
	"sync"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/stored"
	"github.com/heftai/heft/loader"
)

// A promotion is a copy of pieces in anonymous memory, with huge pages and every range on a 64-byte
// boundary; in a mapping, alignment depends on the file. The promoter makes it once in the
// background, and the computing goroutine switches to it between two uses.
type promotion struct {
	slot   []byte
	places []int64 // of each range in it
}

// promoter is the state of Promote.
type promoter struct {
	mu     sync.Mutex
	cancel context.CancelFunc
	done   chan struct{}
	all    bool // everything was promoted
	err    error
	blocks []*hostmem.Block
}

// Promote copies the weights of the cpu tier, in the order of use and in the background,
// from the checkpoint's mapping to memory of our own, where they are read faster, and lets
// the mapped pages go as it goes on, whether a pass computes or not: beside the cpu tier's
// bytes it takes those of one parameter. Results stay bitwise the same. What is to be converted is converted, unless Warm has done it. It returns at once
// and begins when Warm is done, where that was called before. Call it once.
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
		err := s.promoteAll(ctx)
		p.mu.Lock()
		p.all, p.err = err == nil, err
		p.mu.Unlock()
	}()
}

// Promoted reports whether Promote has come to its end, and the error that stopped it;
// what was not promoted is used in place.
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
	for _, b := range p.blocks {
		_ = b.Release() // released nowhere else
	}
	p.blocks = nil
}

func (s *Store) promoteAll(ctx context.Context) error {
	seen := map[*entry]bool{}
	var moved []stored.Piece
	defer func() { // once more, see quantizer.letGo
		letGo(moved)
		s.quantizer.letGo()
	}()
	for i := range s.units {
		u := &s.units[i]
		for _, w := range u.wants {
			// Of a table only rows are read: they are as well where they are.
			if w.device != devicemap.CPU || w.gather || seen[w.entry] {
				continue
			}
			seen[w.entry] = true
			if w.convert {
				if _, err := s.convertEntry(ctx, w.entry); err != nil {
					return err
				}
				continue
			}
			if err := s.makePieces(ctx, w.pieces); err != nil {
				return err
			}
			made, err := s.promote(ctx, w.pieces)
			if err != nil {
				return fmt.Errorf("residency: promoting %s: %w", w.path, err)
			}
			w.promoted.Store(made)
			if made != nil {
				moved = append(moved, w.pieces...)
			}
		}
		for _, n := range u.Experts {
			if err := s.promoteExperts(ctx, s.stacks[n.Module]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Store) promoteExperts(ctx context.Context, st *stack) error {
	for e := range st.experts {
		if st.experts[e].device != devicemap.CPU {
			continue
		}
		if st.convert {
			if _, err := s.convertExpert(ctx, st, e); err != nil {
				return err
			}
			continue
		}
		var pieces []stored.Piece // looked up anew: the expert's own belong to another goroutine
		for _, p := range st.params {
			pieces = append(pieces, s.expertPieces(p, e)...)
		}
		if err := s.makePieces(ctx, pieces); err != nil {
			return err
		}
		made, err := s.promote(ctx, pieces)
		if err != nil {
			return fmt.Errorf("residency: promoting %s: %w", expertKey(st.Path, e), err)
		}
		st.experts[e].promoted.Store(made)
	}
	return nil
}

// promote copies pieces. Bytes that lie in memory already are left where they are: nil.
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
	block, err := hostmem.Alloc(s.ledger, hostmem.Weights, max(size, 1))
	if err != nil {
		return nil, err
	}
	s.promoter.blocks = append(s.promoter.blocks, block)
	made.slot = block.Bytes()
	k := 0
	for i := range pieces {
		for _, r := range pieces[i].Ranges {
			settle(made.slot, int(made.places[k]), int(r.Size), s.homes)
			if err := s.copyRange(made.slot[made.places[k]:], r); err != nil {
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
