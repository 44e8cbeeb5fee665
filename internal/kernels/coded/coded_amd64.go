//go:build !purego

package coded

import (
	"unsafe"

	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/fetch"
	"github.com/heftai/heft/internal/kernels/isa"
)

func decoderOf(v isa.Variant) decoder {
	switch v.Level {
	case isa.AVX512:
		return avx512{}
	case isa.AVX2:
		return avx2{}
	}
	return goDecoder{}
}

func pairsOf(v isa.Variant) pairer {
	if v.BF16 {
		return avx512{}
	}
	return nil
}

func splitsOf(v isa.Variant) splitter {
	switch v.Level {
	case isa.AVX512:
		return avx512{}
	case isa.AVX2:
		return avx2{}
	}
	return nil
}

type (
	avx2   struct{}
	avx512 struct{}
)

// The functions below are not inlined: the scheduler preempts a loop of kernels in their
// prologue, since it cannot preempt a kernel.

//go:noinline
func (avx2) decode(dst []byte, w strip, rows int) {
	avx2Decode(asm.Bytes(w.data[w.at:]), int64(beforeGroups(w.columns)), asm.Bytes(dst), int64(Groups(w.columns)), int64(rows))
}

//go:noinline
func (avx512) decode(dst []byte, w strip, rows int) {
	avx512Decode(asm.Bytes(w.data[w.at:]), int64(beforeGroups(w.columns)), asm.Bytes(dst), int64(Groups(w.columns)), int64(rows))
}

// A product is a generated kernel with its forms for 8, 4 and 1 rows.
type product uint8

const (
	pairs512 product = iota
	split512
	split256
)

func (avx512) mulPairs(y []float32, w strip, x []uint32)  { pairs512.rows(y, &w, asm.Words(x)) }
func (avx512) mulSplit(y []float32, w strip, x []float32) { split512.rows(y, &w, asm.Floats(x)) }
func (avx2) mulSplit(y []float32, w strip, x []float32)   { split256.rows(y, &w, asm.Floats(x)) }

// role returns the role of p's kernels in the fetch plan.
func (p product) role() fetch.Role {
	if p == pairs512 {
		return fetch.CodedPairs
	}
	return fetch.CodedFloats
}

// at returns how many of the given rows are computed at once, and how many bytes ahead they are
// prefetched if the plan prefetches. The distances were fastest on Sapphire Rapids, and that of
// single rows on Zen 4.
func (p product) at(rows int) (n, ahead int) {
	most := fetch.Rows(p.role())
	switch {
	case rows >= 8 && most >= 8 && p != split256:
		return 8, 512
	case rows >= 4 && most >= 4:
		return 4, 1024
	}
	return 1, 6 << 10
}

// rows computes the rows of a strip. Rows that are computed one by one are in one call.
func (p product) rows(y []float32, w *strip, x unsafe.Pointer) {
	each := RowBytes(w.columns)
	for r := 0; r < len(y); {
		n, ahead := p.at(len(y) - r)
		count := n
		if n == 1 {
			count = len(y) - r
		}
		p.call(n, w.data[w.at+r*each:], w.columns, x, y[r:r+count], ahead)
		r += count
	}
}

//go:noinline
func (p product) call(n int, w []byte, columns int, x unsafe.Pointer, y []float32, ahead int) {
	rows, to := asm.Bytes(w), asm.Floats(y)
	before, count, near, each := int64(beforeGroups(columns)), int64(Groups(columns)), int64(ahead), int64(len(y))
	switch { // called directly: arguments of a function value would escape
	case p == pairs512 && n == 8:
		avx512bf16CodedPairs8(rows, before, x, to, count, near)
	case p == pairs512 && n == 4:
		avx512bf16CodedPairs4(rows, before, x, to, count, near)
	case p == pairs512:
		avx512bf16CodedPairs1(rows, before, x, to, count, near, each)
	case p == split512 && n == 8:
		avx512CodedSplit8(rows, before, x, to, count, near)
	case p == split512 && n == 4:
		avx512CodedSplit4(rows, before, x, to, count, near)
	case p == split512:
		avx512CodedSplit1(rows, before, x, to, count, near, each)
	case n == 4:
		avx2CodedSplit4(rows, before, x, to, count, near)
	default:
		avx2CodedSplit1(rows, before, x, to, count, near, each)
	}
}
