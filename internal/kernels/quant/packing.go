package quant

import (
	"encoding/binary"

	"github.com/heftai/heft/internal/kernels/mat"
)

// Packing is how a quantised matrix is stored.
type Packing uint8

// The packings. Rows and columns are those of the stored matrix.
const (
	// E4M3 has one byte per element: a float with 4 exponent bits, 3 mantissa bits and no
	// infinities, times the scale of its block.
	E4M3 Packing = iota + 1
	// MXFP4 has blocks of 32 columns in 16 bytes, with the even column in the low half of a byte:
	// a float with 2 exponent bits and 1 mantissa bit, times 2^(scale-127).
	MXFP4
	// Int4Rows has 8 rows in a little-endian word, with the first in the lowest bits. A value is
	// (code - zero) · scale of the row's group. Zeros are packed along the columns.
	Int4Rows
	// Int4Columns has 8 columns in a word: bits 4i hold column 0, 2, 4, 6, 1, 3, 5, 7. Zeros are
	// packed in the same order.
	Int4Columns
	// Q8 has blocks of 32 columns: a float16 scale and 32 signed bytes. A value is code · scale.
	Q8
	// Q4 has blocks of 32 columns: a float16 scale and 16 bytes. Byte i holds column i in its low
	// half and column i + 16 in its high half. A value is (code - 8) · scale.
	Q4
	// The other blocks of GGUF files, with ggml's names. The functions that unpack them document
	// their layouts.
	Q41
	Q50
	Q51
	Q2K
	Q3K
	Q4K
	Q5K
	Q6K
	IQ4NL
	IQ4XS
	MXFP4Block
	IQ2XXS
	IQ2XS
	IQ2S
	IQ3XXS
	IQ3S
	IQ1S
	IQ1M
	TQ10
	TQ20
	NVFP4Block // times Global
	Q10
	Q20
	// Int8 has one signed byte per element. A value is (code - zero) · the scale of its block.
	// BnbInt8 also multiplies by 1/127, and has no zeros.
	Int8
	BnbInt8
	// Int4Packed has 8 columns in a word, with the first in the lowest bits. A value is (code -
	// zero) · scale of the column's group. Zeros are packed along the rows; without them they are
	// 8.
	Int4Packed
	// Int8Rows is Int4Rows with 8-bit integers, 4 rows in a word.
	Int8Rows
	// NVFP4 has two floats with 2 exponent bits and 1 mantissa bit in a byte, with the even
	// column in the low half. Each is multiplied by the scale of its 16 columns, an E4M3 byte,
	// and divided by Global. NVFP4Times multiplies by Global instead.
	NVFP4
	NVFP4Times
	// NF4 and FP4 have two codes in a byte, the first in the high half, for the elements of all
	// rows in one list. A value is a table entry times the scale of Columns elements, rounded to
	// Round. Scales are float32 or, with Zeros, bytes; see scaleOfScales.
	NF4
	FP4
	// E4M3Powers is E4M3 with bytes as scales, which stand for 2^(scale-127). E2M1Powers has two
	// floats with 2 exponent bits and 1 mantissa bit in a byte, with the even column in the low
	// half, and such a scale for every Columns columns.
	E4M3Powers
	E2M1Powers
	// Int8Packed is Int4Packed with integers of 8 bits, 4 columns in a word; without zeros they are 128.
	Int8Packed
	// Int2Rows and Int3Rows are Int4Rows with integers of 2 and 3 bits, 16 rows in a word and 32
	// rows in three words, one bit after another. Zeros are packed along the columns likewise.
	Int2Rows
	Int3Rows
	Packings
)

