package kernels

import "math"

// packer is what a variant that rounds implements for packs of quantised weights. Bounds have been
// checked. Each block of a pack is 16 rows of 32 columns; missing rows are zeros already.
type packer interface {
	// packBands packs whole blocks of a band of 16 rows.
	packBands(p Packing, dst []uint32, band []byte, blocks int)
	// packE4M3 packs rows which begin stride bytes apart. Row i has scale j of its blocks, times 2^8, at
	// i·packBlocks + j.
	packE4M3(dst []uint32, codes []byte, stride int, scales *[PackRows * packBlocks]float32, rows, blocks int)
	// packMXFP4 packs rows whose codes and scales begin stride and apart bytes apart.
	packMXFP4(dst []uint32, codes []byte, stride int, scales []byte, apart, rows, blocks int)
	// packNibbles packs 16 columns, with one scale and zero each, of stored rows whose words begin stride
	// bytes apart: those of 8 rows of NibbleRows, else of one.
	packNibbles(p Packing, dst []uint32, words []byte, stride int, scale, zero *[PackRows]float32, blocks int)
}

// packBlocks is how many blocks of a row are packed before those of the next: the first-level cache
// holds as many of all rows.
const packBlocks = 16

// PackQuantised is PackWeights of rows row, row+step, … of p, rounded to bfloat16: n columns from col
// on. It has the bits of Unpack and Narrow. Whole blocks of 32 columns are fastest, of weights in
// bands those of all rows of one. scratch is that of Unpack.
func (s *Set) PackQuantised(dst []uint32, p *Packed, row, step, col, rows, n int, scratch []float32) {
	dst, rows = dst[:PanelWords(n)], min(rows, PackRows)
	whole := (col|n)%BlockK == 0
	if rows < PackRows || !whole {
		clear(dst)
	}
	if rows <= 0 || n <= 0 {
		return
	}
	blocks := n / BlockK
	switch {
	case !whole:
	case p.Height > 0 && row%BandRows == 0 && rows == BandRows && step == 1:
		at, _, _ := p.band(row, col)
		s.rounder.packBands(p.Packing, dst, p.Codes[at:][:blocks*BandRows*p.Packing.BlockBytes()], blocks)
		return
	case p.Packing == E4M3 && (p.Columns%BlockK == 0 || p.Columns >= p.Width):
		if s.packE4M3(dst, p, row, step, col, rows, blocks) {
			return
		}
	case p.Packing == MXFP4:
		s.packMXFP4(dst, p, row, step, col, rows, blocks)
		return
	}
	s.packValues(dst, p, row, step, col, rows, n, scratch)
}

// packValues packs rows of any format, some columns at a time, which the first-level cache holds.
func (s *Set) packValues(dst []uint32, p *Packed, row, step, col, rows, n int, scratch []float32) {
	const part = packBlocks * BlockK
	var values [part]float32
	var narrow [part / 2]uint32
	for k := 0; k < n; k += part {
		m := min(part, n-k)
		words, to := PairWords(m), dst[k/2*PackRows:]
		for i := range rows {
			s.Unpack(Floats{V: values[:m], Stride: m}, p, row+i*step, col+k, 1, m, scratch)
			s.Narrow(narrow[:], values[:m])
			for j := 0; j < words; j += BlockK / 2 {
				copy(to[j*PackRows+i*BlockK/2:], narrow[j:min(j+BlockK/2, words)])
			}
		}
	}
}

// packE4M3 reports whether the kernel takes scales so large.
func (s *Set) packE4M3(dst []uint32, p *Packed, row, step, col, rows, blocks int) bool {
	var scales [PackRows * packBlocks]float32
	for b := 0; b < blocks; b += packBlocks {
		n, first := min(packBlocks, blocks-b), col+b*BlockK
		for i := range rows {
			own := scales[i*packBlocks:][:n]
			if r := row + i*step; i > 0 && r/p.Rows == (r-step)/p.Rows {
				copy(own, scales[(i-1)*packBlocks:])
			} else if !p.blockScales(own, r, first) {
				return false
			}
		}
		codes := p.Codes[row*p.Width+first : (row+(rows-1)*step)*p.Width+first+n*BlockK]
		s.rounder.packE4M3(dst[b*BlockK/2*PackRows:], codes, step*p.Width, &scales, rows, n)
	}
	return true
}

