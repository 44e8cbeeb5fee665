package residency

import (
	"context"
	"errors"
	"fmt"

	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/stored"
	"github.com/heftai/heft/loader"
)

// smallSegment is the size below which a segment is always mapped first: memory of its own would waste
// the rest of a page, and promotion moves it later.
const smallSegment = 256 << 10

// load makes what g needs before its first use, and returns its copy in memory: a converted one, or
// one that is read directly if the page cache does not hold its bytes. It returns nil if the mapping
// is to be used. Of goroutines that load the same segment one does; Demand raises its priority.
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
	if s.leavePlain(g, err) {
		c, err = s.loadSegment(ctx, g, p)
	}
	return c, err
}

// loadSegment is load while making is held.
func (s *Store) loadSegment(ctx context.Context, g *segment, p Priority) (*copied, error) {
	var fill func(context.Context, *segment, Priority, *copied) error
	switch {
	case g.converts() && s.quantizer.exact() && p == Demand && g.cached():
		return nil, nil // mapped until the background has coded it: the answer is the same
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
				g.advise(loader.WillNeed) // or a fault would read what the system reads ahead, megabytes perhaps
			}
			return nil, nil
		}
		fill = s.readInto
	}
	c, err := s.copyBy(ctx, g, p, fill)
	if !errors.Is(err, errNoRoom) {
		return c, err
	}
	s.displaceUncopied(g)
	if s.mustConvert(g, p) && !g.displaced.Load() { // it cannot stream any more
		return s.copyWith(ctx, g, p, true, fill)
	}
	return nil, nil // mapped or streamed for now, or converted before its use
}

// promote copies g from the mapping to memory, unless memory has it. It fails with errNoRoom if the
// budget has no room.
func (s *Store) promote(ctx context.Context, g *segment) error {
	g.making.Lock()
	defer g.making.Unlock()
	if g.copied.Load() != nil {
		return nil
	}
	s.find(g)
	err := s.promoteSegment(ctx, g)
	if s.leavePlain(g, err) {
		err = s.promoteSegment(ctx, g)
	}
	return err
}

// promoteSegment is promote while making is held.
func (s *Store) promoteSegment(ctx context.Context, g *segment) error {
	fill := s.convertInto
	if !g.converts() {
		if g.inProcess() {
			return nil // as well where they are
		}
		if err := s.ensurePieces(ctx, g.pieces); err != nil {
			return err
		}
		if fill = s.copyInto; !g.cached() {
			fill = s.readInto
		}
	}
	_, err := s.copyBy(ctx, g, Background, fill)
	return err
}

// readRows prepares the mapping of a table for lookups: a lookup reads a few rows, and not their neighbours,
// until the table is read as a whole. The caller holds making.
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

// inProcess reports whether g's checkpoint is in memory.
func (g *segment) inProcess() bool {
	path := ""
	if len(g.pieces) > 0 {
		path, _, _ = g.pieces[0].Ranges[0].Tensor.Location()
	}
	return path == ""
}

// cached reports whether the page cache holds nine tenths of g or more, or the system does not say.
func (g *segment) cached() bool {
	size, there := g.size(), int64(0)
	if size < smallSegment || g.inProcess() {
		return true
	}
	for k := range g.pieces {
		for _, r := range g.pieces[k].Ranges {
			n, err := r.Tensor.File.Resident(r.Tensor.Offset+r.Begin, r.Size)
			if err != nil {
				return true
			}
			there += n
		}
	}
	return there >= size-size/10
}

// mustConvert reports whether a pass needs g converted: it is not used in another form.
func (s *Store) mustConvert(g *segment, p Priority) bool {
	return g.converts() && p == Demand && !s.quantizer.exact()
}

// copyBy reserves memory for a copy of g, fills it, and publishes it. If a pass needs the copy, because g cannot
// stream, it exceeds the budget.
func (s *Store) copyBy(ctx context.Context, g *segment, p Priority, fill func(context.Context, *segment, Priority, *copied) error) (*copied, error) {
	return s.copyWith(ctx, g, p, s.mustConvert(g, p) && !s.canStream(g), fill)
}

func (s *Store) copyWith(ctx context.Context, g *segment, p Priority, force bool, fill func(context.Context, *segment, Priority, *copied) error) (*copied, error) {
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
			_ = c.block.Release() // the error tells more
		}
	}
	if err != nil {
		s.copies.release(size)
		return nil, fmt.Errorf("residency: %s: %w", g.path, err)
	}
	if err := s.publish(g, c, force); err != nil {
		return nil, err
	}
	g.unmap()                                // a pass that uses the mapping at this moment reads it again
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
			continue // stays in the mapping
		}
		for _, r := range g.pieces[k].Ranges {
			size += int(apart(r.Tensor.Offset+r.Begin, r.Size))
		}
	}
	return int64(hostmem.Up(max(size, 1), blockSize)), nil
}

