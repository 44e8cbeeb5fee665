//go:build !purego

package coded

import (
	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/isa"
)

// longColumns is the largest number of columns whose lines of a pack stay in the first-level cache
// until all rows are decoded.
const longColumns = 1024

// packsOf returns the packer of variants whose kernels multiply packs.
func packsOf(v isa.Variant) packer {
	if v.BF16 {
		return avx512{}
	}
	return nil
}

//go:noinline
func (avx512) packPiece(dst []uint32, p Piece, w strip) {
	rows := w.data[w.at:]
	first := rows[beforeGroups(w.columns)+p.Col/GroupColumns*groupBytes:]
	pack := 4 * packRows * p.Cols / pairs // bytes
	if p.Cols > longColumns {
		apart := RowBytes(w.columns)
		for i := 0; i < p.Rows; i += packRows {
			avx512DecodeLongPack(asm.Bytes(rows[i*apart:]), asm.Bytes(first[i*apart:]), int64(apart), asm.Words(dst[i/packRows*pack/4:]), int64(p.Cols/GroupColumns), int64(p.Rows-i))
		}
		return
	}
	avx512DecodePacks(asm.Bytes(rows), asm.Bytes(first), int64(RowBytes(w.columns)), asm.Words(dst), int64(p.Cols/GroupColumns), int64(p.Rows), int64(pack))
}
