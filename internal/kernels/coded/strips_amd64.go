//go:build !purego

package coded

import (
	"unsafe"

	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/isa"
	"github.com/heftai/heft/internal/kernels/mat"
)

func stripsOf(v isa.Variant) striper {
	if v.AMX {
		return amx{}
	}
	return nil
}

type amx struct{}

//go:noinline
func (amx) mulStrips(p TilesProduct, w strip, c []float32, rows int) {
	each := min(rows, BandRows) // rows per strip
	at, x, sums, tiles := asm.Bytes(w.data[w.at:]), asm.Words(p.X), asm.Floats(c), asm.Floats(p.Scratch)
	before, xs, groups, n, count := int64(beforeGroups(w.columns)), int64(4*p.XStride), int64(Groups(w.columns)), int64(each), int64(rows/each)
	next, apart, lines := p.fetch()
	switch p.Panels {
	case 0:
		amxCodedToken(at, before, x, xs, sums, groups, n, count, tiles, next, apart, lines)
	case 1:
		amxCodedPanel(at, before, x, xs, sums, groups, n, count, tiles, next, apart, lines)
	case 3:
		amxCodedPanels3(at, before, x, xs, sums, groups, n, count, tiles, next, apart, lines)
	case MostPanels:
		amxCodedPanels4(at, before, x, xs, sums, groups, n, count, tiles, next, apart, lines)
	default:
		amxCodedPanels(at, before, x, xs, sums, groups, n, count, tiles, next, apart, lines)
	}
}

// fetch returns where a kernel prefetches a part of the next rows: in eight streams that are apart bytes from each other, so
// many lines of each beside a group of columns.
func (p *TilesProduct) fetch() (from unsafe.Pointer, apart, lines int64) {
	const streams, line, mostLines = 8, 64, 8
	if len(p.Next) == 0 || p.Parts == 0 {
		return nil, 0, 0
	}
	each := p.Rows * RowBytes(p.W.Cols) / streams
	part := mat.CeilDiv(each, line*p.Parts) // lines of a stream
	steps := mat.CeilDiv(p.Rows, BandRows) * Groups(p.W.Cols)
	next := p.Next[min(p.Part*part*line, len(p.Next)-1):]
	return asm.Bytes(next), int64(asm.Stagger(each, streams)), int64(min(mostLines, mat.CeilDiv(part, steps)))
}
