package meta

import (
	"slices"
	"strings"
)

// A QuantFormat is a format in which a matrix is stored: values, or codes of fewer bits that
// scales convert back to values. Only weights are quantised; activations stay floating-point. The
// table has one row for each format; see [QuantFormat.Row].
type QuantFormat uint8

const (
	// QuantNone stores values.
	QuantNone QuantFormat = iota
	// QuantFP8 has a float8_e4m3fn code for each element of [rows, columns], multiplied by a
	// scale for each block of Rows × Columns. The last blocks may be partial.
	QuantFP8
	// QuantMXFP4 has blocks of 32 columns: [rows, columns/32, 16] bytes of two float4_e2m1 codes
	// each, the even column in the low half. A block is multiplied by 2^(scale-127), with one
	// byte per scale in [rows, columns/32].
	QuantMXFP4
	// QuantGPTQ has 4-bit integers for [inputs, outputs], eight inputs in an int32 of [inputs/8,
	// outputs], lowest first. A value is (q - zero) · scale with scales [groups, outputs] and
	// zeros [groups, outputs/8], packed along the outputs. Input i belongs to group i/Rows, or to
	// Index[i].
	QuantGPTQ
	// QuantAWQ is QuantGPTQ with eight outputs in an int32 of [inputs, outputs/8]: the 4-bit
	// fields, lowest first, hold outputs 0, 2, 4, 6, 1, 3, 5, 7 of the eight. Zeros are packed
	// likewise.
	QuantAWQ
	// QuantQ8 has blocks of 32 columns, like GGUF's Q8_0: a float16 scale, then 32 signed bytes.
	// A value is code · scale. Heft can convert weights to it.
	QuantQ8
	// QuantQ4 has blocks of 32 columns, like GGUF's Q4_0: a float16 scale, then 16 bytes. Byte i
	// holds column i in its low half and column i+16 in its high half. A value is (code - 8) ·
	// scale. Heft can convert weights to it.
	QuantQ4
	// The other formats of GGUF files, with ggml's blocks. Package quant describes them.
	QuantQ41
	QuantQ50
	QuantQ51
	QuantQ2K
	QuantQ3K
	QuantQ4K
	QuantQ5K
	QuantQ6K
	QuantIQ4NL
	QuantIQ4XS
	QuantMXFP4Block // QuantMXFP4 with the scale inside the block
	QuantIQ2XXS
	QuantIQ2XS
	QuantIQ2S
	QuantIQ3XXS
	QuantIQ3S
	QuantIQ1S
	QuantIQ1M
	QuantTQ10
	QuantTQ20
	QuantNVFP4Block // the numbers of QuantNVFP4ModelOpt, with scales of 16 columns in the block; Global is optional
	QuantQ10
	QuantQ20
	// QuantInt8 has a signed byte for each element of [rows, columns]. A value is (code - zero) ·
	// scale of its block of Rows × Columns. Missing zeros are 0.
	QuantInt8
	// QuantBnbInt8 has signed bytes and a scale for each row. A value is code · scale · (1/127).
	QuantBnbInt8
	// QuantInt4Packed has 4-bit integers for [rows, columns], eight columns in an int32 of [rows,
	// columns/8], lowest first. A value is (q - zero) · scale with scales [rows, groups]. Zeros
	// are packed along the rows, eight in an int32 of [rows/8, groups]; missing zeros are 8.
	// Column i belongs to group i/Columns, or to Index[i].
	QuantInt4Packed
	// QuantGPTQ8 is QuantGPTQ with 8-bit integers, four in an int32.
	QuantGPTQ8
	// QuantNVFP4 has two float4_e2m1 codes in a byte of [rows, columns/2], the even column in the
	// low half. A value is code · scale ÷ global. Scales are float8_e4m3fn of [rows, columns/16],
	// and global is one float32.
	QuantNVFP4
	// QuantNVFP4ModelOpt is QuantNVFP4 with values code · scale · global.
	QuantNVFP4ModelOpt
	// QuantCoded is a lossless compression of bfloat16 values to about 12.3 bits each; package
	// coded describes it. No checkpoint file has it: Heft codes weights when it loads them
	// (--compress).
	QuantCoded
	// QuantBnbNF4 has 4-bit codes for the elements of [rows, columns] in one list, two in a byte,
	// the first in the high half. A value is the code's entry in a table, times the scale of its
	// Columns elements, rounded to the dtype that the state names. Scales are floats, or bytes: a
	// byte selects an entry of the table Index, which is multiplied by one scale of Zeros for 256
	// scales, plus an offset of the state. Global is the state, in JSON. QuantBnbFP4 has another
	// table.
	QuantBnbNF4
	QuantBnbFP4
	// QuantFP8Powers is QuantFP8 with scales that are powers of two: 2^(scale-127) with one byte
	// per scale.
	QuantFP8Powers
	// QuantMXFP4Packed has two float4_e2m1 codes in a byte of [rows, columns/2], the even column
	// in the low half. A value is code · 2^(scale-127), with one byte per scale in [rows,
	// columns/32].
	QuantMXFP4Packed
	// QuantInt8Packed is QuantInt4Packed with integers of 8 bits, four in an int32; without zeros they are 128.
	QuantInt8Packed
	// QuantGPTQ2 is QuantGPTQ with 2-bit integers, 16 in an int32. QuantGPTQ3 has 3-bit integers,
	// 32 in three int32 of [3·inputs/32, outputs], one bit after another, lowest first. Zeros are
	// packed along the outputs likewise; see [Quant.ZeroWords].
	QuantGPTQ2
	QuantGPTQ3
	quantFormats
)

