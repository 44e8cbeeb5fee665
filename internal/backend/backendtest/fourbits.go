package backendtest

import (
	"fmt"
	"math"

	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/meta"
)

// fourBitsCases returns matrices with scales as floats and as bytes, and values in every dtype.
func (e *env) fourBitsCases(f meta.QuantFormat) (out []coded) {
	for i, dtype := range []string{"float32", "bfloat16", "float16"} {
		for _, s := range []struct{ rows, cols, size int }{{1, 8, 64}, {7, 96, 64}, {33, 50, 64}, {40, 128, 128}, {130, 160, 64}} {
			out = append(out, e.fourBits(f, s.rows, s.cols, s.size, dtype, i%2 == 0))
		}
	}
	return append(out, e.fourBits(f, 9, 64, 64, "bfloat16", true))
}

func (e *env) fourBits(f meta.QuantFormat, rows, cols, size int, dtype string, nested bool) coded {
	table := map[meta.QuantFormat][]float32{
		meta.QuantBnbNF4: {-1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
			-0.09105003625154495, 0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
			0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1},
		meta.QuantBnbFP4: {0, 0.0052083334885537624, 0.6666666865348816, 1, 0.3333333432674408, 0.5, 0.1666666716337204, 0.25,
			0, -0.0052083334885537624, -0.6666666865348816, -1, -0.3333333432674408, -0.5, -0.1666666716337204, -0.25},
	}[f]
	n := rows * cols
	blocks := (n + size - 1) / size
	state := fmt.Sprintf(`{"quant_type": "x", "blocksize": %d, "dtype": "%s", "shape": [%d, %d]`, size, dtype, rows, cols)
	c := coded{
		name: name(f, rows, cols, size, dtype, nested), dtype: meta.Uint8, rows: rows, cols: cols, codes: e.randomBytes(n / 2),
	}
	scales := e.values(blocks)
	if nested {
		const offset = 1.625
		state += fmt.Sprintf(`, "nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": %g`, offset)
		numbers, of := e.values(256), e.values((blocks+255)/256)
		c.scaleType, c.scales = meta.Uint8, e.randomBytes(blocks)
		c.groups, c.zeros, c.zeroType = encode(meta.Float32, numbers), encode(meta.Float32, of), meta.Float32
		for i, b := range c.scales {
			scales[i] = float32(numbers[b]*of[i/256]) + offset
		}
	} else {
		c.scaleType, c.scales = meta.Float32, encode(meta.Float32, scales)
	}
	state += "}"
	for len(state)%4 != 0 {
		state += " "
	}
	c.global = []byte(state)
	c.spec = meta.Quant{Format: f, ScaleDType: c.scaleType, Rows: 1, Columns: size, Width: cols, State: len(state)}
	for i := range n {
		code := c.codes[i/2] >> 4
		if i%2 == 1 {
			code = c.codes[i/2] & 15
		}
		v := table[code] * scales[i/size]
		switch dtype {
		case "bfloat16":
			v = mat.FromBFloat16(mat.ToBFloat16(v))
		case "float16":
			v = mat.FromFloat16(mat.ToFloat16(v))
		}
		c.values = append(c.values, v)
	}
	return c
}

// powersCases returns matrices with power-of-two scales: for blocks, rows and groups of columns.
func (e *env) powersCases(f meta.QuantFormat) (out []coded) {
	sizes := [][4]int{{1, 32, 1, 32}, {7, 96, 1, 32}, {130, 160, 1, 32}}
	if f == meta.QuantFP8Powers {
		sizes = append(sizes, [4]int{40, 100, 16, 64}, [4]int{33, 50, 1, 50}, [4]int{130, 64, meta.AllRows, 64})
	}
	for _, s := range sizes {
		out = append(out, e.powers(f, s[0], s[1], s[2], s[3]))
	}
	return out
}

func (e *env) powers(f meta.QuantFormat, rows, cols, height, width int) coded {
	down, across := (rows+height-1)/height, (cols+width-1)/width
	c := coded{
		name: name(f, rows, cols, height, width), dtype: f.Row().Codes.DTypes[0], scaleType: meta.Uint8, rows: rows, cols: cols,
		spec: meta.Quant{Format: f, ScaleDType: meta.Uint8, Rows: height, Columns: width},
	}
	for i := range down * across {
		c.scales = append(c.scales, byte(120+i%9))
	}
	power := func(r, k int) float32 { return float32(math.Ldexp(1, int(c.scales[r/height*across+k/width])-127)) }
	if f == meta.QuantMXFP4Packed {
		table := []float32{0, 0.5, 1, 1.5, 2, 3, 4, 6, float32(math.Copysign(0, -1)), -0.5, -1, -1.5, -2, -3, -4, -6}
		c.codes = e.randomBytes(rows * cols / 2)
		for i := range rows * cols {
			c.values = append(c.values, table[c.codes[i/2]>>(i%2*4)&15]*power(i/cols, i%cols))
		}
		return c
	}
	c.codes = e.randomBytes(rows * cols)
	for i := range c.codes {
		if c.codes[i]&127 == 127 { // not a number
			c.codes[i]--
		}
	}
	for i, code := range c.codes {
		c.values = append(c.values, e4m3(code)*power(i/cols, i%cols))
	}
	return c
}
