package backendtest

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// coded is a quantised matrix of made-up codes, and its values by the formats' formulas.
type coded struct {
	name                         string
	spec                         meta.Quant
	dtype, scaleType             meta.DType
	zeroType                     meta.DType // int32 if it is no dtype
	rows, cols                   int
	height                       int // of interleaved rows; 0 for rows one after another
	codes, scales, zeros, groups []byte
	global                       []byte
	values                       []float32
}

// A codedFormat is a row of the suite's table: a format of meta's table, decoded by its formula alone.
type codedFormat struct {
	cases func(e *env, f meta.QuantFormat) []coded
	// scaledSums says that small batches may apply scales to sums instead of weights, which rounds elsewhere.
	scaledSums bool
}

// codedFormats is the table. A format without a row fails the suite.
var codedFormats = map[meta.QuantFormat]codedFormat{
	meta.QuantFP8:   {cases: (*env).fp8Cases, scaledSums: true},
	meta.QuantMXFP4: {cases: (*env).mxfp4Cases, scaledSums: true},
	meta.QuantGPTQ:  {cases: (*env).nibbleCases},
	meta.QuantAWQ:   {cases: (*env).nibbleCases},
	meta.QuantQ8:    {cases: (*env).blockCases},
	meta.QuantQ4:    {cases: (*env).blockCases},

	meta.QuantInt8:    {cases: (*env).int8Cases},
	meta.QuantBnbInt8: {cases: (*env).int8Cases},

	meta.QuantInt4Packed: {cases: (*env).int4PackedCases},
	meta.QuantGPTQ8:      {cases: (*env).gptq8Cases},

	meta.QuantNVFP4:         {cases: (*env).nvfp4Cases},
	meta.QuantNVFP4ModelOpt: {cases: (*env).nvfp4Cases},

	meta.QuantBnbNF4: {cases: (*env).fourBitsCases},
	meta.QuantBnbFP4: {cases: (*env).fourBitsCases},

	meta.QuantFP8Powers:   {cases: (*env).powersCases},
	meta.QuantMXFP4Packed: {cases: (*env).powersCases},
}

func init() {
	for f := meta.QuantQ41; f <= meta.QuantTQ20; f++ {
		codedFormats[f] = codedFormat{cases: (*env).ggufCases}
	}
}

// codedCases are all formats that the backend supports, in sizes with partial blocks and tails.
func (e *env) codedCases() (out []coded) {
	e.Helper()
	for _, c := range e.allCoded() {
		if e.supports(&c) {
			out = append(out, c)
		}
	}
	return out
}

// allCoded are all formats. With -short they have one type of GGUF files: all of these are unpacked by the same
// path, and the race detector takes minutes for each.
func (e *env) allCoded() []coded {
	e.Helper()
	var out []coded
	for _, f := range meta.QuantFormats() {
		if testing.Short() && f > meta.QuantQ41 && f <= meta.QuantTQ20 {
			continue
		}
		row, ok := codedFormats[f]
		if !ok {
			e.Fatalf("the suite has no decoder for %v: add a row to codedFormats", f)
		}
		out = append(out, row.cases(e, f)...)
	}
	return out
}

// supports reports whether the backend takes weights of c's format.
func (e *env) supports(c *coded) bool {
	s, selective := e.Backend.(backend.Selective)
	return !selective || s.Supports(backend.Matrix{Quant: &backend.Quant{Quant: &c.spec, Width: c.cols, Height: c.height}})
}

func (e *env) fp8Cases(meta.QuantFormat) (out []coded) {
	for _, s := range []struct{ rows, cols int }{{1, 1}, {3, 7}, {17, 31}, {129, 140}, {136, 257}} {
		for _, d := range []meta.DType{meta.Float32, meta.BFloat16} {
			out = append(out, e.fp8(s.rows, s.cols, d, 128))
		}
	}
	// Rows of whole blocks, which kernels multiply by codes: one scale for a row, and blocks of several sizes.
	return append(out, e.fp8(40, 50, meta.Float16, 16), e.fp8(20, 96, meta.BFloat16, 128), e.fp8(136, 288, meta.Float32, 128), e.fp8(40, 224, meta.Float16, 64), e.fp8(24, 160, meta.BFloat16, 32))
}

func (e *env) mxfp4Cases(meta.QuantFormat) (out []coded) {
	for _, s := range blockShapes {
		out = append(out, e.mxfp4(s.rows, s.cols))
	}
	return out
}

// blockShapes are sizes for blocks of 32 columns.
var blockShapes = []struct{ rows, cols int }{{1, 32}, {7, 64}, {130, 96}}

