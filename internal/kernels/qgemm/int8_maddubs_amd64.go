//go:build !purego

package qgemm

import (
	"unsafe"

	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/fetch"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
)

// maddubs multiplies 8-bit integers with AVX2, in 16-bit words.
type maddubs struct{}

func (maddubs) words(p quant.Packing) int {
	if p == quant.Q8 {
		return 19 // each code takes two bytes
	}
	return 10
}

//go:noinline
func (maddubs) narrow(p quant.Packing, dst []uint32, src []float32) {
	if p == quant.Q8 {
		avx2intsNarrowQ8(asm.Words(dst), asm.Floats(src), int64(len(src)/quant.BlockColumns))
	} else {
		avx2intsNarrowQ4(asm.Words(dst), asm.Floats(src), int64(len(src)/quant.BlockColumns))
	}
}

// The tiles for four bands, and for one.
var (
	maddubsFoursQ8 = []bandsTile{{2, avx2intsMulQ84x2}, {1, avx2intsMulQ84x1}}
	maddubsFoursQ4 = []bandsTile{{4, avx2intsMulQ44x4}, {2, avx2intsMulQ44x2}, {1, avx2intsMulQ44x1}}
	maddubsOnesQ8  = []bandsTile{{2, avx2intsMulQ81x2}, {1, avx2intsMulQ81x1}}
	maddubsOnesQ4  = []bandsTile{{4, avx2intsMulQ41x4}, {2, avx2intsMulQ41x2}, {1, avx2intsMulQ41x1}}
)

func (maddubs) mul(p quant.Packing, y mat.Floats, w []byte, apart, bands int, x mat.Pairs, tokens, blocks int, add bool) {
	fours, ones := maddubsFoursQ8, maddubsOnesQ8
	if p == quant.Q4 {
		fours, ones = maddubsFoursQ4, maddubsOnesQ4
	}
	b := 0
	for ; (tokens > 1 || fetch.Rows(p.FetchRole()) > 1) && b+4 <= bands; b += 4 {
		mulBands(fours, from(y, b*quant.InterleavedRows), w[b*apart:], apart, x, tokens, blocks, add)
	}
	for ; b < bands; b++ {
		mulBands(ones, from(y, b*quant.InterleavedRows), w[b*apart:], apart, x, tokens, blocks, add)
	}
}

//go:noinline
func (maddubs) edge(p quant.Packing, y []float32, w []byte, rows, lane, step int, x []uint32, blocks int, add bool) {
	var sums lanes
	if add {
		sums.load(y, lane, step)
	}
	for first := 0; first < rows; first += 8 {
		from, codes, to := asm.Bytes(w[2*first:]), int64(2*rows+2*first), unsafe.Pointer(&sums[first])
		take := int64(min(8, rows-first))
		if p == quant.Q8 {
			avx2intsEdgeQ8(from, codes, int64(rows), take, asm.Words(x), to, int64(blocks))
		} else {
			avx2intsEdgeQ4(from, codes, int64(rows), take, asm.Words(x), to, int64(blocks))
		}
	}
	sums.store(y, lane, step)
}

//go:noinline
func (maddubs) stored(p quant.Packing, y []float32, w []byte, stride int, x []uint32, blocks int) {
	if p == quant.Q8 {
		avx2intsStoredQ8(asm.Bytes(w), int64(stride), asm.Words(x), asm.Floats(y), int64(blocks))
	} else {
		avx2intsStoredQ4(asm.Bytes(w), int64(stride), asm.Words(x), asm.Floats(y), int64(blocks))
	}
}
