//go:build linux

package kernels

import (
	"math/rand/v2"
	"testing"
	"unsafe"
)

// TestIntsStayInside is TestStaysInside for weights in bands and products of integers, by as many
// bands and tokens as any kernel passes at once.
func TestIntsStayInside(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	eachSet(t, func(t *testing.T, set *Set) {
		for _, rows := range []int{1, 3, 8, 9, 15, 16, 17, 31, 32, 48, 75, 139} {
			for blocks := 1; blocks <= 3; blocks++ {
				for _, packing := range []Packing{Q8, Q4} {
					width, each := 32*blocks, blocks*packing.BlockBytes()
					lying := guarded(t, rows*each)
					copy(lying, randomBlocks(random, packing, rows*blocks))
					p := &Packed{Packing: packing, Codes: guarded(t, rows*each), Width: width, Height: rows}
					set.Bands(packing, p.Codes, lying, each, rows, blocks)
					values := guardedFloats(t, rows*width)
					set.Unpack(Floats{values, width}, p, 0, 0, rows, width, nil)
					if set.Rounds() {
						set.PackQuantised(guardedWords(t, PanelWords(width)), p, 0, 1, 0, rows, width, nil)
					}
					if !set.Integers() {
						continue
					}
					for _, tokens := range []int{1, 2, 4, 6, 8, 9, 24} {
						intsStayInside(t, set, p, rows, tokens)
					}
				}
			}
		}
	})
}

func intsStayInside(t *testing.T, set *Set, p *Packed, rows, tokens int) {
	words := set.IntWords(p.Packing, p.Width)
	x, in := guardedWords(t, tokens*words), guardedFloats(t, p.Width)
	for i := range tokens {
		set.NarrowInts(p.Packing, x[i*words:], in)
	}
	y := guardedFloats(t, tokens*rows)
	set.MulInts(Floats{y, rows}, p, 0, 1, 0, rows, Pairs{x, words}, tokens, p.Width, false)
	set.MulInts(Floats{y, rows}, p, 0, 2, 0, ceil(rows, 2), Pairs{x, words}, tokens, p.Width, true)
}

func guardedWords(t *testing.T, n int) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(guarded(t, 4*n)))), n)
}

// TestQuantisedStaysInside is TestStaysInside for quantised weights: codes, scales and
// zeros end where memory ends.
func TestQuantisedStaysInside(t *testing.T) {
	eachSet(t, func(t *testing.T, set *Set) {
		for n := 1; n <= 9; n++ {
			rows := 1 + n%6
			for _, p := range []*Packed{
				{Packing: E4M3, Width: 19 * n, Rows: 128, Columns: 64},
				{Packing: E4M3, Width: 32 * n, Rows: 128, Columns: 64},
				{Packing: MXFP4, Width: 32 * n, Rows: 1, Columns: 32},
				{Packing: NibbleRows, Width: 8 * n, Rows: 32, Columns: 1},
				{Packing: NibbleColumns, Width: 8 * n, Rows: 32, Columns: 1},
			} {
				size := rows * p.Width / 2
				switch p.Packing {
				case E4M3:
					size = rows * p.Width
					p.Scales, p.ScaleFormat = guarded(t, 4*ceil(p.Width, 64)), Float32
				case MXFP4:
					p.Scales = guarded(t, rows*n)
				case NibbleRows:
					size = ceil(rows, 8) * p.Width * 4
					fallthrough
				case NibbleColumns:
					p.Scales, p.ScaleFormat, p.Zeros = guarded(t, 2*p.Width), Float16, guarded(t, p.Width/2)
				}
				p.Codes = guarded(t, size)
				dst, x, scratch := guardedFloats(t, rows*p.Width), guardedFloats(t, p.Width), make([]float32, UnpackScratch)
				set.Unpack(Floats{dst, p.Width}, p, 0, 0, rows, p.Width, scratch)
				set.Unpack(Floats{dst, p.Width}, p, rows-1, p.Width-1, 1, 1, scratch)
				if set.Rounds() {
					set.PackQuantised(guardedWords(t, PanelWords(p.Width)), p, 0, 1, 0, rows, p.Width, scratch)
				}
				if set.DotsPacked(p, 0) {
					set.DotPacked(guardedFloats(t, rows), p, 0, 1, x, scratch)
					set.DotPacked(guardedFloats(t, ceil(rows, 2)), p, 0, 2, x, scratch)
				}
			}
		}
	})
}

// TestNibblesStayInside is TestStaysInside for packs of whole blocks of weights of four bits.
func TestNibblesStayInside(t *testing.T) {
	eachSet(t, func(t *testing.T, set *Set) {
		if !set.Rounds() {
			return
		}
		for _, packing := range []Packing{NibbleRows, NibbleColumns} {
			for rows := BlockK; rows <= 3*BlockK; rows += BlockK {
				for width := PackRows; width <= 40; width += 8 {
					groups := ceil(rows, 2*BlockK)
					p := &Packed{Packing: packing, Width: width, Rows: 2 * BlockK, Columns: 1, ScaleFormat: Float16}
					p.Codes, p.Scales, p.Zeros = guarded(t, rows*width/2), guarded(t, 2*groups*width), guarded(t, groups*width/2)
					set.PackQuantisedTurned(guardedWords(t, PanelWords(rows)), p, 0, width-PackRows, 1, PackRows, rows, nil)
				}
			}
		}
	})
}
