//go:build !purego

package qgemm

import (
	"unsafe"

	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/isa"
	"github.com/heftai/heft/internal/kernels/quant"
)

// A rowsKernel multiplies rows of w, ws bytes apart, by a token x, and stores the sums in y, ys
// bytes apart. table holds the points of the packing, or the float32 values of all float16 if the
// packing has no points.
type rowsKernel func(w unsafe.Pointer, ws int64, x, y unsafe.Pointer, ys, blocks int64, table unsafe.Pointer)

// simdRows holds kernels that multiply one row and kernels that multiply a group of rows at once.
type simdRows struct {
	rows  int // rows in a group; pointRows for packings with points
	one   *[quant.Packings]rowsKernel
	group *[quant.Packings]rowsKernel
	// tokens holds kernels that multiply two rows by several tokens; nil if there are none.
	tokens *[quant.Packings][]tokensTile
}

func rowerOf(v isa.Variant) rower {
	switch {
	case v.VNNI && v.Bytes:
		return &vbmiRows{simdRows{4, &vnniRow, &vnniRows, &vnniTokens}}
	case v.VNNI:
		return &simdRows{4, &vnniRow, &vnniRows, &vnniTokens}
	case v.Level != isa.Go:
		return &simdRows{2, &avx2Row, &avx2Rows, nil}
	}
	return nil
}

