package qgemm_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/heftai/heft/internal/kernels/kerneltest"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
)

// roundedInts is x as RoundInt8 rounds it.
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

// TestMulInts: products are those of the rounded inputs, and have the same bits in all
// variants, for any number of rows and tokens, from any row and column on, however the
// columns are cut.
func TestMulInts(t *testing.T) {
	const tokens, width = 13, 160
	random := rand.New(rand.NewPCG(11, 12))
	for name, packing := range kerneltest.BlockPackings {
		for _, height := range []int{139, 32, 9, 1} {
			p, values := kerneltest.Interleaved(random, packing, height, width)
			for _, c := range []struct{ row, step, col, rows, n int }{
				{0, 1, 0, height, width}, {1, 2, 32, (height - 1) / 2, 96}, {height - 1, 1, 128, 1, 32}, {2, 1, 0, height - 3, width}, {16, 1, 0, height - 21, 64},
			} {
				if c.rows <= 0 {
					continue
				}
				var in []float64
				x := make([]float32, tokens*c.n)
				for k := range x {
					x[k] = float32(random.NormFloat64() * math.Ldexp(1, k/c.n*9-20))
				}
				for i := range tokens {
					in = append(in, roundedInts(x[i*c.n:][:c.n])...)
				}
				var first []float32
				for _, s := range kerneltest.Variants() {
					if !s.QGEMM.HasInt8() {
						continue
					}
					got := kerneltest.MulInts(&s, p, c.row, c.step, c.col, c.rows, x, tokens, c.n, c.n)
					if first == nil {
						first = got
						nearProducts(t, p, c.row, c.step, c.col, c.rows, values, in, got)
					}
					kerneltest.SameFloats(t, name+" by "+s.Name, got, first)
					kerneltest.SameFloats(t, name+" cut, by "+s.Name, kerneltest.MulInts(&s, p, c.row, c.step, c.col, c.rows, x, tokens, c.n, 32), first)
					for _, few := range []int{1, 2, 3, 8} {
						kerneltest.SameFloats(t, name+" for few, by "+s.Name, kerneltest.MulInts(&s, p, c.row, c.step, c.col, c.rows, x, few, c.n, 32), first[:few*c.rows])
					}
					for i, want := range first {
						token, r := i/c.rows, i%c.rows
						alone := kerneltest.MulInts(&s, p, c.row+r*c.step, 1, c.col, 1, x[token*c.n:][:c.n], 1, c.n, c.n)
						if math.Float32bits(alone[0]) != math.Float32bits(want) {
							t.Fatalf("%s, %s, %+v: token %d, row %d alone is %g, among others %g", s.Name, name, c, token, r, alone[0], want)
						}
					}
				}
			}
		}
	}
}

// TestMulIntsMany: many tokens have the bits of each alone, over many blocks.
func TestMulIntsMany(t *testing.T) {
	const tokens, width, height = 43, 32 * 19, 61
	random := rand.New(rand.NewPCG(13, 14))
	x := make([]float32, tokens*width)
	for i := range x {
		x[i] = float32(random.NormFloat64())
	}
	for name, packing := range kerneltest.BlockPackings {
		p, _ := kerneltest.Interleaved(random, packing, height, width)
		for _, s := range kerneltest.Variants() {
			if !s.QGEMM.HasInt8() {
				continue
			}
			for _, half := range []int{width, 32 * 9} {
				all := kerneltest.MulInts(&s, p, 0, 1, 0, height, x, tokens, width, half)
				for i := range tokens {
					kerneltest.SameFloats(t, fmt.Sprintf("%s by %s, token %d", name, s.Name, i), all[i*height:][:height], kerneltest.MulInts(&s, p, 0, 1, 0, height, x[i*width:][:width], 1, width, width))
				}
			}
		}
	}
}

// nearProducts checks products with rounded inputs.
func nearProducts(t *testing.T, p *quant.Packed, row, step, col, rows int, values []float32, in []float64, got []float32) {
	t.Helper()
	n := len(in) * rows / len(got)
	for i, y := range got {
		w, x := values[(row+i%rows*step)*p.Width+col:][:n], in[i/rows*n:][:n]
		want, size := 0.0, 0.0
		for k, v := range x {
			want += v * float64(w[k])
			size += math.Abs(v * float64(w[k]))
		}
		if !(math.Abs(float64(y)-want) <= 1e-6*size) {
			t.Fatalf("%v: token %d, row %d from column %d is %g, want %g", p.Packing, i/rows, row+i%rows*step, col, y, want)
		}
	}
}

// TestMulIntsExtremes: the largest codes of either sign are multiplied exactly.
func TestMulIntsExtremes(t *testing.T) {
	for name, packing := range kerneltest.BlockPackings {
		for _, code := range []byte{0x00, 0x80, 0x7f, 0xff} {
			blocks := make([]byte, 16*packing.BlockBytes())
			for i := range blocks {
				if blocks[i] = code; i%packing.BlockBytes() < 2 {
					blocks[i] = []byte{0, 0x3c}[i%packing.BlockBytes()] // a scale of 1
				}
			}
			value := float64(int8(code))
			if packing == quant.Q4 {
				value = (float64(code&15) + float64(code>>4) - 16) / 2
			}
			for _, s := range kerneltest.Variants() {
				if !s.QGEMM.HasInt8() {
					continue
				}
				p := &quant.Packed{Packing: packing, Codes: make([]byte, len(blocks)), Width: 32, Height: 16}
				s.Quant.Interleave(packing, p.Codes, blocks, packing.BlockBytes(), 16, 1)
				for _, v := range []float32{127, -127} {
					x := make([]float32, 32)
					for i := range x {
						x[i] = v
					}
					for _, y := range kerneltest.MulInts(&s, p, 0, 1, 0, 16, x, 1, 32, 32) {
						if want := 32 * value * float64(v); float64(y) != want {
							t.Fatalf("%s, %s: codes %#x times %v are %v, want %v", s.Name, name, code, v, y, want)
						}
					}
				}
			}
		}
	}
}

