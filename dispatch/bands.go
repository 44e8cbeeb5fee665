package dispatch

import (
	"github.com/heftai/heft/internal/nn"
	"github.com/heftai/heft/internal/residency"
	"github.com/heftai/heft/meta"
)

const (
	// bandShare, leastBand and mostBand size the bands of rows in which a matrix streams: an eighth of
	// the matrix within these bounds. A band is at most one read, and four fit into the window.
	bandShare = 8
	leastBand = 64 << 10
	mostBand  = 4<<20 - 16<<10
)

// bandsOf returns the matrices of program that stream in bands, with the bytes of the largest band.
// loaded are the bytes of converted weights, which stream whole.
func (o *Options) bandsOf(program *nn.Program, loaded map[*meta.Param]int64) map[*meta.Param]int64 {
	out := map[*meta.Param]int64{}
	for _, u := range program.Units {
		for _, p := range u.Banded {
			p = p.Resolve()
			most := min(max(p.Bytes()/bandShare, leastBand), mostBand)
			if o.band > 0 {
				most = o.band
			}
			if loaded[p] == 0 && p.Bytes() >= most && len(p.Shape) == 2 && p.Shape[0] > 0 {
				out[p] = residency.BandBytes(p, most)
			}
		}
	}
	return out
}
