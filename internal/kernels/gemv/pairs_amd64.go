//go:build !purego

package gemv

import (
	"unsafe"

	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/fetch"
	"github.com/heftai/heft/internal/kernels/mat"
)

var (
	dots = []mulTile{{8, avx512bf16Dot8}, {6, avx512bf16Dot6}, {4, avx512bf16Dot4}, {2, avx512bf16Dot2}}
	// dotOnes are the kernels for one token.
	dotOnes = fetch.Forms[mulKernel]{Eight: avx512bf16Dot1, Four: avx512bf16Dot1, One: avx512bf16Dot1x1}
)

func (bf16) mulPairs(y mat.Floats, w mat.Weights, x mat.Pairs, rows, tokens, n int) {
	first := 0
	if inPieces(tokens, n) {
		first = mulInPieces(y, w, x, rows, tokens, n)
	}
	tiles := dots
	for t := first; t < tokens; {
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

const (
	// pieceColumns is the number of columns in a piece: 8 KiB for eight tokens.
	pieceColumns = 512
	// sumLanes is the number of lanes of a sum.
	sumLanes = 16
)

// mulInPieces computes the products of 8, 6 or 4 tokens at a time, and returns the number of
// tokens that it computed.
func mulInPieces(y mat.Floats, w mat.Weights, x mat.Pairs, rows, tokens, n int) (done int) {
	for _, tile := range [...]int{mostPairTokens, 6, leastInPieces} {
		for ; tokens-done >= tile; done += tile {
			mulTokensInPieces(mat.Floats{V: y.V[done*y.Stride:], Stride: y.Stride}, w, mat.Pairs{V: x.V[done*x.Stride:], Stride: x.Stride}, rows, tile, n)
		}
	}
	return done
}

// mulTokensInPieces multiplies a dozen rows at a time, piece after piece. It prefetches their
// next piece meanwhile, and the first piece of the next rows at the end.
func mulTokensInPieces(y mat.Floats, w mat.Weights, x mat.Pairs, rows, tokens, n int) {
	var sums [pieceRows * mostPairTokens * sumLanes]float32
	columns := mat.CeilDiv(mat.CeilDiv(n, max(1, mat.CeilDiv(n, pieceColumns))), 32) * 32
	for r := 0; r < rows; r += pieceRows {
		group := min(pieceRows, rows-r)
		for k := 0; k < n; k += columns {
			ahead := 2 * columns
			if k+columns >= n {
				ahead = group*w.Stride - 2*k
			}
			addPiece(asm.Bytes(w.Data[r*w.Stride+2*k:]), w.Stride, asm.Words(x.V[k/2:]), x.Stride, asm.Floats(sums[:]), min(columns, n-k), group, tokens, ahead)
		}
		avx512bf16PieceSums(asm.Floats(y.V[r:]), int64(4*y.Stride), asm.Floats(sums[:]), int64(tokens), int64(group))
	}
}

// addPiece calls kernels directly, because arguments of a function value would escape.
//
//go:noinline
func addPiece(w unsafe.Pointer, ws int, x unsafe.Pointer, xs int, sums unsafe.Pointer, n, rows, tokens, ahead int) {
	switch tokens {
	case mostPairTokens:
		avx512bf16Pieces8(w, int64(ws), x, int64(4*xs), sums, int64(n), int64(rows), int64(ahead))
	case 6:
		avx512bf16Pieces6(w, int64(ws), x, int64(4*xs), sums, int64(n), int64(rows), int64(ahead))
	case leastInPieces:
		avx512bf16Pieces4(w, int64(ws), x, int64(4*xs), sums, int64(n), int64(rows), int64(ahead))
	}
}

//go:noinline
func (bf16) tileOne(y []float32, w mat.Weights, x []uint32, rows, blocks int) {
	amxOne(asm.Bytes(w.Data), int64(w.Stride), asm.Words(x), asm.Floats(y), int64(blocks), int64(rows))
}
