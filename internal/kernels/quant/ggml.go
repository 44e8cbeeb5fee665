package quant

import (
	"encoding/binary"
	"math"

	"github.com/heftai/heft/internal/floats"
	"github.com/heftai/heft/internal/kernels/mat"
)

// The blocks of GGUF files that store a code of a few bits for each column. Each function
// dequantises one block. Every product and every sum is rounded to float32, in the order of ggml.
// The comments give the layout of a block.

// half reads a float16.
func half(b []byte) float32 { return mat.FromFloat16(binary.LittleEndian.Uint16(b)) }

// unpackQ41: the scale, the minimum, and 16 bytes of two codes each.
func unpackQ41(dst []float32, block []byte) {
	d, m := half(block), half(block[2:])
	for i, code := range block[4:20] {
		dst[i] = float32(float32(code&15)*d) + m
		dst[i+16] = float32(float32(code>>4)*d) + m
	}
}

// unpackQ50: the scale, the fifth bits of 32 codes, and 16 bytes with the low four bits of two
// codes each.
func unpackQ50(dst []float32, block []byte) {
	d, high := half(block), binary.LittleEndian.Uint32(block[2:])
	for i, code := range block[6:22] {
		dst[i] = (float32(uint32(code&15)|high>>i&1<<4) - 16) * d
		dst[i+16] = (float32(uint32(code>>4)|high>>(i+16)&1<<4) - 16) * d
	}
}

// unpackQ51 is unpackQ50 with a minimum after the scale.
func unpackQ51(dst []float32, block []byte) {
	d, m, high := half(block), half(block[2:]), binary.LittleEndian.Uint32(block[4:])
	for i, code := range block[8:24] {
		dst[i] = float32(float32(uint32(code&15)|high>>i&1<<4)*d) + m
		dst[i+16] = float32(float32(uint32(code>>4)|high>>(i+16)&1<<4)*d) + m
	}
}

// unpackQ2K: a byte with scale and minimum for every 16 columns, 64 bytes of four codes each, and
// the scales of the scales and of the minima.
func unpackQ2K(dst []float32, block []byte) {
	scales, codes, d, dmin := block[:16], block[16:80], half(block[80:]), half(block[82:])
	for g, s := range scales {
		scale, least := d*float32(s&15), dmin*float32(s>>4)
		from, shift := codes[g/8*32+g%2*16:], g%8/2*2
		for i := range 16 {
			dst[16*g+i] = float32(scale*float32(from[i]>>shift&3)) - least
		}
	}
}

// unpackQ3K: the third bits of 256 codes, inverted, 64 bytes with the low two bits of four codes
// each, 16 six-bit scales and their scale.
func unpackQ3K(dst []float32, block []byte) {
	high, codes, scales, d := block[:32], block[32:96], block[96:108], half(block[108:])
	for g := range 16 {
		low := scales[g%8] >> (g / 8 * 4) & 15
		top := scales[8+g%4] >> (g / 4 * 2) & 3
		scale := d * (float32(low|top<<4) - 32)
		from, bits, shift := codes[g/8*32+g%2*16:], high[g%2*16:], g%8/2*2
		for i := range 16 {
			code := int(from[i] >> shift & 3)
			if bits[i]>>(g/2)&1 == 0 {
				code -= 4
			}
			dst[16*g+i] = scale * float32(code)
		}
	}
}

// scaleMin returns scale and minimum g of the eight that are packed in 12 bytes of six bits each.
func scaleMin(packed []byte, g int) (scale, least float32) {
	if g < 4 {
		return float32(packed[g] & 63), float32(packed[g+4] & 63)
	}
	return float32(packed[g+4]&15 | packed[g-4]>>6<<4), float32(packed[g+4]>>4 | packed[g]>>6<<4)
}

// unpackQ4K: the scales of the scales and of the minima, eight scales and minima, and 128 bytes
// of two codes each.
func unpackQ4K(dst []float32, block []byte) {
	d, dmin, packed, codes := half(block), half(block[2:]), block[4:16], block[16:144]
	for g := range 8 {
		s, m := scaleMin(packed, g)
		scale, least := d*s, dmin*m
		from, shift, to := codes[g/2*32:][:32], g%2*4, dst[32*g:][:32]
		for i, code := range from {
			to[i] = float32(scale*float32(code>>shift&15)) - least
		}
	}
}

