package backendtest

import (
	"encoding/binary"

	"github.com/heftai/heft/meta"
)

// int8Cases returns matrices with a scale for each row, for the whole matrix and for blocks, with
// and without zero points.
func (e *env) int8Cases(f meta.QuantFormat) (out []coded) {
	for _, s := range []struct{ rows, cols, height, width int }{{1, 1, 1, 1}, {7, 31, 1, 31}, {33, 140, 1, 140}, {40, 96, meta.AllRows, 96}, {40, 96, 1, 32}} {
		if f == meta.QuantBnbInt8 && (s.height > 1 || s.width < s.cols) {
			continue
		}
		out = append(out, e.int8(f, s.rows, s.cols, s.height, s.width, false))
		if f == meta.QuantInt8 {
			out = append(out, e.int8(f, s.rows, s.cols, s.height, s.width, true))
		}
	}
	return out
}

func (e *env) int8(f meta.QuantFormat, rows, cols, height, width int, zeros bool) coded {
	down, across := (rows+height-1)/height, cols/width
	scales := e.values(down * across)
	c := coded{
		name: name(f, rows, cols, height, width, zeros), dtype: meta.Int8, scaleType: meta.Float32, rows: rows, cols: cols,
		spec:  meta.Quant{Format: f, Rows: height, Columns: width},
		codes: e.randomBytes(rows * cols), scales: encode(meta.Float32, scales),
	}
	if zeros {
		c.zeros, c.zeroType = e.randomBytes(down*across), meta.Int8
	}
	for i, code := range c.codes {
		block, zero := i/cols/height*across+i%cols/width, 0
		if zeros {
			zero = int(int8(c.zeros[block]))
		}
		v := float32(int(int8(code))-zero) * scales[block]
		if f == meta.QuantBnbInt8 {
			const perCode float32 = 7.874015718698502e-3
			v = float32(v * perCode)
		}
		c.values = append(c.values, v)
	}
	return c
}

// packedCases returns matrices with groups of columns in order and permuted, with and without zero
// points.
func (e *env) packedCases(f meta.QuantFormat) (out []coded) {
	for _, s := range []struct{ rows, cols, group int }{{1, 8, 8}, {7, 32, 32}, {17, 96, 32}, {130, 128, 64}} {
		for kind := range 3 {
			out = append(out, e.packed(f, s.rows, s.cols, s.group, kind > 0, kind > 1))
		}
	}
	return out
}

func (e *env) packed(f meta.QuantFormat, rows, cols, group int, zeros, shuffled bool) coded {
	groups, bits := cols/group, 4
	if f == meta.QuantInt8Packed {
		bits = 8
	}
	per := 32 / bits
	scales := e.values(rows * groups)
	c := coded{
		name: name(f, rows, cols, group, zeros, shuffled), dtype: meta.Int32, scaleType: meta.Float32, rows: rows, cols: cols,
		spec:  meta.Quant{Format: f, Rows: 1, Columns: group},
		codes: e.randomBytes(rows * cols * bits / 8), scales: encode(meta.Float32, scales),
	}
	if zeros {
		c.zeros = e.randomBytes((rows + per - 1) / per * groups * 4)
	}
	groupOf := func(col int) int { return col / group }
	if shuffled {
		groupOf = func(col int) int { return (col*5 + 1) % groups }
		for k := range cols {
			c.groups = binary.LittleEndian.AppendUint32(c.groups, uint32(groupOf(k)))
		}
	}
	word := func(b []byte, i, place int) int {
		return int(binary.LittleEndian.Uint32(b[4*i:]) >> (bits * place) & (1<<bits - 1))
	}
	for r := range rows {
		for k := range cols {
			g, zero := groupOf(k), 1<<(bits-1)
			if zeros {
				zero = word(c.zeros, r/per*groups+g, r%per)
			}
			c.values = append(c.values, float32(word(c.codes, r*cols/per+k/per, k%per)-zero)*scales[r*groups+g])
		}
	}
	return c
}

// gptq8Cases returns matrices with groups of rows in order and permuted.
func (e *env) gptq8Cases(f meta.QuantFormat) (out []coded) {
	for _, s := range []struct{ rows, cols, group int }{{4, 8, 4}, {32, 40, 32}, {160, 136, 32}} {
		for _, shuffled := range []bool{false, true} {
			out = append(out, e.gptq8(f, s.rows, s.cols, s.group, shuffled))
		}
	}
	return out
}

