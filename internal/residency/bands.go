package residency

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/stored"
	"github.com/heftai/heft/meta"
)

// bands are the matrices of the disk tier that stream in bands of rows, so that they are never in
// memory as a whole. Their stream has one unit per band.
type bands struct {
	sizes       map[*meta.Param]int64 // see Options.Bands
	rowGroups   map[*meta.Param]backend.RowGroups
	list        []band // in the order of use
	loads       [][]*load
	stream      *stream // nil if no matrix streams in bands
	window      *hostmem.Block
	open        int              // the band that operations may read, or -1
	plainBlocks []*hostmem.Block // memory of the open band's parts; see plainParts
}

// A band is a range of rows of a matrix, or all of a part that cannot be split.
type band struct {
	piece [1]stored.Piece
	parts [1]backend.Part
	path  string
}

// A bandRange is the range of a matrix's bands.
type bandRange struct{ first, count int }

// BandBytes returns the size of the largest band of p, if bands take at most most bytes or the
// minimum number of rows that can be separated. converted is the size of p if it is converted
// when it is loaded, otherwise 0. Bands of outputs of GPTQ and AWQ matrices take at most columns
// bytes; with 0 these matrices are not split.
func BandBytes(p *meta.Param, converted, most, columns int64) int64 {
	if columns > 0 && converted == 0 {
		if n, ok := columnBandBytes(p, columns); ok {
			return n
		}
	}
	size, unit := p.Bytes(), stored.RowUnit(nil)
	for _, s := range p.Sources {
		if s.Transposed || s.Quant != nil && s.Quant.Format.Row().Layout == meta.InputsFirst {
			return size
		}
		if s.Quant != nil {
			unit = max(unit, stored.RowUnit(s.Quant))
		}
	}
	least := size / int64(p.Shape[0]) * int64(unit) // also for a converted matrix, which may have to stream as stored
	if converted > 0 {
		size = converted
	}
	return min(size, max(least, most))
}

// addBands adds the bands of u's matrices, in the order in which u reads them.
func (s *Store) addBands(u *unit, list []*want) {
	if len(list) == 0 {
		return
	}
	order := map[*meta.Param]int{}
	for i, p := range u.Banded {
		order[p.Resolve()] = i
	}
	slices.SortStableFunc(list, func(a, b *want) int { return cmp.Compare(order[a.holder.param], order[b.holder.param]) })
	for _, w := range list {
		s.addBandsOf(u, w, s.bandBytes(w))
	}
}

// bandBytes returns the size of the largest band of w, or 0 if w streams as a whole.
func (s *Store) bandBytes(w *want) int64 {
	if w.holder == nil {
		return 0
	}
	return s.bands.sizes[w.holder.param]
}

// addBandsOf adds the bands of w, of at most size bytes each, for unit u.
func (s *Store) addBandsOf(u *unit, w *want, size int64) {
	b := &s.bands
	w.bands.first = len(b.list)
	from := w.streamPieces()
	for i := range from {
		for _, piece := range s.cut(w, s.side().streamed(&from[i]), size) {
			regions := addRegions(nil, &piece)
			l := bandLoad(regions)
			l.slot = max(l.slot, blockSize)
			l.jobs, l.unit = s.loadJobs(regions), u.activity
			b.loads = append(b.loads, []*load{l})
			b.list = append(b.list, band{piece: [1]stored.Piece{piece}, parts: [1]backend.Part{piece.NewPart()}, path: w.path})
		}
	}
	w.bands.count = len(b.list) - w.bands.first
}

// cut splits piece p of w into bands. If passes use the halves of each group of rows separately,
// all bands of the first halves precede those of the second.
func (s *Store) cut(w *want, p *stored.Piece, size int64) []stored.Piece {
	if h, ok := s.bands.rowGroups[w.holder.param]; ok {
		if group := s.rowGroup(p); h.First%group != 0 || h.Size%group != 0 {
			return []stored.Piece{*p} // a checksum covers more rows
		}
		return cutHalves(p, h, size)
	}
	return s.cutBands(p, size)
}

