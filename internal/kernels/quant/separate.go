package quant

import (
	"encoding/binary"
	"math"

	"github.com/heftai/heft/internal/kernels/mat"
)

// bnbScale is bitsandbytes' constant for 1/127.
const bnbScale float32 = 7.874015718698502e-3

// unpackSeparate dequantises len(dst) columns of a row, from column col on, of a packing whose scales are in a separate
// tensor. It panics if codes or scales are too short.
func (p *Packed) unpackSeparate(ops ops, dst []float32, row, col int, scratch []float32) {
	switch p.Packing {
	case Int8, BnbInt8:
		p.unpackBytes(ops, dst, row, col)
	case Int4Packed, Int8Packed:
		switch {
		case p.Index != nil:
			p.unpackIndexed(dst, row, col)
		case p.Packing == Int8Packed:
			p.unpackBytes(ops, dst, row, col)
		default:
			p.unpackTable(ops, dst, row, col, scratch)
		}
	default:
		p.unpackTable(ops, dst, row, col, scratch)
	}
}

// unpackIndexed dequantises columns of a row of Int4Packed or Int8Packed with an Index, which has the group of each column. A column
// whose group does not exist is NaN.
func (p *Packed) unpackIndexed(dst []float32, row, col int) {
	groups := mat.CeilDiv(p.Width, p.Columns)
	scales := row / p.Rows * groups
	codes := p.Codes[row*p.RowBytes():][:p.RowBytes()]
	last, zero, scale := -1, 0, float32(0)
	for i := range dst {
		c := col + i
		if group := p.columnGroup(c); group != last {
			if last = group; group < 0 || group >= groups {
				zero, scale = 0, float32(math.NaN())
			} else {
				zero, scale = p.packedZero(row, group, groups), p.Scale(scales+group)
			}
		}
		code := 0
		if p.Packing == Int8Packed {
			code = int(codes[c])
		} else {
			code = int(codes[c/2] >> (c % 2 * 4) & 15)
		}
		dst[i] = float32(code-zero) * scale
	}
}

// columnGroup returns the group of a column of Int4Packed or Int8Packed with an Index.
func (p *Packed) columnGroup(c int) int { return int(int32(binary.LittleEndian.Uint32(p.Index[4*c:]))) }

// packedMiddle is the zero point of Int8Packed without zeros.
const packedMiddle = 128

// packedZero returns the zero point of a group of Int4Packed or Int8Packed.
func (p *Packed) packedZero(row, group, groups int) int {
	switch {
	case p.Zeros == nil && p.Packing == Int8Packed:
		return packedMiddle
	case p.Zeros == nil:
		return 8
	case p.Packing == Int8Packed:
		return int(p.Zeros[4*(row/4*groups+group)+row%4])
	}
	return int(binary.LittleEndian.Uint32(p.Zeros[4*(row/8*groups+group):]) >> (row % 8 * 4) & 15)
}

// unpackInt8Rows dequantises columns of a row. A row whose group does not exist is NaN.
func (s *Kernels) unpackInt8Rows(p *Packed, dst []float32, row, col int, scratch []float32) {
	group, size := p.group(row), p.ScaleFormat.Size()
	if at := group * p.Width; group < 0 || (at+p.Width)*size > len(p.Scales) || at+p.Width > len(p.Zeros) {
		for i := range dst {
			dst[i] = float32(math.NaN())
		}
		return
	}
	for len(dst) > 0 {
		n, first := min(groupColumns, len(dst)), group*p.Width+col
		scales, codes := scratch[:n], p.Codes[4*(row/4*p.Width+col)+row%4:][:4*n-3]
		s.vector.Widen(scales, p.Scales[first*size:][:n*size], p.ScaleFormat)
		var word uint32 // of the zeros of four columns
		for i, scale := range scales {
			at := first + i
			if i == 0 || at%4 == 0 {
				word = binary.LittleEndian.Uint32(p.Zeros[at&^3:]) + p.ZeroWords[0]
			}
			dst[i] = float32(int(codes[4*i])-int(word>>(at%4*8)&255)) * scale
		}
		dst, col = dst[n:], col+n
	}
}

// A byteScale is how bytes are widened: byte c is int8(c ^ flip) - zero, times scale, times factor.
type byteScale struct {
	scale, factor float32
	zero, flip    int32
}

// unpackBytes dequantises signed bytes of a row, or those of Int8Packed, from column col on.
func (p *Packed) unpackBytes(ops ops, dst []float32, row, col int) {
	groups := mat.CeilDiv(p.Width, p.Columns)
	scales := row / p.Rows * groups
	codes := p.Codes[row*p.Width+col:][:len(dst)]
	for len(dst) > 0 {
		block := col / p.Columns
		n := min(len(dst), (block+1)*p.Columns-col)
		by := byteScale{scale: p.Scale(scales + block), factor: p.Packing.Factor(), zero: p.ByteZero(row, block, groups), flip: int32(p.Packing.Flip())}
		ops.bytes(dst[:n], codes, by)
		dst, codes, col = dst[n:], codes[n:], col+n
	}
}

// Flip returns what codes of signed bytes, or those of Int8Packed, are xored with to be signed bytes.
func (p Packing) Flip() byte {
	if p == Int8Packed {
		return packedMiddle
	}
	return 0
}

// ByteZero returns the zero of flipped codes of a row in a group of its groups.
func (p *Packed) ByteZero(row, group, groups int) int32 {
	switch {
	case p.Packing == Int8Packed:
		return int32(p.packedZero(row, group, groups) - packedMiddle)
	case p.Zeros != nil:
		return int32(int8(p.Zeros[row/p.Rows*groups+group]))
	}
	return 0
}

// Factor returns the factor by which values of signed bytes are multiplied last: 1/127 for
// bitsandbytes, 1 for others.
func (p Packing) Factor() float32 {
	if p == BnbInt8 {
		return bnbScale
	}
	return 1
}

func (goOps) bytes(dst []float32, codes []byte, by byteScale) {
	for i, code := range codes[:len(dst)] {
		v := float32(int32(int8(code^byte(by.flip)))-by.zero) * by.scale
		dst[i] = v * by.factor
	}
}
