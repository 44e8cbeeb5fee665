package quant_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
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

// TestDotPacked: products with whole rows have the bits of Unpack and Mul, at scales of
// any size.
func TestDotPacked(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	const rows, width = 11, 320
	for name, p := range map[string]*quant.Packed{
		"e4m3":  {Packing: quant.E4M3, Scales: make([]byte, 4*3*3), ScaleFormat: mat.Float32, Rows: 5, Columns: 128},
		"mxfp4": {Packing: quant.MXFP4, Scales: make([]byte, rows*width/32), Rows: 1, Columns: 32},
	} {
		p.Width, p.Codes = width, make([]byte, rows*width)
		for i := range p.Codes {
			p.Codes[i] = byte(random.Uint32())
		}
		for _, top := range []byte{0x3f, 0x7e, 0xff} { // a scale of quant.E4M3 ends in it
			for i := range p.Scales {
				if p.Scales[i] = byte(random.Uint32()); p.Packing == quant.MXFP4 || i%4 == 3 {
					p.Scales[i] = top
				}
			}
			for _, s := range kerneltest.Variants() {
				if !s.Quant.DotsPacked(p, 0) {
					continue
				}
				for _, n := range []int{width, 192, 160, 32} {
					x, scratch := make([]float32, n), make([]float32, quant.UnpackScratch+p.DotScratch())
					for i := range x {
						x[i] = float32(random.NormFloat64())
					}
					for _, step := range []int{1, 3} {
						got, want, values := make([]float32, mat.CeilDiv(rows-1, step)), make([]float32, 1), make([]float32, n)
						s.Quant.DotPacked(got, p, 1, step, x, scratch)
						for i, g := range got {
							s.Quant.Unpack(mat.Floats{V: values, Stride: n}, quant.View{Packed: p, Row: 1 + i*step, Rows: 1, Cols: n}, scratch)
							w := mat.Weights{Data: make([]byte, 4*n), Stride: 4 * n, Format: mat.Float32}
							for k, v := range values {
								binary.LittleEndian.PutUint32(w.Data[4*k:], math.Float32bits(v))
							}
							s.GEMV.Mul(mat.Floats{V: want, Stride: 1}, w, mat.Floats{V: x, Stride: n}, 1, 1, n)
							if math.Float32bits(g) != math.Float32bits(want[0]) && !(g != g && want[0] != want[0]) {
								t.Fatalf("%s, %s, scales of %#x: product %d of %d columns is %v, want %v", name, s.Name, top, i, n, g, want[0])
							}
						}
					}
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

// BenchmarkDotPacked is a token through rows of each packing that has a kernel for them, in
// the second-level cache, and through the same rows unpacked first.
func BenchmarkDotPacked(b *testing.B) {
	const width, rows = 4096, 32
	codes, scales := make([]byte, rows*width), make([]byte, 4*width)
	for i := range scales {
		scales[i] = 0x3c
	}
	for i := range codes {
		codes[i] = byte(i % 113)
	}
	x, y, scratch := make([]float32, width), make([]float32, rows), make([]float32, width)
	panel := make([]float32, 4*width)
	bytes := make([]byte, 16*width) // stands for the panel
	for name, p := range map[string]*quant.Packed{
		"e4m3":  {Packing: quant.E4M3, Rows: 128, Columns: 128, ScaleFormat: mat.Float32},
		"mxfp4": {Packing: quant.MXFP4, Rows: 1, Columns: 32},
	} {
		p.Codes, p.Scales, p.Width = codes, scales, width
		for _, s := range kerneltest.Variants() {
			run := func(what string, f func()) {
				b.Run(name+"/"+s.Name+"/"+what, func(b *testing.B) {
					for b.Loop() {
						f()
					}
					b.ReportMetric(rows*width*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "elements/ns")
				})
			}
			run("unpacked", func() {
				for r := 0; r < rows; r += 4 {
					s.Quant.Unpack(mat.Floats{V: panel, Stride: width}, quant.View{Packed: p, Row: r, Rows: 4, Cols: width}, scratch)
					s.GEMV.Mul(mat.Floats{V: y[r:], Stride: 4}, mat.Weights{Data: bytes, Stride: 4 * width, Format: mat.Float32}, mat.Floats{V: x, Stride: width}, 4, 1, width)
				}
			})
			if s.Quant.DotsPacked(p, 0) {
				run("in place", func() { s.Quant.DotPacked(y, p, 0, 1, x, scratch) })
			}
		}
	}
}
