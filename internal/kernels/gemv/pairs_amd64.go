//go:build !purego

package gemv

import (
	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/fetch"
	"github.com/heftai/heft/internal/kernels/mat"
)

// dotOnes are the kernels for one token.
var dotOnes = fetch.Forms[mulKernel]{Eight: avx512bf16Dot1, Four: avx512bf16Dot1, One: avx512bf16Dot1x1}

// tileTokens are the numbers of tokens that a kernel multiplies at once, the largest first.
var tileTokens = [...]int{mostPairTokens, 6, leastInPieces, 2, 1}

func (bf16) mulPairs(y mat.Floats, w mat.Weights, x mat.Pairs, rows, tokens, n int, next []byte) {
	pieces, l, t := inPieces(tokens, n), laterOf(next, tokens), 0
	for _, tile := range tileTokens {
		for ; tokens-t >= tile; t += tile {
			x, y := mat.Pairs{V: x.V[t*x.Stride:], Stride: x.Stride}, mat.Floats{V: y.V[t*y.Stride:], Stride: y.Stride}
			switch {
			case tile > 2 && pieces:
				mulInPieces(y, w, x, rows, tile, n, &l)
			case tile > 2:
				mulWholeRows(y, w, x, rows, tile, n, &l)
			case tile == 2:
				callMul(avx512bf16Dot2, asm.Bytes(w.Data), w.Stride, asm.Words(x.V), x.Stride, asm.Floats(y.V), y.Stride, n, rows)
			default:
				callMul(dotOnes.For(fetch.Pairs), asm.Bytes(w.Data), w.Stride, asm.Words(x.V), x.Stride, asm.Floats(y.V), y.Stride, n, rows)
			}
		}
	}
}

//go:noinline
func (bf16) tileOne(y []float32, w mat.Weights, x []uint32, rows, blocks int) {
	amxOne(asm.Bytes(w.Data), int64(w.Stride), asm.Words(x), asm.Floats(y), int64(blocks), int64(rows))
}
