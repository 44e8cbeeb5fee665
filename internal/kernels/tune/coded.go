package tune

import (
	"slices"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/coded"
	"github.com/heftai/heft/internal/kernels/fetch"
)

// CodedColumns is the length of the rows for which [Report.CodedGain] holds. Longer rows gain more.
const CodedColumns = columns

// CodedGain returns how many times faster the kernels of coded bfloat16 weights multiply a token than those of plain
// ones, each with its pattern of the plan, by the median of r's measurements. It is that of activations rounded as the
// variant's kernels round them by default. It returns 0 if that was not measured, as with AMX.
func (r *Report) CodedGain(variant string) float64 {
	set, err := kernels.Select(variant)
	if err != nil {
		return 0
	}
	role, plain := fetch.CodedFloats, fetch.Floats
	if set.BF16 && !set.SlowPairs {
		role, plain = fetch.CodedPairs, fetch.Pairs
	}
	var gains []float64
	for _, start := range r.starts {
		if c, p := start.of(role, r.Plan[role]), start.of(plain, r.Plan[plain]); c > 0 && p > 0 {
			gains = append(gains, c/p*2*columns/float64(coded.RowBytes(columns)))
		}
	}
	if len(gains) == 0 || 2*len(gains) < len(r.starts) {
		return 0
	}
	return median(gains)
}

// of is the rate of a pattern in a measurement, in bytes per second; 0 if it was not measured.
func (s rates) of(role fetch.Role, p fetch.Pattern) float64 {
	list := s[role.String()]
	if i := slices.IndexFunc(list, func(r Rate) bool { return r.Pattern == p }); i >= 0 {
		return list[i].BytesPerSecond
	}
	return 0
}
