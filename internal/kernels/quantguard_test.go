//go:build linux

package kernels

import "testing"

// TestQuantisedStaysInside is TestStaysInside for quantised weights: codes, scales and
// zeros end where memory ends.
func TestQuantisedStaysInside(t *testing.T) {
	eachSet(t, func(t *testing.T, set *Set) {
		for n := 1; n <= 9; n++ {
			rows := 1 + n%6
			for _, p := range []*Packed{
				{Packing: E4M3, Width: 19 * n, Rows: 128, Columns: 64},
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
				if set.DotsPacked(p, 0) {
					set.DotPacked(guardedFloats(t, rows), p, 0, 1, x, scratch)
					set.DotPacked(guardedFloats(t, ceil(rows, 2)), p, 0, 2, x, scratch)
				}
			}
		}
	})
}