// blockScales are those of blocks of 32 columns of a row from col on, times 2^8. It reports whether
// they are finite.
func (p *Packed) blockScales(dst []float32, row, col int) bool {
	first := row / p.Rows * ceil(p.Width, p.Columns)
	for i := 0; i < len(dst); {
		block := (col + i*BlockK) / p.Columns
		v := p.scale(first+block) * 256
		if math.IsInf(float64(v), 0) {
			return false
		}
		for end := min(len(dst), ceil((block+1)*p.Columns-col, BlockK)); i < end; i++ {
			dst[i] = v
		}
	}
	return true
}

func (s *Set) packMXFP4(dst []uint32, p *Packed, row, step, col, rows, blocks int) {
	stride, apart := p.Width/2, p.Width/BlockK
	last := row + (rows-1)*step
	for b := 0; b < blocks; b += packBlocks {
		n, first := min(packBlocks, blocks-b), col/BlockK+b
		codes := p.Codes[row*stride+first*BlockK/2 : last*stride+(first+n)*BlockK/2]
		scales := p.Scales[row*apart+first : last*apart+first+n]
		s.rounder.packMXFP4(dst[b*BlockK/2*PackRows:], codes, step*stride, scales, step*apart, rows, n)
	}
}

// PackQuantisedTurned is PackQuantised of the transposed: rows of the pack are columns col, col+step, … of p,
// and n rows of p from row on are its columns. scratch is [TurnScratch] long.
func (s *Set) PackQuantisedTurned(dst []uint32, p *Packed, row, col, step, rows, n int, scratch []float32) {
	dst, rows = dst[:PanelWords(n)], min(rows, PackRows)
	if rows == PackRows && step == 1 && p.nibblesTurn(row, col, n) {
		s.packNibbles(dst, p, row, col, n)
		return
	}
	clear(dst)
	if rows <= 0 {
		return
	}
	width := (rows-1)*step + 1
	lines, scratch := scratch[:BlockK*width], scratch[BlockK*width:]
	var values [BlockK]float32
	for k := 0; k < n; k += BlockK {
		m := min(BlockK, n-k)
		s.Unpack(Floats{V: lines, Stride: width}, p, row+k, col, m, width, scratch)
		for i := range rows {
			for j := range m {
				values[j] = lines[j*width+i*step]
			}
			s.Narrow(dst[k/2*PackRows+i*BlockK/2:], values[:m])
		}
	}
}

// TurnScratch is the length of the scratch of [Set.PackQuantisedTurned].
func TurnScratch(step int) int { return BlockK*((PackRows-1)*step+1) + UnpackScratch }

// nibblesTurn reports whether each block of 32 rows from row on has one group, and columns from col on
// whole words.
func (p *Packed) nibblesTurn(row, col, n int) bool {
	return (p.Packing == NibbleRows || p.Packing == NibbleColumns) && p.Index == nil && p.Rows%BlockK == 0 && (row|n)%BlockK == 0 && col%8 == 0
}

func (s *Set) packNibbles(dst []uint32, p *Packed, row, col, n int) {
	var scale, zero [PackRows]float32
	for k := 0; k < n; {
		group := (row + k) / p.Rows
		m := min(n, (group+1)*p.Rows-row) - k
		p.decodeGroup(s.ops, scale[:], zero[:], group, col)
		first, stride, lines, size := (row+k)*p.Width+col, p.Width/2, m, PackRows/2
		first /= 2
		if p.Packing == NibbleRows {
			first, stride, lines, size = ((row+k)/8*p.Width+col)*4, 4*p.Width, m/8, 4*PackRows
		}
		words := p.Codes[first:][:(lines-1)*stride+size]
		s.rounder.packNibbles(p.Packing, dst[k/2*PackRows:], words, stride, &scale, &zero, m/BlockK)
		k += m
	}
}
