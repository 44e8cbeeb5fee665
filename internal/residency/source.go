package residency

import (
	"context"
	"errors"
	"fmt"

	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/loader"
)

// smallSegment is the size below which load always maps a segment, because memory of its own
// would waste the rest of a page. Promote moves it later.
const smallSegment = 256 << 10

// load prepares g for its first use. It returns g's copy in memory: converted, or read directly
// if the page cache does not hold its bytes. It returns nil if g is used in the mapping. If
// several goroutines load one segment, one of them does the work, and the others wait; a load
// with Demand raises its priority.
func (s *Store) load(ctx context.Context, g *segment, p Priority) (*copied, error) {
	if v := g.transfer.Load(); v != nil {
		s.mover.raise(v, p)
	}
	g.making.Lock()
	defer g.making.Unlock()
	if c := g.copied.Load(); c != nil {
		return c, nil
	}
	s.find(g)
	c, err := s.loadSegment(ctx, g, p)
	if s.usePlain(g, err) {
		c, err = s.loadSegment(ctx, g, p)
	}
	return c, err
}

// loadSegment is load for a caller that holds making.
func (s *Store) loadSegment(ctx context.Context, g *segment, p Priority) (*copied, error) {
	var fill filler
	switch {
	case g.converts() && s.quantizer.exact() && p == Demand && g.cached():
		return nil, nil // used as stored until the background has coded it: results are the same
	case g.converts():
		fill = s.convertInto
	default:
		if err := s.ensurePieces(ctx, g.pieces); err != nil {
			return nil, err
		}
		if g.gathered {
			g.readRows()
			return nil, nil
		}
		if g.cached() {
			if g.size() < smallSegment {
				g.advise(loader.WillNeed) // a page fault might read megabytes ahead
			}
			return nil, nil
		}
		fill = s.readInto
	}
	c, err := s.makeCopy(ctx, g, p, fill)
	if !errors.Is(err, errNoRoom) {
		return c, err
	}
	s.displaceUncopied(g)
	if s.mustConvert(g, p) && !g.displaced.Load() { // it can no longer stream
		return s.makeCopyForced(ctx, g, p, true, fill)
	}
	return nil, nil // mapped or streamed until a load with Demand converts it
}

// promote copies g from the mapping to memory, unless it has a copy. It returns errNoRoom if the
// budget has no room.
func (s *Store) promote(ctx context.Context, g *segment) error {
	g.making.Lock()
	defer g.making.Unlock()
	if g.copied.Load() != nil {
		return nil
	}
	s.find(g)
	err := s.promoteSegment(ctx, g)
	if s.usePlain(g, err) {
		err = s.promoteSegment(ctx, g)
	}
	return err
}

// promoteSegment is promote for a caller that holds making.
func (s *Store) promoteSegment(ctx context.Context, g *segment) error {
	var fill filler = s.convertInto
	if !g.converts() {
		if g.inProcess() {
			return nil // a copy would not be faster
		}
		if err := s.ensurePieces(ctx, g.pieces); err != nil {
			return err
		}
		if fill = s.copyInto; !g.cached() {
			fill = s.readInto
		}
	}
	_, err := s.makeCopy(ctx, g, Background, fill)
	return err
}

// readRows prepares the mapping of a table for lookups of single rows: the system does not read
// adjacent rows ahead, unless readWhole was called. The caller holds making.
func (g *segment) readRows() {
	if !g.warm {
		g.advise(loader.Random)
	}
}

// readWhole prepares the mapping of a table to be read as a whole.
func (g *segment) readWhole() {
	g.making.Lock()
	defer g.making.Unlock()
	if !g.warm {
		g.warm = true
		g.advise(loader.Sequential)
	}
}

// inProcess reports whether g's checkpoint is bytes in memory rather than a file.
func (g *segment) inProcess() bool {
	path := ""
	if len(g.pieces) > 0 {
		path, _, _ = g.pieces[0].Ranges[0].Tensor.Location()
	}
	return path == ""
}

// cached reports whether the page cache holds at least nine tenths of g. It returns true for
// small segments, and if the system does not tell.
func (g *segment) cached() bool {
	size, resident := g.size(), int64(0)
	if size < smallSegment || g.inProcess() {
		return true
	}
	for k := range g.pieces {
		for _, r := range g.pieces[k].Ranges {
			n, err := r.Tensor.File.Resident(r.Tensor.Offset+r.Begin, r.Size)
			if err != nil {
				return true
			}
			resident += n
		}
	}
	return resident >= size-size/10
}

// mustConvert reports whether a pass waits for g's conversion, because stored weights give other
// results.
func (s *Store) mustConvert(g *segment, p Priority) bool {
	return g.converts() && p == Demand && !s.quantizer.exact()
}

// makeCopy reserves memory for a copy of g, fills it, and publishes it. If g must be converted
// and cannot stream, a pass needs the copy and makeCopy may exceed the budget. Otherwise it
// returns errNoRoom if the budget has no room.
func (s *Store) makeCopy(ctx context.Context, g *segment, p Priority, fill filler) (*copied, error) {
	return s.makeCopyForced(ctx, g, p, s.mustConvert(g, p) && !s.canStream(g), fill)
}

// makeCopyForced is makeCopy that may exceed the budget if force is set.
func (s *Store) makeCopyForced(ctx context.Context, g *segment, p Priority, force bool, fill filler) (*copied, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	size, err := s.copySize(g)
	if err != nil {
		return nil, fmt.Errorf("residency: %s: %w", g.path, err)
	}
	if !s.reserve(size, force) {
		return nil, errNoRoom
	}
	c := &copied{parts: partsOf(g.pieces)}
	if c.block, err = s.arena.Alloc(hostmem.Weights, int(size)); err == nil {
		if err = fill(ctx, g, p, c); err != nil {
			_ = c.block.Release() // err is the one to report
		}
	}
	if err != nil {
		s.copies.release(size)
		return nil, fmt.Errorf("residency: %s: %w", g.path, err)
	}
	if err := s.publish(g, c, force); err != nil {
		return nil, err
	}
	g.unmap()                                // a pass that uses the mapping now reads it again
	if !force && s.policy.excess(s, 0) > 0 { // the limit has fallen meanwhile
		s.policy.trim()
	}
	return c, nil
}

// copySize returns the size of a copy of g, in whole pages.
func (s *Store) copySize(g *segment) (int64, error) {
	size := 0
	for k := range g.pieces {
		if g.convertsPiece(k) {
			_, n, err := s.quantizer.converted(&g.pieces[k])
			if err != nil {
				return 0, err
			}
			size += hostmem.Up(int(n), hostmem.Align)
			continue
		}
		if g.converts() {
			continue // used in the mapping
		}
		for _, r := range g.pieces[k].Ranges {
			size += int(apart(r.Tensor.Offset+r.Begin, r.Size))
		}
	}
	return int64(hostmem.Up(max(size, 1), blockSize)), nil
}
