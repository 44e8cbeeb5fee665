package tune

import (
	"slices"

	"github.com/heftai/heft/internal/kernels/fetch"
)

// settled is how many measurements, each of another start, a stored plan is made of. A neighbour on the
// machine can make any single one choose badly.
const settled = 5

// rates are those of one measurement by role.
type rates map[string][]Rate

// settled reports whether r is made of enough measurements.
func (r *Report) settled() bool { return len(r.measured) >= settled }

// with is a report of the measurements of r and the one of next. r may be nil.
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

// A score is what several measurements say of a pattern.
type score struct {
	pattern fetch.Pattern
	// share is the median of its shares of each measurement's best rate, 0 where it was not measured:
	// rates of different hours do not compare.
	share float64
	rate  float64 // the median
}

// scoresOf are the patterns of a role that more than half of the measurements have.
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
