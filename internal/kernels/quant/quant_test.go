package quant_test

import (
	"math"
	"testing"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/isa"
	"github.com/heftai/heft/internal/kernels/kerneltest"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
)

// TestUnpackVariants: all variants unpack the same bits, whatever the range.
func TestUnpackVariants(t *testing.T) {
	const rows, width = 72, 224
	scratch := make([]float32, quant.UnpackScratch)
	for name, p := range kerneltest.Quantised() {
		reference := *kernels.For(isa.Portable())
		want := mat.Floats{V: make([]float32, rows*width), Stride: width}
		reference.Quant.Unpack(want, quant.View{Packed: p, Rows: rows, Cols: width}, scratch)
		for _, s := range kerneltest.Variants() {
			for _, r := range [][4]int{{0, 0, rows, width}, {1, 0, 70, 1}, {3, 5, 31, 17}, {29, 63, 2, 90}, {8, 8, 8, 8}, {71, 31, 1, 33}, {0, 223, 72, 1}} {
				row, col, n, cols := r[0], r[1], r[2], r[3]
				got := mat.Floats{V: make([]float32, n*(cols+3)), Stride: cols + 3}
				s.Quant.Unpack(got, quant.View{Packed: p, Row: row, Col: col, Rows: n, Cols: cols}, scratch)
				for i := range n {
					for j := range cols {
						g, w := got.V[i*got.Stride+j], want.V[(row+i)*width+col+j]
						if math.Float32bits(g) != math.Float32bits(w) && !(g != g && w != w) {
							t.Fatalf("%s, %s: element (%d, %d) of range %v is %v, want %v", name, s.Name, i, j, r, g, w)
						}
					}
					for j, v := range got.V[i*got.Stride+cols : (i+1)*got.Stride] {
						if v != 0 {
							t.Fatalf("%s, %s: range %v wrote %d behind row %d", name, s.Name, r, j, i)
						}
					}
				}
			}
		}
	}
}

// TestE4M3Codes has every code at every scale that is special.
func TestE4M3Codes(t *testing.T) {
	codes := make([]byte, 256)
	for i := range codes {
		codes[i] = byte(i)
	}
	inf := float32(math.Inf(1))
	for _, s := range kerneltest.Variants() {
		for _, scale := range []float32{1, 0, 0x1p-149, 0x1p-130, 0x1p120, math.MaxFloat32, inf, -inf, float32(math.NaN()), -0.3} {
			got := make([]float32, 256)
			p := quant.Packed{Packing: quant.E4M3, Codes: codes, Width: 256, Scales: kerneltest.BytesOf([]float32{scale}), ScaleFormat: mat.Float32, Rows: 1, Columns: 256}
			s.Quant.Unpack(mat.Floats{V: got, Stride: 256}, quant.View{Packed: &p, Rows: 1, Cols: 256}, nil)
			for i, g := range got {
				exponent, mantissa := i>>3&15, float64(i&7)/8
				w := math.Ldexp(mantissa, -6)
				if exponent > 0 {
					w = math.Ldexp(1+mantissa, exponent-7)
				}
				if i&0x7f == 0x7f {
					w = math.NaN()
				}
				if i&0x80 != 0 {
					w = -w
				}
				want := float32(w) * scale
				if math.Float32bits(g) != math.Float32bits(want) && !(g != g && want != want) {
					t.Fatalf("%s: code %#x times %v is %v, want %v", s.Name, i, scale, g, want)
				}
			}
		}
	}
}

// TestMXFP4Scales has every code at every scale.
func TestMXFP4Scales(t *testing.T) {
	codes := make([]byte, 16)
	for i := range codes {
		codes[i] = byte(i | (15-i)<<4)
	}
	for _, s := range kerneltest.Variants() {
		for scale := range 256 {
			got := make([]float32, 32)
			p := quant.Packed{Packing: quant.MXFP4, Codes: codes, Width: 32, Scales: []byte{byte(scale)}, Rows: 1, Columns: 32}
			s.Quant.Unpack(mat.Floats{V: got, Stride: 32}, quant.View{Packed: &p, Rows: 1, Cols: 32}, nil)
			for i, g := range got {
				want := float32(math.Ldexp(float64(quant.FromE2M1(codes[i/2]>>(i%2*4))), scale-127))
				if scale == 255 {
					want = float32(math.NaN())
				}
				if math.Float32bits(g) != math.Float32bits(want) && !(g != g && want != want) {
					t.Fatalf("%s: code %d with scale %d is %v, want %v", s.Name, i, scale, g, want)
				}
			}
		}
	}
}

// BenchmarkUnpack is a row of a matrix, in the cache, of each packing.
func BenchmarkUnpack(b *testing.B) {
	const width = 4096
	scratch, dst := make([]float32, quant.UnpackScratch), make([]float32, 32*width)
	codes, scales := make([]byte, 32*width), make([]byte, 4*width)
	for i := range scales {
		scales[i] = 0x3c
	}
	for i := range codes {
		codes[i] = byte(i % 113)
	}
	for name, p := range map[string]*quant.Packed{
		"e4m3":    {Packing: quant.E4M3, Columns: 128, ScaleFormat: mat.Float32},
		"mxfp4":   {Packing: quant.MXFP4, Columns: 32},
		"rows":    {Packing: quant.Int4Rows, Columns: 1, ScaleFormat: mat.Float16},
		"columns": {Packing: quant.Int4Columns, Columns: 1, ScaleFormat: mat.Float16},
	} {
		p.Codes, p.Scales, p.Zeros, p.Width, p.Rows = codes, scales, codes, width, 128
		for _, s := range kerneltest.Variants() {
			b.Run(name+"/"+s.Name, func(b *testing.B) {
				for b.Loop() {
					s.Quant.Unpack(mat.Floats{V: dst, Stride: 128}, quant.View{Packed: p, Rows: 32, Cols: 128}, scratch)
				}
				b.ReportMetric(32*128*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "elements/ns")
			})
		}
	}
}
