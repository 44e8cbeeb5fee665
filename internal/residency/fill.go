package residency

import (
	"context"

	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/stored"
)

// A filler fills the memory of a segment's copy with its bytes, and sets the parts of the copy.
type filler func(context.Context, *segment, Priority, *copied) error

// copyInto is a filler that copies g from the mapping.
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

// copyRange copies the mapped bytes of r. It copies again if the file changes meanwhile.
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

// readInto is a filler that reads g with direct I/O, bypassing the page cache.
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

// A directRead is the source of a move that fills a segment for readInto.
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

// convertInto is a filler that converts g, or copies what a late sidecar has of it. It leaves
// pieces that are not converted in the mapping.
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

// apart returns the bytes that a range of a file takes in a slot if it is read directly and by
// itself.
func apart(off, size int64) int64 {
	return int64(hostmem.Up(int(off%blockSize+size), blockSize))
}
