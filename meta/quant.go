package meta

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// A QuantFormat is a published way to store a matrix in fewer bits than a float: codes,
// and in tensors of their own what turns them back into values. Only weights are stored
// so; activations stay floats.
type QuantFormat uint8

const (
	// QuantNone stores values.
	QuantNone QuantFormat = iota
	// QuantFP8 has a float8_e4m3fn for each element of [rows, columns], times a scale
	// for each block of Rows × Columns, of which the last ones may be partial.
	QuantFP8
	// QuantMXFP4 has blocks of 32 columns: [rows, columns/32, 16] bytes of two
	// float4_e2m1 each, the even column in the low half, times 2^(scale-127) for a byte
	// of scales [rows, columns/32].
	QuantMXFP4
	// QuantGPTQ has integers of 4 bits for [inputs, outputs], eight inputs in an int32
	// of [inputs/8, outputs], lowest first: (q - zero) · scale with scales [groups,
	// outputs] and zeros [groups, outputs/8], packed along the outputs. Input i belongs
	// to group i/Rows, or to Index[i].
	QuantGPTQ
	// QuantAWQ is QuantGPTQ with eight outputs in an int32 of [inputs, outputs/8]: bits
	// 4i hold output 0, 2, 4, 6, 1, 3, 5, 7 of the eight. So are the zeros.
	QuantAWQ
	// QuantQ8 has blocks of 32 columns, as GGUF's Q8_0: a scale as float16, then 32 signed
	// bytes; code · scale. No checkpoint that is read has it: weights are converted to it.
	QuantQ8
	// QuantQ4 has blocks of 32 columns, as GGUF's Q4_0: a scale as float16, then 16 bytes of
	// which byte i holds column i in its low half and column i+16 in its high half;
	// (code - 8) · scale. Weights are converted to it too.
	QuantQ4
)

// String is the name that quantization_config.quant_method has for f, or GGUF.
func (f QuantFormat) String() string {
	return [...]string{"none", "fp8", "mxfp4", "gptq", "awq", "q8_0", "q4_0"}[min(f, QuantQ4)]
}

// A Quant says that a source's tensor holds codes, and where the rest stands. Rows and
// columns are those of the matrix as it is stored, which is [inputs, outputs] for
// QuantGPTQ and QuantAWQ.
type Quant struct {
	Format QuantFormat
	// Scales, Zeros and Index name tensors as Source.Tensor does; "" where the format
	// has none.
	Scales, Zeros, Index string
	ScaleDType           DType
	// Rows and Columns share a scale.
	Rows, Columns int
	// ZeroBias is what is added to a stored zero.
	ZeroBias int
}

// A StoredTensor is one of the tensors of a source, as they lie in the file.
type StoredTensor struct {
	Tensor string // as Source.Tensor
	Shape  []int
	DType  DType // NoDType for a source of values: that of the parameter
}

// Stored lists the tensors of s for a parameter of the given shape: that of the values,
// or codes, scales, zeros and index in this order. reason says why the format cannot
// hold such a parameter.
func (s *Source) Stored(param []int) (tensors []StoredTensor, reason string) {
	shape := s.Shape(param)
	q := s.Quant
	if q == nil {
		return []StoredTensor{{s.Tensor, shape, NoDType}}, ""
	}
	n := len(shape)
	if n < 2 || !s.From.IsAll() {
		return nil, fmt.Sprintf("rows %v of shape %v cannot be stored as %v", s.From, shape, q.Format)
	}
	rows, columns := shape[n-2], shape[n-1]
	of := func(dims ...int) []int { return append(slices.Clone(shape[:n-2]), dims...) }
	groups := []int{ceil(rows, q.Rows), ceil(columns, q.Columns)}
	packed := true // whole words
	switch q.Format {
	case QuantFP8:
		tensors = []StoredTensor{{s.Tensor, shape, Float8E4M3}, {q.Scales, of(groups...), q.ScaleDType}}
	case QuantMXFP4:
		packed = columns%32 == 0
		tensors = []StoredTensor{{s.Tensor, of(rows, columns/32, 16), Uint8}, {q.Scales, of(rows, columns/32), Uint8}}
	case QuantGPTQ, QuantAWQ:
		codes := of(rows/8, columns)
		packed = columns%8 == 0 && rows%8 == 0
		if q.Format == QuantAWQ {
			codes, packed = of(rows, columns/8), columns%8 == 0
		}
		tensors = []StoredTensor{{s.Tensor, codes, Int32}, {q.Scales, of(groups...), q.ScaleDType}, {q.Zeros, of(groups[0], columns/8), Int32}}
		if q.Index != "" {
			tensors = append(tensors, StoredTensor{q.Index, of(rows), Int32})
		}
	}
	if !packed {
		return nil, fmt.Sprintf("shape %v cannot be stored as %v", shape, q.Format)
	}
	return tensors, ""
}

