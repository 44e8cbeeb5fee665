package tune

import (
	"slices"
	"time"

	"github.com/heftai/heft/internal/kernels/fetch"
)

const (
	// firstRounds are those of all candidates; slower ones by slack leave then.
	firstRounds = 5
	slack       = 1.15
	// leastRounds are made also when time is up, as on a busy machine, where a round takes long.
	leastRounds = 8
	// mostRounds is where a role has enough samples.
	mostRounds = 24
	// preferred is how much faster than the default a pattern must be to replace it, so that
	// equal patterns do not take turns from start to start.
	preferred = 1.025
)

// A meter measures once how long the kernels of r take to read the buffer with a pattern, in seconds; 0 where they
// cannot be measured.
type meter func(r fetch.Role, p fetch.Pattern) float64

// A race is the candidates of one role. The first is the default.
type race struct {
	role     fetch.Role
	patterns []fetch.Pattern
	times    [][]float64
	out      []bool
}

func newRace(r fetch.Role, usual fetch.Pattern) *race {
	patterns := fetch.Candidates(r)
	i := slices.Index(patterns, usual)
	patterns[0], patterns[i] = patterns[i], patterns[0]
	return &race{role: r, patterns: patterns, times: make([][]float64, len(patterns)), out: make([]bool, len(patterns))}
}

// round measures each candidate that is left once. It reports false where the kernels cannot be measured.
func (r *race) round(m meter) bool {
	for i, p := range r.patterns {
		if r.out[i] {
			continue
		}
		t := m(r.role, p)
		if t <= 0 {
			return false
		}
		r.times[i] = append(r.times[i], t)
	}
	return true
}

// time is the lower quartile of the samples: neighbours on the machine only ever add time.
func (r *race) time(i int) float64 {
	if len(r.times[i]) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(r.times[i]))
	return sorted[len(sorted)/4]
}

// prune takes slow candidates out and returns how many are left.
func (r *race) prune() int {
	best, left := r.time(r.best()), 0
	for i := range r.patterns {
		if r.out[i] = r.out[i] || r.time(i) > slack*best; !r.out[i] {
			left++
		}
	}
	return left
}

// best is the fastest candidate, or the default where none is faster by a margin.
func (r *race) best() int {
	best := 0
	for i := range r.patterns {
		if !r.out[i] && (r.out[best] || r.time(i) < r.time(best)) {
			best = i
		}
	}
	if !r.out[0] && r.time(0) <= preferred*r.time(best) {
		return 0
	}
	return best
}

// run runs all races in interleaved rounds until expired says so or each is decided, and returns the
// races of kernels that can be measured. It makes leastRounds unless stopped says so.
func run(usual fetch.Plan, m meter, expired, stopped func() bool) []*race {
	var races []*race
	for role := range fetch.Roles {
		races = append(races, newRace(role, usual[role]))
	}
	var decided []*race
	for n := 0; len(races) > 0 && n < mostRounds && !stopped() && (n < leastRounds || !expired()); n++ {
		races = slices.DeleteFunc(races, func(r *race) bool { return !r.round(m) })
		if n+1 < firstRounds {
			continue
		}
		races = slices.DeleteFunc(races, func(r *race) bool {
			if r.prune() > 1 {
				return false
			}
			decided = append(decided, r)
			return true
		})
	}
	return append(decided, races...)
}

// deadline returns a function that reports whether a time has passed.
func deadline(d time.Duration) func() bool {
	end := time.Now().Add(d)
	return func() bool { return !time.Now().Before(end) }
}
