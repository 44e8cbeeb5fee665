package dispatch

import (
	"github.com/heftai/heft/internal/nn"
	"github.com/heftai/heft/internal/residency"
	"github.com/heftai/heft/meta"
)

const (
	// bandShare, leastBand and mostBand size the bands of rows in which matrices stream: an eighth of
	// the largest matrix within these bounds. Smaller matrices get bands of the same size, as the window
	// has room for the largest band anyway and large reads are faster. A band is at most one read, and
	// eight fit into the window.
	bandShare = 8
	leastBand = 64 << 10
	mostBand  = 4<<20 - 16<<10
)

// bandsOf returns the matrices of program that stream in bands, with the bytes of the largest band.
// loaded are the bytes of converted weights.
func (o *Options) bandsOf(program *nn.Program, loaded map[*meta.Param]int64) map[*meta.Param]int64 {
	size := func(p *meta.Param) int64 {
		if n := loaded[p]; n > 0 {
			return n
		}
		return p.Bytes()
	}
	var list []*meta.Param
	var largest int64
	for _, u := range program.Units {
		for _, p := range u.Banded {
			if p = p.Resolve(); len(p.Shape) == 2 && p.Shape[0] > 0 {
				list, largest = append(list, p), max(largest, size(p))
			}
		}
	}
	most, least := min(max(largest/bandShare, leastBand), mostBand), int64(leastBand)
	if o.band > 0 {
		most, least = o.band, o.band
	}
	out := map[*meta.Param]int64{}
	for _, p := range list {
		if size(p) >= least {
			out[p] = residency.BandBytes(p, loaded[p], most)
		}
	}
	return out
}

// inFlight returns how many reads of bands keep as many bytes in flight as depth reads of request bytes.
func inFlight(depth int, request int64) int {
	if request <= mostBand {
		return depth
	}
	return int((int64(depth)*request + mostBand - 1) / mostBand)
}
