//go:build linux

package kernels_test

import (
	"testing"
	"unsafe"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/gemv"
	"github.com/heftai/heft/internal/kernels/kerneltest"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
	"github.com/heftai/heft/internal/kernels/vector"
)

// TestStaysInside runs every kernel on operands at the end of memory. A read or write
// past one, which neither the race detector nor checkptr sees in assembly, kills the test.
func TestStaysInside(t *testing.T) {
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		for n := 1; n <= 40; n++ {
			rows, tokens := 1+n%6, 1+n%9
			columnsStayInside(t, set, n)
			for f := range mat.Formats {
				w := mat.Weights{Data: kerneltest.Guarded(t, rows*n*f.Size()), Stride: n * f.Size(), Format: f}
				x, y := kerneltest.GuardedFloats(t, tokens*n), kerneltest.GuardedFloats(t, tokens*rows)
				set.GEMV.Mul(&gemv.Product{Y: mat.Floats{V: y, Stride: rows}, W: w, X: mat.Floats{V: x, Stride: n}, Rows: rows, Tokens: tokens, N: n})
				set.GEMV.Mix(&gemv.RowSum{Y: mat.Floats{V: x, Stride: n}, P: mat.Floats{V: y, Stride: rows}, Step: 1, V: w, Keys: rows, Tokens: tokens, Cols: n})
				set.GEMV.AddLanes(kerneltest.GuardedFloats(t, set.Lanes*n), y[:rows], w, n)
				set.Vector.Widen(x[:n], w.Data, f)
			}
			for _, p := range []quant.Packing{quant.Q8, quant.Q4} {
				packed := &quant.Packed{Packing: p, Codes: kerneltest.Guarded(t, rows*((n+1)/2)*p.BlockBytes()), Width: (n + 1) / 2 * 32, Rows: 1, Columns: 32}
				x, y := kerneltest.GuardedFloats(t, packed.Width), kerneltest.GuardedFloats(t, rows)
				set.Quant.Unpack(mat.Floats{V: x, Stride: packed.Width}, quant.View{Packed: packed, Row: rows - 1, Rows: 1, Cols: packed.Width}, nil)
				if set.Quant.HasDots(p) {
					set.Quant.DotBlocks(y, quant.View{Packed: packed, Step: 1, Rows: rows, Cols: packed.Width}, x)
					set.Quant.DotBlocks(y, quant.View{Packed: packed, Step: 2, Rows: mat.CeilDiv(rows, 2), Cols: packed.Width}, x)
				}
				set.Quant.PackBlocks(p, packed.Codes, x)
			}
			panelsStayInside(t, set, n)
			fewStaysInside(t, set, n)
			promptStaysInside(t, set, n)
			halvesStayInside(t, set, n)
			groupsStayInside(t, set, n)
			for _, parts := range []int{gemm.RoundedParts, gemm.FloatParts} {
				if set.GEMM.HasParts(parts) {
					partsStayInside(t, set, parts, n)
				}
			}
			set.Vector.Dot64(kerneltest.GuardedFloats(t, n), kerneltest.GuardedFloats(t, n))
			a, b, c := kerneltest.GuardedFloats(t, n), kerneltest.GuardedFloats(t, n), kerneltest.GuardedFloats(t, n)
			for _, cubic := range []float32{0, 2} {
				set.Vector.Gate(a, b, c, 1, cubic)
				set.Vector.Gate(a, b, nil, 1, cubic)
			}
			set.Vector.ExpSum(a, 1)
			set.Vector.GELU(a, b)
			set.Vector.Tanh(c, 1, 2)
			set.Vector.ScaleMax(b, 2)
			set.Vector.AddRounded(a, b, 3)
			set.Vector.Norm(a, b, c, nil, vector.Affine{By: 1})
			set.Vector.Rotate(a, b, c, c)
			set.Vector.NarrowBFloat16(kerneltest.Guarded(t, 2*n), c)
			set.Vector.SumSquares(c, 0)
		}
	})
}

// columnsStayInside turns matrices of as many rows as a block has, and of more and less.
func columnsStayInside(t *testing.T, set *kernels.Set, n int) {
	for f := range mat.Formats {
		for _, rows := range []int{1 + n%6, 8 + n%13, 16} {
			set.Vector.Transpose(mat.Floats{V: kerneltest.GuardedFloats(t, rows*n), Stride: rows}, mat.Weights{Data: kerneltest.Guarded(t, rows*n*f.Size()), Stride: n * f.Size(), Format: f}, rows, n)
		}
	}
}

