package quant

import (
	"encoding/binary"
	"math"

	"github.com/heftai/heft/internal/floats"
	"github.com/heftai/heft/internal/kernels/mat"
)

// Four-bit codes are indices into a table of 16 values. A group of columns shares a scale and a
// zero, which are stored in separate tensors. An element is round((value - zero) · scale). The
// difference is exact.

// A table holds the values of a packing's codes and the order of the two codes in a byte.
type table struct {
	values *[16]float32
	high   bool // the even column is in the high half
}

var (
	e2m1Values = func() (v [16]float32) {
		for i := range v {
			v[i] = FromE2M1(byte(i))
		}
		return v
	}()
	e4m3Values = func() (v [256]float32) {
		for i := range v {
			v[i] = floats.FromE4M3(byte(i))
		}
		return v
	}()
	integers = [16]float32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
)

// tables holds the table of each packing that has one.
var tables = [Packings]table{
	Int4Packed: {values: &integers}, NVFP4: {values: &e2m1Values}, NVFP4Times: {values: &e2m1Values}, E2M1Powers: {values: &e2m1Values},
	NF4: {values: &nf4, high: true}, FP4: {values: &fp4, high: true},
}

// tableGroups is the number of groups whose scales are computed at a time.
const tableGroups = 64

// rowGroups locates the elements of a row: element at of codes belongs to group first +
// at/Columns.
type rowGroups struct {
	codes     []byte
	at, first int
	row       int
}

// groupsOf returns the groups of a row from column col on.
func (p *Packed) groupsOf(row, col int) rowGroups {
	if tables[p.Packing].high { // the elements of all rows are one list
		return rowGroups{codes: p.Codes, at: row*p.Width + col, row: row}
	}
	return rowGroups{codes: p.Codes[row*p.Width/2:][:p.Width/2], at: col, first: row / p.Rows * mat.CeilDiv(p.Width, p.Columns), row: row}
}

// unpackTable dequantises columns of a row from col on.
func (p *Packed) unpackTable(ops ops, dst []float32, row, col int, scratch []float32) {
	if len(scratch) < 2*tableGroups {
		scratch = make([]float32, 2*tableGroups)
	}
	scales, zeros := scratch[:tableGroups], scratch[tableGroups:2*tableGroups]
	for g := p.groupsOf(row, col); len(dst) > 0; {
		group, lead := g.first+g.at/p.Columns, g.at%p.Columns
		if whole := min(len(dst)/p.Columns, tableGroups); lead == 0 && whole > 0 && p.Columns%8 == 0 {
			for i := range whole {
				scales[i], zeros[i] = p.groupScale(&g, group+i)
			}
			n := whole * p.Columns
			ops.lookUp(p, dst[:n], g.codes[g.at/2:], scales[:whole], zeros, p.Columns)
			dst, g.at = dst[n:], g.at+n
			continue
		}
		n := min(len(dst), p.Columns-lead)
		scales[0], zeros[0] = p.groupScale(&g, group)
		p.unpackPart(ops, dst[:n], &g, scales, zeros)
		dst, g.at = dst[n:], g.at+n
	}
}

// unpackPart dequantises a part of a group.
func (p *Packed) unpackPart(ops ops, dst []float32, g *rowGroups, scales, zeros []float32) {
	whole := 0
	if g.at%2 == 0 {
		if whole = len(dst) &^ 7; whole > 0 {
			ops.lookUp(p, dst[:whole], g.codes[g.at/2:], scales[:1], zeros, whole)
		}
	}
	t := &tables[p.Packing]
	for i := whole; i < len(dst); i++ {
		c := g.at + i
		code := g.codes[c/2]
		if (c%2 == 0) == t.high {
			code >>= 4
		}
		dst[i] = p.round((t.values[code&15] - zeros[0]) * scales[0])
	}
}

// groupScale returns the scale and the zero of a group.
func (p *Packed) groupScale(g *rowGroups, group int) (scale, zero float32) {
	switch p.Packing {
	case NVFP4:
		return e4m3Values[p.Scales[group]] / p.Global, 0
	case NVFP4Times:
		return e4m3Values[p.Scales[group]] * p.Global, 0
	case E2M1Powers:
		return floats.FromE8M0(p.Scales[group]), 0
	case Int4Packed:
		return p.Scale(group), float32(p.packedZero(g.row, group-g.first, mat.CeilDiv(p.Width, p.Columns)))
	}
	return p.scaleOfScales(group), 0
}

// scaleOfScales returns the scale of a group of NF4 or FP4. It is a float32, or the entry of the
// table Index that a byte selects, times the float32 of Zeros that 256 scales share, plus Global.
func (p *Packed) scaleOfScales(group int) float32 {
	if p.Zeros == nil {
		return math.Float32frombits(binary.LittleEndian.Uint32(p.Scales[4*group:]))
	}
	number := math.Float32frombits(binary.LittleEndian.Uint32(p.Index[4*int(p.Scales[group]):]))
	scale := number * math.Float32frombits(binary.LittleEndian.Uint32(p.Zeros[group/nestedElements*4:]))
	return float32(scale) + p.Global
}

// lookUp dequantises len(scales) groups of columns elements, a multiple of 8.
func (goOps) lookUp(p *Packed, dst []float32, codes []byte, scales, zeros []float32, columns int) {
	t := &tables[p.Packing]
	var values [16]float32
	for g, scale := range scales {
		for i, v := range t.values {
			values[i] = p.round((v - zeros[g]) * scale)
		}
		to := dst[g*columns:][:columns]
		for i, code := range codes[g*columns/2:][:columns/2] {
			if t.high {
				to[2*i], to[2*i+1] = values[code>>4], values[code&15]
			} else {
				to[2*i], to[2*i+1] = values[code&15], values[code>>4]
			}
		}
	}
}
