package dispatch

import (
	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/nn"
	"github.com/heftai/heft/internal/stored"
	"github.com/heftai/heft/meta"
)

const (
	// bandShare, leastBand and mostBand size the bands of rows in which a matrix streams: an eighth of
	// the matrix within these bounds. A band is at most one read.
	bandShare = 8
	leastBand = 64 << 10
	mostBand  = 8 << 20
)

// bandsOf returns the bands in which the matrices of program can stream. loaded are the bytes of
// converted weights, which stream whole.
func (o *Options) bandsOf(program *nn.Program, loaded map[*meta.Param]int64) map[*meta.Param]devicemap.Band {
	out := map[*meta.Param]devicemap.Band{}
	for _, u := range program.Units {
		for _, p := range u.Banded {
			p = p.Resolve()
			size := max(p.Bytes(), loaded[p])
			most := min(max(size/bandShare, leastBand), mostBand)
			if o.band > 0 {
				most = o.band
			}
			if size >= most && len(p.Shape) == 2 && p.Shape[0] > 0 {
				out[p] = devicemap.Band{Bytes: bandBytes(p, size, most, loaded[p] > 0), Always: !u.Tiled || o.band > 0}
			}
		}
	}
	return out
}

// bandBytes returns the size of the largest band of p, which takes size bytes, if bands take most bytes
// or as few rows as can be separated.
func bandBytes(p *meta.Param, size, most int64, converted bool) int64 {
	if converted {
		return size
	}
	unit := stored.RowUnit(nil)
	for _, s := range p.Sources {
		if s.Transposed || s.Quant != nil && s.Quant.Format.Row().Layout == meta.InputsFirst {
			return size
		}
		if s.Quant != nil {
			unit = max(unit, stored.RowUnit(s.Quant))
		}
	}
	return min(size, max(size/int64(p.Shape[0])*int64(unit), most))
}

// bandSizes returns the sizes for a store: of all matrices if blocks stream by matrix.
func bandSizes(bands map[*meta.Param]devicemap.Band, byMatrix bool) map[*meta.Param]int64 {
	out := map[*meta.Param]int64{}
	for p, b := range bands {
		if b.Always || byMatrix {
			out[p] = b.Bytes
		}
	}
	return out
}