var (
	vnniRow = [quant.Packings]rowsKernel{
		quant.Q41: avx512vnniRowsQ41x1, quant.Q50: avx512vnniRowsQ50x1, quant.Q51: avx512vnniRowsQ51x1, quant.IQ4NL: avx512vnniRowsIQ4NLx1,
		quant.Q4K: avx512vnniRowsQ4Kx1, quant.Q5K: avx512vnniRowsQ5Kx1, quant.IQ4XS: avx512vnniRowsIQ4XSx1, quant.Q2K: avx512vnniRowsQ2Kx1,
		quant.Q3K: avx512vnniRowsQ3Kx1, quant.Q6K: avx512vnniRowsQ6Kx1,
		quant.MXFP4Block: avx512vnniRowsMX4x1, quant.IQ2XXS: avx512vnniRowsIQ2XXSx1, quant.IQ2XS: avx512vnniRowsIQ2XSx1, quant.IQ2S: avx512vnniRowsIQ2Sx1,
		quant.IQ3XXS: avx512vnniRowsIQ3XXSx1, quant.IQ3S: avx512vnniRowsIQ3Sx1,
		quant.Q10: avx512vnniRowsQ10x1, quant.Q20: avx512vnniRowsQ20x1, quant.NVFP4Block: avx512vnniRowsNV4x1, quant.TQ10: avx512vnniRowsTQ10x1, quant.TQ20: avx512vnniRowsTQ20x1, quant.IQ1S: avx512vnniRowsIQ1Sx1, quant.IQ1M: avx512vnniRowsIQ1Mx1,
	}
	vnniRows = [quant.Packings]rowsKernel{
		quant.Q41: avx512vnniRowsQ41x4, quant.Q50: avx512vnniRowsQ50x4, quant.Q51: avx512vnniRowsQ51x4, quant.IQ4NL: avx512vnniRowsIQ4NLx4,
		quant.Q4K: avx512vnniRowsQ4Kx4, quant.Q5K: avx512vnniRowsQ5Kx4, quant.IQ4XS: avx512vnniRowsIQ4XSx4, quant.Q2K: avx512vnniRowsQ2Kx4,
		quant.Q3K: avx512vnniRowsQ3Kx4, quant.Q6K: avx512vnniRowsQ6Kx4,
		quant.MXFP4Block: avx512vnniRowsMX4x4, quant.IQ2XXS: avx512vnniRowsIQ2XXSx2, quant.IQ2XS: avx512vnniRowsIQ2XSx2, quant.IQ2S: avx512vnniRowsIQ2Sx2,
		quant.IQ3XXS: avx512vnniRowsIQ3XXSx2, quant.IQ3S: avx512vnniRowsIQ3Sx2,
		quant.Q10: avx512vnniRowsQ10x4, quant.Q20: avx512vnniRowsQ20x4, quant.NVFP4Block: avx512vnniRowsNV4x4, quant.TQ10: avx512vnniRowsTQ10x4, quant.TQ20: avx512vnniRowsTQ20x4, quant.IQ1S: avx512vnniRowsIQ1Sx2, quant.IQ1M: avx512vnniRowsIQ1Mx2,
	}
	avx2Row = [quant.Packings]rowsKernel{
		quant.Q41: avx2RowsQ41x1, quant.Q50: avx2RowsQ50x1, quant.Q51: avx2RowsQ51x1, quant.IQ4NL: avx2RowsIQ4NLx1,
		quant.Q4K: avx2RowsQ4Kx1, quant.Q5K: avx2RowsQ5Kx1, quant.IQ4XS: avx2RowsIQ4XSx1, quant.Q2K: avx2RowsQ2Kx1,
		quant.Q3K: avx2RowsQ3Kx1, quant.Q6K: avx2RowsQ6Kx1,
		quant.MXFP4Block: avx2RowsMX4x1, quant.IQ2XXS: avx2RowsIQ2XXSx1, quant.IQ2XS: avx2RowsIQ2XSx1, quant.IQ2S: avx2RowsIQ2Sx1,
		quant.IQ3XXS: avx2RowsIQ3XXSx1, quant.IQ3S: avx2RowsIQ3Sx1,
		quant.Q10: avx2RowsQ10x1, quant.Q20: avx2RowsQ20x1, quant.NVFP4Block: avx2RowsNV4x1, quant.TQ10: avx2RowsTQ10x1, quant.TQ20: avx2RowsTQ20x1, quant.IQ1S: avx2RowsIQ1Sx1, quant.IQ1M: avx2RowsIQ1Mx1,
	}
	avx2Rows = [quant.Packings]rowsKernel{
		quant.Q41: avx2RowsQ41x2, quant.Q50: avx2RowsQ50x2, quant.Q51: avx2RowsQ51x2, quant.IQ4NL: avx2RowsIQ4NLx2,
		quant.Q4K: avx2RowsQ4Kx2, quant.Q5K: avx2RowsQ5Kx2, quant.IQ4XS: avx2RowsIQ4XSx2, quant.Q2K: avx2RowsQ2Kx2,
		quant.Q3K: avx2RowsQ3Kx2, quant.Q6K: avx2RowsQ6Kx2,
		quant.MXFP4Block: avx2RowsMX4x2, quant.IQ2XXS: avx2RowsIQ2XXSx2, quant.IQ2XS: avx2RowsIQ2XSx2, quant.IQ2S: avx2RowsIQ2Sx2,
		quant.IQ3XXS: avx2RowsIQ3XXSx2, quant.IQ3S: avx2RowsIQ3Sx2,
		quant.Q10: avx2RowsQ10x2, quant.Q20: avx2RowsQ20x2, quant.NVFP4Block: avx2RowsNV4x2, quant.TQ10: avx2RowsTQ10x2, quant.TQ20: avx2RowsTQ20x2, quant.IQ1S: avx2RowsIQ1Sx2, quant.IQ1M: avx2RowsIQ1Mx2,
	}
)

//go:noinline
func (*simdRows) narrowRows(dst []uint32, src []float32) {
	avx2RowsNarrow(asm.Words(dst), asm.Floats(src), int64(len(src)/quant.BlockColumns))
}

func (a *simdRows) mulRows(p quant.Packing, y []float32, w []byte, stride, blocks int, x []uint32) {
	rows, table := a.rows, asm.Bytes(p.Points())
	if table == nil {
		table = asm.Floats(quant.Halves())
	} else {
		rows = pointRows
	}
	mulRowsInParts(a.group[p], a.one[p], rows, y, w, stride, blocks, x, table)
}

// pointRows is the number of rows that the kernels of packings with points compute at once.
const pointRows = 2

//go:noinline
func callRows(k rowsKernel, w []byte, ws int, x []uint32, y []float32, ys, blocks int, table unsafe.Pointer) {
	k(asm.Bytes(w), int64(ws), asm.Words(x), asm.Floats(y), int64(4*ys), int64(blocks), table)
}
