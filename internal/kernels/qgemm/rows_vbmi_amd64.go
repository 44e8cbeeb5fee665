//go:build !purego

package qgemm

import (
	"math/bits"
	"sync"
	"unsafe"

	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/quant"
)

// vbmiRows looks points up in registers if a packing has few of them. Its sums are those of the
// other kernels.
type vbmiRows struct{ simdRows }

// packedRows holds the kernels of packings with packed points.
var packedRows = map[quant.Packing]struct {
	group, one rowsKernel
	table      func() []byte
}{
	quant.IQ2XXS: {avx512vbmiRowsIQ2XXSx2, avx512vbmiRowsIQ2XXSx1, packedPoints(quant.IQ2XXS, 8, false)},
	quant.IQ2XS:  {avx512vbmiRowsIQ2XSx2, avx512vbmiRowsIQ2XSx1, packedPoints(quant.IQ2XS, 8, true)},
	quant.IQ2S:   {avx512vbmiRowsIQ2Sx2, avx512vbmiRowsIQ2Sx1, packedPoints(quant.IQ2S, 8, true)},
	quant.IQ3XXS: {avx512vbmiRowsIQ3XXSx2, avx512vbmiRowsIQ3XXSx1, packedPoints(quant.IQ3XXS, 4, false)},
	quant.IQ3S:   {avx512vbmiRowsIQ3Sx2, avx512vbmiRowsIQ3Sx1, packedPoints(quant.IQ3S, 4, false)},
}

func (a *vbmiRows) mulRows(p quant.Packing, y []float32, w []byte, stride, blocks int, x []uint32) {
	k, ok := packedRows[p]
	if !ok {
		a.simdRows.mulRows(p, y, w, stride, blocks, x)
		return
	}
	mulRowsInParts(k.group, k.one, pointRows, y, w, stride, blocks, x, asm.Bytes(k.table()))
}

// packedPoints returns a function that packs the points of width values of a packing when it
// is first called: 16 bits for each point, as words, or the first bytes of all of them and then
// the second ones; 64 values, of which a code of the packed bits selects one; and for each seven
// signs the eight signs that they stand for.
func packedPoints(p quant.Packing, width int, asWords bool) func() []byte {
	return sync.OnceValue(func() []byte {
		const values, signs = 64, 128
		count := len(p.Points()) / width
		each := 16 / width // bits of a code
		table, codes := make([]byte, 2*count+values+signs), map[byte]int{}
		for i, v := range p.Points() {
			code, ok := codes[v]
			if !ok {
				code = len(codes)
				codes[v] = code
			}
			shift := i % width * each
			at := shift/8*count + i/width
			if asWords {
				at = i/width*2 + shift/8
			}
			table[at] |= byte(code << (shift % 8))
		}
		for v, code := range codes {
			for i := code; i < values; i += 1 << each {
				table[2*count+i] = v
			}
		}
		for i := range signs {
			table[2*count+values+i] = byte(i | bits.OnesCount(uint(i))%2<<7)
		}
		return table
	})
}

// mulRowsInParts divides the rows into as many parts as a group has rows. A call takes one row of
// each part, so that each part is one sequential stream of memory.
func mulRowsInParts(group, one rowsKernel, rows int, y []float32, w []byte, stride, blocks int, x []uint32, table unsafe.Pointer) {
	part := len(y) / rows
	for i := range part {
		callRows(group, w[i*stride:], part*stride, x, y[i:], part, blocks, table)
	}
	for i := rows * part; i < len(y); i++ {
		callRows(one, w[i*stride:], 0, x, y[i:], 0, blocks, table)
	}
}
