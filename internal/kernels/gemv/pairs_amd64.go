//go:build !purego

package gemv

import (
	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/fetch"
	"github.com/heftai/heft/internal/kernels/mat"
)

var (
	dots = []mulTile{{8, avx512bf16Dot8}, {6, avx512bf16Dot6}, {4, avx512bf16Dot4}, {2, avx512bf16Dot2}}
	// dotOnes are for one token.
	dotOnes = fetch.Forms[mulKernel]{Eight: avx512bf16Dot1, Four: avx512bf16Dot1, One: avx512bf16Dot1x1}
)

// cachedTokens is the bytes of tokens for which the first-level cache has room beside rows. More tokens take
// several passes over the rows, of which all but the first find the rows in a cache.
const cachedTokens = 32 << 10

func (bf16) mulPairs(y mat.Floats, w mat.Weights, x mat.Pairs, rows, tokens, n int) {
	tiles := dots
	for tiles[0].tokens > 4 && 2*n*tiles[0].tokens > cachedTokens {
		tiles = tiles[1:]
	}
	for t := 0; t < tokens; {
		for len(tiles) > 0 && tiles[0].tokens > tokens-t {
			tiles = tiles[1:]
		}
		tile := mulTile{1, dotOnes.For(fetch.Pairs)}
		if len(tiles) > 0 {
			tile = tiles[0]
		}
		callMul(tile.kernel, asm.Bytes(w.Data), w.Stride, asm.Words(x.V[t*x.Stride:]), x.Stride, asm.Floats(y.V[t*y.Stride:]), y.Stride, n, rows)
		t += tile.tokens
	}
}

//go:noinline
func (bf16) tileOne(y []float32, w mat.Weights, x []uint32, rows, blocks int) {
	amxOne(asm.Bytes(w.Data), int64(w.Stride), asm.Words(x), asm.Floats(y), int64(blocks), int64(rows))
}