func (e *env) blockCases(f meta.QuantFormat) (out []coded) {
	for _, s := range blockShapes {
		c := e.blocks(f, s.rows, s.cols)
		out = append(out, c, interleaved(c))
	}
	return out
}

func (e *env) nibbleCases(f meta.QuantFormat) (out []coded) {
	for _, s := range []struct{ rows, cols, group int }{{8, 8, 8}, {32, 40, 32}, {160, 136, 32}, {264, 264, 128}} {
		out = append(out, e.nibbles(f, s.rows, s.cols, s.group))
	}
	if len(f.Row().Index.DTypes) > 0 {
		shuffled := e.nibbles(f, 64, 24, 32)
		shuffled.shuffle()
		out = append(out, shuffled)
	}
	return out
}

func (e *env) randomBytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(e.random.Uint32())
	}
	return b
}

// fp8 has no NaN among its codes; testQuantisedNaN adds one.
func (e *env) fp8(rows, cols int, scaleType meta.DType, block int) coded {
	down, across := (rows+block-1)/block, (cols+block-1)/block
	scales := e.values(down * across)
	c := coded{
		name: name("fp8", rows, cols, scaleType), dtype: meta.Float8E4M3, scaleType: scaleType, rows: rows, cols: cols,
		spec:  meta.Quant{Format: meta.QuantFP8, Rows: block, Columns: block},
		codes: e.randomBytes(rows * cols), scales: encode(scaleType, scales),
	}
	scales = rounded(scaleType, scales)
	for i, code := range c.codes {
		if code&0x7f == 0x7f {
			c.codes[i]--
		}
		c.values = append(c.values, e4m3(c.codes[i])*scales[i/cols/block*across+i%cols/block])
	}
	return c
}

// e4m3 is (-1)^s · 2^(e-7) · 1.m, or 2^-6 · 0.m where e is 0.
func e4m3(code byte) float32 {
	exponent, mantissa := int(code>>3&15), float64(code&7)/8
	v := math.Ldexp(mantissa, -6)
	if exponent > 0 {
		v = math.Ldexp(1+mantissa, exponent-7)
	}
	if code&0x7f == 0x7f {
		v = math.NaN()
	}
	if code&0x80 != 0 {
		v = -v
	}
	return float32(v)
}

func (e *env) mxfp4(rows, cols int) coded {
	c := coded{
		name: name("mxfp4", rows, cols), dtype: meta.Uint8, scaleType: meta.Uint8, rows: rows, cols: cols,
		spec:  meta.Quant{Format: meta.QuantMXFP4, Rows: 1, Columns: 32},
		codes: e.randomBytes(rows * cols / 2), scales: e.randomBytes(rows * cols / 32),
	}
	for i := range c.scales {
		c.scales[i] = 117 + c.scales[i]%20
	}
	c.scales[len(c.scales)-1] = 0 // the least power of two
	for i := range rows * cols {
		code := c.codes[i/2] >> (i % 2 * 4)
		v := []float64{0, 0.5, 1, 1.5, 2, 3, 4, 6}[code&7]
		if code&8 != 0 {
			v = -v
		}
		c.values = append(c.values, float32(math.Ldexp(v, int(c.scales[i/32])-127)))
	}
	return c
}

// nibbles is QuantGPTQ or QuantAWQ for [inputs, outputs].
func (e *env) nibbles(f meta.QuantFormat, rows, cols, group int) coded {
	groups := (rows + group - 1) / group
	c := coded{
		name: name(f, rows, cols, group), dtype: meta.Int32, scaleType: meta.Float16, rows: rows, cols: cols,
		spec:  f.Usual(rows, cols),
		codes: e.randomBytes(rows * cols / 2), zeros: e.randomBytes(groups * cols / 2),
		scales: encode(meta.Float16, e.values(groups*cols)),
	}
	c.spec.Rows = group
	c.unpack(func(row int) int { return row / group })
	return c
}

// shuffle gives rows groups in another order.
func (c *coded) shuffle() {
	count := (c.rows + c.spec.Rows - 1) / c.spec.Rows
	group := func(row int) int { return (row*5 + 1) % count }
	for r := range c.rows {
		c.groups = binary.LittleEndian.AppendUint32(c.groups, uint32(group(r)))
	}
	c.name += "shuffled"
	c.unpack(group)
}