// A Format is a row of the table of stored formats: everything that packages other than the
// kernels know about one format. A new format needs a row here, a reader of its
// quantization_config ([quantised]) and kernels.
//
// A row describes a matrix of rows × columns as it is stored, which is [inputs, outputs] for a
// format with layout [InputsFirst].
type Format struct {
	// Name is the format's name in messages and flags.
	Name string
	// Published reports that published safetensors files use the format.
	Published bool
	// Trim and Codes determine the name of the tensor of codes: Trim is cut from the end of the
	// parameter's name, and Codes.Suffix is appended. Names of companions are formed likewise.
	Trim string
	// Layout is the order of dimensions in which the matrix is stored.
	Layout Layout
	// Codes is the tensor of codes, or of values. A format without Scales has them inside the
	// blocks of codes.
	Codes                Packed
	Scales, Zeros, Index Companion
	Global               Companion // one number for the whole matrix
	// Convert reports that Heft can convert floating-point weights to the format (--quantize).
	Convert bool
	// Exact reports that the format is lossless (--compress).
	Exact bool

	// group returns how many rows and columns share a scale, for a matrix of rows × columns.
	// scales is the shape of the scales, or nil if there is no header. group is nil for a format
	// whose scales are inside the blocks of codes.
	group func(c *quantised, rows, columns int, scales []int) (int, int)
	// powers reports that scales are powers of two. Their dtype tells these formats apart.
	powers bool
	// zeroWords returns the numbers that are added to stored words of zeros.
	zeroWords func(c *quantised) [3]uint32
	// weights reports whether a published config of this format quantises a weight that it does
	// not exclude. It is used if there is no header.
	weights func(w weightPlace) bool
	// unread names tensors of the same module that Heft does not use, such as scales of
	// activations.
	unread []string
}

// A Layout is the order of a stored matrix's dimensions.
type Layout uint8

// The layouts.
const (
	AsParameter  Layout = iota // the parameter's order
	InputsFirst                // [inputs, outputs]
	OutputsFirst               // [outputs, inputs]
)

// Packed says how a tensor holds a matrix: one entry of the tensor holds Rows × Columns elements,
// or Words entries below each other do, if Words is set. If Bytes is set, the tensor has an additional last dimension of that size.
type Packed struct {
	Suffix        string
	DTypes        []DType
	Rows, Columns int
	Words         int
	Bytes         int
	// Flat reports that the tensor has the codes of all rows in one list, [entries, 1].
	Flat bool
	// Own are dtypes of codes that published files may store under the parameter's own name.
	Own []DType
}

