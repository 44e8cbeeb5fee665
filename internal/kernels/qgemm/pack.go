package qgemm

import (
	"math"
	"sync"

	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
)

// packer is implemented by variants that multiply in bfloat16. It dequantises weights and packs them as [gemm.PackWeights]
// does, in blocks of 16 rows and 32 columns. Its caller has checked bounds and cleared missing rows.
type packer interface {
	// packBands packs whole blocks of a band of 16 interleaved rows. It prefetches the next band,
	// which begins next bytes later.
	packBands(p quant.Packing, dst []uint32, band []byte, next, blocks int)
	// packE4M3 packs rows that begin stride bytes apart. scales[i·packBlocks+j] is the scale of block j of row i, times
	// 2^8.
	packE4M3(dst []uint32, codes []byte, stride int, scales *[gemm.PackRows * packBlocks]float32, rows, blocks int)
	// packMXFP4 packs rows whose codes begin stride bytes apart, and whose scales scaleStride bytes.
	packMXFP4(dst []uint32, codes []byte, stride int, scales []byte, scaleStride, rows, blocks int)
	// packInt8 packs rows that begin stride bytes apart. scales[i·packBlocks+j·each] is the scale
	// of block j of row i, and the zeros have the same layout.
	packInt8(dst []uint32, codes []byte, stride int, by *packBuffers, each int, p quant.Packing, rows, blocks int)
	// packNVFP4 packs up to nvfp4Blocks blocks of rows whose codes begin stride bytes apart, and whose scales scaleStride bytes.
	packNVFP4(dst []uint32, codes []byte, stride int, scales []byte, scaleStride int, global [2]float32, rows, blocks int)
	// packNibbles packs 16 columns of the stored matrix, with a scale and a zero for each, as rows. Its words begin stride
	// bytes apart. In Int4Rows a line of words has 8 stored rows, in Int4Columns one.
	packNibbles(p quant.Packing, dst []uint32, words []byte, stride int, scale, zero *[gemm.PackRows]float32, blocks int)
}

// packBlocks is how many blocks of a row are packed before those of the next row, so that the first-level cache holds
// the blocks of all 16 rows.
const packBlocks = 16

// packBuffers are the buffers of a Pack. They come from a pool, because local variables would escape to the heap: they
// are passed through an interface.
type packBuffers struct {
	values      [packBlocks * gemm.BlockK]float32
	narrow      [packBlocks * gemm.BlockK / 2]uint32
	scales      [gemm.PackRows * packBlocks]float32
	zeros       [gemm.PackRows * packBlocks]float32
	scale, zero [gemm.PackRows]float32
}

var allPackBuffers = sync.Pool{New: func() any { return new(packBuffers) }}

// Pack dequantises w, rounds it to bfloat16 and packs it as PackWeights does. The result has the
// bits of Unpack, RoundPairs and PackWeights. It is fastest for whole blocks of 32 columns, and
// for interleaved rows if w has all rows of a band. scratch is as for Unpack.
func (s *Kernels) Pack(dst []uint32, w quant.View, scratch []float32) {
	p, row, step, col, rows, n := w.Packed, w.Row, w.Step, w.Col, w.Rows, w.Cols
	dst, rows = dst[:gemm.PanelWords(n)], min(rows, gemm.PackRows)
	whole := (col|n)%gemm.BlockK == 0
	if rows < gemm.PackRows || !whole {
		clear(dst)
	}
	if rows <= 0 || n <= 0 {
		return
	}
	blocks := n / gemm.BlockK
	switch {
	case !whole:
	case p.Height > 0 && row%quant.InterleavedRows == 0 && rows == quant.InterleavedRows && step == 1:
		at, _, _ := p.Band(row, col)
		s.packer.packBands(p.Packing, dst, p.Codes[at:][:blocks*quant.InterleavedRows*p.Packing.BlockBytes()], apart(p), blocks)
		return
	case storedAsE4M3(p) && (p.Columns%gemm.BlockK == 0 || p.Columns >= p.Width):
		if k, ok := s.packer.(bytePacker); ok {
			s.packRuns(k, dst, p, row, step, col, rows, blocks)
			return
		}
		if p.Packing == quant.E4M3 && s.packE4M3(dst, p, row, step, col, rows, blocks) {
			return
		}
	case storedAsMXFP4(p):
		s.packMXFP4(dst, p, row, step, col, rows, blocks)
		return
	case packsInt8(p):
		s.packInt8(dst, p, row, step, col, rows, blocks)
		return
	case packsNVFP4(p):
		s.packNVFP4(dst, p, row, step, col, rows, blocks)
		return
	}
	s.packValues(dst, p, row, step, col, rows, n, scratch)
}

// packValues packs rows of any format, as many columns at a time as the first-level cache holds.
func (s *Kernels) packValues(dst []uint32, p *quant.Packed, row, step, col, rows, n int, scratch []float32) {
	const part = packBlocks * gemm.BlockK
	b := allPackBuffers.Get().(*packBuffers)
	defer allPackBuffers.Put(b)
	for k := 0; k < n; k += part {
		m := min(part, n-k)
		words, to := mat.PairWords(m), dst[k/2*gemm.PackRows:]
		for i := range rows {
			s.quant.Unpack(mat.Floats{V: b.values[:m], Stride: m}, quant.View{Packed: p, Row: row + i*step, Col: col + k, Rows: 1, Cols: m}, scratch)
			s.vector.RoundPairs(b.narrow[:], b.values[:m])
			for j := 0; j < words; j += gemm.BlockK / 2 {
				copy(to[j*gemm.PackRows+i*gemm.BlockK/2:], b.narrow[j:min(j+gemm.BlockK/2, words)])
			}
		}
	}
}