// unpack computes the values of integers of four bits.
func (c *coded) unpack(group func(row int) int) {
	order, alongRows := [8]int{0, 1, 2, 3, 4, 5, 6, 7}, c.spec.Format.Row().Codes.Rows == 8
	if !alongRows {
		order = [8]int{0, 4, 1, 5, 2, 6, 3, 7} // the place of column i in a word of AWQ
	}
	nibble := func(b []byte, word, place int) int {
		return int(binary.LittleEndian.Uint32(b[4*word:]) >> (4 * place) & 15)
	}
	scales := decode(meta.Float16, c.scales)
	c.values = nil
	for r := range c.rows {
		g := group(r)
		for k := range c.cols {
			q := nibble(c.codes, r/8*c.cols+k, r%8)
			if !alongRows {
				q = nibble(c.codes, r*c.cols/8+k/8, order[k%8])
			}
			zero := nibble(c.zeros, g*c.cols/8+k/8, order[k%8]) + c.spec.ZeroBias
			c.values = append(c.values, float32(q-zero)*scales[g*c.cols+k])
		}
	}
}

// raw puts bytes on the device, offset bytes from an aligned address.
func (e *env) raw(data []byte, d meta.DType, offset int) tensor.Tensor {
	e.Helper()
	t, err := e.New(meta.Uint8, offset+len(data))
	if err != nil {
		e.Fatal(err)
	}
	host, err := tensor.Of(append(make([]byte, offset), data...), meta.Uint8, offset+len(data))
	if err != nil {
		e.Fatal(err)
	}
	if err := e.Copy(t, host); err != nil {
		e.Fatal(err)
	}
	t = t.Slice(offset, offset+len(data))
	t.DType, t.Dims[0] = d, len(data)*8/d.Bits()
	return t
}

// matrix puts c on the device.
func (e *env) matrix(c *coded, offset int) backend.Matrix {
	e.Helper()
	q := &backend.Quant{Quant: &c.spec, Width: c.cols, Height: c.height, Scales: e.raw(c.scales, c.scaleType, offset)}
	if c.zeros != nil {
		d := c.zeroType
		if d == meta.NoDType {
			d = meta.Int32
		}
		q.Zeros = e.raw(c.zeros, d, offset)
	}
	if c.groups != nil {
		q.Index = e.raw(c.groups, meta.Int32, offset)
	}
	if c.global != nil {
		q.Global = e.raw(c.global, meta.Float32, offset)
	}
	t := e.raw(c.codes, c.dtype, offset)
	t.Rank, t.Dims = 2, [tensor.MaxRank]int{c.rows, c.cols}
	return backend.Matrix{Tensor: t, Quant: q}
}

// A twin is what a quantised weight stands for: its values as float32, and their absolute values.
type twin struct{ plain, size backend.Matrix }

func (t twin) each(f func(backend.Matrix) backend.Matrix) twin { return twin{f(t.plain), f(t.size)} }

// testQuantised: a quantised weight gives the bits of its values as float32, whatever the number of tokens, the
// alignment and the view; interleaved rows give those of a prompt. Where scales may be applied to sums, results are
// equal up to rounding.
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

// sameProducts multiplies with both, as they are and transposed, by numbers of tokens.
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

// sameProduct compares a product of x and m with that of what m stands for.
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

// linearAs is the product with plain in the order of sums of that with m.
func (e *env) linearAs(m backend.Matrix, x tensor.Tensor, plain backend.Matrix, bias tensor.Tensor) []float32 {
	if m.Quant.Height > 0 && !m.Transposed {
		return e.linearRounded(x, plain, bias, backend.Prompt)
	}
	return e.linear(x, plain, bias)
}

// sameViews cuts rows and columns where blocks, words and bytes are whole and where they
// are not, and takes every second row.
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
			turn := func(m backend.Matrix) backend.Matrix { m.Transposed = true; return m }
			step, plainStep := turn(everySecond(cut(m))), plain.each(cut).each(everySecond).each(turn)
			x := e.floats(e.values(3*c.rows), 3, c.rows)
			e.sameProduct(name(what, "every second"), e.linear(x, step, tensor.Tensor{}), step, x, plainStep, tensor.Tensor{})
		}
	}
}

// sameRows looks rows up.
func (e *env) sameRows(c *coded, plain backend.Matrix) {
	e.Helper()
	ids := []int32{int32(c.rows - 1), 0, int32(c.rows / 2)}
	got, want := e.empty(len(ids), c.cols), e.empty(len(ids), c.cols)
	e.Embed(got, e.matrix(c, 3), ids, 1)
	e.Embed(want, plain, ids, 1)
	sameBits(e, name(c.name, "rows"), e.read(got), e.read(want))
}

// testQuantisedNaN: a NaN among codes or scales reaches the elements it belongs to.
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

// testQuantisedErrors: codes, scales and groups that are not there are errors.
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
