//go:build linux

package kernels

import (
	"math/rand/v2"
	"testing"
)

// TestRoundedStaysInside is TestStaysInside for products of rounded activations.
func TestRoundedStaysInside(t *testing.T) {
	eachRounder(t, func(t *testing.T, set *Set) {
		for n := 1; n <= 70; n++ {
			rows, tokens, size := 1+n%PackRows, 1+n%PanelTokens, PanelWords(n)
			w := Weights{guarded(t, rows*2*n), 2 * n, BFloat16}
			pairs, x := Pairs{guardedWords(t, tokens*PairWords(n)), PairWords(n)}, Floats{guardedFloats(t, tokens*n), n}
			for i := range tokens {
				set.Narrow(pairs.V[i*pairs.Stride:], x.V[i*n:][:n])
			}
			y := Floats{guardedFloats(t, tokens*rows), rows}
			set.MulPairs(y, w, pairs, rows, tokens, n)
			packs, panels := guardedWords(t, 2*size), guardedWords(t, 2*size)
			for i := range 2 {
				set.PackWeights(packs[i*size:], w, rows, n)
				set.PackTokens(panels[i*size:], x, tokens, n)
			}
			blocks := ceil(n, BlockK)
			c := Floats{guardedFloats(t, 2*PackRows*2*PanelTokens), 2 * PanelTokens}
			one := Floats{guardedFloats(t, PackRows*PanelTokens), PanelTokens}
			for _, add := range []bool{false, true} {
				set.Tile(c, packs, size, panels, size, blocks, 1, add)
				set.Couple(c, packs, size, panels, size, blocks, 1, add)
				if set.TilesRows() {
					set.TilePack(c, packs[size:], panels, size, 2, blocks, add)
					set.TilePack(one, packs[size:], panels[size:], size, 1, blocks, add)
				}
			}
			set.Turn(y, one, nil, rows, tokens)
			set.Turn(y, one, guardedFloats(t, rows), rows, tokens)
		}
	})
}

// TestTileRowsStaysInside is TestStaysInside for tiles of weights as they lie, which are fetched
// ahead.
func TestTileRowsStaysInside(t *testing.T) {
	eachRounder(t, func(t *testing.T, set *Set) {
		if !set.TilesRows() {
			return
		}
		for _, rows := range []int{16, 32, 48, 128, 144} {
			for _, blocks := range []int{1, 2, 3, 15, 16, 17, 33} {
				n, size := blocks*BlockK, PanelWords(blocks*BlockK)
				w := Weights{guarded(t, rows*2*n), 2 * n, BFloat16}
				for panels := 1; panels <= 2; panels++ {
					x, c := guardedWords(t, panels*size), guardedFloats(t, rows*CoupleTokens)
					for quarters := range 5 {
						set.TileRows(c, w, x, size, panels, rows, blocks, Fetch{w.Data[len(w.Data)-1:], 4 - quarters, quarters})
					}
				}
			}
		}
	})
}

// TestRowLoopsStayInside is TestStaysInside for loops over rows.
func TestRowLoopsStayInside(t *testing.T) {
	eachSet(t, func(t *testing.T, set *Set) {
		for n := 1; n <= 70; n++ {
			a, b, c := guardedFloats(t, n), guardedFloats(t, n), guardedFloats(t, n)
			set.AtMost(a, b, 7)
			set.TimesClamped(a, b, c, 7)
			set.Times(a, b)
			set.ReLU(a, c)
			set.TurnInterleaved(guardedFloats(t, 2*n), b, c)
			set.Peak(a)
			set.Below(b, c, 1, 2)
		}
	})
}

// TestBandSumsStayInside is TestStaysInside for floats that meet weights in bands.
func TestBandSumsStayInside(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	eachSet(t, func(t *testing.T, set *Set) {
		for _, rows := range []int{1, 3, 8, 15, 16, 17, 32, 48, 75} {
			for blocks := 1; blocks <= 3; blocks++ {
				for _, packing := range []Packing{Q8, Q4} {
					lies, _ := inBands(random, packing, rows, 32*blocks)
					p := *lies
					p.Codes = guarded(t, len(lies.Codes))
					copy(p.Codes, lies.Codes)
					for _, tokens := range []int{1, 2, 5, 8, 9} {
						x, y := guardedFloats(t, tokens*p.Width), guardedFloats(t, tokens*rows)
						set.MulBands(Floats{y, rows}, &p, 0, 1, 0, rows, Floats{x, p.Width}, tokens, p.Width, false)
						set.MulBands(Floats{y, rows}, &p, rows/2, 1, 0, rows-rows/2, Floats{x, p.Width}, tokens, p.Width, true)
						set.MulBands(Floats{y, rows}, &p, 0, 2, 0, ceil(rows, 2), Floats{x, p.Width}, tokens, p.Width, true)
					}
					last := max(0, (rows-1)/BandRows*BandRows)
					set.WidenBands(guardedFloats(t, set.PanelLanes()*p.Width), &p, last, 1, 0, min(rows-last, set.PanelLanes()), p.Width)
				}
			}
		}
	})
}
