//go:build linux

package kernels

import (
	"testing"
	"unsafe"

	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
	"golang.org/x/sys/unix"
)

// guarded is n bytes that end where memory ends: a byte further faults.
func guarded(t *testing.T, n int) []byte {
	t.Helper()
	page := unix.Getpagesize()
	size := (n + page - 1) / page * page
	region, err := unix.Mmap(-1, 0, size+page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mprotect(region[size:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(region); err != nil {
			t.Error(err)
		}
	})
	return region[size-n : size : size]
}

func guardedFloats(t *testing.T, n int) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(guarded(t, 4*n)))), n)
}

// TestStaysInside runs every kernel on operands at the end of memory. A read or write
// past one, which neither the race detector nor checkptr sees in assembly, kills the test.
func TestStaysInside(t *testing.T) {
	eachSet(t, func(t *testing.T, set *Set) {
		for n := 1; n <= 40; n++ {
			rows, tokens := 1+n%6, 1+n%9
			columnsStayInside(t, set, n)
			for f := range mat.Formats {
				w := mat.Weights{Data: guarded(t, rows*n*f.Size()), Stride: n * f.Size(), Format: f}
				x, y := guardedFloats(t, tokens*n), guardedFloats(t, tokens*rows)
				set.GEMV.Mul(mat.Floats{V: y, Stride: rows}, w, mat.Floats{V: x, Stride: n}, rows, tokens, n)
				set.GEMV.Mix(mat.Floats{V: x, Stride: n}, mat.Floats{V: y, Stride: rows}, 1, w, rows, tokens, n)
				set.GEMV.AddLanes(guardedFloats(t, set.Lanes*n), y[:rows], w, n)
				set.Vector.Widen(x[:n], w.Data, f)
			}
			for _, p := range []quant.Packing{quant.Q8, quant.Q4} {
				packed := &quant.Packed{Packing: p, Codes: guarded(t, rows*((n+1)/2)*p.BlockBytes()), Width: (n + 1) / 2 * 32, Rows: 1, Columns: 32}
				x, y := guardedFloats(t, packed.Width), guardedFloats(t, rows)
				set.Quant.Unpack(mat.Floats{V: x, Stride: packed.Width}, packed, rows-1, 0, 1, packed.Width, nil)
				if set.Quant.DotsPacked(packed, 0) {
					set.Quant.DotPacked(y, packed, 0, 1, x, nil)
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
			for _, loop := range trainLoops {
				loop(set, guardedFloats(t, n), guardedFloats(t, n), guardedFloats(t, n), guardedFloats(t, n), guardedFloats(t, n))
			}
			set.Vector.Dot64(guardedFloats(t, n), guardedFloats(t, n))
			set.Grad.NormGrad(guardedFloats(t, n), guardedFloats(t, n), guardedFloats(t, n), guardedFloats(t, n), 0, 1, true)
			a, b, c := guardedFloats(t, n), guardedFloats(t, n), guardedFloats(t, n)
			for _, cubic := range []float32{0, 2} {
				set.Vector.Gate(a, b, c, 1, cubic)
				set.Vector.Gate(a, b, nil, 1, cubic)
			}
			set.Vector.ExpSum(a, 1)
			set.Vector.GELU(a, b)
			set.Vector.Tanh(c, 1, 2)
			set.Vector.ScaleMax(b, 2)
			set.Vector.AddRounded(a, b, 3)
			set.Vector.Norm(a, b, c, nil, 0, 1, 0)
			set.Vector.TurnPairs(a, b, c, c)
			set.Vector.NarrowBFloat16(guarded(t, 2*n), c)
			set.Vector.SumSquares(c, 0)
		}
	})
}

// columnsStayInside turns matrices of as many rows as a block has, and of more and less.
func columnsStayInside(t *testing.T, set *Set, n int) {
	for f := range mat.Formats {
		for _, rows := range []int{1 + n%6, 8 + n%13, 16} {
			set.Vector.Columns(mat.Floats{V: guardedFloats(t, rows*n), Stride: rows}, mat.Weights{Data: guarded(t, rows*n*f.Size()), Stride: n * f.Size(), Format: f}, rows, n)
		}
	}
}

// partsStayInside is panelsStayInside for parts.
func partsStayInside(t *testing.T, set *Set, parts, n int) {
	words := func(n int) []uint32 {
		f := guardedFloats(t, n)
		return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(f))), n)
	}
	size, width := parts*gemm.PanelWords(n), 1+n%gemm.PackRows
	pack := words(2 * size)
	set.GEMM.PackParts(pack, gemm.PanelWords(n), mat.Floats{V: guardedFloats(t, width*n), Stride: n}, n%2 == 0, false, parts, width, n)
	set.GEMM.PackParts(pack, gemm.PanelWords(n), mat.Floats{V: guardedFloats(t, n*width), Stride: width}, n%2 == 0, true, parts, width, n)
	set.GEMM.PackHalves(pack, mat.Weights{Data: guarded(t, 2*width*n), Stride: 2 * n, Format: mat.BFloat16}, n%2 == 0, false, width, n)
	set.GEMM.PackHalves(pack, mat.Weights{Data: guarded(t, 2*width*n), Stride: 2 * width, Format: mat.BFloat16}, n%2 == 0, true, width, n)
	set.GEMM.MulParts(mat.Floats{V: guardedFloats(t, 32*32), Stride: 32}, packsOf(pack, parts, n), packsOf(words(2*size), parts, n), mat.CeilDiv(n, gemm.BlockK), 1, true)
	if parts == gemm.FloatParts {
		set.GEMM.MulParts(mat.Floats{V: guardedFloats(t, 32*32), Stride: 32}, packsOf(pack, parts, n), packsOf(words(2*gemm.PanelWords(n)), gemm.RoundedParts, n), mat.CeilDiv(n, gemm.BlockK), 1, true)
	}
}

