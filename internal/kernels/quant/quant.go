// Package quant implements the stored formats of quantised weights: the layout of codes and
// scales, dequantising to float32, quantising to blocks, and interleaving the rows of blocks.
//
// A [Packed] is a matrix as stored in a checkpoint or a side-car. An element is one rounded
// product of a code and a scale. It does not depend on the range that is dequantised or on the
// variant.
package quant

import (
	"encoding/binary"
	"math"

	"github.com/heftai/heft/internal/floats"
	"github.com/heftai/heft/internal/kernels/isa"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/vector"
)

// Packed is a quantised matrix as stored, from its first element on. Its bytes may have any
// alignment.
type Packed struct {
	Packing Packing
	Codes   []byte
	Width   int // number of columns
	// Height is the number of rows of an interleaved matrix of Q8 or Q4, and 0 for a matrix
	// stored by rows.
	Height int
	// Scales has one scale for each Rows × Columns elements, row by row; exponents for MXFP4.
	Scales        []byte
	ScaleFormat   mat.Format
	Rows, Columns int
	// Zeros has a code for each scale; nil for none.
	Zeros []byte
	// ZeroWords[i%3] is added to word i of a group's Zeros, for Int2Rows, Int3Rows, Int4Rows and Int8Rows.
	ZeroWords [3]uint32
	// Global divides or multiplies the scales of NVFP4, and multiplies the values of NVFP4Block.
	Global float32
	// Round is the format that values of NF4 and FP4 are rounded to.
	Round mat.Format
	// Index holds the group of each row, or of each column for Int4Packed, as little-endian
	// int32. It is nil if Rows or Columns determines the group.
	Index []byte
}

// View is part of a quantised matrix: Rows rows, Row, Row+Step and so on, of Cols columns from Col on.
type View struct {
	*Packed
	Row, Step, Col int
	Rows, Cols     int
}

// unpacker is implemented by each variant for [Kernels.Unpack]. The caller has checked bounds.
type unpacker interface {
	blocker
	interleaver
	// e4m3: dst[i] = src[i] · scale.
	e4m3(dst []float32, src []byte, scale float32)
	// mxfp4 unpacks whole blocks: len(scales) of them.
	mxfp4(dst []float32, src, scales []byte)
	// nibbles sets dst[i] = (bits shift to shift+3 of word i - zero[i]) · scale[i]. The words to
	// prefetch are ahead bytes after these.
	nibbles(dst []float32, words []byte, shift int, scale, zero []float32, ahead int)
	// interleaved: dst[i] = (nibble of Int4Columns i - zero[i]) · scale[i], in whole
	// words.
	interleaved(dst []float32, words []byte, scale, zero []float32, ahead int)
	// lookUp dequantises len(scales) groups of a packing with a table. columns is a multiple of
	// 8.
	lookUp(p *Packed, dst []float32, codes []byte, scales, zeros []float32, columns int)
	// addCodes adds x[t][k] · w[k][c] to lane k of token t for s.n rows and SumColumns columns;
	// see Kernels.AddCodes. values is memory for dequantised rows.
	addCodes(p Packing, lanes, x []float32, words []byte, table, values []float32, s codeShape)
	// dotTokens returns how many of the given tokens one call of dotCodes computes.
	dotTokens(tokens int) int
	// dotCodes adds products to sums, which has lanes for each row and token; see
	// Kernels.DotRows. foldDots adds the lanes.
	dotCodes(kind dotKind, sums []float32, codes []byte, x, scales []float32, bytes []byte, table []float32, s dotShape, tokens int)
	foldDots(y []float32, stride int, sums []float32, rows, tokens int)
	// int8s: dst[i] = (signed code i - zero) · scale · factor, rounded twice.
	bytes(dst []float32, codes []byte, by byteScale)
}

// groupColumns is the number of columns whose scales are decoded at a time, a multiple of 8.
const groupColumns = 128

// aheadRows is how many rows ahead nibbles are prefetched. The rows of one range of columns are
// too far apart for the hardware prefetcher.
const aheadRows = 32

// UnpackScratch is the length of the scratch of [Kernels.Unpack].
const UnpackScratch = 3 * (groupColumns + 8)

