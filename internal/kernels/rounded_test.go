package kernels

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// eachRounder runs test for every variant that rounds activations.
func eachRounder(t *testing.T, test func(*testing.T, *Set)) {
	eachSet(t, func(t *testing.T, set *Set) {
		if set.Rounds() {
			test(t, set)
		}
	})
}

// rounded is x as bfloat16 holds it.
func rounded(x []float32) []float32 {
	out := make([]float32, len(x))
	for i, v := range x {
		out[i] = FromBFloat16(ToBFloat16(v))
	}
	return out
}

func TestNarrow(t *testing.T) {
	eachRounder(t, func(t *testing.T, set *Set) {
		r := rand.New(rand.NewPCG(1, 2))
		for n := 1; n < 70; n++ {
			x := random(r, n)
			x[n/2] = float32(math.Inf(n%3 - 1))
			got := make([]uint32, PairWords(n))
			set.Narrow(got, x)
			for i, v := range x {
				if h := uint16(got[i/2] >> (16 * (i % 2))); h != ToBFloat16(v) {
					t.Fatalf("n %d: %g became %#x, want %#x", n, v, h, ToBFloat16(v))
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
	near(t, what, got, want, size)
}

func TestMulPairs(t *testing.T) {
	eachRounder(t, func(t *testing.T, set *Set) {
		r := rand.New(rand.NewPCG(1, 1))
		for n := 1; n < 100; n++ {
			rows, tokens := 1+n%9, 1+n%14
			data, w := store(BFloat16, random(r, rows*n), n%5)
			x := rounded(random(r, tokens*n))
			pairs := Pairs{Stride: PairWords(n) + 1}
			pairs.V = make([]uint32, tokens*pairs.Stride)
			for i := range tokens {
				set.Narrow(pairs.V[i*pairs.Stride:], x[i*n:][:n])
			}
			y, alone := make([]float32, tokens*rows), make([]float32, rows)
			weights := Weights{data, 2 * n, BFloat16}
			set.MulPairs(Floats{y, rows}, weights, pairs, rows, tokens, n)
			for i := range tokens {
				set.MulPairs(Floats{alone, rows}, weights, Pairs{pairs.V[i*pairs.Stride:], pairs.Stride}, rows, 1, n)
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

// tiled is a product by way of packs and panels, with k cut into steps of some blocks.
func tiled(set *Set, data []byte, x, bias []float32, rows, tokens, n, step int) []float32 {
	couples, size := ceil(tokens, 2*PanelTokens), PanelWords(n)
	panels, packs := make([]uint32, 2*couples*size), make([]uint32, 2*size)
	for i := range 2 * couples {
		count := max(0, min(PanelTokens, tokens-i*PanelTokens))
		set.PackTokens(panels[i*size:], Floats{x[min(i*PanelTokens, tokens)*n:], n}, count, n)
	}
	y := make([]float32, tokens*rows)
	c := Floats{make([]float32, 2*PackRows*2*PanelTokens*couples), 2 * PanelTokens * couples}
	for r := 0; r < rows; r += 2 * PackRows {
		for i := range 2 {
			at := min(r+i*PackRows, rows)
			set.PackWeights(packs[i*size:], Weights{data[at*2*n:], 2 * n, BFloat16}, min(PackRows, rows-at), n)
		}
		for b := 0; b < ceil(n, BlockK); b += step {
			at := b * BlockK / 2 * PackRows
			set.Tile(c, packs[at:], size, panels[at:], size, min(step, ceil(n, BlockK)-b), couples, b > 0)
		}
		for i := r; i < min(r+2*PackRows, rows); i += PackRows {
			var own []float32
			if bias != nil {
				own = bias[i:]
			}
			part := Floats{c.V[(i-r)*c.Stride:], c.Stride}
			set.Turn(Floats{y[i:], rows}, part, own, min(PackRows, rows-i), tokens)
		}
	}
	return y
}

func TestTile(t *testing.T) {
	eachRounder(t, func(t *testing.T, set *Set) {
		r := rand.New(rand.NewPCG(3, 1))
		for _, s := range [][3]int{{1, 1, 1}, {16, 16, 32}, {17, 3, 33}, {32, 32, 64}, {5, 40, 100}, {50, 70, 31}, {33, 17, 200}} {
			rows, tokens, n := s[0], s[1], s[2]
			data, w := store(BFloat16, random(r, rows*n), n%3)
			x, bias := random(r, tokens*n), random(r, rows)
			got, halves := rounded(x), tiled(set, data, x, bias, rows, tokens, n, 2)
			y := tiled(set, data, x, nil, rows, tokens, n, 1000)
			for i := range tokens {
				alone := tiled(set, data, x[i*n:][:n], bias, rows, 1, n, 1)
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

// TestTileRows: weights as they lie and single packs give the bits of couples of packs.
func TestTileRows(t *testing.T) {
	eachRounder(t, func(t *testing.T, set *Set) {
		if !set.TilesRows() {
			return
		}
		r := rand.New(rand.NewPCG(3, 9))
		const rows, n, most = 5 * PackRows, 5 * BlockK, CoupleTokens
		data, _ := store(BFloat16, random(r, rows*n), 3)
		for _, tokens := range []int{1, 8, 16, 19, 32} {
			x, panels := random(r, tokens*n), ceil(tokens, PanelTokens)
			want := tiled(set, data, x, nil, rows, tokens, n, 1)
			size := PanelWords(n)
			in, pack := make([]uint32, panels*size), make([]uint32, size)
			for i := range panels {
				set.PackTokens(in[i*size:], Floats{x[i*PanelTokens*n:], n}, min(PanelTokens, tokens-i*PanelTokens), n)
			}
			check := func(what string, run func(c Floats)) {
				c, y := Floats{make([]float32, rows*most), most}, make([]float32, tokens*rows)
				run(c)
				for i := 0; i < rows; i += PackRows {
					set.Turn(Floats{y[i:], rows}, Floats{c.V[i*c.Stride:], c.Stride}, nil, PackRows, tokens)
				}
				for i := range y {
					if y[i] != want[i] {
						t.Fatalf("%s, %d tokens: element %d is %g, want %g", what, tokens, i, y[i], want[i])
					}
				}
			}
			for quarters := range 5 {
				for _, next := range [][]byte{nil, data} {
					check(fmt.Sprintf("rows, %d quarters", quarters), func(c Floats) {
						set.TileRows(c.V, Weights{data, 2 * n, BFloat16}, in, size, panels, rows, n/BlockK, Fetch{next, 4 - quarters, quarters})
					})
				}
			}
			check("packs", func(c Floats) {
				for i := 0; i < rows; i += PackRows {
					own := Floats{c.V[i*c.Stride:], c.Stride}
					set.PackWeights(pack, Weights{data[i*2*n:], 2 * n, BFloat16}, PackRows, n)
					for p := 0; p < panels; p += 2 {
						own, in := Floats{own.V[p*PanelTokens:], most}, in[p*size:]
						set.TilePack(own, pack, in, size, min(2, panels-p), 2, false)
						set.TilePack(own, pack[2*BlockK/2*PackRows:], in[2*BlockK/2*PanelTokens:], size, min(2, panels-p), 3, true)
					}
				}
			})
		}
	})
}

// TestRoundedNonFinite: a NaN or an infinity reaches its own row and token only.
func TestRoundedNonFinite(t *testing.T) {
	eachRounder(t, func(t *testing.T, set *Set) {
		const rows, tokens, n = 20, 18, 40
		r := rand.New(rand.NewPCG(3, 5))
		for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1))} {
			v, x := random(r, rows*n), random(r, tokens*n)
			v[3*n+33], x[2*n+39] = bad, bad
			data, _ := store(BFloat16, v, 0)
			for i, got := range tiled(set, data, x, nil, rows, tokens, n, 1) {
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
	for _, set := range available() {
		if !set.Rounds() {
			continue
		}
		report := func(b *testing.B, steps int) {
			b.ReportMetric(2*float64(steps)*n/float64(b.Elapsed().Nanoseconds())*float64(b.N), "GFLOPS")
		}
		for _, step := range []int{4, 8, 16, 32, 64} {
			b.Run(fmt.Sprintf("%s/tile/%d", set.Name, step), func(b *testing.B) {
				const couples, size = 4, 16 * n / 2
				packs, panels := make([]uint32, 2*size), make([]uint32, 2*couples*size)
				c := Floats{make([]float32, 32*32*couples), 32 * couples}
				for b.Loop() {
					for k := 0; k < n/BlockK; k += step {
						at := k * BlockK / 2 * PackRows
						set.Tile(c, packs[at:], size, panels[at:], size, step, couples, k > 0)
					}
				}
				report(b, 32*32*couples)
			})
		}
		for _, tokens := range []int{1, 2, 4, 6, 8} {
			b.Run(fmt.Sprintf("%s/dot/%d", set.Name, tokens), func(b *testing.B) {
				const rows = 32
				w := Weights{make([]byte, 2*rows*n), 2 * n, BFloat16}
				x := Pairs{make([]uint32, tokens*n/2), n / 2}
				y := make([]float32, rows*tokens)
				for b.Loop() {
					set.MulPairs(Floats{y, rows}, w, x, rows, tokens, n)
				}
				report(b, rows*tokens)
			})
		}
	}
}

// BenchmarkTiles is Tile on weights of so many blocks of k and couples of panels, in the caches,
// and TileRows on weights as they lie.
func BenchmarkTiles(b *testing.B) {
	for _, set := range available() {
		if !set.TilesRows() {
			continue
		}
		for _, c := range []struct{ blocks, couples int }{{4, 1}, {16, 1}, {16, 8}, {32, 1}, {32, 8}, {64, 4}} {
			size := PanelWords(c.blocks * BlockK)
			w, x := make([]uint32, 2*size), make([]uint32, 2*c.couples*size)
			out := Floats{make([]float32, 2*PackRows*2*c.couples*PanelTokens), 2 * c.couples * PanelTokens}
			b.Run(fmt.Sprintf("packed/blocks=%d/couples=%d", c.blocks, c.couples), func(b *testing.B) {
				for b.Loop() {
					set.Tile(out, w, size, x, size, c.blocks, c.couples, false)
				}
				b.ReportMetric(float64(2*2*PackRows*2*PanelTokens*c.couples*c.blocks*BlockK)*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GFLOPS")
			})
			const rows = 128
			lying := Weights{make([]byte, rows*c.blocks*2*BlockK), c.blocks * 2 * BlockK, BFloat16}
			wide := make([]float32, rows*CoupleTokens)
			for _, quarters := range []int{0, 4} {
				b.Run(fmt.Sprintf("lying/blocks=%d/quarters=%d", c.blocks, quarters), func(b *testing.B) {
					for b.Loop() {
						set.TileRows(wide, lying, x, size, 2, rows, c.blocks, Fetch{lying.Data, 0, quarters})
					}
					b.ReportMetric(float64(2*rows*CoupleTokens*c.blocks*BlockK)*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GFLOPS")
				})
			}
		}
	}
}
