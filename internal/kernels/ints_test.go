package kernels

import (
	"math"
	"math/rand/v2"
	"testing"
)

// roundedInts is x as NarrowInts rounds it.
func roundedInts(x []float32) []float64 {
	out := make([]float64, len(x))
	for b := 0; b < len(x); b += 32 {
		top := 0.0
		for _, v := range x[b : b+32] {
			top = max(top, math.Abs(float64(v)))
		}
		for i := b; i < b+32 && top > 0; i++ {
			out[i] = math.RoundToEven(float64(x[i]*float32(127/float32(top)))) * float64(float32(top)/127)
		}
	}
	return out
}

// TestMulInts: products are those of the rounded inputs, the same for any number of rows
// and tokens, from any row and column on.
func TestMulInts(t *testing.T) {
	const rows, tokens, width = 11, 5, 160
	random := rand.New(rand.NewPCG(11, 12))
	for _, s := range available() {
		if !s.Integers() {
			continue
		}
		for name, packing := range blockPackings {
			p := &Packed{Packing: packing, Codes: randomBlocks(random, packing, rows*width/32), Width: width, Rows: 1, Columns: 32}
			values := make([]float32, rows*width)
			blocksGo(packing, values, p.Codes)
			for _, c := range []struct{ row, step, col, rows, n int }{{0, 1, 0, rows, width}, {1, 2, 32, 5, 96}, {10, 1, 128, 1, 32}, {2, 1, 0, 6, width}} {
				x := Pairs{V: make([]uint32, tokens*IntWords(c.n)), Stride: IntWords(c.n)}
				var in [][]float64
				for i := range tokens {
					v := make([]float32, c.n)
					for k := range v {
						v[k] = float32(random.NormFloat64() * math.Ldexp(1, i*9-20))
					}
					s.NarrowInts(packing, x.V[i*x.Stride:], v)
					in = append(in, roundedInts(v))
				}
				y := Floats{V: make([]float32, tokens*c.rows), Stride: c.rows}
				s.MulInts(y, p, c.row, c.step, c.col, c.rows, x, tokens, c.n)
				for i, got := range y.V {
					token, r := i/c.rows, i%c.rows
					row := values[(c.row+r*c.step)*width+c.col:][:c.n]
					want, size := 0.0, 0.0
					for k, v := range in[token] {
						want += v * float64(row[k])
						size += math.Abs(v * float64(row[k]))
					}
					if math.Abs(float64(got)-want) > 1e-6*size {
						t.Fatalf("%s, %s, %+v: token %d, row %d is %g, want %g", s.Name, name, c, token, r, got, want)
					}
					alone := Floats{V: make([]float32, 1), Stride: 1}
					s.MulInts(alone, p, c.row+r*c.step, 1, c.col, 1, Pairs{x.V[token*x.Stride:], x.Stride}, 1, c.n)
					if math.Float32bits(alone.V[0]) != math.Float32bits(got) {
						t.Fatalf("%s, %s, %+v: token %d, row %d alone is %g, among others %g", s.Name, name, c, token, r, alone.V[0], got)
					}
				}
			}
		}
	}
}

// TestMulIntsNonFinite: what is not finite makes NaN of the products, zeros zero.
func TestMulIntsNonFinite(t *testing.T) {
	for _, s := range available() {
		if !s.Integers() {
			continue
		}
		for name, packing := range blockPackings {
			p := &Packed{Packing: packing, Codes: randomBlocks(rand.New(rand.NewPCG(1, 1)), packing, 2), Width: 64, Rows: 1, Columns: 32}
			for _, v := range []float64{math.Inf(1), math.Inf(-1), math.NaN(), 0, 1e-42} {
				x, words, y := make([]float32, 64), make([]uint32, IntWords(64)), make([]float32, 1)
				x[45] = float32(v)
				s.NarrowInts(packing, words, x)
				s.MulInts(Floats{y, 1}, p, 0, 1, 0, 1, Pairs{words, len(words)}, 1, 64)
				if finite := !math.IsInf(v, 0) && v == v; finite != (math.Abs(float64(y[0])) < 1e-36) || finite == (y[0] != y[0]) {
					t.Errorf("%s, %s: an input of %v gives %v", s.Name, name, v, y[0])
				}
			}
		}
	}
}

func BenchmarkMulInts(b *testing.B) {
	const rows, width = 64, 2048 // in the second-level cache
	random := rand.New(rand.NewPCG(1, 1))
	for name, packing := range blockPackings {
		p := &Packed{Packing: packing, Codes: randomBlocks(random, packing, rows*width/32), Width: width, Rows: 1, Columns: 32}
		s := available()[0]
		if !s.Integers() {
			return
		}
		x, y := Pairs{V: make([]uint32, IntWords(width)), Stride: IntWords(width)}, Floats{V: make([]float32, rows), Stride: rows}
		s.NarrowInts(packing, x.V, make([]float32, width))
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(p.Codes)))
			for b.Loop() {
				s.MulInts(y, p, 0, 1, 0, rows, x, 1, width)
			}
		})
	}
}
