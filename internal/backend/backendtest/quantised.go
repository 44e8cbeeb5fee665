package backendtest

import (
	"math"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// A twin has the float32 matrix with the values of a quantised one, and the matrix of its absolute
// values, which bounds rounding errors.
type twin struct{ plain, size backend.Matrix }

func (t twin) each(f func(backend.Matrix) backend.Matrix) twin { return twin{f(t.plain), f(t.size)} }

// testQuantised checks that a product with a quantised weight has the bits of the product with its values as float32,
// for all numbers of tokens, alignments and views. Interleaved rows give the bits that a prompt gets. For formats with
// scaledSums, results are equal up to rounding.
func testQuantised(e *env) {
	for _, c := range e.codedCases() {
		size := make([]float32, len(c.values))
		for i, v := range c.values {
			size[i] = abs(v)
		}
		plain := twin{backend.Matrix{Tensor: e.floats(c.values, c.rows, c.cols)}, backend.Matrix{Tensor: e.floats(size, c.rows, c.cols)}}
		for _, offset := range []int{0, 7} {
			e.sameProducts(c.name, e.matrix(&c, offset), plain, 1, 2, 4, 5, 40)
		}
		e.sameViews(&c, plain)
		e.sameRows(&c, plain.plain)
	}
}

func abs(v float32) float32 { return float32(math.Abs(float64(v))) }

// sameProducts compares products with m and with its twin, as they are and transposed, for numbers of tokens. A
// token's row must not depend on the other tokens.
func (e *env) sameProducts(what string, m backend.Matrix, plain twin, counts ...int) {
	e.Helper()
	for _, transposed := range []bool{false, true} {
		m.Transposed, plain.plain.Transposed, plain.size.Transposed = transposed, transposed, transposed
		for _, tokens := range counts {
			x := e.floats(e.values(tokens*m.InCols()), tokens, m.InCols())
			bias := e.floats(e.values(m.OutRows()), m.OutRows())
			got := e.linear(x, m, bias)
			e.sameProduct(name(what, "transposed", transposed, "tokens", tokens), got, m, x, plain, bias)
			if tokens == 4 {
				got := e.linear(x.Slice(2, 3), m, bias)
				want := e.linear(x, m, bias)
				sameBits(e, name(what, "transposed", transposed, "a token alone"), got, want[2*m.OutRows():3*m.OutRows()])
			}
			e.Free(x)
			e.Free(bias)
		}
	}
}

// sameProduct compares got, a product of x and m, with the product of x and m's twin.
func (e *env) sameProduct(what string, got []float32, m backend.Matrix, x tensor.Tensor, plain twin, bias tensor.Tensor) {
	e.Helper()
	want := e.linearAs(m, x, plain.plain, bias)
	if !codedFormats[m.Quant.Format].scaledSums || m.Transposed {
		sameBits(e, what, got, want)
		return
	}
	sizes := e.read(x)
	for i, v := range sizes {
		sizes[i] = abs(v)
	}
	in := e.floats(sizes, x.Rows(), x.Cols())
	for i, size := range e.linear(in, plain.size, tensor.Tensor{}) {
		if d := abs(got[i] - want[i]); d > 3e-6*(size+abs(want[i]))+0x1p-140 {
			e.Fatalf("%s: element %d is %v, want %v", what, i, got[i], want[i])
		}
	}
	e.Free(in)
}

// linearAs returns the product of x and plain, with sums in the order that the product of x and m has.
func (e *env) linearAs(m backend.Matrix, x tensor.Tensor, plain backend.Matrix, bias tensor.Tensor) []float32 {
	if m.Quant.Height > 0 && !m.Transposed {
		return e.linearRounded(x, plain, bias, backend.Prompt)
	}
	return e.linear(x, plain, bias)
}

// sameViews compares products with views of c: rows and columns cut at boundaries of blocks, words
// and bytes and elsewhere, and every second row.
func (e *env) sameViews(c *coded, plain twin) {
	e.Helper()
	m := e.matrix(c, 0)
	everySecond := func(m backend.Matrix) backend.Matrix { m.RowStep = 2; return m }
	for _, begin := range []int{1, 2, c.rows / 2, c.rows - 1} {
		if begin < c.rows {
			what := name(c.name, "from row", begin)
			cut := func(m backend.Matrix) backend.Matrix { return m.CutRows(begin, c.rows) }
			e.sameProducts(what, cut(m), plain.each(cut), 1, 5)
			step, plainStep := everySecond(cut(m)), plain.each(cut).each(everySecond)
			for _, tokens := range []int{1, 3} {
				x := e.floats(e.values(tokens*c.cols), tokens, c.cols)
				e.sameProduct(name(what, "every second", tokens), e.linear(x, step, tensor.Tensor{}), step, x, plainStep, tensor.Tensor{})
			}
		}
	}
	for _, begin := range []int{1, 3, 8, c.cols / 2, c.cols - 1} {
		if end := c.cols - begin/3; begin < end {
			what := name(c.name, "columns", begin, end)
			cut := func(m backend.Matrix) backend.Matrix { return m.CutColumns(begin, end) }
			e.sameProducts(what, cut(m), plain.each(cut), 1, 5)
			transpose := func(m backend.Matrix) backend.Matrix { m.Transposed = true; return m }
			step, plainStep := transpose(everySecond(cut(m))), plain.each(cut).each(everySecond).each(transpose)
			x := e.floats(e.values(3*c.rows), 3, c.rows)
			e.sameProduct(name(what, "every second"), e.linear(x, step, tensor.Tensor{}), step, x, plainStep, tensor.Tensor{})
		}
	}
}

// sameRows compares lookups of rows.
func (e *env) sameRows(c *coded, plain backend.Matrix) {
	e.Helper()
	ids := []int32{int32(c.rows - 1), 0, int32(c.rows / 2)}
	got, want := e.empty(len(ids), c.cols), e.empty(len(ids), c.cols)
	e.Embed(got, e.matrix(c, 3), ids, 1)
	e.Embed(want, plain, ids, 1)
	sameBits(e, name(c.name, "rows"), e.read(got), e.read(want))
}

// testQuantisedNaN checks that a NaN among codes or scales makes its row of the result NaN, and no other.
func testQuantisedNaN(e *env) {
	if c := e.fp8(1, 1, meta.Float32, 128); !e.supports(&c) {
		return
	}
	for _, code := range []byte{0x7f, 0xff} {
		c := e.fp8(19, 140, meta.Float32, 128)
		for _, at := range []int{0, 7, 16, 71, 130, 139} {
			c.codes[5*c.cols+at] = code
			for tokens := 1; tokens <= 2; tokens++ {
				x := e.floats(e.values(tokens*c.cols), tokens, c.cols)
				for i, v := range e.linear(x, e.matrix(&c, 0), tensor.Tensor{}) {
					if math.IsNaN(float64(v)) != (i%c.rows == 5) {
						e.Fatalf("fp8 with code %#x at column %d of row 5: row %d of the result is %v", code, at, i%c.rows, v)
					}
				}
			}
			c.codes[5*c.cols+at] = 0
		}
	}
	c := e.mxfp4(9, 64)
	c.scales[2*4+1] = 255
	x := e.floats(e.values(c.cols), 1, c.cols)
	for i, v := range e.linear(x, e.matrix(&c, 0), tensor.Tensor{}) {
		if math.IsNaN(float64(v)) != (i == 4) {
			e.Fatalf("mxfp4 with a scale of NaN in row 4: row %d of the result is %v", i, v)
		}
	}
}

// testQuantisedErrors checks that missing codes, scales and groups are errors.
func testQuantisedErrors(e *env) {
	for _, c := range e.codedCases() {
		for what, spoil := range map[string]func(m *backend.Matrix){
			"codes":  func(m *backend.Matrix) { m.Data = m.Data[:len(m.Data)-1] },
			"scales": func(m *backend.Matrix) { m.Quant.Scales.Data = nil },
			"view":   func(m *backend.Matrix) { m.Row++ },
			"width":  func(m *backend.Matrix) { m.Col++ },
			"group":  func(m *backend.Matrix) { m.Quant.Index = e.raw(make([]byte, 4), meta.Int32, 0) },
		} {
			m := e.matrix(&c, 0)
			if m.Data == nil && (what == "codes" || what == "scales") { // a tensor of a device has no length
				continue
			}
			if spoil(&m); what == "group" && c.groups == nil || what == "scales" && c.scales == nil {
				continue
			}
			e.Linear(e.empty(1, c.rows), e.floats(e.values(c.cols), 1, c.cols), m, tensor.Tensor{})
			if e.Sync() == nil {
				e.Errorf("%s: wrong %s were taken", c.name, what)
			}
		}
	}
}