// A Companion is another tensor of a format, such as its scales. The zero Companion means none.
type Companion struct {
	Suffix string
	// Other is another suffix that published files use for the same tensor, or "".
	Other string
	// Instead lists what other published files have in place of the suffix ".weight".
	Instead []string
	// DTypes are the dtypes that kernels support. The first one is assumed if there is no header.
	DTypes   []DType
	Optional bool
	// size returns the shape [n, m], or [n] if m is 0, for a matrix of rows × columns.
	size func(q *Quant, rows, columns int) (n, m int)
}

// valueDTypes are the dtypes of values that kernels support.
var valueDTypes = []DType{Float32, BFloat16, Float16}

var (
	perBlock    = func(q *Quant, rows, columns int) (int, int) { return ceil(rows, q.Rows), ceil(columns, q.Columns) }
	perElements = func(q *Quant, rows, columns int) (int, int) { return ceil(rows*columns, q.Columns), 0 }
	nested      = func(q *Quant, rows, columns int) (int, int) { return ceil(ceil(rows*columns, q.Columns), 256), 0 }
	inTable     = func(*Quant, int, int) (int, int) { return 256, 0 }
	inState     = func(q *Quant, _, _ int) (int, int) { return q.State, 0 }
	perRow      = func(_ *Quant, rows, _ int) (int, int) { return rows, 0 }
	// nibbles is the size of zeros with eight 4-bit integers in an int32, for each group of rows.
	nibbles = func(q *Quant, rows, columns int) (int, int) { return ceil(rows, q.Rows), columns / packedZeros }
	// quarters is the size of zeros with four 8-bit integers in an int32.
	quarters  = func(q *Quant, rows, columns int) (int, int) { return ceil(rows, q.Rows), columns / 4 }
	perMatrix = func(*Quant, int, int) (int, int) { return 1, 0 }
	perColumn = func(_ *Quant, _, columns int) (int, int) { return columns, 0 }
	// packedAlongRows is the size of zeros with eight rows in an int32, for each group of
	// columns.
	packedAlongRows = func(q *Quant, rows, columns int) (int, int) { return ceil(rows, packedZeros), ceil(columns, q.Columns) }
	// quartersAlongRows are those of four rows, of 8 bits.
	quartersAlongRows = func(q *Quant, rows, columns int) (int, int) { return ceil(rows, 4), ceil(columns, q.Columns) }
)

