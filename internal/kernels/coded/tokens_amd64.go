//go:build !purego

package coded

import (
	"unsafe"

	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/mat"
)

// pieceGroups are the groups of a piece of a row: 8 KiB of eight tokens, which stay in the first-level cache beside
// the sums of a band.
const pieceGroups = 4

// mulTokens computes the products of 8, 6, 4 or 2 tokens at a time, and those of the last of an odd number alone.
func (k avx512) mulTokens(p TokensProduct, b band) {
	done := 0
	for _, tile := range [...]int{mostTokens, 6, 4, 2} {
		for ; p.Tokens-done >= tile; done += tile {
			mulInPieces(&p, &b, done, tile)
		}
	}
	if done < p.Tokens {
		k.mulPairs(p.Y.V[done*p.Y.Stride:][:p.Rows], b, p.X.V[done*p.X.Stride:][:p.W.Cols/2])
	}
}

// mulInPieces multiplies rows of a band by tokens from first on, piece after piece. Meanwhile their next piece is
// prefetched, and the first piece of the next band at the end.
func mulInPieces(p *TokensProduct, b *band, first, tokens int) {
	groups, x, sums := Groups(p.W.Cols), p.X.V[first*p.X.Stride:], asm.Floats(p.Sums)
	own, head := groups*groupBytes, BandRows*(tableBytes+roomOf(p.W.Cols))
	step, next := mat.CeilDiv(groups, mat.CeilDiv(groups, pieceGroups)), head+b.rows*own
	for g := 0; g < groups; g += step {
		ahead, later := step*groupBytes, -1
		if g+step >= groups {
			ahead = next - g*groupBytes
		}
		if g == 0 {
			later = 0
		}
		c := piece{at: g * groupBytes, own: own, groups: min(step, groups-g), rows: p.Rows, xs: p.X.Stride, ahead: ahead, next: next, later: later}
		c.add(tokens, b, asm.Words(x[g*GroupColumns/2:]), sums)
	}
	avx512bf16CodedSums(asm.Floats(p.Y.V[first*p.Y.Stride:]), int64(4*p.Y.Stride), sums, int64(tokens), int64(p.Rows))
}

// A piece is some groups of all rows of a band. Numbers are in bytes but for groups, rows and xs, which is in words.
type piece struct {
	at, own      int // where it begins in a row, and the length of a row
	groups, rows int
	xs           int // from token to token
	ahead, next  int // from the piece to what is prefetched, and from the band to the next one
	later        int // 0 in the first piece of rows, -1 in others
}

// add calls kernels by their names: what is passed to others would be allocated.
//
//go:noinline
func (c piece) add(tokens int, b *band, x, sums unsafe.Pointer) {
	tables, w, exceptions := asm.Bytes(b.tables), asm.Bytes(b.groups[c.at:]), asm.Bytes(b.exceptions)
	own, xs, groups, rows := int64(c.own), int64(4*c.xs), int64(c.groups), int64(c.rows)
	ahead, next, later := int64(c.ahead), int64(c.next), int64(c.later)
	switch tokens {
	case mostTokens:
		avx512bf16CodedTokens8(tables, w, own, exceptions, x, xs, sums, groups, rows, ahead, next, later)
	case 6:
		avx512bf16CodedTokens6(tables, w, own, exceptions, x, xs, sums, groups, rows, ahead, next, later)
	case 4:
		avx512bf16CodedTokens4(tables, w, own, exceptions, x, xs, sums, groups, rows, ahead, next, later)
	case 2:
		avx512bf16CodedTokens2(tables, w, own, exceptions, x, xs, sums, groups, rows, ahead, next, later)
	}
}
