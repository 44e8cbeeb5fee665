//go:build linux

package kernels

import (
	"testing"
	"unsafe"

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
			for f := range formats {
				w := Weights{guarded(t, rows*n*f.Size()), n * f.Size(), f}
				x, y := guardedFloats(t, tokens*n), guardedFloats(t, tokens*rows)
				set.Mul(Floats{y, rows}, w, Floats{x, n}, rows, tokens, n)
				set.Mix(Floats{x, n}, Floats{y, rows}, 1, w, rows, tokens, n)
				set.AddLanes(guardedFloats(t, set.Lanes*n), y[:rows], w, n)
				set.Widen(x[:n], w.Data, f)
			}
			for _, p := range []Packing{Q8, Q4} {
				packed := &Packed{Packing: p, Codes: guarded(t, rows*((n+1)/2)*p.BlockBytes()), Width: (n + 1) / 2 * 32, Rows: 1, Columns: 32}
				x, y := guardedFloats(t, packed.Width), guardedFloats(t, rows)
				set.Unpack(Floats{x, packed.Width}, packed, rows-1, 0, 1, packed.Width, nil)
				if set.DotsPacked(packed, 0) {
					set.DotPacked(y, packed, 0, 1, x, nil)
				}
				set.PackBlocks(p, packed.Codes, x)
			}
			panelsStayInside(t, set, n)
			fewStaysInside(t, set, n)
			promptStaysInside(t, set, n)
			halvesStayInside(t, set, n)
			groupsStayInside(t, set, n)
			for _, parts := range []int{RoundedParts, FloatParts} {
				if set.HasParts(parts) {
					partsStayInside(t, set, parts, n)
				}
			}
			for _, loop := range trainLoops {
				loop(set, guardedFloats(t, n), guardedFloats(t, n), guardedFloats(t, n), guardedFloats(t, n), guardedFloats(t, n))
			}
			set.Dot64(guardedFloats(t, n), guardedFloats(t, n))
			set.NormGrad(guardedFloats(t, n), guardedFloats(t, n), guardedFloats(t, n), guardedFloats(t, n), 0, 1, true)
			a, b, c := guardedFloats(t, n), guardedFloats(t, n), guardedFloats(t, n)
			for _, cubic := range []float32{0, 2} {
				set.Gate(a, b, c, 1, cubic)
				set.Gate(a, b, nil, 1, cubic)
			}
			set.ExpSum(a, 1)
			set.GELU(a, b)
			set.Tanh(c, 1, 2)
			set.ScaleMax(b, 2)
			set.AddRounded(a, b, 3)
			set.Norm(a, b, c, nil, 0, 1, 0)
			set.TurnPairs(a, b, c, c)
			set.NarrowBFloat16(guarded(t, 2*n), c)
			set.SumSquares(c, 0)
		}
	})
}

// columnsStayInside turns matrices of as many rows as a block has, and of more and less.
func columnsStayInside(t *testing.T, set *Set, n int) {
	for f := range formats {
		for _, rows := range []int{1 + n%6, 8 + n%13, 16} {
			set.Columns(Floats{guardedFloats(t, rows*n), rows}, Weights{guarded(t, rows*n*f.Size()), n * f.Size(), f}, rows, n)
		}
	}
}

// partsStayInside is panelsStayInside for parts.
func partsStayInside(t *testing.T, set *Set, parts, n int) {
	words := func(n int) []uint32 {
		f := guardedFloats(t, n)
		return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(f))), n)
	}
	size, width := parts*PanelWords(n), 1+n%PackRows
	pack := words(2 * size)
	set.PackParts(pack, PanelWords(n), Floats{guardedFloats(t, width*n), n}, n%2 == 0, false, parts, width, n)
	set.PackParts(pack, PanelWords(n), Floats{guardedFloats(t, n*width), width}, n%2 == 0, true, parts, width, n)
	set.PackHalves(pack, Weights{guarded(t, 2*width*n), 2 * n, BFloat16}, n%2 == 0, false, width, n)
	set.PackHalves(pack, Weights{guarded(t, 2*width*n), 2 * width, BFloat16}, n%2 == 0, true, width, n)
	set.MulParts(Floats{guardedFloats(t, 32*32), 32}, packsOf(pack, parts, n), packsOf(words(2*size), parts, n), ceil(n, BlockK), 1, true)
	if parts == FloatParts {
		set.MulParts(Floats{guardedFloats(t, 32*32), 32}, packsOf(pack, parts, n), packsOf(words(2*PanelWords(n)), RoundedParts, n), ceil(n, BlockK), 1, true)
	}
}

// panelsStayInside packs and multiplies matrices at the end of memory.
func panelsStayInside(t *testing.T, set *Set, n int) {
	lanes := set.PanelLanes()
	rows, cols := 1+n%set.PanelRows(), 1+n%lanes
	a, b := guardedFloats(t, n*lanes), guardedFloats(t, 2*n*lanes)
	set.PackColumns(a, Floats{guardedFloats(t, rows*n), n}, rows, n)
	set.PackLines(a, Floats{guardedFloats(t, n*cols), cols}, cols, n)
	set.MulPanels(Floats{guardedFloats(t, rows*cols), cols}, panelsOf(set, a, n), panelsOf(set, b, n), rows, cols, n, true)
	set.MulPanels(Floats{guardedFloats(t, rows*(cols+lanes)), cols + lanes}, panelsOf(set, a, n), panelsOf(set, b, n), rows, cols+lanes, n, false)
}

// groupsStayInside packs and multiplies groups of rows and tokens at the end of memory.
func groupsStayInside(t *testing.T, set *Set, n int) {
	if !set.Groups() {
		return
	}
	rows, tokens := 1+n%5, 1+n%set.GroupTokens
	x, y := Floats{guardedFloats(t, tokens*n), n}, Floats{guardedFloats(t, tokens*rows), rows}
	group, packed := guardedFloats(t, set.GroupFloats(set.GroupTokens, n)), guardedFloats(t, set.GroupFloats(ceil(rows, GroupRows)*GroupRows, n))
	set.PackGroup(group, x, tokens, n)
	for f := range formats {
		set.PackGroups(packed, Weights{guarded(t, rows*n*f.Size()), n * f.Size(), f}, rows, n)
	}
	sums := guardedFloats(t, set.SumFloats(rows))
	set.MulGroups(y, packed, group, nil, sums, rows, tokens, n, true, false)
	set.MulGroups(y, packed, group, nil, sums, rows, tokens, n, false, true)
}
