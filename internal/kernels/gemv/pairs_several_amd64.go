//go:build !purego

package gemv

import (
	"unsafe"

	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/mat"
)

const (
	// streams is the number of rows that kernels of several tokens multiply at once, and of streams that they prefetch.
	streams = 3
	// ownBytes is the distance at which they prefetch their own rows. The C file has the same number, AHEAD.
	ownBytes = 2048
	// pieceColumns is the number of columns in a piece: 11 KiB for eight tokens. It is less than ownBytes, where kernels of whole rows jump.
	pieceColumns = 704
	// sumLanes is the number of lanes of a sum.
	sumLanes = 16
)

// A later is the bytes that are prefetched while groups of tokens are multiplied one after the other.
type later struct {
	bytes []byte
	apart int // from one stream of bytes to the next, or 0 if there is one
}

// laterOf divides next among the groups of tokens. If there are as many as a kernel has streams, each group prefetches one,
// so that memory delivers bytes all the time. Otherwise the first group prefetches all of them.
func laterOf(next []byte, tokens int) later {
	if tokens < streams*mostPairTokens {
		return later{next, len(next) / streams &^ 63}
	}
	return later{next, 0}
}

// take returns where kernels prefetch the next n bytes of each stream, relative to w. ok is false if nothing is left.
func (l *later) take(w []byte, n int) (f prefetch, ok bool) {
	if len(l.bytes) == 0 {
		return f, false
	}
	f = prefetch{far: int(uintptr(asm.Bytes(l.bytes)) - uintptr(asm.Bytes(w))), apart: l.apart}
	left := len(l.bytes) - (streams-1)*l.apart // of a stream
	if n = min(n, left); n == left {
		l.bytes = nil
	}
	l.bytes = l.bytes[min(n, len(l.bytes)):]
	return f, true
}

// A prefetch is what a kernel prefetches beside every 32 columns of three rows: a line of each of three streams, which begin
// far from the rows and are apart from each other. Once for three rows they jump. All are in bytes.
type prefetch struct{ far, apart, jump int }

// mulWholeRows multiplies rows by 8, 6 or 4 tokens. It prefetches a part of l, or these rows and the following ones if
// nothing of l is left.
func mulWholeRows(y mat.Floats, w mat.Weights, x mat.Pairs, rows, tokens, n int, l *later) {
	f, ok := l.take(w.Data, rows/streams*2*n)
	if !ok {
		block, whole := streams*w.Stride, 2*(n&^31)
		f = prefetch{far: ownBytes, apart: w.Stride, jump: block - whole}
		if whole < ownBytes {
			f.far = block
		}
	}
	s := dotShape{ys: int64(4 * y.Stride), n: int64(n), rows: int64(rows), jump: int64(f.jump)}
	dotWhole(tokens, asm.Bytes(w.Data), w.Stride, asm.Words(x.V), x.Stride, asm.Floats(y.V), f, &s)
}

// mulInPieces multiplies pieceRows rows at a time by 8, 6 or 4 tokens, piece after piece. It prefetches a part of l, or the
// next piece of the rows if nothing of l is left, and at the end the first piece of the next rows.
func mulInPieces(y mat.Floats, w mat.Weights, x mat.Pairs, rows, tokens, n int, l *later) {
	var sums [pieceRows * mostPairTokens * sumLanes]float32
	columns := mat.CeilDiv(mat.CeilDiv(n, max(1, mat.CeilDiv(n, pieceColumns))), 32) * 32
	for r := 0; r < rows; r += pieceRows {
		group := min(pieceRows, rows-r)
		for k := 0; k < n; k += columns {
			piece := w.Data[r*w.Stride+2*k:]
			c := min(columns, n-k)
			f, ok := l.take(piece, group/streams*2*c)
			if !ok {
				f = prefetch{far: 2 * columns, apart: w.Stride, jump: streams*w.Stride - 2*(c&^31)}
				if k+columns >= n {
					f.far = group*w.Stride - 2*k
				}
			}
			s := dotShape{n: int64(c), rows: int64(group), jump: int64(f.jump)}
			dotPieces(tokens, asm.Bytes(piece), w.Stride, asm.Words(x.V[k/2:]), x.Stride, asm.Floats(sums[:]), f, &s)
		}
		avx512bf16PieceSums(asm.Floats(y.V[r:]), int64(4*y.Stride), asm.Floats(sums[:]), int64(tokens), int64(group))
	}
}

// dotShape holds the operands of kernels that do not fit in registers, in their layout. Strides are in bytes.
type dotShape struct {
	ys, n, rows, jump int64
	_                 uintptr // room of the kernels
}

// dotWhole and dotPieces call kernels directly, because arguments of a function value would escape.
//
//go:noinline
func dotWhole(tokens int, w unsafe.Pointer, ws int, x unsafe.Pointer, xs int, y unsafe.Pointer, f prefetch, s *dotShape) {
	switch tokens {
	case mostPairTokens:
		avx512bf16Dot8(w, int64(ws), x, int64(4*xs), y, int64(f.far), int64(f.apart), unsafe.Pointer(s))
	case 6:
		avx512bf16Dot6(w, int64(ws), x, int64(4*xs), y, int64(f.far), int64(f.apart), unsafe.Pointer(s))
	case leastInPieces:
		avx512bf16Dot4(w, int64(ws), x, int64(4*xs), y, int64(f.far), int64(f.apart), unsafe.Pointer(s))
	}
}

//go:noinline
func dotPieces(tokens int, w unsafe.Pointer, ws int, x unsafe.Pointer, xs int, sums unsafe.Pointer, f prefetch, s *dotShape) {
	switch tokens {
	case mostPairTokens:
		avx512bf16Pieces8(w, int64(ws), x, int64(4*xs), sums, int64(f.far), int64(f.apart), unsafe.Pointer(s))
	case 6:
		avx512bf16Pieces6(w, int64(ws), x, int64(4*xs), sums, int64(f.far), int64(f.apart), unsafe.Pointer(s))
	case leastInPieces:
		avx512bf16Pieces4(w, int64(ws), x, int64(4*xs), sums, int64(f.far), int64(f.apart), unsafe.Pointer(s))
	}
}
