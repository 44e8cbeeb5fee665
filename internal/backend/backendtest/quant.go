package backendtest

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// coded is a quantised matrix of random codes, and its values, computed by the format's definition.
type coded struct {
	name                         string
	spec                         meta.Quant
	dtype, scaleType             meta.DType
	zeroType                     meta.DType // NoDType means Int32
	rows, cols                   int
	height                       int // rows that are interleaved; 0 if none are
	codes, scales, zeros, groups []byte
	global                       []byte
	values                       []float32 // what the matrix stands for
}

// A codedFormat makes the suite's matrices of one format.
type codedFormat struct {
	cases func(e *env, f meta.QuantFormat) []coded
	// scaledSums says that kernels for small batches may multiply sums by scales, instead of weights. Their
	// results differ from those of dequantised weights by rounding.
	scaledSums bool
}

// codedFormats has a row for each format of meta's table. A format without one fails the suite.
var codedFormats = map[meta.QuantFormat]codedFormat{
	meta.QuantFP8:   {cases: (*env).fp8Cases, scaledSums: true},
	meta.QuantMXFP4: {cases: (*env).mxfp4Cases, scaledSums: true},
	meta.QuantGPTQ:  {cases: (*env).nibbleCases},
	meta.QuantAWQ:   {cases: (*env).nibbleCases},
	meta.QuantQ8:    {cases: (*env).blockCases},
	meta.QuantQ4:    {cases: (*env).blockCases},

	meta.QuantInt8:    {cases: (*env).int8Cases},
	meta.QuantBnbInt8: {cases: (*env).int8Cases},

	meta.QuantInt4Packed: {cases: (*env).packedCases},
	meta.QuantInt8Packed: {cases: (*env).packedCases},
	meta.QuantGPTQ8:      {cases: (*env).gptq8Cases},
	meta.QuantGPTQ2:      {cases: (*env).fewBitsCases},
	meta.QuantGPTQ3:      {cases: (*env).fewBitsCases},

	meta.QuantNVFP4:         {cases: (*env).nvfp4Cases},
	meta.QuantNVFP4ModelOpt: {cases: (*env).nvfp4Cases},

	meta.QuantBnbNF4: {cases: (*env).fourBitsCases},
	meta.QuantBnbFP4: {cases: (*env).fourBitsCases},

	meta.QuantFP8Powers:   {cases: (*env).powersCases},
	meta.QuantMXFP4Packed: {cases: (*env).powersCases},
}

func init() {
	for f := meta.QuantQ41; f <= meta.QuantQ20; f++ {
		codedFormats[f] = codedFormat{cases: (*env).ggufCases}
	}
}

// codedCases returns matrices of all formats that the backend supports, in sizes with partial blocks and tails.
func (e *env) codedCases() (out []coded) {
	e.Helper()
	for _, c := range e.allCoded() {
		if e.supports(&c) {
			out = append(out, c)
		}
	}
	return out
}

// allCoded returns matrices of all formats. With -short it has one of GGUF's block types only: one path unpacks
// all of them, and the race detector takes minutes for each.
func (e *env) allCoded() []coded {
	e.Helper()
	var out []coded
	for _, f := range meta.QuantFormats() {
		if testing.Short() && f > meta.QuantQ41 && f <= meta.QuantQ20 {
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

// supports reports whether the backend supports weights of c's format.
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
	// Rows of whole blocks, which some kernels multiply without dequantising them, with blocks of several sizes.
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

// fp8 makes a matrix in QuantFP8. It has no NaN among its codes; testQuantisedNaN adds some.
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

// e4m3 decodes a float8_e4m3fn: (-1)^s · 2^(e-7) · 1.m, or (-1)^s · 2^-6 · 0.m if e is 0. All ones are NaN.
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

// mxfp4 makes a matrix in QuantMXFP4.
func (e *env) mxfp4(rows, cols int) coded {
	c := coded{
		name: name("mxfp4", rows, cols), dtype: meta.Uint8, scaleType: meta.Uint8, rows: rows, cols: cols,
		spec:  meta.Quant{Format: meta.QuantMXFP4, Rows: 1, Columns: 32},
		codes: e.randomBytes(rows * cols / 2), scales: e.randomBytes(rows * cols / 32),
	}
	for i := range c.scales {
		c.scales[i] = 117 + c.scales[i]%20
	}
	c.scales[len(c.scales)-1] = 0 // the smallest power of two
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

// nibbles makes a matrix of [inputs, outputs] in QuantGPTQ or QuantAWQ.
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

// shuffle assigns the rows of a GPTQ matrix to groups in another order, as act-order does.
func (c *coded) shuffle() {
	count := (c.rows + c.spec.Rows - 1) / c.spec.Rows
	group := func(row int) int { return (row*5 + 1) % count }
	for r := range c.rows {
		c.groups = binary.LittleEndian.AppendUint32(c.groups, uint32(group(r)))
	}
	c.name += "shuffled"
	c.unpack(group)
}

// unpack computes the values of 4-bit integers. group returns the group of a row.
func (c *coded) unpack(group func(row int) int) {
	order, alongRows := [8]int{0, 1, 2, 3, 4, 5, 6, 7}, c.spec.Format.Row().Codes.Rows == 8
	if !alongRows {
		order = [8]int{0, 4, 1, 5, 2, 6, 3, 7} // the nibble of column i in a word of AWQ
	}
	nibble := func(b []byte, word, i int, added uint32) int {
		return int((binary.LittleEndian.Uint32(b[4*word:]) + added) >> (4 * i) & 15)
	}
	scales := decode(meta.Float16, c.scales)
	c.values = nil
	for r := range c.rows {
		g := group(r)
		for k := range c.cols {
			q := nibble(c.codes, r/8*c.cols+k, r%8, 0)
			if !alongRows {
				q = nibble(c.codes, r*c.cols/8+k/8, order[k%8], 0)
			}
			zero := nibble(c.zeros, g*c.cols/8+k/8, order[k%8], c.spec.ZeroWords[0])
			c.values = append(c.values, float32(q-zero)*scales[g*c.cols+k])
		}
	}
}

// raw copies bytes to the device, offset bytes behind an aligned address.
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

// matrix copies c to the device, offset bytes behind an aligned address.
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
