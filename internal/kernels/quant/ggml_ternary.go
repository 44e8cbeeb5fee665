package quant

import (
	"encoding/binary"

	"github.com/heftai/heft/internal/kernels/mat"
)

// The blocks of GGUF files with three values for each column: points of -1, 0 and 1 that are
// shifted by an eighth (IQ1), and codes for -1, 0 and 1 (TQ). The comments give the layout of a
// block.

// valuesIQ1 holds the values that the points of IQ1 are made of, and pointsIQ1 the points: 2048
// of 8 columns.
var (
	valuesIQ1 = []float32{-1, 0, 1}
	pointsIQ1 = points(gridIQ1, 2, valuesIQ1)
)

// moved stores point's values plus an eighth, or minus an eighth if down is set, times scale.
func moved(dst, point []float32, scale float32, down bool) {
	delta := float32(0.125)
	if down {
		delta = -delta
	}
	for i := range dst {
		dst[i] = scale * (point[i] + delta)
	}
}

// unpackIQ1S: the scale; the low eight bits of 32 points; and for every four points their high
// three bits, a three-bit scale and the direction of their shift.
func unpackIQ1S(dst []float32, block []byte) {
	grid, d := pointsIQ1(), half(block)
	for g := range 8 {
		high := binary.LittleEndian.Uint16(block[34+2*g:])
		scale := d * float32(2*(high>>12&7)+1)
		for i := range 4 {
			number := int(block[2+4*g+i]) | int(high>>(3*i)&7)<<8
			moved(dst[32*g+8*i:][:8], grid[8*number:][:8], scale, high>>15 != 0)
		}
	}
}

// unpackIQ1M: the low eight bits of 32 points; their high three bits and directions; four words
// of four three-bit scales, each for two points. The high four bits of the words together are the
// scale of the scales.
func unpackIQ1M(dst []float32, block []byte) {
	grid, low, high := pointsIQ1(), block[:32], block[32:48]
	var words [4]uint16
	bits := uint16(0)
	for i := range words {
		words[i] = binary.LittleEndian.Uint16(block[48+2*i:])
		bits |= words[i] >> 12 << (4 * i)
	}
	d := mat.FromFloat16(bits)
	for i := range 32 {
		scale := d * float32(2*(words[i/8]>>(i/2%4*3)&7)+1)
		top := high[i/2] >> (i % 2 * 4)
		moved(dst[8*i:][:8], grid[8*(int(low[i])|int(top&7)<<8):][:8], scale, top&8 != 0)
	}
}

// unpackTQ10: 48 bytes of five codes each, 4 bytes of four codes each, and the scale. A byte is a
// fraction of 256 whose base-3 digits, first digit first, are the codes plus 1.
func unpackTQ10(dst []float32, block []byte) {
	d := half(block[52:])
	at := 0
	for _, part := range []struct {
		codes  []byte
		digits int
	}{{block[:32], 5}, {block[32:48], 5}, {block[48:52], 4}} {
		power := byte(1)
		for range part.digits {
			for _, code := range part.codes {
				dst[at] = d * float32(int(code*power)*3>>8-1)
				at++
			}
			power *= 3
		}
	}
}

// unpackTQ20: 64 bytes of four codes each, plus 1, and the scale.
func unpackTQ20(dst []float32, block []byte) {
	d := half(block[64:])
	for g := range 8 {
		for i, code := range block[g/4*32:][:32] {
			dst[32*g+i] = d * float32(int(code>>(g%4*2)&3)-1)
		}
	}
}

// unpackQ10: a scale, whose sign each of 128 bits tells.
func unpackQ10(dst []float32, block []byte) {
	d := half(block)
	for i := range dst {
		dst[i] = -d
		if block[2+i/8]>>(i%8)&1 == 1 {
			dst[i] = d
		}
	}
}

// unpackQ20: a scale, and 16 bytes of four codes, plus 1.
func unpackQ20(dst []float32, block []byte) {
	d := half(block)
	for i := range dst {
		dst[i] = float32(int(block[2+i/4]>>(i%4*2)&3)-1) * d
	}
}