// panelsStayInside packs and multiplies matrices at the end of memory.
func panelsStayInside(t *testing.T, set *Set, n int) {
	lanes := set.GEMM.PanelLanes()
	rows, cols := 1+n%set.GEMM.PanelRows(), 1+n%lanes
	a, b := guardedFloats(t, n*lanes), guardedFloats(t, 2*n*lanes)
	set.GEMM.PackColumns(a, mat.Floats{V: guardedFloats(t, rows*n), Stride: n}, rows, n)
	set.GEMM.PackLines(a, mat.Floats{V: guardedFloats(t, n*cols), Stride: cols}, cols, n)
	set.GEMM.MulPanels(mat.Floats{V: guardedFloats(t, rows*cols), Stride: cols}, panelsOf(set, a, n), panelsOf(set, b, n), rows, cols, n, true)
	set.GEMM.MulPanels(mat.Floats{V: guardedFloats(t, rows*(cols+lanes)), Stride: cols + lanes}, panelsOf(set, a, n), panelsOf(set, b, n), rows, cols+lanes, n, false)
}

// groupsStayInside packs and multiplies groups of rows and tokens at the end of memory.
func groupsStayInside(t *testing.T, set *Set, n int) {
	if !set.GEMM.Groups() {
		return
	}
	rows, tokens := 1+n%5, 1+n%set.GEMM.GroupTokens
	x, y := mat.Floats{V: guardedFloats(t, tokens*n), Stride: n}, mat.Floats{V: guardedFloats(t, tokens*rows), Stride: rows}
	group, packed := guardedFloats(t, set.GEMM.GroupFloats(set.GEMM.GroupTokens, n)), guardedFloats(t, set.GEMM.GroupFloats(mat.CeilDiv(rows, gemm.GroupRows)*gemm.GroupRows, n))
	set.GEMM.PackGroup(group, x, tokens, n)
	for f := range mat.Formats {
		set.GEMM.PackGroups(packed, mat.Weights{Data: guarded(t, rows*n*f.Size()), Stride: n * f.Size(), Format: f}, rows, n)
	}
	sums := guardedFloats(t, set.GEMM.SumFloats(rows))
	set.GEMM.MulGroups(y, packed, group, nil, sums, rows, tokens, n, true, false)
	set.GEMM.MulGroups(y, packed, group, nil, sums, rows, tokens, n, false, true)
}
