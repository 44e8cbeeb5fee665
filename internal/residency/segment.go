package residency

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/stored"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// A place says where the bytes of a segment are that operations read.
type place uint8

const (
	inFile   place = iota // nowhere yet
	mapped                // in the page cache, in the mapping of the file
	inMemory              // in memory of their own
	inSlot                // in a slot or the window, while in use
	coming                // being read into the window or memory
	leaving               // being written to the scratch file
	inBands               // in the window of bands, one band at a time
)

// A segment is the unit of movement: a parameter or one expert of a stack, in one format. Only
// the computing goroutine uses parts and place. Any goroutine may look up the pieces and make the
// copy.
type segment struct {
	path      string
	device    devicemap.Device
	param     *meta.Param // nil for an expert
	stack     *stack      // of an expert
	expert    int
	gathered  bool        // a table in the mapping of which single rows are read
	convert   bool        // some of its pieces are converted in memory
	shared    bool        // a gathered segment also uses the mapping
	plain     atomic.Bool // used as stored although convert is set, because not all weights fit
	displaced atomic.Bool // of the cpu tier, but streams because the budget has no room
	warm      bool        // gathered: the whole table was read or is being read; guarded by making

	found      atomic.Bool
	pieces     []stored.Piece // what fills it
	converted  []bool         // of pieces: whether it is converted in memory
	firstPiece []int          // of an expert: the index of each parameter's first piece, then the number of pieces

	parts []backend.Part // what operations read
	side  []stored.Piece // pieces that parts belong to, if they are in the late sidecar; otherwise nil
	place place
	on    *want // while it is coming or inBands

	copied   atomic.Pointer[copied] // in memory of its own
	making   sync.Mutex             // held while copied is made
	transfer atomic.Pointer[move]   // that reads it
}

// A copied is a complete segment in anonymous memory, with huge pages and each range aligned to
// 64 bytes. In a mapping the alignment depends on the file.
type copied struct {
	block *hostmem.Block
	parts []backend.Part
}

func (c *copied) bytes() int64 { return int64(len(c.block.Bytes())) }

// find looks up the pieces of g, once.
func (s *Store) find(g *segment) {
	if g.found.Load() {
		return
	}
	s.finding.Lock()
	defer s.finding.Unlock()
	if g.found.Load() {
		return
	}
	switch {
	case g.stack != nil:
		s.findExpert(g)
	case g.pieces == nil:
		for _, part := range s.binding.Tensors(g.param) {
			g.pieces, g.converted = append(g.pieces, stored.New(part)), append(g.converted, g.convert)
		}
	default: // of the side-car
		g.converted = make([]bool, len(g.pieces))
	}
	g.parts = partsOf(g.pieces)
	g.found.Store(true)
}

// findExpert is find for an expert. A model may have tens of thousands, so it allocates exactly.
func (s *Store) findExpert(g *segment) {
	params := g.stack.params
	g.firstPiece = make([]int, len(params)+1)
	lists := make([][]stored.Piece, len(params))
	for i, p := range params {
		lists[i] = s.expertPieces(p, g.expert)
		g.firstPiece[i+1] = g.firstPiece[i] + len(lists[i])
	}
	g.pieces, g.converted = slices.Concat(lists...), make([]bool, g.firstPiece[len(params)])
	for i, p := range params {
		for k := g.firstPiece[i]; k < g.firstPiece[i+1]; k++ {
			g.converted[k] = s.converts(p)
		}
	}
}

// converts reports whether some of g is converted in memory.
func (g *segment) converts() bool { return g.convert && !g.plain.Load() }

// convertsPiece reports whether piece k is converted in memory.
func (g *segment) convertsPiece(k int) bool { return g.converted[k] && !g.plain.Load() }

// partsOf returns the parts of pieces, without their bytes.
func partsOf(pieces []stored.Piece) []backend.Part {
	parts := make([]backend.Part, len(pieces))
	for i := range pieces {
		parts[i] = pieces[i].NewPart()
	}
	return parts
}

// size returns the bytes of g's pieces as they are in the file.
func (g *segment) size() (n int64) {
	for i := range g.pieces {
		n += g.pieces[i].Size
	}
	return n
}

// show sets the parts to the bytes of a copy.
func (g *segment) show(c *copied) {
	g.parts, g.side, g.place = c.parts, nil, inMemory
	g.unmap() // a pass may have mapped them again since the copy was made
}

// showMapped sets the parts to the file's mapping.
func (g *segment) showMapped() error {
	if g.side != nil {
		g.parts, g.side = partsOf(g.pieces), nil
	}
	for k := range g.pieces {
		if err := g.pieces[k].InPlace(&g.parts[k]); err != nil {
			return err
		}
	}
	g.place = mapped
	return nil
}

// showSlot sets the parts to the bytes of a slot. places are the offsets of the segment's ranges.
func (g *segment) showSlot(slot []byte, places []int64) {
	at, pieces := 0, g.shownPieces()
	for k := range pieces {
		setRanges(&g.parts[k], pieces[k].Ranges, slot, places[at:])
		at += len(pieces[k].Ranges)
	}
	g.place = inSlot
}

// shownPieces returns the pieces that g.parts belong to.
func (g *segment) shownPieces() []stored.Piece {
	if g.side != nil {
		return g.side
	}
	return g.pieces
}

// setRanges points part to its ranges in a slot.
func setRanges(part *backend.Part, ranges []stored.Range, slot []byte, places []int64) {
	for i, r := range ranges {
		stored.Set(part, i, slot[places[i]:places[i]+r.Size])
	}
}

// advise tells the operating system how the mapping of g will be used.
func (g *segment) advise(a loader.Advice) {
	for k := range g.pieces {
		for _, r := range g.pieces[k].Ranges {
			_ = r.Tensor.Advise(r.Begin, r.Size, a) // only a hint
		}
	}
}

// drop frees the copy, which must not be in use, and returns its size.
func (g *segment) drop() int64 {
	c := g.copied.Swap(nil)
	if c == nil {
		return 0
	}
	if g.place == inMemory {
		g.parts, g.place = partsOf(g.pieces), inFile
	}
	n := c.bytes()
	_ = c.block.Release() // released nowhere else
	return n
}

// unmap unmaps the bytes of g in its files and removes them from the page cache.
func (g *segment) unmap() {
	if g.shared {
		return
	}
	for k := range g.pieces {
		if g.convertsPiece(k) == g.converts() { // others stay in the mapping
			evict(&g.pieces[k])
		}
	}
}

func evict(p *stored.Piece) {
	for _, r := range p.Ranges {
		r.Tensor.File.Evict(r.Tensor.Offset+r.Begin, r.Size)
	}
}

// use makes g, which does not stream, usable by the pass.
func (s *Store) use(g *segment) error {
	if g.place == inMemory {
		s.counts.use(true)
		return nil
	}
	c := g.copied.Load()
	s.counts.use(c != nil)
	if c == nil && g.place != mapped {
		since := time.Now()
		var err error
		if c, err = s.load(context.Background(), g, Demand); err != nil {
			return err
		}
		s.counts.stall(time.Since(since))
		if c == nil && g.displaced.Load() {
			return errDisplaced
		}
	}
	switch {
	case c != nil:
		g.show(c)
	case g.place != mapped:
		return g.showMapped()
	}
	return nil
}

// useCounted is use for a segment that the pass reads as a whole. It counts the size afterwards,
// because another goroutine may still be looking up the pieces before.
func (s *Store) useCounted(g *segment) error {
	err := s.use(g)
	if err == nil {
		s.counts.read += g.size()
	}
	return err
}
