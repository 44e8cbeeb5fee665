//go:build !purego

package coded

import (
	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/isa"
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
	switch p.Panels {
	case 0:
		amxCodedToken(at, before, x, xs, sums, groups, n, count, tiles)
	case 1:
		amxCodedPanel(at, before, x, xs, sums, groups, n, count, tiles)
	case 3:
		amxCodedPanels3(at, before, x, xs, sums, groups, n, count, tiles)
	case MostPanels:
		amxCodedPanels4(at, before, x, xs, sums, groups, n, count, tiles)
	default:
		amxCodedPanels(at, before, x, xs, sums, groups, n, count, tiles)
	}
}
