package dispatch

import (
	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/nn"
	"github.com/heftai/heft/internal/residency"
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
				b := devicemap.Band{Bytes: size, Always: !u.Tiled || o.band > 0}
				if loaded[p] == 0 {
					b.Bytes = residency.BandBytes(p, most)
				}
				out[p] = b
			}
		}
	}
	return out
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
