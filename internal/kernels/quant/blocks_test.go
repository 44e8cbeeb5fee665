package quant_test

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/gemv"
	"github.com/heftai/heft/internal/kernels/isa"
	"github.com/heftai/heft/internal/kernels/kerneltest"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
)

// TestBlocksVariants: all variants unpack the same bits, whatever the range, and products
// with whole rows have the bits of Unpack and Mul.
func TestBlocksVariants(t *testing.T) {
	const rows, width = 37, 160
	random := rand.New(rand.NewPCG(5, 6))
	for name, packing := range kerneltest.BlockPackings {
		p := &quant.Packed{Packing: packing, Codes: kerneltest.RandomBlocks(random, packing, rows*width/32), Width: width, Rows: 1, Columns: 32}
		want := make([]float32, rows*width)
		quant.UnpackBlocks(packing, want, p.Codes)
		for _, s := range kerneltest.Variants() {
			for _, r := range [][4]int{{0, 0, rows, width}, {1, 0, 10, 1}, {3, 5, 8, 17}, {2, 63, 2, 97}, {10, 31, 1, 129}, {0, 159, rows, 1}} {
				row, col, n, cols := r[0], r[1], r[2], r[3]
				got := make([]float32, n*cols)
				s.Quant.Unpack(mat.Floats{V: got, Stride: cols}, quant.View{Packed: p, Row: row, Col: col, Rows: n, Cols: cols}, nil)
				for i, g := range got {
					if w := want[(row+i/cols)*width+col+i%cols]; math.Float32bits(g) != math.Float32bits(w) {
						t.Fatalf("%s, %s: element %d of range %v is %v, want %v", name, s.Name, i, r, g, w)
					}
				}
			}
			sameDots(t, &s, p, want, random)
			sameBands(t, &s, p, want)
		}
	}
}

// sameBands: all variants store the same bands, from which ranges widen to the same bits.
func sameBands(t *testing.T, s *kernels.Set, p *quant.Packed, values []float32) {
	t.Helper()
	reference, size := *kernels.For(isa.Portable()), p.Width/32*p.Packing.BlockBytes()
	for _, rows := range []int{1, 7, 9, 16, 31, 37} {
		bands := quant.Packed{Packing: p.Packing, Codes: make([]byte, rows*size), Width: p.Width, Height: rows}
		got := make([]byte, len(bands.Codes))
		reference.Quant.Interleave(p.Packing, bands.Codes, p.Codes, size, rows, p.Width/32)
		s.Quant.Interleave(p.Packing, got, p.Codes, size, rows, p.Width/32)
		if !bytes.Equal(got, bands.Codes) {
			t.Fatalf("%v, %s: bands of %d rows are not those of the reference", p.Packing, s.Name, rows)
		}
		back := make([]byte, len(got))
		if quant.Deinterleave(p.Packing, back, got, rows, p.Width/32); !bytes.Equal(back, p.Codes[:len(back)]) {
			t.Fatalf("%v: rows are others after they were interleaved", p.Packing)
		}
		for _, r := range [][4]int{{0, 0, rows, p.Width}, {rows - 1, 5, 1, 97}, {rows / 2, 63, rows - rows/2, 33}, {0, 159, rows, 1}} {
			row, col, n, cols := r[0], r[1], r[2], r[3]
			got := make([]float32, n*cols)
			s.Quant.Unpack(mat.Floats{V: got, Stride: cols}, quant.View{Packed: &bands, Row: row, Col: col, Rows: n, Cols: cols}, nil)
			for i, g := range got {
				if w := values[(row+i/cols)*p.Width+col+i%cols]; math.Float32bits(g) != math.Float32bits(w) {
					t.Fatalf("%v, %s: element %d of range %v of bands is %v, want %v", p.Packing, s.Name, i, r, g, w)
				}
			}
		}
	}
}

