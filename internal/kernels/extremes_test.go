package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/gemv"
	"github.com/heftai/heft/internal/kernels/isa"
	"github.com/heftai/heft/internal/kernels/kerneltest"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
)

// A way is one of the roads to the products of rows of weights with tokens.
type way struct {
	name string
	// takes reports whether set has it for weights of a format.
	takes func(set *kernels.Set, f mat.Format) bool
	// rounds says that activations are rounded to bfloat16, with subnormals as zero.
	rounds bool
	// products are y[t][r]; v are the weights' values, which f holds exactly.
	products func(set *kernels.Set, f mat.Format, v, x []float32, rows, tokens, n int) []float32
}

func always(*kernels.Set, mat.Format) bool { return true }

// turnedTo are v's values as a stored matrix of columns.
func turnedTo(f mat.Format, v []float32, rows, n int) mat.Weights {
	data, _ := kerneltest.Store(f, kerneltest.Transposed(v, rows, n), 5)
	return mat.Weights{Data: data, Stride: rows * f.Size(), Format: f}
}

func ways() []way {
	bfloat16 := func(has func(*kernels.Set) bool) func(*kernels.Set, mat.Format) bool {
		return func(set *kernels.Set, f mat.Format) bool { return f == mat.BFloat16 && has(set) }
	}
	lying := func(f mat.Format, v []float32, n int) mat.Weights {
		data, _ := kerneltest.Store(f, v, 3)
		return mat.Weights{Data: data, Stride: n * f.Size(), Format: f}
	}
	return []way{
		{name: "Mul", takes: always, products: func(set *kernels.Set, f mat.Format, v, x []float32, rows, tokens, n int) []float32 {
			y := make([]float32, tokens*rows)
			set.GEMV.Mul(&gemv.Product{Y: mat.Floats{V: y, Stride: rows}, W: lying(f, v, n), X: mat.Floats{V: x, Stride: n}, Rows: rows, Tokens: tokens, N: n})
			return y
		}},
		{name: "AddLanes", takes: always, products: func(set *kernels.Set, f mat.Format, v, x []float32, rows, tokens, n int) []float32 {
			var y []float32
			for t := range tokens {
				lanes := make([]float32, set.Lanes*rows)
				set.GEMV.AddLanes(lanes, x[t*n:][:n], turnedTo(f, v, rows, n), rows)
				set.GEMV.FoldLanes(lanes, rows)
				y = append(y, lanes[:rows]...)
			}
			return y
		}},
		{name: "Mix", takes: always, products: func(set *kernels.Set, f mat.Format, v, x []float32, rows, tokens, n int) []float32 {
			y := make([]float32, tokens*rows)
			set.GEMV.Mix(&gemv.RowSum{Y: mat.Floats{V: y, Stride: rows}, P: mat.Floats{V: x, Stride: n}, Step: 1, V: turnedTo(f, v, rows, n), Keys: n, Tokens: tokens, Cols: rows})
			return y
		}},
		{name: "groups", takes: func(set *kernels.Set, _ mat.Format) bool { return set.GEMM.HasGroups() },
			products: func(set *kernels.Set, f mat.Format, v, x []float32, rows, tokens, n int) []float32 {
				return kerneltest.Grouped(set, lying(f, v, n), mat.Floats{V: x, Stride: n}, rows, tokens, n, 2)
			}},
		{name: "halves", takes: bfloat16(func(s *kernels.Set) bool { return s.GEMV.HasSplit() }), products: func(set *kernels.Set, f mat.Format, v, x []float32, rows, tokens, n int) []float32 {
			return kerneltest.BySplit(set, lying(f, v, n), mat.Floats{V: x, Stride: n}, rows, tokens, n, gemv.SplitBlock)
		}},
		{name: "panels", takes: always, products: kerneltest.Summed},
		{name: "pairs", takes: bfloat16(func(s *kernels.Set) bool { return s.BF16 }), rounds: true, products: func(set *kernels.Set, f mat.Format, v, x []float32, rows, tokens, n int) []float32 {
			y, in := make([]float32, tokens*rows), mat.Pairs{V: make([]uint32, tokens*mat.PairWords(n)), Stride: mat.PairWords(n)}
			for t := range tokens {
				set.Vector.RoundPairs(in.V[t*in.Stride:], x[t*n:][:n])
			}
			set.GEMV.MulPairs(mat.Floats{V: y, Stride: rows}, lying(f, v, n), in, rows, tokens, n)
			return y
		}},
		{name: "tiles", takes: bfloat16(func(s *kernels.Set) bool { return s.BF16 }), rounds: true, products: func(set *kernels.Set, f mat.Format, v, x []float32, rows, tokens, n int) []float32 {
			return kerneltest.Tiled(set, lying(f, v, n).Data, x, nil, rows, tokens, n, 1)
		}},
	}
}

