package residency

import (
	"fmt"

	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/stored"
	"github.com/heftai/heft/meta"
)

// GPTQ and AWQ store a matrix as lines. Each line belongs to one input, or to several, and has
// all outputs. A band of outputs is a part of each line. It is read through scratch memory and
// assembled into a matrix of its own, in the same format, so that kernels can use it.

const (
	// stripeReads is the number of reads of a band that may be in flight, each with its own
	// scratch memory.
	stripeReads = 8
	// stripeRoom is the maximum scratch memory of a read.
	stripeRoom = 256 << 10
	// stripeAlign is the alignment of tensors in a band. stripeEnds is the maximum size of the
	// padding for it and for the scratch memory.
	stripeAlign = 64
	stripeEnds  = 4*stripeAlign + blockSize
)

// stripeScratch returns the size of the scratch memory of a band of the given size.
func stripeScratch(size int64) int64 {
	return stripeReads * min(stripeRoom, int64(hostmem.Up(int(size/(4*stripeReads)), blockSize))+2*blockSize)
}

// columnBandBytes is [BandBytes] of a matrix that is stored inputs first, in a format that can be
// split. It returns false for other matrices.
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

// cutColumns splits p into bands of about equally many outputs, each of at most size bytes
// including scratch memory.
func cutColumns(p *stored.Piece, size int64) []stored.Piece {
	outputs := p.Part.Dims[1]
	each := max(p.Size/int64(outputs), 1)
	room := size - stripeScratch(size) - stripeEnds
	for _, r := range p.Ranges[1:] {
		if len(r.Tensor.Shape) == 1 { // by input, shared by all bands
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

// newStripes lays out regions with lines in a slot, one after another, followed by the scratch
// memory of their reads.
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

// readStripe is [Store.readPiece] for part k of the lines of each region. It returns the number
// of bytes that were read, including those between the parts of short lines.
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
	room := int64(len(scratch)) - blockSize // of a read at any alignment
	for i := first; i < end; {
		n := int64(1)
		if 2*(line+2*blockSize) >= pitch && line < room { // reading each line by itself would read as much
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
