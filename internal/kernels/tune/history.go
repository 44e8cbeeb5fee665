package tune

import (
	"slices"

	"github.com/heftai/heft/internal/kernels/fetch"
)

// settled is the number of measurements, each from another start, that a final plan is made of.
// Other load on the machine can distort any single one.
const settled = 5

// rates holds the rates of one measurement by role.
type rates map[string][]Rate

// settled reports whether r is made of enough measurements.
func (r *Report) settled() bool { return len(r.measured) >= settled }

// with returns a report of the measurements of r, which may be nil, and that of next.
func (r *Report) with(next *Report, usual fetch.Plan) *Report {
	if r == nil {
		return next
	}
	all := slices.Concat(r.measured, next.measured)
	out := &Report{Plan: usual, Rates: rates{}, measured: all}
	for role := range fetch.Roles {
		scores := scoresOf(all, role)
		if len(scores) == 0 {
			continue
		}
		best := slices.MaxFunc(scores, func(a, b score) int { return compare(a.share, b.share) })
		at := slices.IndexFunc(scores, func(s score) bool { return s.pattern == usual[role] })
		if at < 0 || best.share > preferred*scores[at].share {
			out.Plan[role] = best.pattern
		}
		slices.SortStableFunc(scores, func(a, b score) int { return compare(b.rate, a.rate) })
		var list []Rate
		for _, s := range scores {
			list = append(list, Rate{s.pattern, s.rate})
		}
		out.Rates[role.String()] = list
	}
	return out
}

// A score summarises several measurements of a pattern.
type score struct {
	pattern fetch.Pattern
	// share is the median over measurements of the pattern's rate relative to the best one, 0 if
	// it was not measured. Rates from different times are not comparable.
	share float64
	rate  float64 // the median
}

// scoresOf returns the scores of the patterns of a role that more than half of the measurements
// have.
func scoresOf(measurements []measurement, role fetch.Role) (list []score) {
	shares, all := map[fetch.Pattern][]float64{}, map[fetch.Pattern][]float64{}
	for _, m := range measurements {
		measured := m.Rates[role.String()]
		best := 0.0
		for _, r := range measured {
			best = max(best, r.BytesPerSecond)
		}
		for _, r := range measured {
			shares[r.Pattern] = append(shares[r.Pattern], r.BytesPerSecond/best)
			all[r.Pattern] = append(all[r.Pattern], r.BytesPerSecond)
		}
	}
	for _, p := range fetch.Candidates(role) {
		if 2*len(all[p]) > len(measurements) {
			list = append(list, score{p, median(shares[p]), median(all[p])})
		}
	}
	return list
}

func median(values []float64) float64 {
	values = slices.Sorted(slices.Values(values))
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}
