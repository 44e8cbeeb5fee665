package tune

import (
	"slices"
	"time"

	"github.com/heftai/heft/internal/kernels/fetch"
)

const (
	// firstRounds is the number of rounds in which all candidates take part. Candidates that are
	// slower by slack are then dropped.
	firstRounds = 4
	slack       = 1.12
	// leastRounds is the number of rounds made even after the time is up, as on a busy machine,
	// where a round takes long.
	leastRounds = 5
	// distanceRounds is the number of rounds that compare prefetch distances, made even after the
	// time is up.
	distanceRounds = 6
	// mostRounds is the number of rounds after which a role has enough samples.
	mostRounds = 24
	// preferred is the factor by which a pattern must be faster than the default to replace it.
	// It keeps equal patterns from alternating between starts.
	preferred = 1.025
	// preferredNear is the same factor for the shorter distance. Bytes prefetched beyond the end
	// of the small buffer are wasted, and there are more of them at the usual distance.
	preferredNear = 1.05
)

// A meter returns the seconds that the kernels of r take to read the buffer once with a pattern,
// or 0 if they cannot be measured.
type meter func(r fetch.Role, p fetch.Pattern) float64

// A race compares the candidate patterns of one role. The first candidate is the default, which
// takes part in all rounds.
type race struct {
	role     fetch.Role
	patterns []fetch.Pattern
	times    [][]float64 // by pattern and round, in seconds; dropped candidates have fewer rounds
	out      []bool
	margin   float64
	near     float64 // the score of the shorter distance, which is the last pattern and has no times here; 0 until it is measured
	nearWon  bool    // the shorter distance is faster
}

// newRace returns a race of r's patterns at the usual prefetch distance. The distance is chosen
// after the number of rows; see [nearer].
func newRace(r fetch.Role, usual fetch.Pattern) *race {
	patterns := slices.DeleteFunc(fetch.Candidates(r), func(p fetch.Pattern) bool { return p.Near })
	i := max(slices.Index(patterns, usual), 0)
	patterns[0], patterns[i] = patterns[i], patterns[0]
	return raceOf(r, patterns, preferred)
}

func raceOf(r fetch.Role, patterns []fetch.Pattern, margin float64) *race {
	return &race{role: r, patterns: patterns, margin: margin, times: make([][]float64, len(patterns)), out: make([]bool, len(patterns))}
}

// nearer returns a race between the winning pattern of r and the same pattern with a shorter
// prefetch distance. It returns nil if the winner does not prefetch or its kernels have only one
// distance.
func (r *race) nearer() *race {
	won := r.patterns[r.best()]
	near := won
	near.Near = true
	if !won.Prefetch || !slices.Contains(fetch.Candidates(r.role), near) {
		return nil
	}
	return raceOf(r.role, []fetch.Pattern{won, near}, preferredNear)
}

// settle records the result of the race between distances.
func (r *race) settle(distance *race) {
	if distance == nil || len(distance.times[1]) == 0 {
		return
	}
	r.patterns = append(r.patterns, distance.patterns[1])
	r.near, r.nearWon = distance.score(1)*r.score(r.best()), distance.best() == 1
}

// chosen returns the pattern chosen for r's role.
func (r *race) chosen() fetch.Pattern {
	if r.nearWon {
		return r.patterns[len(r.patterns)-1]
	}
	return r.patterns[r.best()]
}

// round measures each remaining candidate once. Each round begins with a different candidate, so
// that none gains from its place. It returns false if the kernels cannot be measured.
func (r *race) round(m meter) bool {
	first := len(r.times[0])
	for k := range r.patterns {
		i := (first + k) % len(r.patterns)
		if r.out[i] {
			continue
		}
		t := m(r.role, r.patterns[i])
		if t <= 0 {
			return false
		}
		r.times[i] = append(r.times[i], t)
	}
	return true
}

// score returns the candidate's time relative to the default's: the worse of [race.paired] and
// [race.undisturbed]. Each of them can be distorted by a different kind of load on the machine. A
// candidate that replaces the default is faster by both.
func (r *race) score(i int) float64 {
	switch {
	case i == len(r.times):
		return r.near
	case len(r.times[i]) == 0: // stopped before the first round
		return 1
	}
	return max(r.paired(i), r.undisturbed(i))
}

// paired returns the median over rounds of the candidate's time relative to the default's in the
// same round. Other load on the same core slows kernels for milliseconds, which is longer than a
// role's part of a round.
func (r *race) paired(i int) float64 {
	shares := slices.Clone(r.times[i])
	for n, t := range r.times[0][:len(shares)] {
		shares[n] /= t
	}
	return median(shares)
}

// undisturbed returns the candidate's shortest time relative to the default's, because other load
// only adds time.
func (r *race) undisturbed(i int) float64 { return slices.Min(r.times[i]) / slices.Min(r.times[0]) }

// time returns the seconds that the candidate takes on an idle machine: its score times the lower
// quartile of the default's times.
func (r *race) time(i int) float64 {
	sorted := slices.Sorted(slices.Values(r.times[0]))
	return r.score(i) * sorted[len(sorted)/4]
}

// prune drops slow candidates and returns the number that remain. The default remains, because
// the others are compared with it.
func (r *race) prune() int {
	best, left := r.score(r.best()), 1
	for i := 1; i < len(r.times); i++ {
		if r.out[i] = r.out[i] || min(r.paired(i), r.undisturbed(i)) > slack*best; !r.out[i] {
			left++
		}
	}
	return left
}

// best returns the fastest candidate, or the default if none is faster by the margin.
func (r *race) best() int {
	best, score := 0, 1.0
	for i := 1; i < len(r.times); i++ {
		if s := r.score(i); !r.out[i] && s < score {
			best, score = i, s
		}
	}
	if r.margin*score >= 1 {
		return 0
	}
	return best
}

// run runs the rounds of all races interleaved until expired returns true or every race is
// decided. It returns the races whose kernels can be measured. It makes leastRounds even after
// expired returns true, unless stopped does.
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
	races = append(decided, races...)
	runDistances(races, m, expired, stopped)
	return races
}

// runDistances compares the winners that prefetch with the same patterns at a shorter distance.
func runDistances(races []*race, m meter, expired, stopped func() bool) {
	distances, left := make([]*race, len(races)), 0
	for i, r := range races {
		if distances[i] = r.nearer(); distances[i] != nil {
			left++
		}
	}
	for n := 0; left > 0 && n < mostRounds && !stopped() && (n < distanceRounds || !expired()); n++ {
		for _, d := range distances {
			if d != nil {
				d.round(m)
			}
		}
	}
	for i, r := range races {
		r.settle(distances[i])
	}
}

// deadline returns a function that reports whether d has passed.
func deadline(d time.Duration) func() bool {
	end := time.Now().Add(d)
	return func() bool { return !time.Now().Before(end) }
}