// unpackQ5K is unpackQ4K with the fifth bits before the codes.
func unpackQ5K(dst []float32, block []byte) {
	d, dmin, packed, high, codes := half(block), half(block[2:]), block[4:16], block[16:48], block[48:176]
	for g := range 8 {
		s, m := scaleMin(packed, g)
		scale, least := d*s, dmin*m
		from, shift, to := codes[g/2*32:][:32], g%2*4, dst[32*g:][:32]
		for i, code := range from {
			to[i] = float32(scale*float32(code>>shift&15|high[i]>>g&1<<4)) - least
		}
	}
}

// unpackQ6K: 128 bytes with the low four bits of two codes each, 64 bytes with the high two bits
// of four codes each, 16 signed scales and their scale.
func unpackQ6K(dst []float32, block []byte) {
	low, high, scales, d := block[:128], block[128:192], block[192:208], half(block[208:])
	for g, s := range scales {
		scale := d * float32(int8(s))
		// Groups of 32 columns: four groups share 64 bytes of low bits and 32 bytes of high bits.
		part, in := g/2, g%2*16
		from, shift := low[part/4*64+part%2*32+in:], part%4/2*4
		top, topShift := high[part/4*32+in:], part%4*2
		for i := range 16 {
			code := int(from[i]>>shift&15 | top[i]>>topShift&3<<4)
			dst[16*g+i] = scale * float32(code-32)
		}
	}
}

// nonLinear holds the values of the codes of IQ4_NL and IQ4_XS.
var nonLinear = [16]float32{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// unpackIQ4NL: the scale, and 16 bytes of two codes each.
func unpackIQ4NL(dst []float32, block []byte) {
	d := half(block)
	for i, code := range block[2:18] {
		dst[i] = d * nonLinear[code&15]
		dst[i+16] = d * nonLinear[code>>4]
	}
}

// unpackIQ4XS: the scale of the scales, the high and the low bits of eight six-bit scales, and
// 128 bytes of two codes each.
func unpackIQ4XS(dst []float32, block []byte) {
	d, high, low := half(block), binary.LittleEndian.Uint16(block[2:]), block[4:8]
	for g := range 8 {
		s := int(low[g/2]>>(g%2*4)&15) | int(high>>(2*g)&3)<<4
		scale, to := d*float32(s-32), dst[32*g:][:32]
		for i, code := range block[8+16*g:][:16] {
			to[i] = scale * nonLinear[code&15]
			to[i+16] = scale * nonLinear[code>>4]
		}
	}
}

// doubledE2M1 holds the values of MXFP4's codes, doubled. They are integers, and 0 has no sign.
var doubledE2M1 = [16]float32{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

// unpackMXFP4Block: an exponent, and 16 bytes of two codes each. As in ggml, values are doubled
// and the scale is halved, which is exact.
func unpackMXFP4Block(dst []float32, block []byte) {
	bits := uint32(0x00200000) << block[0]
	if block[0] >= 2 {
		bits = (uint32(block[0]) - 1) << 23
	}
	d := math.Float32frombits(bits)
	for i, code := range block[1:17] {
		dst[i] = d * doubledE2M1[code&15]
		dst[i+16] = d * doubledE2M1[code>>4]
	}
}

// unpackNVFP4Block: four scales of 16 columns, E4M3 without its sign, halved, and 8 bytes of two codes for each. The byte
// that is no number in E4M3 is 0, with the sign 480.
func unpackNVFP4Block(dst []float32, block []byte) {
	for g, s := range block[:4] {
		d := floats.FromE4M3(s&0x7f) / 2
		switch s {
		case 0x7f:
			d = 0
		case 0xff:
			d = 240
		}
		for i, code := range block[4+8*g:][:8] {
			dst[16*g+i], dst[16*g+8+i] = d*doubledE2M1[code&15], d*doubledE2M1[code>>4]
		}
	}
}