// eachWay runs test for every way of every variant and format, over sizes and tails.
func eachWay(t *testing.T, test func(t *testing.T, what string, set *kernels.Set, w way, f mat.Format, rows, tokens, n int)) {
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		for _, w := range ways() {
			for f := range mat.Formats {
				if !w.takes(set, f) {
					continue
				}
				for _, n := range []int{1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 130} {
					rows, tokens := 1+n*5%37, 1+n*3%19
					test(t, fmt.Sprintf("%s, format %d, %d rows, %d tokens, n %d", w.name, f, rows, tokens, n), set, w, f, rows, tokens, n)
				}
			}
		}
	})
}

// held is v as f holds it.
func held(f mat.Format, v []float32) []float32 {
	_, out := kerneltest.Store(f, v, 0)
	return out
}

// nearOdd is near for a product of w and x, which may be no number or infinite.
func nearOdd(t *testing.T, what string, got float32, w, x []float32) {
	t.Helper()
	want, size, g := 0.0, 0.0, float64(got)
	for k := range w {
		p := float64(w[k]) * float64(x[k])
		want, size = want+p, size+math.Abs(p)
	}
	switch {
	case math.IsNaN(want) != math.IsNaN(g), math.IsInf(want, 0) && g != want:
		t.Fatalf("%s is %g, want %g", what, g, want)
	case !math.IsNaN(want) && !math.IsInf(want, 0):
		kerneltest.Near(t, what, got, want, size)
	}
}

// TestProductsOfOddNumbers mixes NaN, infinities, zeros of either sign and subnormals among
// weights and activations: each product is not a number, infinite or near exactly where it is so
// by the numbers of its own row and token.
func TestProductsOfOddNumbers(t *testing.T) {
	inf := math.Inf(1)
	eachWay(t, func(t *testing.T, what string, set *kernels.Set, w way, f mat.Format, rows, tokens, n int) {
		r := rand.New(rand.NewPCG(uint64(n), uint64(f)))
		odd := []float64{math.NaN(), inf, -inf, 0, math.Copysign(0, -1)}
		if !w.rounds {
			odd = append(odd, 0x1p-149, -0x1p-130, 0x1p-24, -0x1p-15) // subnormals of each format
		}
		strew := func(v []float32, every int) []float32 {
			for i := range v {
				if r.IntN(every) == 0 {
					v[i] = float32(odd[r.IntN(len(odd))])
				}
			}
			return v
		}
		v, x := held(f, strew(kerneltest.Random(r, rows*n), 4*n)), strew(kerneltest.Random(r, tokens*n), 4*n)
		in := x
		if w.rounds {
			in = kerneltest.Rounded(x)
		}
		for i, got := range w.products(set, f, v, x, rows, tokens, n) {
			row, token := i%rows, i/rows
			nearOdd(t, fmt.Sprintf("%s: row %d, token %d", what, row, token), got, v[row*n:][:n], in[token*n:][:n])
		}
	})
}