// formats is the table of formats.
var formats = [quantFormats]Format{
	QuantNone:  {Name: "none", Codes: Packed{DTypes: valueDTypes, Rows: 1, Columns: 1}},
	QuantCoded: {Name: "bfloat16-coded", Exact: true, Layout: OutputsFirst, Codes: Packed{DTypes: []DType{Uint8}, Rows: 1, Columns: 1}},
	QuantFP8: {
		Name: "fp8", Published: true,
		Codes:  Packed{DTypes: []DType{Float8E4M3}, Rows: 1, Columns: 1},
		Scales: Companion{Suffix: "_scale_inv", Other: "_scale", Instead: besideWeights, DTypes: valueDTypes, size: perBlock},
		group:  (*quantised).blockOrAll, weights: weightPlace.linearOrExperts, unread: ofActivations,
	},
	QuantMXFP4: {
		Name: "mxfp4", Published: true, Layout: OutputsFirst,
		Codes:  Packed{Suffix: "_blocks", DTypes: []DType{Uint8}, Rows: 1, Columns: 32, Bytes: 16},
		Scales: Companion{Suffix: "_scales", DTypes: []DType{Uint8}, size: perBlock},
		group:  func(*quantised, int, int, []int) (int, int) { return 1, 32 }, weights: weightPlace.experts,
	},
	QuantGPTQ: {
		Name: "gptq", Published: true, Trim: ".weight", Layout: InputsFirst,
		Codes:  Packed{Suffix: ".qweight", DTypes: []DType{Int32}, Rows: 8, Columns: 1},
		Scales: Companion{Suffix: ".scales", DTypes: halfFirst, size: perBlock},
		Zeros:  Companion{Suffix: ".qzeros", DTypes: []DType{Int32}, size: nibbles},
		Index:  Companion{Suffix: ".g_idx", DTypes: []DType{Int32}, Optional: true, size: perRow},
		group:  (*quantised).groupOfInputs, zeroWords: (*quantised).zeroWords4,
		weights: weightPlace.linearOrExperts,
	},
	QuantAWQ: {
		Name: "awq", Published: true, Trim: ".weight", Layout: InputsFirst,
		Codes:  Packed{Suffix: ".qweight", DTypes: []DType{Int32}, Rows: 1, Columns: 8},
		Scales: Companion{Suffix: ".scales", DTypes: halfFirst, size: perBlock},
		Zeros:  Companion{Suffix: ".qzeros", DTypes: []DType{Int32}, size: nibbles},
		group:  (*quantised).groupOfInputs, weights: weightPlace.linearOrExperts,
	},
	QuantQ8:         {Name: "q8_0", Convert: true, Layout: OutputsFirst, Codes: blockOf(32, 34)},
	QuantQ4:         {Name: "q4_0", Convert: true, Layout: OutputsFirst, Codes: blockOf(32, 18)},
	QuantQ41:        {Name: "q4_1", Layout: OutputsFirst, Codes: blockOf(32, 20)},
	QuantQ50:        {Name: "q5_0", Layout: OutputsFirst, Codes: blockOf(32, 22)},
	QuantQ51:        {Name: "q5_1", Layout: OutputsFirst, Codes: blockOf(32, 24)},
	QuantQ2K:        {Name: "q2_k", Layout: OutputsFirst, Codes: blockOf(256, 84)},
	QuantQ3K:        {Name: "q3_k", Layout: OutputsFirst, Codes: blockOf(256, 110)},
	QuantQ4K:        {Name: "q4_k", Layout: OutputsFirst, Codes: blockOf(256, 144)},
	QuantQ5K:        {Name: "q5_k", Layout: OutputsFirst, Codes: blockOf(256, 176)},
	QuantQ6K:        {Name: "q6_k", Layout: OutputsFirst, Codes: blockOf(256, 210)},
	QuantIQ4NL:      {Name: "iq4_nl", Layout: OutputsFirst, Codes: blockOf(32, 18)},
	QuantIQ4XS:      {Name: "iq4_xs", Layout: OutputsFirst, Codes: blockOf(256, 136)},
	QuantMXFP4Block: {Name: "mxfp4 block", Layout: OutputsFirst, Codes: blockOf(32, 17)},
	QuantIQ2XXS:     {Name: "iq2_xxs", Layout: OutputsFirst, Codes: blockOf(256, 66)},
	QuantIQ2XS:      {Name: "iq2_xs", Layout: OutputsFirst, Codes: blockOf(256, 74)},
	QuantIQ2S:       {Name: "iq2_s", Layout: OutputsFirst, Codes: blockOf(256, 82)},
	QuantIQ3XXS:     {Name: "iq3_xxs", Layout: OutputsFirst, Codes: blockOf(256, 98)},
	QuantIQ3S:       {Name: "iq3_s", Layout: OutputsFirst, Codes: blockOf(256, 110)},
	QuantIQ1S:       {Name: "iq1_s", Layout: OutputsFirst, Codes: blockOf(256, 50)},
	QuantIQ1M:       {Name: "iq1_m", Layout: OutputsFirst, Codes: blockOf(256, 56)},
	QuantTQ10:       {Name: "tq1_0", Layout: OutputsFirst, Codes: blockOf(256, 54)},
	QuantTQ20:       {Name: "tq2_0", Layout: OutputsFirst, Codes: blockOf(256, 66)},
	QuantNVFP4Block: {
		Name: "nvfp4 block", Layout: OutputsFirst, Codes: blockOf(64, 36),
		Global: Companion{Suffix: ScaleSuffix, DTypes: []DType{Float32}, Optional: true, size: perMatrix},
	},
	QuantQ10: {Name: "q1_0", Layout: OutputsFirst, Codes: blockOf(128, 18)},
	QuantQ20: {Name: "q2_0", Layout: OutputsFirst, Codes: blockOf(64, 18)},
	QuantInt8: {
		Name: "int8", Published: true,
		Codes:  Packed{DTypes: []DType{Int8}, Rows: 1, Columns: 1},
		Scales: Companion{Suffix: "_scale", DTypes: valueDTypes, size: perBlock},
		Zeros:  Companion{Suffix: "_zero_point", DTypes: []DType{Int8}, Optional: true, size: perBlock},
		group:  (*quantised).blockOrAll, weights: weightPlace.linearOrExperts, unread: ofActivations,
	},
	QuantBnbInt8: {
		Name: "bitsandbytes int8", Published: true, Trim: ".weight",
		Codes:  Packed{Suffix: ".weight", DTypes: []DType{Int8}, Rows: 1, Columns: 1},
		Scales: Companion{Suffix: ".SCB", DTypes: []DType{Float32}, size: perRow},
		group:  func(_ *quantised, _, columns int, _ []int) (int, int) { return 1, columns }, weights: weightPlace.onlyLinear,
		unread: []string{"weight_format"},
	},
	QuantInt4Packed: {
		Name: "int4 packed", Published: true,
		Codes:  Packed{Suffix: "_packed", DTypes: []DType{Int32}, Rows: 1, Columns: 8},
		Scales: Companion{Suffix: "_scale", DTypes: valueDTypes, size: perBlock},
		Zeros:  Companion{Suffix: "_zero_point", DTypes: []DType{Int32}, Optional: true, size: packedAlongRows},
		Index:  Companion{Suffix: "_g_idx", DTypes: []DType{Int32}, Optional: true, size: perColumn},
		group:  (*quantised).blockOrAll, weights: weightPlace.linearOrExperts, unread: ofActivations,
	},
	QuantGPTQ8: {
		Name: "gptq 8 bits", Published: true, Trim: ".weight", Layout: InputsFirst,
		Codes:  Packed{Suffix: ".qweight", DTypes: []DType{Int32}, Rows: 4, Columns: 1},
		Scales: Companion{Suffix: ".scales", DTypes: halfFirst, size: perBlock},
		Zeros:  Companion{Suffix: ".qzeros", DTypes: []DType{Int32}, size: quarters},
		Index:  Companion{Suffix: ".g_idx", DTypes: []DType{Int32}, Optional: true, size: perRow},
		group:  (*quantised).groupOfInputs, zeroWords: (*quantised).zeroWords8,
		weights: weightPlace.linearOrExperts,
	},
	QuantNVFP4: {
		Name: "nvfp4", Published: true,
		Codes:  Packed{Suffix: "_packed", DTypes: []DType{Uint8}, Rows: 1, Columns: 2},
		Scales: Companion{Suffix: "_scale", DTypes: []DType{Float8E4M3}, size: perBlock},
		Global: Companion{Suffix: "_global_scale", DTypes: []DType{Float32}, size: perMatrix},
		group:  sixteenColumns, weights: weightPlace.linearOrExperts, unread: ofActivations,
	},
	QuantNVFP4ModelOpt: {
		Name: "modelopt nvfp4", Published: true,
		Codes:  Packed{DTypes: []DType{Uint8}, Rows: 1, Columns: 2},
		Scales: Companion{Suffix: "_scale", DTypes: []DType{Float8E4M3}, size: perBlock},
		Global: Companion{Suffix: "_scale_2", DTypes: []DType{Float32}, size: perMatrix},
		group:  sixteenColumns, weights: weightPlace.linearOrExperts, unread: ofActivations,
	},
	QuantBnbNF4: fourBits("nf4"),
	QuantBnbFP4: fourBits("fp4"),
	QuantFP8Powers: {
		Name: "fp8 e8m0", Published: true,
		Codes:  Packed{DTypes: []DType{Float8E4M3}, Rows: 1, Columns: 1},
		Scales: Companion{Suffix: "_scale_inv", Other: "_scale", Instead: besideWeights, DTypes: powerDTypes, size: perBlock},
		group:  (*quantised).blockOrAll, weights: weightPlace.linearOrExperts, unread: ofActivations, powers: true,
	},
	QuantMXFP4Packed: {
		Name: "mxfp4 packed", Published: true,
		Codes:  Packed{Suffix: "_packed", DTypes: []DType{Uint8}, Own: []DType{Int8, Uint8}, Rows: 1, Columns: 2},
		Scales: Companion{Suffix: "_scale", Other: "_scale_inv", Instead: besideWeights, DTypes: powerDTypes, size: perBlock},
		group:  func(*quantised, int, int, []int) (int, int) { return 1, 32 }, weights: weightPlace.linearOrExperts, unread: ofActivations, powers: true,
	},
	QuantInt8Packed: {
		Name: "int8 packed", Published: true,
		Codes:  Packed{Suffix: "_packed", DTypes: []DType{Int32}, Rows: 1, Columns: 4},
		Scales: Companion{Suffix: "_scale", DTypes: valueDTypes, size: perBlock},
		Zeros:  Companion{Suffix: "_zero_point", DTypes: []DType{Int32}, Optional: true, size: quartersAlongRows},
		Index:  Companion{Suffix: "_g_idx", DTypes: []DType{Int32}, Optional: true, size: perColumn},
		group:  (*quantised).blockOrAll, weights: weightPlace.linearOrExperts, unread: ofActivations,
	},
	QuantGPTQ2: fewBits("gptq 2 bits", 16, 1, sixteenths, (*quantised).zeroWords2),
	QuantGPTQ3: fewBits("gptq 3 bits", 32, 3, thirds, (*quantised).zeroWords3),
}

