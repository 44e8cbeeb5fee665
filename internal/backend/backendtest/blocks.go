package backendtest

import (
	"encoding/binary"
	"math"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// blocks makes a matrix in QuantQ8 or QuantQ4, whose scales are stored among the codes. Some scales
// are subnormal.
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

// interleaved returns c with 16 rows interleaved. Each block of columns has the scales of the rows,
// then four bytes of codes of each row in turn.
func interleaved(c coded) coded {
	size, codes := int(c.spec.Format.BlockBytes()), c.codes
	each := c.cols / 32 * size
	c.name, c.height, c.codes = name(c.name, "interleaved"), c.rows, nil
	for first := 0; first < c.rows; first += 16 {
		band := codes[first*each : min(first+16, c.rows)*each]
		for block := 0; block < each; block += size {
			for begin, end := 0, 2; begin < size; begin, end = end, end+4 {
				for row := block; row < len(band); row += each {
					c.codes = append(c.codes, band[row+begin:row+end]...)
				}
			}
		}
	}
	if c.spec.Format == meta.QuantQ8 {
		c.unsign()
	}
	return c
}

// unsign adds 128 to the interleaved codes of QuantQ8, which that layout stores unsigned.
func (c *coded) unsign() {
	at := 0
	for first := 0; first < c.rows; first += 16 {
		rows := min(16, c.rows-first)
		for range c.cols / 32 {
			at += 2 * rows
			for range 32 * rows {
				c.codes[at] ^= 0x80
				at++
			}
		}
	}
}

// half decodes a float16: (-1)^s · 2^(e-15) · 1.m, or (-1)^s · 2^-14 · 0.m if e is 0.
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

// testQuantisedRounded: a product with weights in blocks may round its input to blocks of eight
// bits. In either role a token's result has the same bits alone and in any batch, with weights at
// any address and with views of them.
func testQuantisedRounded(e *env) {
	for _, f := range meta.QuantFormats() {
		if !f.Row().Convert {
			continue
		}
		for _, s := range []struct{ rows, cols int }{{1, 32}, {7, 64}, {130, 96}, {37, 160}} {
			c := e.blocks(f, s.rows, s.cols)
			if rows := interleaved(c); !e.supports(&rows) {
				continue
			}
			for _, role := range roles {
				const tokens = 9
				v, bias := e.values(tokens*s.cols), e.values(s.rows)
				in, b := e.floats(v, tokens, s.cols), e.floats(bias, s.rows)
				what := name("rounded", c.name, "role", role)
				all := e.linearRounded(in, e.matrix(&c, 0), b, role)
				closeInts(e, what, all, v, c.values, bias, tokens, s.rows, s.cols)
				sameBits(e, what+"moved", e.linearRounded(in, e.matrix(&c, 7), b, role), all)
				for t := range tokens {
					sameBits(e, what+"alone", e.linearRounded(in.Slice(t, t+1), e.matrix(&c, 0), b, role), all[t*s.rows:][:s.rows])
				}
				sameBits(e, what+"three", e.linearRounded(in.Slice(4, 7), e.matrix(&c, 0), b, role), all[4*s.rows:7*s.rows])
				banded := interleaved(c)
				sameBits(e, what+"bands", e.linearRounded(in, e.matrix(&banded, 7), b, role), all)
				sameBits(e, what+"a token by bands", e.linearRounded(in.Slice(4, 5), e.matrix(&banded, 0), b, role), all[4*s.rows:5*s.rows])
				testBlockViews(e, what, &c, in, v, role)
				testBlockViews(e, what+"bands", &banded, in, v, role)
			}
		}
	}
}

// testBlockViews multiplies in, whose values are v, by views of c's rows and columns.
func testBlockViews(e *env, what string, c *coded, in tensor.Tensor, v []float32, role backend.Role) {
	e.Helper()
	tokens := in.Rows()
	if c.rows > 2 {
		rows := e.matrix(c, 0).CutRows(1, c.rows)
		closeInts(e, what+"from row 1", e.linearRounded(in, rows, tensor.Tensor{}, role), v, c.values[c.cols:], nil, tokens, c.rows-1, c.cols)
		rows.RowStep = 2
		closeInts(e, what+"every second", e.linearRounded(in, rows, tensor.Tensor{}, role), v, every(c.values, c.cols, 1, 2), nil, tokens, rows.OutRows(), c.cols)
	}
	for _, begin := range []int{32, 3} {
		if begin < c.cols {
			cut := in.Columns(begin, c.cols)
			got := e.linearRounded(cut, e.matrix(c, 0).CutColumns(begin, c.cols), tensor.Tensor{}, role)
			closeInts(e, what+"columns", got, e.read(cut), cutColumns(c.values, c.cols, begin), nil, tokens, c.rows, c.cols-begin)
		}
	}
}

// closeInts compares with a product whose inputs may be rounded to eight bits.
func closeInts(e *env, what string, got, x, w, bias []float32, tokens, rows, cols int) {
	e.Helper()
	for i, want := range product(x, w, bias, tokens, rows, cols) {
		in, row := x[i/rows*cols:][:cols], w[i%rows*cols:][:cols]
		top, size := 0.0, 0.0
		for k := range cols {
			top = max(top, math.Abs(float64(in[k])))
			size += math.Abs(float64(row[k]))
		}
		if diff := math.Abs(float64(got[i]) - want); !(diff <= (0.51/127+1e-5)*top*size+1e-5) {
			e.Fatalf("%s: element %d is %g, want %g", what, i, got[i], want)
		}
	}
}

// every returns rows first, first+step, … of a matrix.
func every(v []float32, cols, first, step int) []float32 {
	var out []float32
	for r := first; r*cols < len(v); r += step {
		out = append(out, v[r*cols:][:cols]...)
	}
	return out
}

func cutColumns(v []float32, cols, begin int) []float32 {
	var out []float32
	for r := 0; r < len(v); r += cols {
		out = append(out, v[r+begin:r+cols]...)
	}
	return out
}
