package placement

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
	MostBand  = 4<<20 - 16<<10
	// columnShare and mostColumns size the bands of matrices that are stored inputs first. Each
	// band is a part of every line of the file, and reads of short parts are slow.
	columnShare = 4
	mostColumns = 16 << 20
)

// BandsOf returns the matrices of program that stream in bands, with the bytes of the largest band.
// loaded are the bytes of weights that are converted where they stream; see streamedAs.
func (o *Settings) BandsOf(program *nn.Program, loaded map[*meta.Param]int64) map[*meta.Param]int64 {
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
	most, least := min(max(largest/bandShare, leastBand), MostBand), int64(leastBand)
	if o.Test.Band > 0 {
		most, least = o.Test.Band, o.Test.Band
	}
	out := map[*meta.Param]int64{}
	columns := o.Test.ColumnBand
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

// withColumns plans GPTQ and AWQ matrices that stream in bands of outputs, which takes less
// memory. It returns base with that plan's minimum. If the limit is below base's minimum, it
// returns the plan itself and sets o.columns. It returns base unchanged for models without such
// matrices.
func (p *placer) withColumns(base Placement, o *Settings) (Placement, error) {
	if o.columns || o.Test.ColumnBand > 0 {
		return base, nil
	}
	narrow, with := *p, *o
	with.columns = true
	narrow.bands = with.BandsOf(p.program, o.StreamedAs(p.loaded))
	if maps.Equal(narrow.bands, p.bands) {
		return base, nil
	}
	placed, err := narrow.place(with)
	if err != nil || placed.Plan.Least >= base.Plan.Least {
		return base, nil // the plan that works
	}
	if !base.Plan.BelowLeast {
		base.Plan.Least = placed.Plan.Least
		return base, nil
	}
	*o, p.bands = with, narrow.bands
	placed.Plan.Warnings = append(placed.Plan.Warnings, fmt.Sprintf("matrices of GPTQ or AWQ are read in narrow parts, which is slow: from %s on they are read whole", devicemap.FormatSize(base.Plan.Least)))
	return placed, nil
}
