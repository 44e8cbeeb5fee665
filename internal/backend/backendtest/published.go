package backendtest

import (
	"github.com/heftai/heft/meta"
)

// int8Cases have a scale for each row, for the whole matrix and for blocks, with zeros and without.
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
