package quant

import (
	"encoding/binary"
	"math"

	"github.com/heftai/heft/internal/kernels/mat"
)

// fewBits returns the number of bits of an integer of Int2Rows and Int3Rows.
func (p Packing) fewBits() int {
	if p == Int3Rows {
		return 3
	}
	return 2
}

// unpackFewBits dequantises at most groupColumns columns of some rows of Int2Rows or Int3Rows.
// Rows whose group does not exist are NaN.
func (s *Kernels) unpackFewBits(p *Packed, dst mat.Floats, row, col, rows, cols int, scratch []float32) {
	scale, zero := scratch[:cols], scratch[groupColumns:][:cols]
	bits, group, exists := p.Packing.fewBits(), -1, false
	for r := range rows {
		if g := p.group(row + r); r == 0 || g != group {
			group, exists = g, s.fewBitsGroup(p, scale, zero, g, col)
		}
		out := dst.V[r*dst.Stride:][:cols]
		if !exists {
			for i := range out {
				out[i] = float32(math.NaN())
			}
			continue
		}
		// Integer n of a column is in bits n·bits and following of its words.
		at := (row + r) * bits
		shift, begin, mask := at%32, 4*(at/32*p.Width+col), uint32(1)<<bits-1
		low := p.Codes[begin:][:4*cols]
		if shift+bits <= 32 {
			for i := range out {
				out[i] = (float32(binary.LittleEndian.Uint32(low[4*i:])>>shift&mask) - zero[i]) * scale[i]
			}
			continue
		}
		high := p.Codes[begin+4*p.Width:][:4*cols]
		for i := range out {
			code := binary.LittleEndian.Uint32(low[4*i:])>>shift | binary.LittleEndian.Uint32(high[4*i:])<<(32-shift)
			out[i] = (float32(code&mask) - zero[i]) * scale[i]
		}
	}
}

// fewBitsGroup decodes scales and zeros of a group from column col on. It returns false if the
// group does not exist.
func (s *Kernels) fewBitsGroup(p *Packed, scale, zero []float32, group, col int) bool {
	bits, size := p.Packing.fewBits(), p.ScaleFormat.Size()
	words := p.Width * bits / 32 // of a group's zeros
	if group < 0 || (group+1)*p.Width*size > len(p.Scales) || 4*(group+1)*words > len(p.Zeros) {
		return false
	}
	s.vector.Widen(scale, p.Scales[(group*p.Width+col)*size:][:len(scale)*size], p.ScaleFormat)
	zeros := p.Zeros[4*group*words:][:4*words]
	word := func(i int) uint64 {
		if i >= words {
			return 0
		}
		return uint64(binary.LittleEndian.Uint32(zeros[4*i:]) + p.ZeroWords[i%3])
	}
	for i := range zero {
		at := (col + i) * bits
		pair := word(at/32) | word(at/32+1)<<32
		zero[i] = float32(pair >> (at % 32) & (1<<bits - 1))
	}
	return true
}
