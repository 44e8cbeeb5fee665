package kernels

import (
	"math"
	"math/rand/v2"
	"testing"
)

// packedCases are matrices of random codes, with whatever scales.
func packedCases() map[string]*Packed {
	random := rand.New(rand.NewPCG(1, 2))
	bytes := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		return b
	}
	const rows, width = 72, 224
	return map[string]*Packed{
		"e4m3":    {Packing: E4M3, Codes: bytes(rows * width), Width: width, Scales: bytes(4 * 3 * 4), ScaleFormat: Float32, Rows: 30, Columns: 70},
		"mxfp4":   {Packing: MXFP4, Codes: bytes(rows * width / 2), Width: width, Scales: bytes(rows * width / 32), Rows: 1, Columns: 32},
		"rows":    {Packing: NibbleRows, Codes: bytes(rows * width / 2), Width: width, Scales: bytes(2 * 3 * width), ScaleFormat: Float16, Rows: 24, Columns: 1, Zeros: bytes(3 * width / 2), ZeroBias: 1},
		"columns": {Packing: NibbleColumns, Codes: bytes(rows * width / 2), Width: width, Scales: bytes(2 * 3 * width), ScaleFormat: BFloat16, Rows: 24, Columns: 1, Zeros: bytes(3 * width / 2)},
	}
}

// TestUnpackVariants: all variants unpack the same bits, whatever the range.
func TestUnpackVariants(t *testing.T) {
	const rows, width = 72, 224
	scratch := make([]float32, UnpackScratch)
	for name, p := range packedCases() {
		reference := goSet()
		want := Floats{V: make([]float32, rows*width), Stride: width}
		reference.Unpack(want, p, 0, 0, rows, width, scratch)
		for _, s := range available() {
			for _, r := range [][4]int{{0, 0, rows, width}, {1, 0, 70, 1}, {3, 5, 31, 17}, {29, 63, 2, 90}, {8, 8, 8, 8}, {71, 31, 1, 33}, {0, 223, 72, 1}} {
				row, col, n, cols := r[0], r[1], r[2], r[3]
				got := Floats{V: make([]float32, n*(cols+3)), Stride: cols + 3}
				s.Unpack(got, p, row, col, n, cols, scratch)
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
	for _, s := range available() {
		for _, scale := range []float32{1, 0, 0x1p-149, 0x1p-130, 0x1p120, math.MaxFloat32, inf, -inf, float32(math.NaN()), -0.3} {
			got := make([]float32, 256)
			s.ops.e4m3(got, codes, scale)
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
	for _, s := range available() {
		for scale := range 256 {
			got := make([]float32, 32)
			s.ops.mxfp4(got, codes, []byte{byte(scale)})
			for i, g := range got {
				want := float32(math.Ldexp(float64(FromE2M1(codes[i/2]>>(i%2*4))), scale-127))
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
	scratch, dst := make([]float32, UnpackScratch), make([]float32, 32*width)
	codes, scales := make([]byte, 32*width), make([]byte, 4*width)
	for i := range scales {
		scales[i] = 0x3c
	}
	for i := range codes {
		codes[i] = byte(i % 113)
	}
	for name, p := range map[string]*Packed{
		"e4m3":    {Packing: E4M3, Columns: 128, ScaleFormat: Float32},
		"mxfp4":   {Packing: MXFP4, Columns: 32},
		"rows":    {Packing: NibbleRows, Columns: 1, ScaleFormat: Float16},
		"columns": {Packing: NibbleColumns, Columns: 1, ScaleFormat: Float16},
	} {
		p.Codes, p.Scales, p.Zeros, p.Width, p.Rows = codes, scales, codes, width, 128
		for _, s := range available() {
			b.Run(name+"/"+s.Name, func(b *testing.B) {
				for b.Loop() {
					s.Unpack(Floats{V: dst, Stride: 128}, p, 0, 0, 32, 128, scratch)
				}
				b.ReportMetric(32*128*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "elements/ns")
			})
		}
	}
}