// TestProductsOfSubnormals: weights, activations and products that are subnormal count as what
// they are; where activations are rounded they count so or as zero.
func TestProductsOfSubnormals(t *testing.T) {
	least := [mat.Formats]float64{mat.BFloat16: 0x1p-133, mat.Float16: 0x1p-24, mat.Float32: 0x1p-149} // of each format
	eachWay(t, func(t *testing.T, what string, set *kernels.Set, w way, f mat.Format, rows, tokens, n int) {
		for name, c := range map[string]struct{ w, x float64 }{
			"weights": {least[f], 1024}, "activations": {1024, 0x1p-133}, "products": {0x1p-14, 0x1p-126},
		} {
			r := rand.New(rand.NewPCG(uint64(n), 7))
			v, x := make([]float32, rows*n), make([]float32, tokens*n)
			for i := range v {
				v[i] = float32(c.w * float64(1+r.IntN(3)))
			}
			for i := range x {
				x[i] = float32(c.x * float64(1+r.IntN(2)))
			}
			for i, got := range w.products(set, f, v, x, rows, tokens, n) {
				row, token, want := i%rows, i/rows, 0.0
				for k := range n {
					want += float64(v[row*n+k]) * float64(x[token*n+k])
				}
				within := 1e-6*want + float64(n)*0x1p-149
				if d := math.Abs(float64(got) - want); !(d <= within || w.rounds && got == 0) {
					t.Fatalf("%s: subnormal %s: row %d, token %d is %g, want %g", what, name, row, token, got, want)
				}
			}
		}
	})
}

// TestProductsOverflow: a product beyond float32 is infinite, for its own row and token only.
func TestProductsOverflow(t *testing.T) {
	largest := [mat.Formats]float64{mat.BFloat16: 0x1.fep127, mat.Float16: 65504, mat.Float32: math.MaxFloat32}
	eachWay(t, func(t *testing.T, what string, set *kernels.Set, w way, f mat.Format, rows, tokens, n int) {
		v, x := make([]float32, rows*n), make([]float32, tokens*n)
		row, token, k := rows/2, tokens/3, n-1
		v[row*n+k], x[token*n+k] = float32(largest[f]), float32(-0x1p127)
		for i, got := range w.products(set, f, v, x, rows, tokens, n) {
			if own := i%rows == row && i/rows == token; own != math.IsInf(float64(got), -1) || !own && got != 0 {
				t.Fatalf("%s: row %d, token %d is %g", what, i%rows, i/rows, got)
			}
		}
	})
}

// TestGateOfOddNumbers: all variants return NaN, infinities and zeros as Go does.
func TestGateOfOddNumbers(t *testing.T) {
	reference := *kernels.For(isa.Portable())
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		r := rand.New(rand.NewPCG(9, 1))
		odd := []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), 0, 1e-40, -1e-40, 3e38, -3e38, 88, -88, 105, -105}
		for n := range 70 {
			gate, up := kerneltest.Random(r, n), kerneltest.Random(r, n)
			for i := range gate {
				if r.IntN(3) == 0 {
					gate[i] = odd[r.IntN(len(odd))]
				}
				if r.IntN(6) == 0 {
					up[i] = odd[r.IntN(len(odd))]
				}
			}
			for _, c := range [][2]float32{{1, 0}, {1.702, 0}, {1.5957691, 0.0713548}} {
				for _, u := range [][]float32{up, nil} {
					got, want := make([]float32, n), make([]float32, n)
					set.Vector.Gate(got, gate, u, c[0], c[1])
					reference.Vector.Gate(want, gate, u, c[0], c[1])
					for i, g := range got {
						a, b := float64(g), float64(want[i])
						if a == b || math.IsNaN(a) && math.IsNaN(b) {
							continue
						}
						if d := math.Abs(a - b); !(d <= 4e-6*math.Abs(b)+1e-37) {
							t.Fatalf("curve %v of %g, up %v: %g, in Go %g", c, gate[i], u != nil, g, want[i])
						}
					}
				}
			}
		}
	})
}

