//go:build !purego

package coded

import (
	"unsafe"

	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/mat"
)

// pieceBytes is the most that the tokens' part of a piece takes, so that it stays in the first-level cache beside the sums
// of a strip. Larger pieces are faster until then, as rows do not begin with cache lines.
const pieceBytes = 20 << 10

// mulTokens computes the products of 8, 6, 4 or 2 tokens at a time, and those of the last of an odd number alone.
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

// mulInPieces multiplies the rows of a strip by tokens from first on, piece after piece. Meanwhile their next piece is
// prefetched, and the first piece of the next rows at the end.
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

// A piece is some groups of all rows of a strip. Numbers are in bytes but for groups, rows and xs, which is in words.
type piece struct {
	at, each     int // where it begins in a row, and the length of a row
	groups, rows int
	xs           int // from token to token
	ahead, next  int // from the piece to what is prefetched, and from the strip to the next one
	later        int // 0 in the first piece of rows, -1 in others
}

// add calls kernels by their names: what is passed to others would be allocated.
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
