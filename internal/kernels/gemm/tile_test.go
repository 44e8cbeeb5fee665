package gemm_test

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/kerneltest"
	"github.com/heftai/heft/internal/kernels/mat"
)

func TestNarrow(t *testing.T) {
	kerneltest.EachRounding(t, func(t *testing.T, set *kernels.Set) {
		r := rand.New(rand.NewPCG(1, 2))
		for n := 1; n < 70; n++ {
			x := kerneltest.Random(r, n)
			x[n/2] = float32(math.Inf(n%3 - 1))
			got := make([]uint32, mat.PairWords(n))
			set.Vector.RoundPairs(got, x)
			for i, v := range x {
				if h := uint16(got[i/2] >> (16 * (i % 2))); h != mat.ToBFloat16(v) {
					t.Fatalf("n %d: %g became %#x, want %#x", n, v, h, mat.ToBFloat16(v))
				}
			}
		}
	})
}

// product compares one element of a product of rounded operands.
func product(t *testing.T, what string, got float32, w, x []float32) {
	t.Helper()
	want, size := 0.0, 0.0
	for k := range w {
		p := float64(w[k]) * float64(x[k])
		want, size = want+p, size+math.Abs(p)
	}
	kerneltest.Near(t, what, got, want, size)
}

func TestMulPairs(t *testing.T) {
	kerneltest.EachRounding(t, func(t *testing.T, set *kernels.Set) {
		r := rand.New(rand.NewPCG(1, 1))
		sizes := [][3]int{{1023, 5, 8}, {1024, 4, 8}, {1056, 7, 6}, {2048, 9, 15}, {2081, 6, 8}, {4100, 5, 14}} // n, rows, tokens
		for n := 1; n < 100; n++ {
			sizes = append(sizes, [3]int{n, 1 + n%9, 1 + n%14})
		}
		for _, s := range sizes {
			n, rows, tokens := s[0], s[1], s[2]
			data, w := kerneltest.Store(mat.BFloat16, kerneltest.Random(r, rows*n), n%5)
			x := kerneltest.Rounded(kerneltest.Random(r, tokens*n))
			pairs := mat.Pairs{Stride: mat.PairWords(n) + 1}
			pairs.V = make([]uint32, tokens*pairs.Stride)
			for i := range tokens {
				set.Vector.RoundPairs(pairs.V[i*pairs.Stride:], x[i*n:][:n])
			}
			y, alone := make([]float32, tokens*rows), make([]float32, rows)
			weights := mat.Weights{Data: data, Stride: 2 * n, Format: mat.BFloat16}
			set.GEMV.MulPairs(mat.Floats{V: y, Stride: rows}, weights, pairs, rows, tokens, n)
			for i := range tokens {
				set.GEMV.MulPairs(mat.Floats{V: alone, Stride: rows}, weights, mat.Pairs{V: pairs.V[i*pairs.Stride:], Stride: pairs.Stride}, rows, 1, n)
				for row := range rows {
					what := fmt.Sprintf("n %d, row %d of %d, token %d of %d", n, row, rows, i, tokens)
					product(t, what, y[i*rows+row], w[row*n:][:n], x[i*n:][:n])
					if y[i*rows+row] != alone[row] {
						t.Fatalf("%s: %g, alone %g", what, y[i*rows+row], alone[row])
					}
				}
			}
		}
	})
}

func TestTile(t *testing.T) {
	kerneltest.EachRounding(t, func(t *testing.T, set *kernels.Set) {
		r := rand.New(rand.NewPCG(3, 1))
		for _, s := range [][3]int{{1, 1, 1}, {16, 16, 32}, {17, 3, 33}, {32, 32, 64}, {5, 40, 100}, {50, 70, 31}, {33, 17, 200}} {
			rows, tokens, n := s[0], s[1], s[2]
			data, w := kerneltest.Store(mat.BFloat16, kerneltest.Random(r, rows*n), n%3)
			x, bias := kerneltest.Random(r, tokens*n), kerneltest.Random(r, rows)
			got, halves := kerneltest.Rounded(x), kerneltest.Tiled(set, data, x, bias, rows, tokens, n, 2)
			y := kerneltest.Tiled(set, data, x, nil, rows, tokens, n, 1000)
			for i := range tokens {
				alone := kerneltest.Tiled(set, data, x[i*n:][:n], bias, rows, 1, n, 1)
				for row := range rows {
					what := fmt.Sprintf("shape %v, row %d, token %d", s, row, i)
					product(t, what, y[i*rows+row], w[row*n:][:n], got[i*n:][:n])
					if h := halves[i*rows+row]; h != y[i*rows+row]+bias[row] || h != alone[row] {
						t.Fatalf("%s: %g in steps, %g and %g whole, %g alone", what, h, y[i*rows+row], bias[row], alone[row])
					}
				}
			}
		}
	})
}