// TestMulIntsNonFinite: infinities and NaN make products NaN, zeros make them zero.
func TestMulIntsNonFinite(t *testing.T) {
	for _, s := range kerneltest.Variants() {
		if !s.QGEMM.HasInt8() {
			continue
		}
		for name, packing := range kerneltest.BlockPackings {
			p, _ := kerneltest.Interleaved(rand.New(rand.NewPCG(1, 1)), packing, 1, 64)
			for _, v := range []float64{math.Inf(1), math.Inf(-1), math.NaN(), 0, 1e-42} {
				x := make([]float32, 64)
				x[45] = float32(v)
				y := kerneltest.MulInts(&s, p, 0, 1, 0, 1, x, 1, 64, 64)
				if finite := !math.IsInf(v, 0) && v == v; finite != (math.Abs(float64(y[0])) < 1e-36) || finite == (y[0] != y[0]) {
					t.Errorf("%s, %s: an input of %v gives %v", s.Name, name, v, y[0])
				}
			}
		}
	}
}

// BenchmarkMulInts is tokens through weights in the second-level cache. Bytes are those of the
// weights, GOPS two for each product.
func BenchmarkMulInts(b *testing.B) {
	const rows, width = 64, 2048
	random := rand.New(rand.NewPCG(1, 1))
	for _, s := range kerneltest.Variants() {
		if !s.QGEMM.HasInt8() || s.Name == "amx" || s.Name == "avx512" { // which have those of others
			continue
		}
		for name, packing := range kerneltest.BlockPackings {
			p, _ := kerneltest.Interleaved(random, packing, rows, width)
			for _, tokens := range []int{1, 2, 8, 64} {
				x := mat.Pairs{V: make([]uint32, tokens*s.QGEMM.Int8Words(packing, width)), Stride: s.QGEMM.Int8Words(packing, width)}
				y := mat.Floats{V: make([]float32, tokens*rows), Stride: rows}
				b.Run(fmt.Sprintf("%s/%s/%d", name, s.Name, tokens), func(b *testing.B) {
					b.SetBytes(int64(len(p.Codes)))
					for b.Loop() {
						const part = 512 // columns
						for k := 0; k < width; k += part {
							in := mat.Pairs{V: x.V[s.QGEMM.Int8Words(packing, k):], Stride: x.Stride}
							for r := 0; r < rows; r += 32 {
								s.QGEMM.MulInt8(mat.Floats{V: y.V[r:], Stride: rows}, quant.View{Packed: p, Row: r, Step: 1, Col: k, Rows: 32, Cols: part}, in, tokens, k > 0)
							}
						}
					}
					b.ReportMetric(2*rows*width*float64(tokens)*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GOPS")
				})
			}
		}
	}
}

// BenchmarkMulIntsMemory is tokens through weights that no cache holds, on one and two threads,
// in units as the cpu backend cuts them.
func BenchmarkMulIntsMemory(b *testing.B) {
	const size = 1 << 28
	for _, s := range kerneltest.Variants() {
		if !s.QGEMM.HasInt8() || s.Name == "amx" || s.Name == "avx512" { // which have those of others
			continue
		}
		for name, packing := range kerneltest.BlockPackings {
			for _, width := range []int{2048, 5632} {
				unit := 128
				rows := size / width / unit * unit
				p := &quant.Packed{Packing: packing, Codes: make([]byte, rows*width/32*packing.BlockBytes()), Width: width, Height: rows}
				for i := range p.Codes {
					p.Codes[i] = byte(i * 7 % 113)
				}
				for _, tokens := range []int{1, 2, 4, 8, 16} {
					x := mat.Pairs{V: make([]uint32, tokens*s.QGEMM.Int8Words(packing, width)), Stride: s.QGEMM.Int8Words(packing, width)}
					for _, threads := range []int{1, 2} {
						b.Run(fmt.Sprintf("%s/%d/%s/%d/%d", name, width, s.Name, tokens, threads), func(b *testing.B) {
							b.SetBytes(int64(len(p.Codes)))
							for b.Loop() {
								var all sync.WaitGroup
								for i := range threads {
									all.Go(func() {
										y := mat.Floats{V: make([]float32, tokens*unit), Stride: unit}
										for u := i * rows / unit / threads; u < (i+1)*rows/unit/threads; u++ {
											s.QGEMM.MulInt8(y, quant.View{Packed: p, Row: u * unit, Step: 1, Rows: unit, Cols: width}, x, tokens, false)
										}
									})
								}
								all.Wait()
							}
						})
					}
				}
			}
		}
	}
}