// cutHalves splits the halves of p into bands of whole groups, each of at most size bytes
// including scratch memory.
func cutHalves(p *stored.Piece, h backend.RowGroups, size int64) (out []stored.Piece) {
	row := p.Size / int64(max(p.Part.Dims[0], 1))
	groups := p.Part.Dims[0] / h.Size
	for _, second := range []bool{false, true} {
		_, count := h.Rows(second)
		most := max(1, int((size-stripeScratch(size)-stripeEnds)/max(int64(count)*row, 1)))
		for begin := 0; begin < groups; begin += most {
			piece, ok := p.Half(h, second, begin, min(begin+most, groups))
			if !ok {
				return []stored.Piece{*p}
			}
			out = append(out, piece)
		}
	}
	return out
}

// rowGroup returns the number of rows that share a checksum if p is in a sidecar, otherwise 1.
func (s *Store) rowGroup(p *stored.Piece) int {
	if s.side().holds(p.Ranges[0].Tensor) {
		return s.quantizer.RowGroup()
	}
	return 1
}

// HalfBandBytes is [BandBytes] for the halves of p. It returns 0 if the halves cannot be
// separated, or if two bands are as large as p.
func HalfBandBytes(p *meta.Param, h backend.RowGroups, converted, most int64) int64 {
	size := p.Bytes()
	if !stored.CanHalve(p, h) || h.First < 1 || h.First >= h.Size || p.Shape[0]%h.Size != 0 {
		return 0
	}
	fewest := size / int64(p.Shape[0]) * int64(max(h.First, h.Size-h.First)) // also for a converted one, see BandBytes
	if converted > 0 {
		if size = converted; !stored.CanHalveTiles(h) {
			return 0
		}
	}
	most = max(min(most, size/8), fewest)
	most += stripeScratch(most) + stripeEnds
	if 2*most > size {
		return 0
	}
	return most
}

// bandLoad returns the load of a band.
func bandLoad(regions []region) *load {
	if regions[0].lines > 0 {
		return newStripes(regions)
	}
	return newLoad(regions, false)
}

// cutBands splits p into bands of about equal height, each of at most size bytes or of the
// minimum number of rows that can be separated. It does not split pieces that share scales.
func (s *Store) cutBands(p *stored.Piece, size int64) []stored.Piece {
	rows := p.Part.Dims[0]
	if p.Size <= size || rows == 0 {
		return []stored.Piece{*p}
	}
	if p.InColumns() {
		return cutColumns(p, size)
	}
	unit := 0
	if unit = stored.RowUnit(nil); p.Part.Quant != nil {
		unit = stored.RowUnit(p.Part.Quant.Quant)
	}
	if unit%s.rowGroup(p) != 0 {
		return []stored.Piece{*p} // a checksum covers more rows
	}
	height := max(unit, int(size*int64(rows)/p.Size)/unit*unit)
	var out []stored.Piece
	for begin := 0; begin < rows; begin += height {
		piece, ok := p.Rows(begin, min(begin+height, rows))
		if !ok {
			return []stored.Piece{*p}
		}
		out = append(out, piece)
	}
	return out
}

// band waits for band k and ends the use of the previous band.
func (s *Store) band(k int) []backend.Part {
	s.endBand()
	b := &s.bands
	err := b.stream.begin(k)
	if err == nil {
		var window []byte
		if window, err = b.stream.hold(k); err == nil {
			b.open = k
			at := &b.list[k]
			setRanges(&at.parts[0], at.piece[0].Ranges, window, b.stream.groups[k].places)
			return s.plainParts(at.piece[:], at.parts[:], &b.plainBlocks)
		}
		b.stream.release(k)
	}
	s.failed = fmt.Errorf("residency: %s: %w", b.list[k].path, err)
	return nil
}

// endBand ends the use of a band and starts to read others into its memory.
func (s *Store) endBand() {
	freeBlocks(&s.bands.plainBlocks)
	if s.bands.open >= 0 {
		s.bands.stream.release(s.bands.open)
		s.bands.open = -1
	}
}

// Banded reports whether p streams in bands; see nn.BandedWeights.
func (s *Store) Banded(p *meta.Param) bool {
	h := s.holders[p]
	return h != nil && h.shown != nil && h.shown.place == inBands
}

// NextBand waits for the band of p after the one that Parts or NextBand returned last, whose use
// it ends. It returns nil after the last band, and if a read fails; Err then returns the error.
func (s *Store) NextBand(p *meta.Param) []backend.Part {
	r, next := s.holders[p].shown.on.bands, s.bands.open+1
	if s.bands.open < r.first || next >= r.first+r.count {
		s.failed = nil
		return nil
	}
	return s.band(next)
}
