//go:build !purego

package quant

import (
	"unsafe"

	"github.com/heftai/heft/internal/kernels/asm"
)

// sumShape is codeShape in the layout of the kernels.
type sumShape struct{ lanes, x, tokens, words, n, ahead int64 }

// addCodes is not inlined: see package asm.
//
//go:noinline
func (a *simd) addCodes(p Packing, lanes, x []float32, words []byte, table, values []float32, s codeShape) {
	shape := sumShape{int64(s.lanes), int64(s.x), int64(s.tokens), int64(s.words), int64(s.n), int64(s.ahead)}
	to, from, codes, of, room, at := asm.Floats(lanes), asm.Floats(x), asm.Bytes(words), asm.Floats(table), asm.Floats(values), unsafe.Pointer(&shape)
	if a.wide {
		avx512Sums(p, to, from, codes, of, room, at, s.tokens == 1, s.groups)
	} else {
		avx2Sums(p, to, from, codes, of, room, at, s.tokens == 1, s.groups)
	}
}

func avx512Sums(p Packing, lanes, x, words, table, values, shape unsafe.Pointer, one bool, groups []byte) {
	switch {
	case p == Int8Rows && groups != nil:
		avx512AddRowsOf8(lanes, x, words, table, values, shape, asm.Bytes(groups))
	case p == Int8Rows:
		avx512AddRows8(lanes, x, words, table, values, shape)
	case groups != nil:
		avx512AddRowsOf4(lanes, x, words, table, values, shape, asm.Bytes(groups))
	case p == Int4Rows && one:
		avx512SumRows4(lanes, x, words, table, values, shape)
	case p == Int4Rows:
		avx512AddRows4(lanes, x, words, table, values, shape)
	case one:
		avx512SumColumns4(lanes, x, words, table, values, shape)
	default:
		avx512AddColumns4(lanes, x, words, table, values, shape)
	}
}

func avx2Sums(p Packing, lanes, x, words, table, values, shape unsafe.Pointer, one bool, groups []byte) {
	switch {
	case p == Int8Rows && groups != nil:
		avx2AddRowsOf8(lanes, x, words, table, values, shape, asm.Bytes(groups))
	case p == Int8Rows:
		avx2AddRows8(lanes, x, words, table, values, shape)
	case groups != nil:
		avx2AddRowsOf4(lanes, x, words, table, values, shape, asm.Bytes(groups))
	case p == Int4Rows && one:
		avx2SumRows4(lanes, x, words, table, values, shape)
	case p == Int4Rows:
		avx2AddRows4(lanes, x, words, table, values, shape)
	case one:
		avx2SumColumns4(lanes, x, words, table, values, shape)
	default:
		avx2AddColumns4(lanes, x, words, table, values, shape)
	}
}