// ScaleSuffix ends the name of the scale of a whole matrix of blocks, behind the name of the
// matrix.
const ScaleSuffix = ".scale"

// powerDTypes are the dtypes of scales that are powers of two.
var powerDTypes = []DType{Uint8, Float8E8M0}

// sixteenColumns is the group of NVFP4: 16 columns share a scale.
func sixteenColumns(*quantised, int, int, []int) (int, int) { return 1, 16 }

// ofActivations are the scales with which other programs round activations. Heft does not round
// them.
var ofActivations = []string{"activation_scale", "qscale_act", "input_scale", "input_zero_point", "input_global_scale", "output_scale", "weight_shape"}

// blockOf returns a block of columns of a row with its scales inside, as ggml stores them.
func blockOf(columns, bytes int) Packed {
	return Packed{DTypes: []DType{Uint8}, Rows: 1, Columns: columns, Bytes: bytes}
}

// halfFirst is valueDTypes starting with the dtype in which GPTQ and AWQ are published.
var halfFirst = []DType{Float16, BFloat16, Float32}

// Row returns f's row of the table, or the row of QuantNone if f is not a format.
func (f QuantFormat) Row() *Format {
	if f >= quantFormats {
		f = QuantNone
	}
	return &formats[f]
}

// QuantFormats returns the formats of quantised weights, in the order of the table: all but QuantNone
// and QuantCoded.
func QuantFormats() []QuantFormat {
	var list []QuantFormat
	for f := QuantNone + 1; f < quantFormats; f++ {
		if !f.Row().Exact {
			list = append(list, f)
		}
	}
	return list
}