// partsStayInside is panelsStayInside for parts.
func partsStayInside(t *testing.T, set *kernels.Set, parts, n int) {
	words := func(n int) []uint32 {
		f := kerneltest.GuardedFloats(t, n)
		return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(f))), n)
	}
	size, width := parts*gemm.PanelWords(n), 1+n%gemm.PackRows
	pack := words(2 * size)
	set.GEMM.PackParts(pack, gemm.PanelWords(n), mat.Floats{V: kerneltest.GuardedFloats(t, width*n), Stride: n}, gemm.PartsLayout{Panel: n%2 == 0, Parts: parts, Width: width, N: n})
	set.GEMM.PackParts(pack, gemm.PanelWords(n), mat.Floats{V: kerneltest.GuardedFloats(t, n*width), Stride: width}, gemm.PartsLayout{Panel: n%2 == 0, Lines: true, Parts: parts, Width: width, N: n})
	set.GEMM.PackBFloat16(pack, mat.Weights{Data: kerneltest.Guarded(t, 2*width*n), Stride: 2 * n, Format: mat.BFloat16}, n%2 == 0, false, width, n)
	set.GEMM.PackBFloat16(pack, mat.Weights{Data: kerneltest.Guarded(t, 2*width*n), Stride: 2 * width, Format: mat.BFloat16}, n%2 == 0, true, width, n)
	set.GEMM.MulParts(mat.Floats{V: kerneltest.GuardedFloats(t, 32*32), Stride: 32}, kerneltest.PacksOf(pack, parts, n), kerneltest.PacksOf(words(2*size), parts, n), mat.CeilDiv(n, gemm.BlockK), 1, true)
	if parts == gemm.FloatParts {
		set.GEMM.MulParts(mat.Floats{V: kerneltest.GuardedFloats(t, 32*32), Stride: 32}, kerneltest.PacksOf(pack, parts, n), kerneltest.PacksOf(words(2*gemm.PanelWords(n)), gemm.RoundedParts, n), mat.CeilDiv(n, gemm.BlockK), 1, true)
	}
}

// panelsStayInside packs and multiplies matrices at the end of memory.
func panelsStayInside(t *testing.T, set *kernels.Set, n int) {
	lanes := set.GEMM.PanelLanes()
	rows, cols := 1+n%set.GEMM.PanelRows(), 1+n%lanes
	a, b := kerneltest.GuardedFloats(t, n*lanes), kerneltest.GuardedFloats(t, 2*n*lanes)
	set.GEMM.PackColumns(a, mat.Floats{V: kerneltest.GuardedFloats(t, rows*n), Stride: n}, rows, n)
	for _, high := range []int{lanes, set.GEMM.PanelRows()} { // two panels
		width := high + 1 + n%high
		set.GEMM.PackLines(mat.Floats{V: b, Stride: n * lanes}, mat.Floats{V: kerneltest.GuardedFloats(t, n*width), Stride: width}, width, high, n)
	}
	set.GEMM.MulPanels(gemm.Panels{C: mat.Floats{V: kerneltest.GuardedFloats(t, rows*cols), Stride: cols}, A: kerneltest.PanelsOf(set, a, n), B: kerneltest.PanelsOf(set, b, n), Rows: rows, Cols: cols, N: n, Add: true})
	set.GEMM.MulPanels(gemm.Panels{C: mat.Floats{V: kerneltest.GuardedFloats(t, rows*(cols+lanes)), Stride: cols + lanes}, A: kerneltest.PanelsOf(set, a, n), B: kerneltest.PanelsOf(set, b, n), Rows: rows, Cols: cols + lanes, N: n, Add: false})
}

