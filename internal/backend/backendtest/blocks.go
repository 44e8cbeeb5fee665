package backendtest

import (
	"encoding/binary"
	"math"

	"github.com/heftai/heft/meta"
)

// blocks is QuantQ8 or QuantQ4, whose scales stand among the codes, some of them
// subnormal.
func (e *env) blocks(f meta.QuantFormat, rows, cols int) coded {
	size := int(f.BlockBytes())
	c := coded{
		name: name(f, rows, cols), dtype: meta.Uint8, scaleType: meta.Float16, rows: rows, cols: cols,
		spec:  meta.Quant{Format: f, Rows: 1, Columns: 32},
		codes: e.randomBytes(rows * cols / 32 * size),
	}
	for i := 0; i < len(c.codes); i += size {
		c.codes[i+1] &= 0xaf // below 2
		if i%3 == 0 {
			c.codes[i+1] &= 0x83
		}
		block := c.codes[i:][:size]
		scale := half(binary.LittleEndian.Uint16(block))
		for k := range 32 {
			q := int(block[2+k%16]>>(k/16*4)&15) - 8
			if f == meta.QuantQ8 {
				q = int(int8(block[2+k]))
			}
			c.values = append(c.values, float32(float64(q)*scale))
		}
	}
	return c
}

// half is (-1)^s · 2^(e-15) · 1.m, or 2^-14 · 0.m where e is 0.
func half(bits uint16) float64 {
	exponent, mantissa := int(bits>>10&31), float64(bits&0x3ff)/1024
	v := math.Ldexp(mantissa, -14)
	if exponent > 0 {
		v = math.Ldexp(1+mantissa, exponent-15)
	}
	if bits&0x8000 != 0 {
		v = -v
	}
	return v
}
