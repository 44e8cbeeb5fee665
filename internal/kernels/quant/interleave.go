package quant

import (
	"encoding/binary"

	"github.com/heftai/heft/internal/kernels/mat"
)

// An interleaved matrix of Q8 or Q4 has the same blocks in another order, so that each lane of a
// vector is a row. It consists of bands of 16 interleaved rows; the last band may have fewer. For
// every 32 columns a band has the scales of all rows, followed by four bytes of codes of each row
// in turn until all codes are stored. The codes of Q8 are unsigned there: 128 is added. An
// interleaved matrix has the same size as one that is stored by rows.

// InterleavedRows is the number of rows in a band.
const InterleavedRows = 16

// interleaver is implemented by each variant for bands. The caller has checked bounds.
type interleaver interface {
	// bands interleaves up to 16 rows of blocks.
	bands(p Packing, dst, rows []byte, stride, count, blocks int)
	// unband dequantises whole blocks of row lane of a band of the given number of rows.
	unband(p Packing, dst []float32, band []byte, rows, lane int)
}

// Interleave stores count rows of blocks of p, which begin stride bytes apart, at dst in bands of
// 16 interleaved rows.
func (s *Kernels) Interleave(p Packing, dst, rows []byte, stride, count, blocks int) {
	size := blocks * p.BlockBytes()
	for count > 0 && blocks > 0 {
		n := min(InterleavedRows, count)
		s.ops.bands(p, dst[:n*size], rows[:(n-1)*stride+size], stride, n, blocks)
		dst, count = dst[n*size:], count-n
		if count > 0 {
			rows = rows[n*stride:]
		}
	}
}

// Deinterleave is the inverse of [Kernels.Interleave]: it stores the rows of an interleaved matrix
// of p at dst, each a series of blocks.
func Deinterleave(p Packing, dst, bands []byte, count, blocks int) {
	size := p.BlockBytes()
	flip := uint32(p.Offset()) * 0x01010101
	for count > 0 && blocks > 0 {
		n := min(InterleavedRows, count)
		for b := range blocks {
			in := bands[b*n*size:][:n*size]
			codes := in[2*n:]
			for r := range n {
				block := dst[(r*blocks+b)*size:][:size]
				copy(block[:2], in[2*r:])
				for i := 2; i < size; i += 4 {
					four := binary.LittleEndian.Uint32(codes[(i-2)*n+4*r:])
					binary.LittleEndian.PutUint32(block[i:], four^flip)
				}
			}
		}
		dst, bands, count = dst[n*blocks*size:], bands[n*blocks*size:], count-n
	}
}

// Band describes the band of a row. at is the offset of its blocks from column col on, a multiple
// of 32; rows is the number of its rows; and lane is the index of row among them.
func (p *Packed) Band(row, col int) (at, rows, lane int) {
	first := row / InterleavedRows * InterleavedRows
	rows = min(InterleavedRows, p.Height-first)
	size := p.Packing.BlockBytes()
	return (first*p.Width + col*rows) / BlockColumns * size, rows, row - first
}

// unpackBand dequantises columns of a row from col on.
func (p *Packed) unpackBand(ops ops, dst []float32, row, col int) {
	lead := col % BlockColumns
	at, rows, lane := p.Band(row, col-lead)
	each := rows * p.Packing.BlockBytes()
	blocks := p.Codes[at : at+mat.CeilDiv(lead+len(dst), BlockColumns)*each]
	var part [BlockColumns]float32
	for len(dst) > 0 {
		n := len(dst) / BlockColumns
		if lead != 0 || n == 0 {
			UnpackInterleaved(p.Packing, part[:], blocks[:each], rows, lane)
			n = copy(dst, part[lead:])
			dst, lead, blocks = dst[n:], 0, blocks[each:]
			continue
		}
		ops.unband(p.Packing, dst[:n*BlockColumns], blocks[:n*each], rows, lane)
		dst, blocks = dst[n*BlockColumns:], blocks[n*each:]
	}
}

func (goOps) bands(p Packing, dst, rows []byte, stride, count, blocks int) {
	size, flip := p.BlockBytes(), p.Offset()
	for b := range blocks {
		out := dst[b*count*size:][:count*size]
		for r := range count {
			block := rows[r*stride+b*size:][:size]
			copy(out[2*r:2*r+2], block)
			for i, code := range block[2:] {
				out[2*count+i/4*4*count+4*r+i%4] = code ^ flip
			}
		}
	}
}

func (goOps) unband(p Packing, dst []float32, band []byte, rows, lane int) {
	UnpackInterleaved(p, dst, band, rows, lane)
}

// UnpackInterleaved dequantises whole blocks of row lane of a band of the given number of rows.
func UnpackInterleaved(p Packing, dst []float32, band []byte, rows, lane int) {
	each := rows * p.BlockBytes()
	for ; len(dst) >= BlockColumns; dst, band = dst[BlockColumns:], band[each:] {
		d := mat.FromFloat16(binary.LittleEndian.Uint16(band[2*lane:]))
		codes := band[2*rows+4*lane:]
		for i := range BlockColumns {
			if p == Q8 {
				dst[i] = (float32(codes[i/4*4*rows+i%4]) - 128) * d
				continue
			}
			code := codes[i%16/4*4*rows+i%4] >> (i / 16 * 4) & 15
			dst[i] = (float32(code) - 8) * d
		}
	}
}