// Usual returns the form of f that most published models have: 128 × 128 elements or 128 inputs
// share a scale. The names of tensors are empty.
func (f QuantFormat) Usual(rows, columns int) Quant {
	row, conventions := f.Row(), usualQuantised()
	conventions.inputs = 128
	q := Quant{Format: f, ScaleDType: row.Scales.assumed()}
	q.Rows, q.Columns = row.groupOf(&conventions, rows, columns, nil)
	if row.zeroWords != nil {
		q.ZeroWords = row.zeroWords(&conventions)
	}
	return q
}

func (r *Format) groupOf(c *quantised, rows, columns int, scales []int) (int, int) {
	if r.group == nil {
		return r.Codes.Rows, r.Codes.Columns
	}
	return r.group(c, rows, columns, scales)
}

// String returns f's name in quantization_config.quant_method or in GGUF.
func (f QuantFormat) String() string { return f.Row().Name }

// BlockBytes returns the size of a block of codes with its scale inside, such as 34 bytes for 32
// columns of QuantQ8. It returns 0 for formats whose scales are separate tensors.
func (f QuantFormat) BlockBytes() int64 {
	if row := f.Row(); !row.Scales.exists() {
		return int64(row.Codes.Bytes)
	}
	return 0
}

// BlockColumns returns the number of columns in a block of codes, or 1 if there are no blocks.
func (f QuantFormat) BlockColumns() int { return f.Row().Codes.Columns }