// packE4M3 packs whole blocks of an FP8 matrix. It returns false if a scale is too large for the kernel.
func (s *Kernels) packE4M3(dst []uint32, p *quant.Packed, row, step, col, rows, blocks int) bool {
	buffers := allPackBuffers.Get().(*packBuffers)
	defer allPackBuffers.Put(buffers)
	scales := &buffers.scales
	for b := 0; b < blocks; b += packBlocks {
		n, first := min(packBlocks, blocks-b), col+b*gemm.BlockK
		for i := range rows {
			own := scales[i*packBlocks:][:n]
			if r := row + i*step; i > 0 && r/p.Rows == (r-step)/p.Rows {
				copy(own, scales[(i-1)*packBlocks:])
			} else if !blockScales(p, own, r, first) {
				return false
			}
		}
		codes := p.Codes[row*p.Width+first : (row+(rows-1)*step)*p.Width+first+n*gemm.BlockK]
		s.packer.packE4M3(dst[b*gemm.BlockK/2*gemm.PackRows:], codes, step*p.Width, scales, rows, n)
	}
	return true
}

// blockScales sets dst to the scales of successive blocks of 32 columns of a row, from col on, times 2^8. It reports
// whether they are finite.
func blockScales(p *quant.Packed, dst []float32, row, col int) bool {
	first := row / p.Rows * mat.CeilDiv(p.Width, p.Columns)
	for i := 0; i < len(dst); {
		block := (col + i*gemm.BlockK) / p.Columns
		v := p.Scale(first+block) * 256
		if math.IsInf(float64(v), 0) {
			return false
		}
		for end := min(len(dst), mat.CeilDiv((block+1)*p.Columns-col, gemm.BlockK)); i < end; i++ {
			dst[i] = v
		}
	}
	return true
}

// packMXFP4 packs whole blocks of an MXFP4 matrix.
func (s *Kernels) packMXFP4(dst []uint32, p *quant.Packed, row, step, col, rows, blocks int) {
	stride, scaleStride := p.Width/2, p.Width/gemm.BlockK
	last := row + (rows-1)*step
	for b := 0; b < blocks; b += packBlocks {
		n, first := min(packBlocks, blocks-b), col/gemm.BlockK+b
		codes := p.Codes[row*stride+first*gemm.BlockK/2 : last*stride+(first+n)*gemm.BlockK/2]
		scales := p.Scales[row*scaleStride+first : last*scaleStride+first+n]
		s.packer.packMXFP4(dst[b*gemm.BlockK/2*gemm.PackRows:], codes, step*stride, scales, step*scaleStride, rows, n)
	}
}

// PackTransposed is Pack of a transposed matrix: its rows are columns col, col+step, … of the stored matrix, and its
// columns are stored rows, from row on. scratch has length [TransposeScratch].
func (s *Kernels) PackTransposed(dst []uint32, w quant.View, scratch []float32) {
	p, row, step, col, rows, n := w.Packed, w.Row, w.Step, w.Col, w.Rows, w.Cols
	dst, rows = dst[:gemm.PanelWords(n)], min(rows, gemm.PackRows)
	if rows == gemm.PackRows && step == 1 && packsNibbles(p, row, col, n) {
		s.packNibbles(dst, p, row, col, n)
		return
	}
	clear(dst)
	if rows <= 0 {
		return
	}
	width := (rows-1)*step + 1
	lines, scratch := scratch[:gemm.BlockK*width], scratch[gemm.BlockK*width:]
	b := allPackBuffers.Get().(*packBuffers)
	defer allPackBuffers.Put(b)
	for k := 0; k < n; k += gemm.BlockK {
		m := min(gemm.BlockK, n-k)
		s.quant.Unpack(mat.Floats{V: lines, Stride: width}, quant.View{Packed: p, Row: row + k, Col: col, Rows: m, Cols: width}, scratch)
		for i := range rows {
			for j := range m {
				b.values[j] = lines[j*width+i*step]
			}
			s.vector.RoundPairs(dst[k/2*gemm.PackRows+i*gemm.BlockK/2:], b.values[:m])
		}
	}
}

// TransposeScratch is the length of the scratch of [Kernels.PackTransposed].
func TransposeScratch(step int) int {
	return gemm.BlockK*((gemm.PackRows-1)*step+1) + quant.UnpackScratch
}

// packsNibbles reports whether packNibbles supports these stored rows and columns: each block of 32 rows must be in one
// group, and columns must begin at a whole word.
func packsNibbles(p *quant.Packed, row, col, n int) bool {
	return (p.Packing == quant.Int4Rows || p.Packing == quant.Int4Columns) && p.Index == nil && p.Rows%gemm.BlockK == 0 && (row|n)%gemm.BlockK == 0 && col%8 == 0
}

// packNibbles packs 16 columns of a stored matrix in 4-bit integers, group by group.
func (s *Kernels) packNibbles(dst []uint32, p *quant.Packed, row, col, n int) {
	b := allPackBuffers.Get().(*packBuffers)
	defer allPackBuffers.Put(b)
	for k := 0; k < n; {
		group := (row + k) / p.Rows
		m := min(n, (group+1)*p.Rows-row) - k
		s.quant.DecodeGroup(p, b.scale[:], b.zero[:], group, col)
		first, stride, lines, size := (row+k)*p.Width+col, p.Width/2, m, gemm.PackRows/2
		first /= 2
		if p.Packing == quant.Int4Rows {
			first, stride, lines, size = ((row+k)/8*p.Width+col)*4, 4*p.Width, m/8, 4*gemm.PackRows
		}
		words := p.Codes[first:][:(lines-1)*stride+size]
		s.packer.packNibbles(p.Packing, dst[k/2*gemm.PackRows:], words, stride, &b.scale, &b.zero, m/gemm.BlockK)
		k += m
	}
}