// TestTileRows: weights in place, in one step and in several, and single packs give the bits of couples of packs.
func TestTileRows(t *testing.T) {
	kerneltest.EachRounding(t, func(t *testing.T, set *kernels.Set) {
		if !set.AMX {
			return
		}
		r := rand.New(rand.NewPCG(3, 9))
		const rows = 5 * gemm.PackRows
		for _, c := range []struct{ tokens, blocks int }{{1, 5}, {8, 5}, {16, 5}, {19, 5}, {32, 5}, {16, 41}, {17, 41}, {32, 41}, {32, 20}, {32, 21}, {33, 5}, {48, 41}, {64, 41}, {64, 10}, {60, 11}} {
			tokens, blocks, n := c.tokens, c.blocks, c.blocks*gemm.BlockK
			data, _ := kerneltest.Store(mat.BFloat16, kerneltest.Random(r, rows*n), 3)
			x, panels := kerneltest.Random(r, tokens*n), mat.CeilDiv(tokens, gemm.PanelTokens)
			most := gemm.RowSums(panels)
			want := kerneltest.Tiled(set, data, x, nil, rows, tokens, n, 1)
			size := gemm.PanelWords(n)
			in, pack := make([]uint32, panels*size), make([]uint32, size)
			for i := range panels {
				set.GEMM.PackTokens(in[i*size:], mat.Floats{V: x[i*gemm.PanelTokens*n:], Stride: n}, min(gemm.PanelTokens, tokens-i*gemm.PanelTokens), n)
			}
			check := func(what string, run func(c mat.Floats)) {
				c, y := mat.Floats{V: make([]float32, rows*most), Stride: most}, make([]float32, tokens*rows)
				run(c)
				for i := 0; i < rows; i += gemm.PackRows {
					set.GEMM.Transpose(mat.Floats{V: y[i:], Stride: rows}, mat.Floats{V: c.V[i*c.Stride:], Stride: c.Stride}, nil, gemm.PackRows, tokens)
				}
				for i := range y {
					if y[i] != want[i] {
						t.Fatalf("%s, %d tokens, %d columns: element %d is %g, want %g", what, tokens, n, i, y[i], want[i])
					}
				}
			}
			for quarters := range 5 {
				for _, next := range [][]byte{nil, data} {
					check(fmt.Sprintf("rows, %d quarters", quarters), func(c mat.Floats) {
						set.GEMM.TileRows(gemm.RowTiles{C: c.V, W: mat.Weights{Data: data, Stride: 2 * n, Format: mat.BFloat16}, X: in, XStride: size, Panels: panels, Rows: rows, Blocks: n / gemm.BlockK, Fetch: gemm.Fetch{Next: next, Done: 4 - quarters, Quarters: quarters}})
					})
				}
			}
			check("packs", func(c mat.Floats) {
				for i := 0; i < rows; i += gemm.PackRows {
					own := mat.Floats{V: c.V[i*c.Stride:], Stride: c.Stride}
					set.GEMM.PackWeights(pack, mat.Weights{Data: data[i*2*n:], Stride: 2 * n, Format: mat.BFloat16}, gemm.PackRows, n)
					for p := 0; p < panels; p += 2 {
						own, in := mat.Floats{V: own.V[p*gemm.PanelTokens:], Stride: most}, in[p*size:]
						set.GEMM.TilePack(gemm.Tiles{C: own, W: pack, X: in, XStride: size, Count: min(2, panels-p), Blocks: 2})
						set.GEMM.TilePack(gemm.Tiles{C: own, W: pack[2*gemm.BlockK/2*gemm.PackRows:], X: in[2*gemm.BlockK/2*gemm.PanelTokens:], XStride: size, Count: min(2, panels-p), Blocks: blocks - 2, Add: true})
					}
				}
			})
		}
	})
}

// TestRoundedNonFinite: a NaN or an infinity reaches its own row and token only.
func TestRoundedNonFinite(t *testing.T) {
	kerneltest.EachRounding(t, func(t *testing.T, set *kernels.Set) {
		const rows, tokens, n = 20, 18, 40
		r := rand.New(rand.NewPCG(3, 5))
		for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1))} {
			v, x := kerneltest.Random(r, rows*n), kerneltest.Random(r, tokens*n)
			v[3*n+33], x[2*n+39] = bad, bad
			data, _ := kerneltest.Store(mat.BFloat16, v, 0)
			for i, got := range kerneltest.Tiled(set, data, x, nil, rows, tokens, n, 1) {
				finite := !math.IsNaN(float64(got)) && !math.IsInf(float64(got), 0)
				if own := i%rows == 3 || i/rows == 2; finite == own {
					t.Fatalf("row %d, token %d: %g", i%rows, i/rows, got)
				}
			}
		}
	})
}

