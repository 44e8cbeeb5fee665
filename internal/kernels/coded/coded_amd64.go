//go:build !purego

package coded

import (
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

// mulPairs prefetches the rows that follow, and in parts the tables and the first exceptions of the next band.
func (avx512) mulPairs(y []float32, b band, x []uint32) {
	own := len(x) * 2 / GroupColumns * groupBytes
	for r := 0; r < len(y); {
		n, ahead, head := 1, farAhead, max(b.rows-r, 0)*own
		if len(y)-r >= mostRows {
			n, ahead = mostRows, mostRows*own
			if b.rows-r < 2*mostRows {
				ahead += len(b.exceptions) + BandRows*tableBytes
			}
		}
		head += (BandRows - b.rows + r) % BandRows / n * (n * 64)
		pairsOfRows(n, &b, r, r*own, x, y[r:r+n], ahead, head)
		r += n
	}
}

//go:noinline
func pairsOfRows(n int, b *band, r, at int, x []uint32, y []float32, ahead, head int) {
	tables, groups := asm.Bytes(b.tables[r*tableBytes:]), asm.Bytes(b.groups[at:])
	if n == mostRows {
		avx512bf16CodedPairs4(tables, groups, asm.Bytes(b.exceptions), asm.Words(x), asm.Floats(y), int64(len(x)*2/GroupColumns), int64(ahead), int64(head))
		return
	}
	avx512bf16CodedPairs1(tables, groups, asm.Bytes(b.exceptions), asm.Words(x), asm.Floats(y), int64(len(x)*2/GroupColumns), int64(ahead), int64(head))
}
