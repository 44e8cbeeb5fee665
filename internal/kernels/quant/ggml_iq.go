package quant

import (
	"encoding/base64"
	"encoding/binary"
	"math/bits"
	"sync"
)

// The blocks of GGUF files whose codes are indices of points. A point has the magnitudes of 8
// columns, or of 4 for IQ3, and the signs are stored separately. The comments give the layout of
// a block.

// The values that points are made of, in the order of the tables' indices.
var (
	valuesIQ2   = []float32{0x08, 0x19, 0x2b}
	valuesIQ3XX = []float32{0x04, 0x0c, 0x14, 0x1c, 0x24, 0x2c, 0x34, 0x3e}
	valuesIQ3S  = []float32{1, 3, 5, 7, 9, 11, 13, 15}
)

// The tables of points.
var (
	pointsIQ2XXS = points(gridIQ2XXS, 2, valuesIQ2)
	pointsIQ2XS  = points(gridIQ2XS, 2, valuesIQ2)
	pointsIQ2S   = points(gridIQ2S, 2, valuesIQ2)
	pointsIQ3XXS = points(gridIQ3XXS, 4, valuesIQ3XX)
	pointsIQ3S   = points(gridIQ3S, 4, valuesIQ3S)
)

// pointTables returns the points for the kernels, one byte for each value.
var pointTables = [Packings]func() []byte{
	IQ2XXS: pointBytes(pointsIQ2XXS, 1), IQ2XS: pointBytes(pointsIQ2XS, 1), IQ2S: pointBytes(pointsIQ2S, 1),
	IQ3XXS: pointBytes(pointsIQ3XXS, 1), IQ3S: pointBytes(pointsIQ3S, 1), IQ1S: pointBytesIQ1, IQ1M: pointBytesIQ1,
}

// pointBytesIQ1 returns the points of IQ1 in eighths, as the kernels move them up or down by one.
var pointBytesIQ1 = pointBytes(pointsIQ1, 8)

// Points returns the points of a packing whose codes are indices of points, one byte for each
// value. It returns nil for other packings. It is safe for concurrent use.
func (p Packing) Points() []byte {
	if table := pointTables[p]; table != nil {
		return table()
	}
	return nil
}

// pointBytes returns a function that converts points, times a factor, to bytes when it is first
// called.
func pointBytes(points func() []float32, times int) func() []byte {
	return sync.OnceValue(func() []byte {
		table := make([]byte, len(points()))
		for i, v := range points() {
			table[i] = byte(int8(v) * int8(times))
		}
		return table
	})
}

// points returns a function that decodes a table when it is first called.
func points(table string, width int, values []float32) func() []float32 {
	return sync.OnceValue(func() []float32 {
		packed, err := base64.StdEncoding.DecodeString(table)
		if err != nil {
			panic(err) // the table is a constant of the program
		}
		list := make([]float32, 0, len(packed)*8/width)
		for _, b := range packed {
			for shift := 0; shift < 8; shift += width {
				list = append(list, values[b>>shift&(1<<width-1)])
			}
		}
		return list
	})
}

// signed stores point's magnitudes times scale, with the signs from the low bits of signs.
func signed(dst, point []float32, scale float32, signs byte) {
	for i := range dst {
		v := scale * point[i]
		if signs>>i&1 != 0 {
			v = -v
		}
		dst[i] = v
	}
}

// evenSigns adds an eighth sign to seven, so that the number of negative signs is even.
func evenSigns(code uint32) byte {
	seven := byte(code & 127)
	return seven | byte(bits.OnesCount8(seven)&1)<<7
}

// quarter returns d·(½ + s)·¼.
func quarter(d float32, s uint32) float32 { return float32(d*(0.5+float32(s))) * 0.25 }

// unpackIQ2XXS: the scale; then for every 32 columns four indices of points, four times seven
// signs and a four-bit scale.
func unpackIQ2XXS(dst []float32, block []byte) {
	grid, d := pointsIQ2XXS(), half(block)
	for g := range 8 {
		numbers, rest := block[2+8*g:][:4], binary.LittleEndian.Uint32(block[6+8*g:])
		scale := quarter(d, rest>>28)
		for i, n := range numbers {
			signed(dst[32*g+8*i:][:8], grid[8*int(n):][:8], scale, evenSigns(rest>>(7*i)))
		}
	}
}

// unpackIQ2XS: the scale; a nine-bit point and seven signs for every 8 columns; a four-bit scale
// for every 16 columns.
func unpackIQ2XS(dst []float32, block []byte) {
	grid, d, scales := pointsIQ2XS(), half(block), block[66:74]
	for i := range 32 {
		code := uint32(binary.LittleEndian.Uint16(block[2+2*i:]))
		scale := quarter(d, uint32(scales[i/4]>>(i%4/2*4)&15))
		signed(dst[8*i:][:8], grid[8*int(code&511):][:8], scale, evenSigns(code>>9))
	}
}

// unpackIQ2S: the scale; the low eight bits of points, signs, the high two bits of points, and
// scales as in unpackIQ2XS.
func unpackIQ2S(dst []float32, block []byte) {
	grid, d, low, signs, high, scales := pointsIQ2S(), half(block), block[2:34], block[34:66], block[66:74], block[74:82]
	for i := range 32 {
		number := int(low[i]) | int(high[i/4]>>(i%4*2)&3)<<8
		scale := quarter(d, uint32(scales[i/4]>>(i%4/2*4)&15))
		signed(dst[8*i:][:8], grid[8*number:][:8], scale, signs[i])
	}
}

// unpackIQ3XXS: the scale; a point for every 4 columns; four times seven signs and a four-bit
// scale for every 32 columns.
func unpackIQ3XXS(dst []float32, block []byte) {
	grid, d := pointsIQ3XXS(), half(block)
	for g := range 8 {
		rest := binary.LittleEndian.Uint32(block[66+4*g:])
		scale := float32(d*(0.5+float32(rest>>28))) * 0.5
		for i := range 8 {
			signs := evenSigns(rest>>(i/2*7)) >> (i % 2 * 4)
			signed(dst[32*g+4*i:][:4], grid[4*int(block[2+8*g+i]):][:4], scale, signs)
		}
	}
}

// unpackIQ3S: the scale; the low eight bits of points, their ninth bits, signs, and a four-bit
// scale for every 32 columns.
func unpackIQ3S(dst []float32, block []byte) {
	grid, d, low, high, signs, scales := pointsIQ3S(), half(block), block[2:66], block[66:74], block[74:106], block[106:110]
	for i := range 64 {
		number := int(low[i]) | int(high[i/8]>>(i%8)&1)<<8
		scale := d * float32(1+2*(scales[i/16]>>(i/8%2*4)&15))
		signed(dst[4*i:][:4], grid[4*number:][:4], scale, signs[i/2]>>(i%2*4))
	}
}