// BenchmarkRounded is the work of prefill on packed operands in the caches, and of a
// batch of sequences that decode.
func BenchmarkRounded(b *testing.B) {
	const n = 2048
	for _, set := range kerneltest.Variants() {
		if !set.BF16 {
			continue
		}
		report := func(b *testing.B, steps int) {
			b.ReportMetric(2*float64(steps)*n/float64(b.Elapsed().Nanoseconds())*float64(b.N), "GFLOPS")
		}
		for _, step := range []int{4, 8, 16, 32, 64} {
			b.Run(fmt.Sprintf("%s/tile/%d", set.Name, step), func(b *testing.B) {
				const couples, size = 4, 16 * n / 2
				packs, panels := filled(2*size), filled(2*couples*size)
				c := mat.Floats{V: make([]float32, 32*32*couples), Stride: 32 * couples}
				for b.Loop() {
					for k := 0; k < n/gemm.BlockK; k += step {
						at := k * gemm.BlockK / 2 * gemm.PackRows
						set.GEMM.Tile(gemm.Tiles{C: c, W: packs[at:], WStride: size, X: panels[at:], XStride: size, Blocks: step, Count: couples, Add: k > 0})
					}
				}
				report(b, 32*32*couples)
			})
		}
		for _, tokens := range []int{1, 2, 4, 6, 8} {
			b.Run(fmt.Sprintf("%s/dot/%d", set.Name, tokens), func(b *testing.B) {
				const rows = 32
				w := mat.Weights{Data: make([]byte, 2*rows*n), Stride: 2 * n, Format: mat.BFloat16}
				x := mat.Pairs{V: make([]uint32, tokens*n/2), Stride: n / 2}
				y := make([]float32, rows*tokens)
				for b.Loop() {
					set.GEMV.MulPairs(mat.Floats{V: y, Stride: rows}, w, x, rows, tokens, n)
				}
				report(b, rows*tokens)
			})
		}
	}
}

// BenchmarkTiles is Tile on weights of so many blocks of k and couples of panels, in the caches,
// and TileRows on weights in place.
func BenchmarkTiles(b *testing.B) {
	for _, set := range kerneltest.Variants() {
		if !set.AMX {
			continue
		}
		for _, c := range []struct{ blocks, couples int }{{4, 1}, {16, 1}, {16, 8}, {32, 1}, {32, 8}, {64, 4}} {
			size := gemm.PanelWords(c.blocks * gemm.BlockK)
			w, x := filled(2*size), filled(2*c.couples*size)
			out := mat.Floats{V: make([]float32, 2*gemm.PackRows*2*c.couples*gemm.PanelTokens), Stride: 2 * c.couples * gemm.PanelTokens}
			b.Run(fmt.Sprintf("packed/blocks=%d/couples=%d", c.blocks, c.couples), func(b *testing.B) {
				for b.Loop() {
					set.GEMM.Tile(gemm.Tiles{C: out, W: w, WStride: size, X: x, XStride: size, Blocks: c.blocks, Count: c.couples, Add: false})
				}
				b.ReportMetric(float64(2*2*gemm.PackRows*2*gemm.PanelTokens*c.couples*c.blocks*gemm.BlockK)*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GFLOPS")
			})
			const rows = 128
			lying := mat.Weights{Data: bytes.Repeat([]byte{0x80, 0x3f}, rows*c.blocks*gemm.BlockK), Stride: c.blocks * 2 * gemm.BlockK, Format: mat.BFloat16}
			wide := make([]float32, rows*gemm.CoupleTokens)
			for _, quarters := range []int{0, 4} {
				b.Run(fmt.Sprintf("lying/blocks=%d/quarters=%d", c.blocks, quarters), func(b *testing.B) {
					for b.Loop() {
						set.GEMM.TileRows(gemm.RowTiles{C: wide, W: lying, X: x, XStride: size, Panels: 2, Rows: rows, Blocks: c.blocks, Fetch: gemm.Fetch{Next: lying.Data, Done: 0, Quarters: quarters}})
					}
					b.ReportMetric(float64(2*rows*gemm.CoupleTokens*c.blocks*gemm.BlockK)*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GFLOPS")
				})
			}
		}
	}
}

// filled returns words that are two ones in bfloat16 each.
func filled(n int) []uint32 {
	v := make([]uint32, n)
	for i := range v {
		v[i] = 0x3f803f80
	}
	return v
}

// TestEmptyPanelsTookLongerThanFullOnes: zeros for absent tokens need no loads, which take long from addresses without memory.
func TestEmptyPanelsTookLongerThanFullOnes(t *testing.T) {
	kerneltest.EachRounding(t, func(t *testing.T, set *kernels.Set) {
		const n = 4096
		x, panel := make([]float32, gemm.PanelTokens*n), make([]uint32, gemm.PanelWords(n))
		shortest := func(x mat.Floats, tokens int) time.Duration {
			best := time.Hour
			for range 50 {
				begin := time.Now()
				set.GEMM.PackTokens(panel, x, tokens, n)
				best = min(best, time.Since(begin))
			}
			return best
		}
		full := shortest(mat.Floats{V: x, Stride: n}, gemm.PanelTokens)
		if empty := shortest(mat.Floats{}, 0); empty > 2*full {
			t.Errorf("packing no tokens took %v, want at most twice the %v of %d tokens", empty, full, gemm.PanelTokens)
		}
	})
}