// groupsStayInside packs and multiplies groups of rows and tokens at the end of memory.
func groupsStayInside(t *testing.T, set *kernels.Set, n int) {
	if !set.GEMM.HasGroups() {
		return
	}
	rows, tokens := 1+n%5, 1+n%set.GEMM.GroupTokens
	x, y := mat.Floats{V: kerneltest.GuardedFloats(t, tokens*n), Stride: n}, mat.Floats{V: kerneltest.GuardedFloats(t, tokens*rows), Stride: rows}
	group, packed := kerneltest.GuardedFloats(t, set.GEMM.GroupFloats(set.GEMM.GroupTokens, n)), kerneltest.GuardedFloats(t, set.GEMM.GroupFloats(mat.CeilDiv(rows, gemm.GroupRows)*gemm.GroupRows, n))
	set.GEMM.PackGroup(group, x, tokens, n)
	for f := range mat.Formats {
		set.GEMM.PackGroups(packed, mat.Weights{Data: kerneltest.Guarded(t, rows*n*f.Size()), Stride: n * f.Size(), Format: f}, rows, n)
	}
	sums := kerneltest.GuardedFloats(t, set.GEMM.SumFloats(rows))
	set.GEMM.MulGroups(gemm.GroupProduct{Y: y, W: packed, X: group, Next: nil, Sums: sums, Rows: rows, Tokens: tokens, N: n, First: true, Last: false})
	set.GEMM.MulGroups(gemm.GroupProduct{Y: y, W: packed, X: group, Next: nil, Sums: sums, Rows: rows, Tokens: tokens, N: n, First: false, Last: true})
}

func fewStaysInside(t *testing.T, set *kernels.Set, n int) {
	if !set.GEMM.HasSmallBatch() {
		return
	}
	rows, tokens, cols := gemm.SmallBatchRows+n%23, 1+n%gemm.SmallBatchTokens, gemm.SmallBatchColumns*(1+n%2)
	side, w := kerneltest.GuardedFloats(t, cols*set.GEMM.SmallBatchWidth(tokens)), mat.Weights{Data: kerneltest.Guarded(t, rows*cols*2), Stride: cols * 2, Format: mat.BFloat16}
	set.GEMM.PackSmallBatch(side, mat.Floats{V: kerneltest.GuardedFloats(t, tokens*cols), Stride: cols}, tokens, cols)
	set.GEMM.MulSmallBatch(gemm.SmallBatch{C: mat.Floats{V: kerneltest.GuardedFloats(t, tokens*rows), Stride: rows}, W: w, X: side, Rows: rows, Tokens: tokens, N: cols})
}

func halvesStayInside(t *testing.T, set *kernels.Set, n int) {
	if !set.GEMV.HasSplit() {
		return
	}
	rows, tokens := 1+n%7, set.GEMV.SplitGroup(1+n%9)
	split := kerneltest.GuardedFloats(t, tokens*set.GEMV.SplitFloats(n))
	set.GEMV.SplitTokens(split, mat.Floats{V: kerneltest.GuardedFloats(t, tokens*n), Stride: n}, tokens, n)
	w, sums := mat.Weights{Data: kerneltest.Guarded(t, rows*n*2), Stride: n * 2, Format: mat.BFloat16}, kerneltest.GuardedFloats(t, set.GEMV.SplitSums(rows, tokens))
	set.GEMV.MulSplit(gemv.SplitProduct{Y: mat.Floats{V: kerneltest.GuardedFloats(t, tokens*rows), Stride: rows}, W: w, X: split, Sums: sums, Rows: rows, Tokens: tokens, N: n, K: 0, Last: false})
	set.GEMV.MulSplit(gemv.SplitProduct{Y: mat.Floats{V: kerneltest.GuardedFloats(t, tokens*rows), Stride: rows}, W: w, X: split, Sums: sums, Rows: rows, Tokens: tokens, N: n, K: 32, Last: true})
}

func promptStaysInside(t *testing.T, set *kernels.Set, n int) {
	lanes, high := set.GEMM.PanelLanes(), set.GEMM.PanelRows()
	rows, cols := 1+n%lanes, 1+n%(2*lanes)
	for f := range mat.Formats {
		set.GEMM.WidenColumns(kerneltest.GuardedFloats(t, n*lanes), mat.Weights{Data: kerneltest.Guarded(t, rows*n*f.Size()), Stride: n * f.Size(), Format: f}, rows, n, 1<<20)
	}
	a, b := kerneltest.GuardedFloats(t, mat.CeilDiv(n, high)*lanes*5), kerneltest.GuardedFloats(t, 2*lanes*5)
	for _, add := range []bool{false, true} {
		set.GEMM.SumPanels(gemm.PanelProduct{C: mat.Floats{V: kerneltest.GuardedFloats(t, n*cols), Stride: cols}, A: a, AStride: 5 * lanes, B: b, Rows: n, Cols: cols, N: 5, Add: add})
	}
}