// Matrix is the shape of the matrix whose codes are a tensor of shape codes: the inverse
// of what [Source.Stored] says of them.
func (q *Quant) Matrix(codes []int) []int {
	n := len(codes)
	shape := slices.Clone(codes)
	switch {
	case q.Format == QuantMXFP4 && n >= 3:
		shape[n-2] *= 32
		return shape[:n-1]
	case q.Format == QuantGPTQ && n >= 2:
		shape[n-2] *= 8
	case q.Format == QuantAWQ && n >= 2:
		shape[n-1] *= 8
	}
	return shape
}

func ceil(a, b int) int { return (a + b - 1) / max(b, 1) }

// quantised is what a config says about the formats of weights. Which weights have
// them is told by the checkpoint's tensors alone.
type quantised struct {
	rows, columns int // of a block of QuantFP8; 0: one scale for all
	group         int // inputs that share a scale of QuantGPTQ or QuantAWQ; 0: all
	zeroBias      int
}

// quantisation reads quantization_config.
func (f *fields) quantisation() quantised {
	const name = "quantization_config"
	q := quantised{rows: 128, columns: 128, zeroBias: 1}
	c, ok := f.values[name].(map[string]any)
	if !ok {
		if f.has(name) {
			f.fail(name, "%s instead of an object", kindOf(f.values[name]))
		}
		return q
	}
	method, _ := c["quant_method"].(string)
	switch method {
	case "mxfp4":
	case "fp8":
		if format, ok := c["fmt"].(string); ok && format != "e4m3" {
			f.fail(name+".fmt", "%.40q is not supported (e4m3)", format)
		}
		q.block(f, name+".weight_block_size", c["weight_block_size"])
	case "gptq", "awq":
		if group, ok := c["group_size"].(json.Number); ok {
			n, err := group.Int64()
			if err != nil || n < -1 || n == 0 || n > maxSize {
				f.fail(name+".group_size", "%.20s is no size", group)
			}
			q.group = int(max(n, 0))
		}
		if bits, ok := c["bits"].(json.Number); ok && bits != "4" {
			f.fail(name+".bits", "%.20s instead of 4 is not supported", bits)
		}
		if c["checkpoint_format"] == "gptq_v2" {
			q.zeroBias = 0
		}
		if version, ok := c["version"].(string); ok && method == "awq" && !strings.EqualFold(version, "gemm") {
			f.fail(name+".version", "%.40q is not supported (gemm)", version)
		}
	default:
		f.fail(name+".quant_method", "%.40q is not supported (supported: awq, fp8, gptq, mxfp4)", method)
	}
	return q
}

// block reads the size of the blocks that share a scale.
func (q *quantised) block(f *fields, name string, value any) {
	list, ok := value.([]any)
	if value == nil {
		q.rows, q.columns = 0, 0
		return
	}
	var sizes [2]int64
	for i := range sizes {
		if ok = ok && len(list) == 2; ok {
			n, isNumber := list[i].(json.Number)
			size, err := n.Int64()
			sizes[i], ok = size, isNumber && err == nil && size > 0 && size <= maxSize
		}
	}
	if !ok {
		f.fail(name, "is not two sizes")
		return
	}
	q.rows, q.columns = int(sizes[0]), int(sizes[1])
}