// Unpack dequantises rows × cols elements of p, from (row, col) on, into dst. Each element is one
// rounded product, whatever the range. Where columns share words or blocks, a range that starts
// inside one is slower.
func (s *Kernels) Unpack(dst mat.Floats, w View, scratch []float32) {
	p, row, col, rows, cols := w.Packed, w.Row, w.Col, w.Rows, w.Cols
	if rows <= 0 || cols <= 0 {
		return
	}
	dst.Check(rows, cols)
	switch p.Packing {
	case E4M3, E4M3Powers:
		for r := range rows {
			p.unpackE4M3(s.ops, dst.V[r*dst.Stride:][:cols], row+r, col)
		}
	case MXFP4:
		for r := range rows {
			p.unpackMXFP4(s.ops, dst.V[r*dst.Stride:][:cols], row+r, col)
		}
	case Int8Rows:
		for r := range rows {
			s.unpackInt8Rows(p, dst.V[r*dst.Stride:][:cols], row+r, col, scratch)
		}
	case Int2Rows, Int3Rows:
		for begin := 0; begin < cols; begin += groupColumns {
			part := mat.Floats{V: dst.V[begin:], Stride: dst.Stride}
			s.unpackFewBits(p, part, row, col+begin, rows, min(groupColumns, cols-begin), scratch)
		}
	case Int8, BnbInt8, Int4Packed, NVFP4, NVFP4Times, NF4, FP4, E2M1Powers, Int8Packed:
		for r := range rows {
			p.unpackSeparate(s.ops, dst.V[r*dst.Stride:][:cols], row+r, col, scratch)
		}
	case Int4Rows, Int4Columns:
		for begin := 0; begin < cols; begin += groupColumns {
			part := mat.Floats{V: dst.V[begin:], Stride: dst.Stride}
			s.unpackNibbles(p, part, row, col+begin, rows, min(groupColumns, cols-begin), scratch)
		}
	default:
		if len(scratch) < maxBlockColumns && (col|cols)%p.Packing.BlockColumns() != 0 {
			scratch = make([]float32, maxBlockColumns)
		}
		for r := range rows {
			if to := dst.V[r*dst.Stride:][:cols]; p.Height > 0 {
				p.unpackBand(s.ops, to, row+r, col)
			} else {
				p.unpackRow(s.ops, to, row+r, col, scratch)
			}
		}
	}
}

// HasDots reports whether the variant implements [Kernels.DotBlocks] for p.
func (s *Kernels) HasDots(p Packing) bool { return packings[p].dots && s.ops.dots() }

// DotBlocks sets y[i] to the dot product of x and row i of w. The view w begins at column 0 and
// has whole blocks of rows that are not interleaved. It has the bits of [Kernels.Unpack] followed
// by gemv's Mul.
func (s *Kernels) DotBlocks(y []float32, w View, x []float32) {
	if w.Rows <= 0 || w.Cols <= 0 {
		return
	}
	y, x = y[:w.Rows], x[:w.Cols]
	stride, used := w.RowBytes(), w.Cols/w.Packing.BlockColumns()*w.Packing.BlockBytes()
	rows := w.Codes[w.Row*stride : (w.Row+(w.Rows-1)*w.Step)*stride+used]
	s.ops.dotBlocks(w.Packing, y, rows, w.Step*stride, x)
}

func (p *Packed) unpackE4M3(ops ops, dst []float32, row, col int) {
	scales := row / p.Rows * mat.CeilDiv(p.Width, p.Columns)
	codes := p.Codes[row*p.Width+col:][:len(dst)]
	for len(dst) > 0 {
		block := col / p.Columns
		n := min(len(dst), (block+1)*p.Columns-col)
		ops.e4m3(dst[:n], codes[:n], p.CodeScale(scales+block))
		dst, codes, col = dst[n:], codes[n:], col+n
	}
}

func (p *Packed) unpackMXFP4(ops ops, dst []float32, row, col int) {
	codes, scales := p.Codes[row*p.Width/2:][:p.Width/2], p.Scales[row*p.Width/32:][:p.Width/32]
	var block [32]float32
	for len(dst) > 0 {
		b := col / 32
		if col%32 == 0 && len(dst) >= 32 {
			n := len(dst) / 32
			ops.mxfp4(dst[:32*n], codes[16*b:], scales[b:b+n])
			dst, col = dst[32*n:], col+32*n
			continue
		}
		mxfp4Go(block[:], codes[16*b:][:16], scales[b:b+1])
		n := copy(dst, block[col%32:])
		dst, col = dst[n:], col+n
	}
}