// A packing describes a Packing to the kernels. A new packing in blocks that contain their scales
// needs only a row in the table with its unpack function. The other fields and kernels in
// assembly make it faster.
type packing struct {
	format string // name in meta's table of formats
	// columns and bytes are the size of a block that contains its scales. They are 0 for packings
	// with scales in a separate tensor.
	columns, bytes int
	// unpack dequantises one block. It is the reference for the assembly, and the kernel if there
	// is no assembly.
	unpack func(dst []float32, block []byte)
	// interleaves reports whether there are kernels for interleaved rows of blocks. There offset
	// is added to the codes, and zero is the code of the value 0.
	interleaves  bool
	offset, zero byte
	// simd reports whether the assembly dequantises the blocks, dots whether it multiplies them
	// by float32 in place, and rows whether it multiplies them by activations rounded to 8 bits;
	// see package qgemm.
	simd, dots, rows bool
}

var packings = []packing{
	E4M3:        {format: "fp8"},
	MXFP4:       {format: "mxfp4"},
	Int4Rows:    {format: "gptq"},
	Int4Columns: {format: "awq"},
	Q8:          {format: "q8_0", columns: 32, bytes: Q8Bytes, unpack: unpackQ8, interleaves: true, offset: 128, zero: 128, simd: true, dots: true},
	Q4:          {format: "q4_0", columns: 32, bytes: Q4Bytes, unpack: unpackQ4, interleaves: true, zero: 8, simd: true, dots: true},
	Q41:         {format: "q4_1", columns: 32, bytes: 20, unpack: unpackQ41, simd: true, rows: true},
	Q50:         {format: "q5_0", columns: 32, bytes: 22, unpack: unpackQ50, simd: true, rows: true},
	Q51:         {format: "q5_1", columns: 32, bytes: 24, unpack: unpackQ51, simd: true, rows: true},
	Q2K:         {format: "q2_k", columns: 256, bytes: 84, unpack: unpackQ2K, simd: true, rows: true},
	Q3K:         {format: "q3_k", columns: 256, bytes: 110, unpack: unpackQ3K, simd: true, rows: true},
	Q4K:         {format: "q4_k", columns: 256, bytes: 144, unpack: unpackQ4K, simd: true, rows: true},
	Q5K:         {format: "q5_k", columns: 256, bytes: 176, unpack: unpackQ5K, simd: true, rows: true},
	Q6K:         {format: "q6_k", columns: 256, bytes: 210, unpack: unpackQ6K, simd: true, rows: true},
	IQ4NL:       {format: "iq4_nl", columns: 32, bytes: 18, unpack: unpackIQ4NL, simd: true, rows: true},
	IQ4XS:       {format: "iq4_xs", columns: 256, bytes: 136, unpack: unpackIQ4XS, simd: true, rows: true},
	MXFP4Block:  {format: "mxfp4 block", columns: 32, bytes: 17, unpack: unpackMXFP4Block, simd: true, rows: true},
	IQ2XXS:      {format: "iq2_xxs", columns: 256, bytes: 66, unpack: unpackIQ2XXS, simd: true, rows: true},
	IQ2XS:       {format: "iq2_xs", columns: 256, bytes: 74, unpack: unpackIQ2XS, simd: true, rows: true},
	IQ2S:        {format: "iq2_s", columns: 256, bytes: 82, unpack: unpackIQ2S, simd: true, rows: true},
	IQ3XXS:      {format: "iq3_xxs", columns: 256, bytes: 98, unpack: unpackIQ3XXS, simd: true, rows: true},
	IQ3S:        {format: "iq3_s", columns: 256, bytes: 110, unpack: unpackIQ3S, simd: true, rows: true},
	IQ1S:        {format: "iq1_s", columns: 256, bytes: 50, unpack: unpackIQ1S, simd: true, rows: true},
	IQ1M:        {format: "iq1_m", columns: 256, bytes: 56, unpack: unpackIQ1M, simd: true, rows: true},
	TQ10:        {format: "tq1_0", columns: 256, bytes: 54, unpack: unpackTQ10, simd: true, rows: true},
	TQ20:        {format: "tq2_0", columns: 256, bytes: 66, unpack: unpackTQ20, simd: true, rows: true},
	NVFP4Block:  {format: "nvfp4 block", columns: 64, bytes: 36, unpack: unpackNVFP4Block, simd: true, rows: true},
	Q10:         {format: "q1_0", columns: 128, bytes: 18, unpack: unpackQ10, simd: true, rows: true},
	Q20:         {format: "q2_0", columns: 64, bytes: 18, unpack: unpackQ20, simd: true, rows: true},
	Int8:        {format: "int8"},
	BnbInt8:     {format: "bitsandbytes int8"},
	Int4Packed:  {format: "int4 packed"},
	Int8Rows:    {format: "gptq 8 bits"},
	NVFP4:       {format: "nvfp4"},
	NVFP4Times:  {format: "modelopt nvfp4"},
	NF4:         {format: "bitsandbytes nf4"},
	FP4:         {format: "bitsandbytes fp4"},
	E4M3Powers:  {format: "fp8 e8m0"},
	E2M1Powers:  {format: "mxfp4 packed"},
	Int8Packed:  {format: "int8 packed"},
	Int2Rows:    {format: "gptq 2 bits"},
	Int3Rows:    {format: "gptq 3 bits"},
}

