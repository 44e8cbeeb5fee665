//go:build !purego

package qgemm

import (
	"unsafe"

	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/fetch"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
)

// A sumsTile is a kernel for a number of bands and of tokens.
type sumsTile struct {
	bands, tokens int
	kernel        bandsKernel
}

// Tiles are in descending order of tokens and, for one token, of bands.
var (
	avx512SumsQ8 = []sumsTile{{2, 8, avx512InterleavedSumsQ82x8}, {2, 4, avx512InterleavedSumsQ82x4}, {2, 2, avx512InterleavedSumsQ82x2}, {4, 1, avx512InterleavedSumsQ84x1}, {2, 1, avx512InterleavedSumsQ82x1}, {1, 1, avx512InterleavedSumsQ81x1}}
	avx512SumsQ4 = []sumsTile{{2, 8, avx512InterleavedSumsQ42x8}, {2, 4, avx512InterleavedSumsQ42x4}, {2, 2, avx512InterleavedSumsQ42x2}, {4, 1, avx512InterleavedSumsQ44x1}, {2, 1, avx512InterleavedSumsQ42x1}, {1, 1, avx512InterleavedSumsQ41x1}}
	avx2SumsQ8   = []sumsTile{{1, 4, avx2InterleavedSumsQ81x4}, {1, 2, avx2InterleavedSumsQ81x2}, {2, 1, avx2InterleavedSumsQ82x1}, {1, 1, avx2InterleavedSumsQ81x1}}
	avx2SumsQ4   = []sumsTile{{1, 4, avx2InterleavedSumsQ41x4}, {1, 2, avx2InterleavedSumsQ41x2}, {2, 1, avx2InterleavedSumsQ42x1}, {1, 1, avx2InterleavedSumsQ41x1}}
)

func (a *simd) sumTiles(p quant.Packing) []sumsTile {
	switch {
	case a.wide && p == quant.Q8:
		return avx512SumsQ8
	case a.wide:
		return avx512SumsQ4
	case p == quant.Q8:
		return avx2SumsQ8
	}
	return avx2SumsQ4
}

func (a *simd) bandTokens() int { return a.sumTiles(quant.Q8)[0].tokens }

// sumBands multiplies all tokens by a few bands before the next ones.
func (a *simd) sumBands(p quant.Packing, y mat.Floats, w []byte, apart, bands int, x mat.Floats, tokens, blocks int, add bool) {
	for b := 0; b < bands; {
		tiles, count := a.sumTiles(p), bands-b // at most; the first tile says how many
		if tokens == 1 {
			count = min(count, fetch.Rows(p.FetchRole()))
		}
		for t := 0; t < tokens; t += tiles[0].tokens {
			for tiles[0].tokens > tokens-t || tiles[0].bands > count {
				if tiles = tiles[1:]; len(tiles) == 0 {
					a.sumLast(p, from(y, b*quant.InterleavedRows), w[b*apart:], x, tokens, blocks, add)
					return
				}
			}
			if t == 0 {
				count = tiles[0].bands
			}
			for i := b; i < b+count; i += tiles[0].bands {
				callBands(tiles[0].kernel, asm.Bytes(w[i*apart:]), apart, asm.Floats(x.V[t*x.Stride:]), x.Stride, asm.Floats(y.V[t*y.Stride+i*quant.InterleavedRows:]), y.Stride, blocks, add)
			}
		}
		b += count
	}
}

// sumLast computes a band for which there is no tile.
func (a *simd) sumLast(p quant.Packing, y mat.Floats, w []byte, x mat.Floats, tokens, blocks int, add bool) {
	for t := range tokens {
		a.sumEdge(p, y.V[t*y.Stride:][:quant.InterleavedRows], w, quant.InterleavedRows, 0, 1, x.V[t*x.Stride:], blocks, add)
	}
}

//go:noinline
func (a *simd) sumEdge(p quant.Packing, y []float32, w []byte, rows, lane, step int, x []float32, blocks int, add bool) {
	var sums lanes
	if add {
		sums.load(y, lane, step)
	}
	in, n := asm.Floats(x), int64(blocks)
	switch {
	case a.wide && p == quant.Q8:
		avx512BandEdgeQ8(asm.Bytes(w), int64(rows), in, unsafe.Pointer(&sums), n)
	case a.wide:
		avx512BandEdgeQ4(asm.Bytes(w), int64(rows), in, unsafe.Pointer(&sums), n)
	default:
		for first := 0; first < rows; first += 8 {
			from, codes, to := asm.Bytes(w[2*first:]), int64(2*rows+2*first), unsafe.Pointer(&sums[first])
			if take := int64(min(8, rows-first)); p == quant.Q8 {
				avx2BandEdgeQ8(from, codes, int64(rows), take, in, to, n)
			} else {
				avx2BandEdgeQ4(from, codes, int64(rows), take, in, to, n)
			}
		}
	}
	sums.store(y, lane, step)
}

//go:noinline
func (a *simd) panelBand(p quant.Packing, dst []float32, band []byte, lane, blocks int) {
	to, scales, codes, n := asm.Floats(dst), asm.Bytes(band[2*lane:]), asm.Bytes(band[2*quant.InterleavedRows+4*lane:]), int64(blocks)
	switch {
	case a.wide && p == quant.Q8:
		avx512BandPanelQ8(to, asm.Bytes(band), n)
	case a.wide:
		avx512BandPanelQ4(to, asm.Bytes(band), n)
	case p == quant.Q8:
		avx2BandPanelQ8(to, scales, codes, n)
	default:
		avx2BandPanelQ4(to, scales, codes, n)
	}
}