func sameDots(t *testing.T, s *kernels.Set, p *quant.Packed, values []float32, random *rand.Rand) {
	t.Helper()
	if !s.Quant.HasDots(p.Packing) {
		return
	}
	for _, n := range []int{p.Width, 32} {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(random.NormFloat64())
		}
		for _, r := range [][3]int{{0, 1, 11}, {1, 2, 5}, {10, 1, 1}, {2, 3, 3}} {
			got := make([]float32, r[2])
			s.Quant.DotBlocks(got, quant.View{Packed: p, Row: r[0], Step: r[1], Rows: len(got), Cols: n}, x)
			for i, g := range got {
				row := values[(r[0]+i*r[1])*p.Width:][:n]
				var y [1]float32
				s.GEMV.Mul(&gemv.Product{Y: mat.Floats{V: y[:], Stride: 1}, W: mat.Weights{Data: kerneltest.BytesOf(row), Stride: 4 * n, Format: mat.Float32}, X: mat.Floats{V: x, Stride: n}, Rows: 1, Tokens: 1, N: n})
				if math.Float32bits(g) != math.Float32bits(y[0]) {
					t.Fatalf("%v, %s: product %d of rows %v in %d columns is %v, want %v", p.Packing, s.Name, i, r, n, g, y[0])
				}
			}
		}
	}
}

// packInputs are blocks of all kinds: of one sign, with ties, of all magnitudes.
func packInputs() []float32 {
	random := rand.New(rand.NewPCG(7, 8))
	var x []float32
	for i := range 400 {
		scale := math.Ldexp(1, i%60-30)
		for k := range 32 {
			v := random.NormFloat64() * scale
			switch i % 5 {
			case 1:
				v = math.Abs(v)
			case 2:
				v = math.Round(v/scale*2) * scale
			case 3:
				if k > 0 {
					v = 0
				}
			}
			x = append(x, float32(v))
		}
	}
	for _, v := range []float32{0, math.SmallestNonzeroFloat32, -math.SmallestNonzeroFloat32, 65504, -8 * 65504, 0x1p-24, float32(math.Copysign(0, -1)), 1e-42} {
		for k := range 32 {
			x = append(x, v*float32(1-k%2*2))
		}
	}
	return x
}

// TestPackBlocksVariants: all variants choose the same scales and codes.
func TestPackBlocksVariants(t *testing.T) {
	x := packInputs()
	for name, p := range kerneltest.BlockPackings {
		want := make([]byte, len(x)/32*p.BlockBytes())
		reference := *kernels.For(isa.Portable())
		reference.Quant.PackBlocks(p, want, x)
		for _, s := range kerneltest.Variants() {
			got := make([]byte, len(want))
			s.Quant.PackBlocks(p, got, x)
			if !bytes.Equal(got, want) {
				for i := range want {
					if b := i / p.BlockBytes(); got[i] != want[i] {
						t.Fatalf("%s, %s: block %d of %v is %x, want %x", name, s.Name, b, x[32*b:][:32], got[b*p.BlockBytes():][:p.BlockBytes()], want[b*p.BlockBytes():][:p.BlockBytes()])
					}
				}
			}
		}
	}
}

// TestPackBlocksNonFinite: values that a block cannot hold are reported.
func TestPackBlocksNonFinite(t *testing.T) {
	inf := float32(math.Inf(1))
	for name, p := range kerneltest.BlockPackings {
		for _, s := range kerneltest.Variants() {
			for _, v := range []float32{inf, -inf, float32(math.NaN()), 1e9, -1e9} {
				for _, at := range []int{0, 31, 32 + 17} {
					x := make([]float32, 64)
					x[at] = v
					if s.Quant.PackBlocks(p, make([]byte, 2*p.BlockBytes()), x) {
						t.Errorf("%s, %s: %v was taken", name, s.Name, v)
					}
				}
			}
			if !s.Quant.PackBlocks(p, make([]byte, p.BlockBytes()), make([]float32, 32)) {
				t.Errorf("%s, %s: zeros were refused", name, s.Name)
			}
		}
	}
}

// squared is the error of x as p, in squares.
func squared(s *kernels.Set, p quant.Packing, x []float32) float64 {
	packed, back := make([]byte, len(x)/32*p.BlockBytes()), make([]float32, len(x))
	s.Quant.PackBlocks(p, packed, x)
	quant.UnpackBlocks(p, back, packed)
	return distance(x, back)
}

func distance(x, y []float32) float64 {
	sum := 0.0
	for i := range x {
		d := float64(x[i]) - float64(y[i])
		sum += d * d
	}
	return sum
}