// FloatScales reports whether the format has separate scales that are always floating-point
// numbers.
func (r *Format) FloatScales() bool {
	return r.Scales.exists() && r.Scales.Reads(Float32) && !r.Scales.Reads(Uint8)
}

// PowerScales reports whether scales are powers of two stored in a byte, where 255 means NaN.
func (r *Format) PowerScales() bool { return r.powers }

// NeedsGlobal reports whether the format has one number for the whole matrix that no file lacks.
func (r *Format) NeedsGlobal() bool { return r.Global.exists() && !r.Global.Optional }

// Divides reports whether a row of the given number of columns is stored in whole entries of the
// tensors.
func (r *Format) Divides(columns int) bool {
	return columns%r.Codes.Columns == 0 && (!r.Zeros.exists() || !r.Zeros.Reads(Int32) || columns%max(packedZeros, r.Codes.Rows) == 0)
}

// packedZeros is the number of zeros in an entry of the tensor of zeros, except in formats of GPTQ
// with fewer than 4 bits, which pack zeros like codes.
const packedZeros = 8

func (c *Companion) exists() bool { return c.size != nil }

// assumed returns the dtype of the companion if there is no header.
func (c *Companion) assumed() DType {
	if len(c.DTypes) == 0 {
		return NoDType
	}
	return c.DTypes[0]
}

// Reads reports whether kernels support the companion in dtype d.
func (c *Companion) Reads(d DType) bool { return slices.Contains(c.DTypes, d) }

// Reads reports whether kernels support the tensor of codes or values in dtype d.
func (p *Packed) Reads(d DType) bool {
	return slices.Contains(p.DTypes, d) || slices.Contains(p.Own, d)
}

// shape returns the shape of the tensor that holds rows × columns, preceded by the dimensions of
// a stack.
func (p *Packed) shape(stack []int, rows, columns int) []int {
	shape := append(slices.Clone(stack), rows/p.Rows*max(p.Words, 1), columns/p.Columns)
	if p.Flat {
		shape = append(slices.Clone(stack), rows*columns/p.Columns, 1)
	}
	if p.Bytes > 0 {
		shape = append(shape, p.Bytes)
	}
	return shape
}

// names returns the base of the names of the format's tensors. name is the parameter's own
// tensor. ok is false if name does not have the suffix that the format replaces.
func (r *Format) names(name string) (base string, ok bool) {
	base, ok = strings.CutSuffix(name, r.Trim)
	return base, ok
}

// Unread returns the names of tensors that may accompany the tensor of codes called name, and
// that Heft does not use.
func (f QuantFormat) Unread(name string) []string {
	var out []string
	for _, own := range f.Row().unread {
		out = append(out, name[:strings.LastIndexByte(name, '.')+1]+own)
	}
	return out
}