// quantise finds out how the checkpoint stores what s names, for a parameter of the
// given shape. It reports whether the tensor is there, and its dtype: that of values, or
// NoDType for codes.
func (t *tree) quantise(s *Source, shape []int, inOut bool) (DType, bool) {
	_, dtype, ok := t.first(*s)
	if len(shape) < 2 || ok && dtype != Float8E4M3 {
		return dtype, ok
	}
	if ok {
		t.fp8(s, shape)
	} else if !t.mxfp4(s, shape) && !t.packed(s, shape, inOut) {
		return NoDType, false
	}
	if s.Quant == nil {
		return dtype, true
	}
	return NoDType, true
}

// fp8 takes the scales beside a matrix of QuantFP8.
func (t *tree) fp8(s *Source, shape []int) {
	scales := s.Tensor + "_scale_inv"
	_, dtype, ok := t.first(s.with(scales))
	if !ok {
		return
	}
	q := &Quant{Format: QuantFP8, Scales: scales, ScaleDType: dtype, Rows: t.quantised.rows, Columns: t.quantised.columns}
	if stored := s.Shape(shape); q.Rows == 0 && len(stored) >= 2 {
		q.Rows, q.Columns = stored[len(stored)-2], stored[len(stored)-1]
	}
	s.Quant = q
}

// mxfp4 takes the blocks and scales of QuantMXFP4. Rows are the outputs, while the
// parameter is [inputs, outputs] in memory; one of [outputs, inputs] is told by its shape.
func (t *tree) mxfp4(s *Source, shape []int) bool {
	blocks := s.with(s.Tensor + "_blocks")
	stored, _, ok := t.first(blocks)
	if !ok {
		return false
	}
	n, rows := len(stored), 0
	if n >= 3 {
		rows = stored[n-3]
	}
	blocks.Quant = &Quant{Format: QuantMXFP4, Scales: s.Tensor + "_scales", ScaleDType: Uint8, Rows: 1, Columns: 32}
	blocks.Transposed = shape[len(shape)-1] == rows
	*s = blocks
	return true
}

// packed takes the tensors of QuantGPTQ or QuantAWQ. inOut says that the parameter is
// [inputs, outputs], as they are.
func (t *tree) packed(s *Source, shape []int, inOut bool) bool {
	base, ok := strings.CutSuffix(s.Tensor, ".weight")
	codes := s.with(base + ".qweight")
	stored, _, found := t.first(codes)
	if !ok || !found {
		return false
	}
	q := &Quant{Format: QuantGPTQ, Scales: base + ".scales", Zeros: base + ".qzeros", Columns: 1, ZeroBias: t.quantised.zeroBias}
	codes.Quant, codes.Transposed = q, !inOut
	whole := codes.Shape(shape)
	inputs := whole[len(whole)-2]
	if len(stored) == 2 && stored[0] == inputs {
		q.Format, q.ZeroBias = QuantAWQ, 0
	}
	scales, dtype, _ := t.first(s.with(q.Scales))
	q.ScaleDType, q.Rows = dtype, inputs
	if len(scales) == 2 && scales[0] > 0 {
		// The last group may be partial: then only the config tells the size.
		if q.Rows = t.quantised.group; q.Rows == 0 || ceil(inputs, q.Rows) != scales[0] {
			q.Rows = ceil(inputs, scales[0])
		}
	}
	if index := base + ".g_idx"; q.Format == QuantGPTQ {
		if _, _, ok := t.first(s.with(index)); ok {
			q.Index = index
		}
	}
	*s = codes
	return true
}

// first is what the checkpoint has of the first tensor that s stands for.
func (t *tree) first(s Source) ([]int, DType, bool) { return t.header.Tensor(s.at(0)) }

// with is s under another name.
func (s Source) with(tensor string) Source {
	s.Tensor = tensor
	return s
}

// stored counts the bytes of sources of which one is quantised, as they lie in the file;
// 0 where none is.
func (t *tree) stored(sources []Source, shape []int, dtype DType) int64 {
	if !slices.ContainsFunc(sources, func(s Source) bool { return s.Quant != nil }) {
		return 0
	}
	var total int64
	for i := range sources {
		tensors, _ := sources[i].Stored(shape)
		for _, tensor := range tensors {
			if tensor.DType == NoDType {
				tensor.DType = dtype
			}
			total += tensor.DType.Bytes(Elements(tensor.Shape)) * int64(max(sources[i].Stack, 1))
		}
	}
	return total
}
