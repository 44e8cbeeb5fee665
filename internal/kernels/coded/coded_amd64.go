//go:build !purego

package coded

import (
	"unsafe"

	"github.com/heftai/heft/internal/kernels/asm"
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

// The functions below are not inlined: their prologue is where the scheduler can stop a loop of
// kernels, since it cannot inside one.

//go:noinline
func (avx2) decode(dst []byte, b band, groups, rows int) {
	avx2Decode(asm.Bytes(b.tables), asm.Bytes(b.groups), asm.Bytes(b.exceptions), asm.Bytes(dst), int64(groups), int64(rows))
}

//go:noinline
func (avx512) decode(dst []byte, b band, groups, rows int) {
	avx512Decode(asm.Bytes(b.tables), asm.Bytes(b.groups), asm.Bytes(b.exceptions), asm.Bytes(dst), int64(groups), int64(rows))
}

const (
	mostRows = 4       // at once
	farAhead = 6 << 10 // where single rows prefetch
)

// A product is one of the generated kernels: what multiplies mostRows rows, and one row.
type product uint8

const (
	pairs512 product = iota
	split512
	split256
)

func (avx512) mulPairs(y []float32, b band, x []uint32) {
	pairs512.rows(y, &b, asm.Words(x), len(x)*2/GroupColumns)
}

func (avx512) mulSplit(y []float32, b band, x []float32) {
	split512.rows(y, &b, asm.Floats(x), len(x)/GroupColumns)
}

func (avx2) mulSplit(y []float32, b band, x []float32) {
	split256.rows(y, &b, asm.Floats(x), len(x)/GroupColumns)
}

// rows computes rows of a band. It prefetches the rows that follow, and in parts the tables and the first
// exceptions of the next band.
func (p product) rows(y []float32, b *band, x unsafe.Pointer, groups int) {
	own := groups * groupBytes
	for r := 0; r < len(y); {
		n, ahead, head := 1, farAhead, (b.rows-r)*own
		if len(y)-r >= mostRows {
			n, ahead = mostRows, mostRows*own
			if b.rows-r < 2*mostRows {
				ahead += len(b.exceptions) + BandRows*tableBytes
			}
		}
		head += (BandRows - b.rows + r) % BandRows / n * (n * 64)
		p.call(n, b, r, r*own, x, y[r:r+n], groups, ahead, head)
		r += n
	}
}

//go:noinline
func (p product) call(n int, b *band, r, at int, x unsafe.Pointer, y []float32, groups, ahead, head int) {
	tables, rows, exceptions, to := asm.Bytes(b.tables[r*tableBytes:]), asm.Bytes(b.groups[at:]), asm.Bytes(b.exceptions), asm.Floats(y)
	switch { // called by name: arguments of a function value would escape
	case p == pairs512 && n == 1:
		avx512bf16CodedPairs1(tables, rows, exceptions, x, to, int64(groups), int64(ahead), int64(head))
	case p == pairs512:
		avx512bf16CodedPairs4(tables, rows, exceptions, x, to, int64(groups), int64(ahead), int64(head))
	case p == split512 && n == 1:
		avx512CodedSplit1(tables, rows, exceptions, x, to, int64(groups), int64(ahead), int64(head))
	case p == split512:
		avx512CodedSplit4(tables, rows, exceptions, x, to, int64(groups), int64(ahead), int64(head))
	case n == 1:
		avx2CodedSplit1(tables, rows, exceptions, x, to, int64(groups), int64(ahead), int64(head))
	default:
		avx2CodedSplit4(tables, rows, exceptions, x, to, int64(groups), int64(ahead), int64(head))
	}
}