// Named returns the packing of a format, by its name in meta's table of formats, such as "fp8" or
// "q4_0". ok is false if the format has no kernels.
func Named(format string) (p Packing, ok bool) {
	for p, row := range packings {
		if row.format == format && p > 0 {
			return Packing(p), true
		}
	}
	return 0, false
}

// String returns the name of the format.
func (p Packing) String() string { return packings[p].format }

// BlockBytes returns the size of a block that contains its scales, or 0 for packings with scales
// in a separate tensor.
func (p Packing) BlockBytes() int { return packings[p].bytes }

// BlockColumns returns the number of columns in such a block, or 0 for packings with scales in a
// separate tensor.
func (p Packing) BlockColumns() int { return packings[p].columns }

// Interleaves reports whether rows of p can be interleaved; see [Kernels.Interleave].
func (p Packing) Interleaves() bool { return packings[p].interleaves }

// HasRows reports whether there are kernels that multiply rows of p by activations rounded to 8
// bits.
func (p Packing) HasRows() bool { return packings[p].rows }

// Offset returns the number that is added to the codes of p in interleaved rows.
func (p Packing) Offset() byte { return packings[p].offset }

// Zero returns the code of the value 0 in interleaved rows.
func (p Packing) Zero() int { return int(packings[p].zero) }

// RowBytes returns the size of a row's codes in bytes, without scales that are stored separately.
func (p *Packed) RowBytes() int {
	switch {
	case p.Packing.BlockBytes() > 0:
		return p.Width / p.Packing.BlockColumns() * p.Packing.BlockBytes()
	case p.Packing == E4M3, p.Packing == E4M3Powers, p.Packing == Int8, p.Packing == BnbInt8, p.Packing == Int8Rows, p.Packing == Int8Packed:
		return p.Width
	case p.Packing == Int2Rows, p.Packing == Int3Rows:
		return p.Width * p.Packing.fewBits() / 8
	}
	return p.Width / 2
}

// UnpackBlocks dequantises as many whole blocks of p as fit in dst.
func UnpackBlocks(p Packing, dst []float32, blocks []byte) {
	row := &packings[p]
	for ; len(dst) >= row.columns; dst, blocks = dst[row.columns:], blocks[row.bytes:] {
		row.unpack(dst[:row.columns], blocks[:row.bytes])
	}
}

func unpackQ8(dst []float32, block []byte) {
	d := mat.FromFloat16(binary.LittleEndian.Uint16(block))
	for i, code := range block[2:Q8Bytes] {
		dst[i] = float32(int8(code)) * d
	}
}

func unpackQ4(dst []float32, block []byte) {
	d := mat.FromFloat16(binary.LittleEndian.Uint16(block))
	for i, code := range block[2:Q4Bytes] {
		dst[i] = (float32(code&15) - 8) * d
		dst[i+16] = (float32(code>>4) - 8) * d
	}
}
