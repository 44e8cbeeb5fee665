package residency

import (
	"fmt"

	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/stored"
	"github.com/heftai/heft/meta"
)

// GPTQ and AWQ store a matrix as lines, one for each input or some of them, that have all outputs. A band of
// outputs is a part of each line. It is read through scratch memory and put together as a matrix of its own, so
// that kernels see the format that they know.

const (
	// stripeReads is the number of reads of a band that may be under way, each through its own scratch memory.
	stripeReads = 8
	// stripeRoom is the largest scratch memory of a read.
	stripeRoom = 256 << 10
	// stripeAlign is the alignment of tensors in a band, stripeEnds what that and the scratch memory's take at most.
	stripeAlign = 64
	stripeEnds  = 4*stripeAlign + blockSize
)

// stripeScratch is the scratch memory of a band of so many bytes.
func stripeScratch(size int64) int64 {
	return stripeReads * min(stripeRoom, int64(hostmem.Up(int(size/(4*stripeReads)), blockSize))+2*blockSize)
}

// columnBandBytes is [BandBytes] of a matrix whose sources are all stored with inputs first in a format that can
// be cut. It reports false for others.
func columnBandBytes(p *meta.Param, most int64) (int64, bool) {
	if len(p.Shape) != 2 || len(p.Sources) == 0 {
		return 0, false
	}
	var index int64
	for _, s := range p.Sources {
		if s.Quant == nil || s.Quant.Format.Row().Layout != meta.InputsFirst || !s.Transposed {
			return 0, false
		}
		if s.Quant.Index != "" {
			index = meta.Int32.Bytes(int64(p.Shape[1]))
		}
	}
	size := p.Bytes()
	fewest := size/int64(p.Shape[0])*stored.ColumnUnit + index
	least := fewest + stripeScratch(max(fewest, most)) + stripeEnds
	if most = max(least, most); 2*most > size {
		return 0, false // two bands are as large as the matrix
	}
	return most, true
}

// cutColumns cuts p into bands of about equally many outputs, of at most size bytes with their scratch memory.
func cutColumns(p *stored.Piece, size int64) []stored.Piece {
	outputs := p.Part.Dims[1]
	each := max(p.Size/int64(outputs), 1)
	room := size - stripeScratch(size) - stripeEnds
	for _, r := range p.Ranges[1:] {
		if len(r.Tensor.Shape) == 1 { // of inputs, which all bands have
			room -= r.Size
		}
	}
	most := max(int(room/each)/stored.ColumnUnit, 1)
	units := (outputs + stored.ColumnUnit - 1) / stored.ColumnUnit
	count := (units + most - 1) / most
	width := (units + count - 1) / count * stored.ColumnUnit
	var out []stored.Piece
	for begin := 0; begin < outputs; begin += width {
		piece, ok := p.Columns(begin, min(begin+width, outputs))
		if !ok {
			return []stored.Piece{*p}
		}
		out = append(out, piece)
	}
	return out
}

// newStripes lays out regions of lines in a slot, one behind the other, with the scratch memory of their reads
// behind them.
func newStripes(regions []region) *load {
	l := &load{stripes: stripeReads}
	for _, r := range regions {
		l.places = append(l.places, l.slot)
		l.extents = append(l.extents, extent{r, l.slot})
		l.slot = int64(hostmem.Up(int(l.slot+r.size), stripeAlign))
		l.read += r.size
	}
	l.scratch = int64(hostmem.Up(int(l.slot), blockSize))
	l.room = stripeScratch(l.read) / stripeReads
	l.slot = l.scratch + l.room*stripeReads
	return l
}

// readStripe is [Store.readPiece] for part k of the lines of each region. It returns the bytes that were read,
// those between the parts of short lines included.
func (s *Store) readStripe(l *load, k int, slot []byte) (total int64, err error) {
	scratch := slot[l.scratch+int64(k)*l.room:][:l.room]
	for i := range l.extents {
		e := &l.extents[i]
		for {
			epoch := e.tensor.File.Epoch()
			n, err := e.fillLines(k, slot, scratch, s.opener)
			if err != nil {
				return 0, err
			}
			if s.side().holds(e.tensor) {
				total += n
				break
			}
			if err := e.tensor.File.Unchanged(); err != nil {
				return 0, err
			}
			if e.tensor.File.Epoch() == epoch {
				total += n
				break
			}
		}
	}
	return total, nil
}

// fillLines reads part k of the lines of e into slot.
func (e *extent) fillLines(k int, slot, scratch []byte, open func(e *extent) (*hostmem.DirectFile, error)) (total int64, err error) {
	lines, pitch := int64(max(e.lines, 1)), e.pitch
	line := e.size / lines
	first, end := lines*int64(k)/stripeReads, lines*int64(k+1)/stripeReads
	if first == end {
		return 0, nil
	}
	if e.path == "" {
		for i := first; i < end; i++ {
			if _, err := e.tensor.ReadAt(slot[e.at+i*line:][:line], e.off+i*pitch); err != nil {
				return 0, err
			}
		}
		return (end - first) * line, nil
	}
	f, err := open(e)
	if err != nil {
		return 0, err
	}
	room := int64(len(scratch)) - blockSize // of a read, wherever it begins
	for i := first; i < end; {
		n := int64(1)
		if 2*(line+2*blockSize) >= pitch && line < room { // a read of each would bring as much
			n = min(end-i, (room-line)/max(pitch, 1)+1)
		}
		span := (n-1)*pitch + line
		for at := int64(0); at < span; at += room {
			part := min(span-at, room)
			data, err := f.ReadAt(scratch, e.off+i*pitch+at, part)
			if err != nil {
				return 0, fmt.Errorf("%s at byte %d: %w", e.tensor.Name, e.off+i*pitch+at, err)
			}
			if n == 1 {
				copy(slot[e.at+i*line+at:], data)
			}
			for j := int64(0); n > 1 && j < n; j++ { // the span is a single read
				copy(slot[e.at+(i+j)*line:][:line], data[j*pitch:])
			}
		}
		total, i = total+span, i+n
	}
	return total, nil
}