// TestBlocksOfOddScales: a scale that is NaN, infinite, subnormal or the largest of Q8 and Q4
// is unpacked to the same bits by all variants, and reaches no other row.
func TestBlocksOfOddScales(t *testing.T) {
	const rows, width, blocks = 21, 96, 3
	random := rand.New(rand.NewPCG(31, 32))
	for name, packing := range kerneltest.BlockPackings {
		for _, scale := range []uint16{0x7e00, 0xfe01, 0x7c00, 0xfc00, 0x0001, 0x8003, 0x03ff, 0x7bff, 0xfbff, 0x8000} {
			plain := kerneltest.RandomBlocks(random, packing, rows*blocks)
			odd := append([]byte{}, plain...)
			at := (7*blocks + 1) * packing.BlockBytes() // the second block of row 7
			odd[at], odd[at+1] = byte(scale), byte(scale>>8)
			want := make([]float32, rows*width)
			quant.UnpackBlocks(packing, want, odd)
			reference := *kernels.For(isa.Portable())
			bands := func(codes []byte) *quant.Packed {
				p := &quant.Packed{Packing: packing, Codes: make([]byte, len(codes)), Width: width, Height: rows, Rows: 1, Columns: 32}
				reference.Quant.Interleave(packing, p.Codes, codes, blocks*packing.BlockBytes(), rows, blocks)
				return p
			}
			lying := &quant.Packed{Packing: packing, Codes: odd, Width: width, Rows: 1, Columns: 32}
			x := make([]float32, 2*width)
			for i := range x {
				x[i] = float32(random.NormFloat64())
			}
			for _, s := range kerneltest.Variants() {
				what := fmt.Sprintf("%s, %s, scale %#x", name, s.Name, scale)
				for _, p := range []*quant.Packed{lying, bands(odd)} {
					got := make([]float32, rows*width)
					s.Quant.Unpack(mat.Floats{V: got, Stride: width}, quant.View{Packed: p, Rows: rows, Cols: width}, nil)
					kerneltest.Same(t, what, got, want)
				}
				if s.Quant.HasDots(packing) {
					got, mul := make([]float32, rows), make([]float32, rows)
					s.Quant.DotBlocks(got, quant.View{Packed: lying, Step: 1, Rows: rows, Cols: width}, x[:width])
					s.GEMV.Mul(&gemv.Product{Y: mat.Floats{V: mul, Stride: rows}, W: mat.Weights{Data: asm.FloatBytes(want), Stride: 4 * width, Format: mat.Float32}, X: mat.Floats{V: x, Stride: width}, Rows: rows, Tokens: 1, N: width})
					kerneltest.Same(t, what+": products", got, mul)
				}
				sums := make([]float32, rows)
				s.QGEMM.MulInterleaved(mat.Floats{V: sums, Stride: rows}, quant.View{Packed: bands(odd), Step: 1, Rows: rows, Cols: width}, mat.Floats{V: x, Stride: width}, 1, false)
				for i, got := range sums {
					nearOdd(t, fmt.Sprintf("%s: floats of row %d", what, i), got, want[i*width:][:width], x[:width])
				}
				if s.QGEMM.HasInt8() {
					a := kerneltest.MulInts(&s, bands(odd), 0, 1, 0, rows, x, 2, width, width)
					b := kerneltest.MulInts(&s, bands(plain), 0, 1, 0, rows, x, 2, width, width)
					finite := scale&0x7c00 != 0x7c00
					for i := range a {
						switch {
						case i%rows != 7 && math.Float32bits(a[i]) != math.Float32bits(b[i]):
							t.Fatalf("%s: integers of row %d are %g, beside another row %g", what, i%rows, a[i], b[i])
						case i%rows == 7 && finite != (a[i]-a[i] == 0):
							t.Fatalf("%s: integers of its row are %g", what, a[i])
						}
					}
				}
			}
		}
	}
}