func (e *env) gptq8(f meta.QuantFormat, rows, cols, group int, shuffled bool) coded {
	groups := rows / group
	scales := rounded(meta.Float16, e.values(groups*cols))
	c := coded{
		name: name(f, rows, cols, group, shuffled), dtype: meta.Int32, scaleType: meta.Float16, rows: rows, cols: cols,
		spec:  meta.Quant{Format: f, Rows: group, Columns: 1, ZeroWords: [3]uint32{0x01010101, 0x01010101, 0x01010101}},
		codes: e.randomBytes(rows * cols), zeros: e.randomBytes(groups * cols), scales: encode(meta.Float16, scales),
	}
	groupOf := func(row int) int { return row / group }
	if shuffled {
		groupOf = func(row int) int { return (row*5 + 1) % groups }
		for r := range rows {
			c.groups = binary.LittleEndian.AppendUint32(c.groups, uint32(groupOf(r)))
		}
	}
	for r := range rows {
		for k := range cols {
			at := groupOf(r)*cols + k
			q := binary.LittleEndian.Uint32(c.codes[4*(r/4*cols+k):]) >> (r % 4 * 8) & 255
			zero := (binary.LittleEndian.Uint32(c.zeros[at&^3:]) + c.spec.ZeroWords[0]) >> (at % 4 * 8) & 255
			c.values = append(c.values, float32(int(q)-int(zero))*scales[at])
		}
	}
	return c
}

// fewBitsCases returns matrices of GPTQ in 2 and 3 bits, with groups of rows in order and permuted.
func (e *env) fewBitsCases(f meta.QuantFormat) (out []coded) {
	for _, s := range []struct{ rows, cols, group int }{{32, 32, 32}, {64, 160, 16}, {160, 288, 32}} {
		for _, shuffled := range []bool{false, true} {
			out = append(out, e.fewBits(f, s.rows, s.cols, s.group, shuffled))
		}
	}
	return out
}

func (e *env) fewBits(f meta.QuantFormat, rows, cols, group int, shuffled bool) coded {
	bits, added := 2, [3]uint32{0x55555555, 0x55555555, 0x55555555}
	if f == meta.QuantGPTQ3 {
		bits, added = 3, [3]uint32{0x49249249, 0x92492492, 0x24924924}
	}
	groups, words := rows/group, cols*bits/32
	scales := rounded(meta.Float16, e.values(groups*cols))
	c := coded{
		name: name(f, rows, cols, group, shuffled), dtype: meta.Int32, scaleType: meta.Float16, rows: rows, cols: cols,
		spec:  meta.Quant{Format: f, Rows: group, Columns: 1, ZeroWords: added},
		codes: e.randomBytes(rows * cols * bits / 8), zeros: e.randomBytes(4 * groups * words), scales: encode(meta.Float16, scales),
	}
	groupOf := func(row int) int { return row / group }
	if shuffled {
		groupOf = func(row int) int { return (row*5 + 1) % groups }
		for r := range rows {
			c.groups = binary.LittleEndian.AppendUint32(c.groups, uint32(groupOf(r)))
		}
	}
	// integer returns the integer n of a list of words, bit by bit.
	integer := func(n int, word func(i int) uint32) (v int) {
		for b := range bits {
			at := n*bits + b
			v |= int(word(at/32)>>(at%32)&1) << b
		}
		return v
	}
	for r := range rows {
		for k := range cols {
			q := integer(r, func(i int) uint32 { return binary.LittleEndian.Uint32(c.codes[4*(i*cols+k):]) })
			zero := integer(k, func(i int) uint32 {
				return binary.LittleEndian.Uint32(c.zeros[4*(groupOf(r)*words+i):]) + added[i%3]
			})
			c.values = append(c.values, float32(q-zero)*scales[groupOf(r)*cols+k])
		}
	}
	return c
}

func (e *env) nvfp4Cases(f meta.QuantFormat) (out []coded) {
	for _, s := range []struct{ rows, cols int }{{1, 16}, {7, 48}, {130, 96}} {
		out = append(out, e.nvfp4(f, s.rows, s.cols))
	}
	return out
}

func (e *env) nvfp4(f meta.QuantFormat, rows, cols int) coded {
	const global float32 = 2.75
	c := coded{
		name: name(f, rows, cols), dtype: meta.Uint8, scaleType: meta.Float8E4M3, rows: rows, cols: cols,
		spec:  meta.Quant{Format: f, Rows: 1, Columns: 16},
		codes: e.randomBytes(rows * cols / 2), scales: e.randomBytes(rows * cols / 16),
		global: encode(meta.Float32, []float32{global}),
	}
	for i := range c.scales {
		if c.scales[i] &= 0x7f; c.scales[i] == 0x7f {
			c.scales[i]--
		}
	}
	for i := range rows * cols {
		scale := e4m3(c.scales[i/16])
		if f == meta.QuantNVFP4 {
			scale /= global
		} else {
			scale *= global
		}
		code := c.codes[i/2] >> (i % 2 * 4)
		v := []float32{0, 0.5, 1, 1.5, 2, 3, 4, 6}[code&7]
		if code&8 != 0 {
			v = -v
		}
		c.values = append(c.values, v*scale)
	}
	return c
}
