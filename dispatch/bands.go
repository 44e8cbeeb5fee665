package dispatch

import (
	"fmt"
	"maps"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/nn"
	"github.com/heftai/heft/internal/residency"
	"github.com/heftai/heft/meta"
)

const (
	// bandShare, leastBand and mostBand size the bands of rows in which matrices stream: an
	// eighth of the largest matrix, within these bounds. Smaller matrices get bands of the same
	// size, because the staging memory holds the largest band anyway and large reads are faster.
	// A band is at most one read, and the staging memory holds eight bands.
	bandShare = 8
	leastBand = 64 << 10
	mostBand  = 4<<20 - 16<<10
	// columnShare and mostColumns size the bands of matrices that are stored inputs first. Each
	// band is a part of every line of the file, and reads of short parts are slow.
	columnShare = 4
	mostColumns = 16 << 20
)

// bandsOf returns the matrices of program that stream in bands, with the bytes of the largest band.
// loaded are the bytes of weights that are converted where they stream; see streamedAs.
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
	if o.inside.Band > 0 {
		most, least = o.inside.Band, o.inside.Band
	}
	out := map[*meta.Param]int64{}
	columns := o.inside.ColumnBand
	if o.columns && columns == 0 {
		columns = min(max(largest/columnShare, leastBand), mostColumns)
	}
	for _, p := range list {
		if h, ok := program.RowGroups()[p]; ok {
			if n := residency.HalfBandBytes(p, h, loaded[p], most); n > 0 && size(p) >= least {
				out[p] = n
			}
			continue
		}
		if size(p) >= least {
			out[p] = residency.BandBytes(p, loaded[p], most, columns)
		}
	}
	return out
}

// inFlight returns the number of band reads that keep as many bytes in flight as depth reads of
// request bytes.
func inFlight(depth int, request int64) int {
	if request <= mostBand {
		return depth
	}
	return int((int64(depth)*request + mostBand - 1) / mostBand)
}

// withColumns plans GPTQ and AWQ matrices that stream in bands of outputs, which takes less
// memory. It returns base with that plan's minimum. If the limit is below base's minimum, it
// returns the plan itself and sets o.columns. It returns base unchanged for models without such
// matrices.
func (p *placement) withColumns(base placed, o *Options) (placed, error) {
	if o.columns || o.inside.ColumnBand > 0 {
		return base, nil
	}
	narrow, with := *p, *o
	with.columns = true
	narrow.bands = with.bandsOf(p.program, o.streamedAs(p.loaded))
	if maps.Equal(narrow.bands, p.bands) {
		return base, nil
	}
	placed, err := narrow.place(with)
	if err != nil || placed.plan.Least >= base.plan.Least {
		return base, nil // the plan that works
	}
	if !base.plan.BelowLeast {
		base.plan.Least = placed.plan.Least
		return base, nil
	}
	*o, p.bands = with, narrow.bands
	placed.plan.Warnings = append(placed.plan.Warnings, fmt.Sprintf("matrices of GPTQ or AWQ are read in narrow parts, which is slow: from %s on they are read whole", devicemap.FormatSize(base.plan.Least)))
	return placed, nil
}