// nearest is x as round-to-nearest makes it: the largest magnitude is eight steps.
func nearest(x []float32) []float32 {
	out := make([]float32, len(x))
	for b := 0; b < len(x); b += 32 {
		m := float32(0)
		for _, v := range x[b : b+32] {
			if math.Abs(float64(v)) > math.Abs(float64(m)) {
				m = v
			}
		}
		d := mat.FromFloat16(mat.ToFloat16(m / -8))
		for i := b; i < b+32; i++ {
			out[i] = d * float32(max(-8, min(7, math.RoundToEven(float64(x[i]/d)))))
		}
	}
	return out
}

// TestQ4LeastSquares: the chosen scales leave less error than round-to-nearest, by the
// margins that README states for values spread as weights are.
func TestQ4LeastSquares(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 10))
	for _, c := range []struct {
		name string
		draw func() float64
		most float64
	}{
		{"normal", random.NormFloat64, 0.91},
		{"uniform", func() float64 { return random.Float64()*2 - 1 }, 0.86},
		{"heavy tails", func() float64 { return random.ExpFloat64() * float64(1-2*random.IntN(2)) }, 0.93},
	} {
		x := make([]float32, 32*2000)
		for i := range x {
			x[i] = float32(c.draw() * 0.02)
		}
		for _, s := range kerneltest.Variants() {
			got, plain := squared(&s, quant.Q4, x), distance(x, nearest(x))
			if !(got <= c.most*plain) {
				t.Errorf("%s, %s: squared error is %.3f of that of round-to-nearest, more than %v", c.name, s.Name, got/plain, c.most)
			}
			if q8 := squared(&s, quant.Q8, x); q8 > got/100 {
				t.Errorf("%s, %s: squared error of q8 is %.4f of that of q4", c.name, s.Name, q8/got)
			}
		}
	}
}

func BenchmarkPackBlocks(b *testing.B) {
	x := packInputs()[:32*256]
	for name, p := range kerneltest.BlockPackings {
		dst := make([]byte, 256*p.BlockBytes())
		for _, s := range kerneltest.Variants() {
			b.Run(name+"/"+s.Name, func(b *testing.B) {
				for b.Loop() {
					s.Quant.PackBlocks(p, dst, x)
				}
				b.ReportMetric(float64(len(x))*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "elements/ns")
			})
		}
	}
}

func BenchmarkDotBlocks(b *testing.B) {
	const rows, width = 64, 2048 // in the second-level cache
	random := rand.New(rand.NewPCG(1, 1))
	x, y := make([]float32, width), make([]float32, rows)
	for name, packing := range kerneltest.BlockPackings {
		p := &quant.Packed{Packing: packing, Codes: kerneltest.RandomBlocks(random, packing, rows*width/32), Width: width, Rows: 1, Columns: 32}
		for _, s := range kerneltest.Variants() {
			if !s.Quant.HasDots(p.Packing) {
				continue
			}
			b.Run(name+"/"+s.Name, func(b *testing.B) {
				b.SetBytes(int64(len(p.Codes)))
				for b.Loop() {
					s.Quant.DotBlocks(y, quant.View{Packed: p, Step: 1, Rows: rows, Cols: width}, x)
				}
			})
		}
	}
}

// BenchmarkInterleave interleaves rows that lie in memory, not in a cache, into scratch of a unit.
func BenchmarkInterleave(b *testing.B) {
	const rows, width, unit = 32 << 10, 2048, 128
	random := rand.New(rand.NewPCG(7, 8))
	for name, p := range kerneltest.BlockPackings {
		codes := bytes.Repeat(kerneltest.RandomBlocks(random, p, unit*width/32), rows/unit)
		size := width / 32 * p.BlockBytes()
		scratch := make([]byte, unit*size)
		for _, s := range kerneltest.Variants() {
			b.Run(name+"/"+s.Name, func(b *testing.B) {
				b.SetBytes(int64(len(codes)))
				for b.Loop() {
					for r := 0; r < rows; r += unit {
						s.Quant.Interleave(p, scratch, codes[r*size:], size, unit, width/32)
					}
				}
			})
		}
	}
}
