package attention

import (
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
)

// UnpackRows dequantises rows of q8_0 blocks, which begin stride bytes apart, to float32. It is
// exact.
func (s *Kernels) UnpackRows(dst mat.Floats, w []byte, stride, rows, blocks int) {
	if rows <= 0 || blocks <= 0 {
		return
	}
	dst.Check(rows, blocks*quant.BlockColumns)
	_ = w[:(rows-1)*stride+blocks*quant.Q8Bytes]
	s.ops.unpackRows(dst, w, stride, rows, blocks)
}

// NarrowRows dequantises as UnpackRows does and stores rows of bfloat16, which begin apart bytes
// apart.
func (s *Kernels) NarrowRows(dst []byte, apart int, w []byte, stride, rows, blocks int) {
	if rows <= 0 || blocks <= 0 {
		return
	}
	_ = dst[:(rows-1)*apart+blocks*2*quant.BlockColumns]
	_ = w[:(rows-1)*stride+blocks*quant.Q8Bytes]
	s.rounder.narrowRows(dst, apart, w, stride, rows, blocks)
}

func (goOps) unpackRows(dst mat.Floats, w []byte, stride, rows, blocks int) {
	for r := range rows {
		quant.UnpackBlocks(quant.Q8, dst.V[r*dst.Stride:][:blocks*quant.BlockColumns], w[r*stride:])
	}
}

// unpacker is implemented by each variant. The caller has checked bounds.
type unpacker interface {
	unpackRows(dst mat.Floats, w []byte, stride, rows, blocks int)
}

// goOps is the reference implementation.
type goOps struct{}