// apart returns the room in a slot for a range of a file that is read directly and by itself.
func apart(off, size int64) int64 {
	return int64(hostmem.Up(int(off%blockSize+size), blockSize))
}

// copyInto copies g from the mapping.
func (s *Store) copyInto(_ context.Context, g *segment, _ Priority, c *copied) error {
	slot, at := c.block.Bytes(), 0
	for k := range g.pieces {
		for i, r := range g.pieces[k].Ranges {
			settle(slot, at, int(r.Size), s.homes)
			if err := s.copyRange(slot[at:], r); err != nil {
				return err
			}
			stored.Set(&c.parts[k], i, slot[at:at+int(r.Size)])
			at += int(apart(r.Tensor.Offset+r.Begin, r.Size))
		}
	}
	return nil
}

// copyRange copies mapped bytes.
func (s *Store) copyRange(to []byte, r stored.Range) error {
	data, err := r.Tensor.Bytes()
	if err != nil {
		return err
	}
	read := func() error { return reading(r.Tensor, func() { copy(to, data[r.Begin:r.Begin+r.Size]) }) }
	if s.side().holds(r.Tensor) {
		return read()
	}
	return r.Tensor.File.ReadUnchanged(read)
}

// readInto reads g directly.
func (s *Store) readInto(ctx context.Context, g *segment, p Priority, c *copied) error {
	var regions []region
	for k := range g.pieces {
		regions = addRegions(regions, &g.pieces[k])
	}
	l := newLoad(regions, true)
	l.jobs = s.loadJobs(regions)
	_, request := s.mover.Depth()
	l.cut(request)
	slot := c.block.Bytes()
	for i := range l.extents {
		settle(slot, int(l.extents[i].at), int(l.extents[i].size), s.homes)
	}
	d := &directRead{store: s, load: l, slot: slot, ended: make(chan error, 1)}
	d.transfer = move{source: d, pieces: len(l.pieces), done: func(err error) { d.ended <- err }}
	g.transfer.Store(&d.transfer)
	defer g.transfer.Store(nil)
	s.mover.submit(&d.transfer, p)
	stop := context.AfterFunc(ctx, func() { s.mover.cancel(&d.transfer, ctx.Err()) })
	err := <-d.ended
	stop()
	if err == nil {
		err = s.finish(l, slot)
	}
	if err != nil {
		return err
	}
	l.align(slot)
	at := 0
	for k := range g.pieces {
		setRanges(&c.parts[k], g.pieces[k].Ranges, slot, l.places[at:])
		at += len(g.pieces[k].Ranges)
	}
	return nil
}

// A directRead is the source of a segment that is read past the page cache.
type directRead struct {
	store    *Store
	load     *load
	slot     []byte
	ended    chan error
	transfer move
}

func (d *directRead) prepare() error { return d.store.prepare(d.load) }

func (d *directRead) read(piece int) error {
	_, err := d.store.readPiece(d.load, piece, d.slot)
	return err
}

// convertInto converts g, or copies what a late sidecar has of it. Pieces that are not converted stay in the mapping.
func (s *Store) convertInto(ctx context.Context, g *segment, _ Priority, c *copied) error {
	side, err := s.keepConverted(ctx, g)
	if err != nil {
		return err
	}
	s.quantizer.mu.Lock()
	defer s.quantizer.mu.Unlock()
	slot, at := c.block.Bytes(), 0
	for k := range g.pieces {
		if !g.convertsPiece(k) {
			if err := g.pieces[k].InPlace(&c.parts[k]); err != nil {
				return err
			}
			continue
		}
		part, size, err := s.quantizer.converted(&g.pieces[k])
		if err != nil {
			return err
		}
		n := int(size)
		settle(slot, at, n, s.homes)
		if !s.copyKept(slot[at:at+n], side, k) {
			if err := s.quantizer.convert(ctx, slot[at:at+n], g.pieces[k].Ranges[0], &g.pieces[k].Part); err != nil {
				return err
			}
		}
		stored.SetConverted(&part, slot[at:at+n])
		c.parts[k] = part
		at += hostmem.Up(n, hostmem.Align)
	}
	return nil
}

// populate brings the pages of g's mapping into memory.
func (s *Store) populate(ctx context.Context, g *segment) error {
	if g.gathered {
		g.readWhole()
	}
	for k := range g.pieces {
		for _, r := range g.pieces[k].Ranges {
			for off := int64(0); off < r.Size; off += warmStep {
				if err := ctx.Err(); err != nil {
					return err
				}
				n := min(warmStep, r.Size-off)
				if r.Tensor.Advise(r.Begin+off, n, loader.Populate) == nil {
					continue
				}
				_ = r.Tensor.Advise(r.Begin+off, n, loader.WillNeed) // only a hint
				if err := touchPages(r.Tensor, r.Begin+off, n); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