func (s *Kernels) unpackNibbles(p *Packed, dst mat.Floats, row, col, rows, cols int, scratch []float32) {
	// Dequantise whole words: the first head columns are not used.
	head := col % 8
	n := (head + cols + 7) &^ 7
	scale, zero, whole := scratch[:n], scratch[n:2*n], scratch[2*n:3*n]
	group := -1
	for r := row; r < row+rows; r++ {
		if g := p.group(r); g != group {
			group = g
			s.DecodeGroup(p, scale, zero, g, col-head)
		}
		out := dst.V[(r-row)*dst.Stride:][:cols]
		if p.Packing == Int4Rows {
			words := p.Codes[4*(r/8*p.Width+col):][:4*cols]
			ahead := 0 // the words of eight rows are fetched only once
			if r%8 == 0 {
				ahead = aheadRows / 2 * p.Width
			}
			s.ops.nibbles(out, words, r%8*4, scale[head:][:cols], zero[head:][:cols], ahead)
			continue
		}
		words := p.Codes[(r*p.Width+col-head)/2:][:n/2]
		if n == cols {
			s.ops.interleaved(out, words, scale, zero, aheadRows/2*p.Width)
			continue
		}
		s.ops.interleaved(whole, words, scale, zero, aheadRows/2*p.Width)
		copy(out, whole[head:])
	}
}

// group returns the index of the row of scales for row r.
func (p *Packed) group(r int) int {
	if p.Index != nil {
		return int(int32(binary.LittleEndian.Uint32(p.Index[4*r:])))
	}
	return r / p.Rows
}

// DecodeGroup decodes scales and zeros of a group from column col on, which is the first of a
// word.
func (s *Kernels) DecodeGroup(p *Packed, scale, zero []float32, group, col int) {
	first := group*p.Width + col
	size := p.ScaleFormat.Size()
	s.vector.Widen(scale, p.Scales[first*size:][:len(scale)*size], p.ScaleFormat)
	words := p.Zeros[first/2:][:len(zero)/2]
	for ; len(zero) > 0; zero, words = zero[8:], words[4:] {
		word, to := binary.LittleEndian.Uint32(words)+p.ZeroWords[0], (*[8]float32)(zero)
		if p.Packing == Int4Columns {
			for i := range to {
				to[i] = float32(int(word >> interleave(i) & 15))
			}
			continue
		}
		for i := range to {
			to[i] = float32(int(word >> (4 * i) & 15))
		}
	}
}

// interleave returns the bit at which column i of a word of Int4Columns begins.
func interleave(i int) int { return i%8/2*4 + i%2*16 }

// Scale returns scale i as float32.
func (p *Packed) Scale(i int) float32 {
	switch p.ScaleFormat {
	case mat.BFloat16:
		return mat.FromBFloat16(binary.LittleEndian.Uint16(p.Scales[2*i:]))
	case mat.Float16:
		return mat.FromFloat16(binary.LittleEndian.Uint16(p.Scales[2*i:]))
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(p.Scales[4*i:]))
}

// CodeScale returns scale i of E4M3 or E4M3Powers.
func (p *Packed) CodeScale(i int) float32 {
	if p.Packing == E4M3Powers {
		return floats.FromE8M0(p.Scales[i])
	}
	return p.Scale(i)
}

// FromE2M1 converts the low four bits of code to float32.
func FromE2M1(code byte) float32 {
	v := [8]float32{0, 0.5, 1, 1.5, 2, 3, 4, 6}[code&7]
	if code&8 != 0 {
		return -v
	}
	return v
}

func (goOps) e4m3(dst []float32, src []byte, scale float32) {
	for i, code := range src[:len(dst)] {
		dst[i] = floats.FromE4M3(code) * scale
	}
}

func (goOps) mxfp4(dst []float32, src, scales []byte) { mxfp4Go(dst, src, scales) }

func mxfp4Go(dst []float32, src, scales []byte) {
	for b, s := range scales {
		scale := floats.FromE8M0(s)
		for i, code := range src[16*b:][:16] {
			dst[32*b+2*i] = FromE2M1(code) * scale
			dst[32*b+2*i+1] = FromE2M1(code>>4) * scale
		}
	}
}

func (goOps) nibbles(dst []float32, words []byte, shift int, scale, zero []float32, _ int) {
	for i := range dst {
		code := binary.LittleEndian.Uint32(words[4*i:]) >> shift & 15
		dst[i] = (float32(code) - zero[i]) * scale[i]
	}
}

func (goOps) interleaved(dst []float32, words []byte, scale, zero []float32, _ int) {
	for i := range dst {
		code := binary.LittleEndian.Uint32(words[i/8*4:]) >> interleave(i) & 15
		dst[i] = (float32(code) - zero[i]) * scale[i]
	}
}

// Kernels dequantise and quantise in one variant. They are stateless and safe for concurrent use.
type Kernels struct {
	ops    ops
	vector vector.Kernels
}

// For returns the kernels of v.
func For(v isa.Variant) Kernels { return Kernels{ops: opsOf(v), vector: vector.For(v)} }

// ops is implemented by each variant.
type ops = unpacker

// goOps is the reference implementation.
type goOps struct{}
