package qgemm

import (
	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
)

// packsInt8 reports whether packInt8 supports p: the columns of each block of 32 share a scale.
func packsInt8(p *quant.Packed) bool {
	bytes := p.Packing == quant.Int8 || p.Packing == quant.BnbInt8 || p.Packing == quant.Int8Packed && p.Index == nil
	return bytes && (p.Columns%gemm.BlockK == 0 || p.Columns >= p.Width)
}

// packInt8 packs whole blocks of a matrix of bytes.
func (s *Kernels) packInt8(dst []uint32, p *quant.Packed, row, step, col, rows, blocks int) {
	buffers := allPackBuffers.Get().(*packBuffers)
	defer allPackBuffers.Put(buffers)
	chunks, last := mat.CeilDiv(p.Width, p.Columns), row+(rows-1)*step
	for b := 0; b < blocks; {
		first := col + b*gemm.BlockK
		n, each := min(packBlocks, blocks-b), 1
		if rest := mat.CeilDiv((first/p.Columns+1)*p.Columns-first, gemm.BlockK); rest >= n || p.Columns >= p.Width {
			each = 0 // one scale for the whole row
		}
		for i := range rows {
			at := row + i*step
			for j := range max(1, n*each) {
				group := (first + j*gemm.BlockK) / p.Columns
				buffers.scales[i*packBlocks+j] = p.Scale(at/p.Rows*chunks + group)
				buffers.zeros[i*packBlocks+j] = float32(p.ByteZero(at, group, chunks))
			}
		}
		codes := p.Codes[row*p.Width+first : last*p.Width+first+n*gemm.BlockK]
		s.packer.packInt8(dst[b*gemm.BlockK/2*gemm.PackRows:], codes, step*p.Width, buffers, each, p.Packing, rows, n)
		b += n
	}
}

// packsNVFP4 reports whether packNVFP4 supports p.
func packsNVFP4(p *quant.Packed) bool {
	return (p.Packing == quant.NVFP4 || p.Packing == quant.NVFP4Times) && p.Columns == nvfp4Columns && p.Rows == 1 && p.Width%gemm.BlockK == 0
}

// The number of columns that share a scale of NVFP4, and the largest number of blocks that a call
// of its kernel packs.
const (
	nvfp4Columns = 16
	nvfp4Blocks  = 8
)

// packNVFP4 packs whole blocks of an NVFP4 matrix.
func (s *Kernels) packNVFP4(dst []uint32, p *quant.Packed, row, step, col, rows, blocks int) {
	global := [2]float32{1, p.Global} // scales are multiplied by the first and divided by the second
	if p.Packing == quant.NVFP4Times {
		global = [2]float32{p.Global, 1}
	}
	stride, scaleStride := p.Width/2, p.Width/nvfp4Columns
	last := row + (rows-1)*step
	for b := 0; b < blocks; b += nvfp4Blocks {
		n, first := min(nvfp4Blocks, blocks-b), col+b*gemm.BlockK
		codes := p.Codes[row*stride+first/2 : last*stride+(first+n*gemm.BlockK)/2]
		scales := p.Scales[row*scaleStride+first/nvfp4Columns : last*scaleStride+(first+n*gemm.BlockK)/nvfp4Columns]
		s.packer.packNVFP4(dst[b*gemm.BlockK/2*gemm.PackRows:], codes, step*stride, scales, step*scaleStride, global, rows, n)
	}
}
