//go:build !purego

package coded

import (
	"unsafe"

	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/mat"
)

// pieceBytes limits the tokens' part of a piece, so that it stays in the first-level cache
// besides the sums of a strip. Below that limit larger pieces are faster, because rows do not
// begin at cache lines.
const pieceBytes = 20 << 10

// mulTokens computes the products of 8, 6, 4 or 2 tokens at a time. It computes the last of an
// odd number of tokens alone.
func (k avx512) mulTokens(p TokensProduct, w strip) {
	done := 0
	for _, tile := range [...]int{mostTokens, 6, 4, 2} {
		for ; p.Tokens-done >= tile; done += tile {
			mulInPieces(&p, &w, done, tile)
		}
	}
	if done < p.Tokens {
		k.mulPairs(p.Y.V[done*p.Y.Stride:][:p.Rows], w, p.X.V[done*p.X.Stride:][:p.W.Cols/2])
	}
}

// mulInPieces multiplies the rows of a strip by tokens from first on, piece after piece. It
// prefetches the next piece of the rows meanwhile, and the first piece of the next rows at the
// end.
func mulInPieces(p *TokensProduct, w *strip, first, tokens int) {
	groups, x, sums := Groups(p.W.Cols), p.X.V[first*p.X.Stride:], asm.Floats(p.Sums)
	each, before := RowBytes(p.W.Cols), beforeGroups(p.W.Cols)
	most := pieceBytes / (2 * GroupColumns * tokens)
	step, next := mat.CeilDiv(groups, mat.CeilDiv(groups, most)), p.Rows*each
	for g := 0; g < groups; g += step {
		ahead, later := step*groupBytes, -1
		if g+step >= groups {
			ahead = next - g*groupBytes
		}
		if g == 0 {
			later = 0
		}
		c := piece{at: before + g*groupBytes, each: each, groups: min(step, groups-g), rows: p.Rows, xs: p.X.Stride, ahead: ahead, next: next, later: later}
		c.add(tokens, w.data[w.at:], asm.Words(x[g*GroupColumns/2:]), sums)
	}
	avx512bf16CodedSums(asm.Floats(p.Y.V[first*p.Y.Stride:]), int64(4*p.Y.Stride), sums, int64(tokens), int64(p.Rows))
}

// A piece is a range of groups of all rows of a strip. Its numbers are in bytes, except groups,
// rows and xs, which is in words.
type piece struct {
	at, each     int // where the piece begins in a row, and the length of a row
	groups, rows int
	xs           int // from one token to the next
	ahead, next  int // from the piece to the prefetched bytes, and from the strip to the next one
	later        int // 0 in the first piece of the rows, -1 in others
}

// add calls kernels directly, because arguments of a function value would escape.
//
//go:noinline
func (c piece) add(tokens int, strip []byte, x, sums unsafe.Pointer) {
	rows, w := asm.Bytes(strip), asm.Bytes(strip[c.at:])
	each, xs, groups, n := int64(c.each), int64(4*c.xs), int64(c.groups), int64(c.rows)
	ahead, next, later := int64(c.ahead), int64(c.next), int64(c.later)
	switch tokens {
	case mostTokens:
		avx512bf16CodedTokens8(rows, w, each, x, xs, sums, groups, n, ahead, next, later)
	case 6:
		avx512bf16CodedTokens6(rows, w, each, x, xs, sums, groups, n, ahead, next, later)
	case 4:
		avx512bf16CodedTokens4(rows, w, each, x, xs, sums, groups, n, ahead, next, later)
	case 2:
		avx512bf16CodedTokens2(rows, w, each, x, xs, sums, groups, n, ahead, next, later)
	}
}
