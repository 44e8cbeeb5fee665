package tune

import (
	"slices"
	"time"

	"github.com/heftai/heft/internal/kernels/fetch"
)

const (
	// firstRounds are those of all candidates. Candidates that are slower by slack are out then.
	firstRounds = 4
	slack       = 1.12
	// leastRounds are made also when time is up, as on a busy machine, where a round takes long.
	leastRounds = 5
	// distanceRounds are those of the distances of prefetch, also when time is up.
	distanceRounds = 6
	// mostRounds is where a role has enough samples.
	mostRounds = 24
	// preferred is how much faster than the default a pattern must be to replace it, so that
	// equal patterns do not take turns from start to start.
	preferred = 1.025
	// preferredNear is the same for the shorter distance. What is prefetched behind the end of the
	// small memory is wasted, and more of it at the usual distance.
	preferredNear = 1.05
)

// A meter measures once how long the kernels of r take to read the buffer with a pattern, in
// seconds; 0 where they cannot be measured.
type meter func(r fetch.Role, p fetch.Pattern) float64

// A race is the candidates of one role. The first is the default, which takes part in all rounds.
type race struct {
	role     fetch.Role
	patterns []fetch.Pattern
	times    [][]float64 // by pattern and round, in seconds; a candidate that is out has fewer rounds
	out      []bool
	margin   float64
	near     float64 // the score of the shorter distance, the last pattern, which has no times here; 0 before it is measured
	nearWon  bool    // the shorter distance is faster
}

// newRace has the patterns of r at the usual distance of prefetch. The distance is chosen after the
// rows: see [nearer].
func newRace(r fetch.Role, usual fetch.Pattern) *race {
	patterns := slices.DeleteFunc(fetch.Candidates(r), func(p fetch.Pattern) bool { return p.Near })
	i := max(slices.Index(patterns, usual), 0)
	patterns[0], patterns[i] = patterns[i], patterns[0]
	return raceOf(r, patterns, preferred)
}

func raceOf(r fetch.Role, patterns []fetch.Pattern, margin float64) *race {
	return &race{role: r, patterns: patterns, margin: margin, times: make([][]float64, len(patterns)), out: make([]bool, len(patterns))}
}

// nearer is a race of the pattern that won r and the same with a shorter distance, or nil if the
// winner does not prefetch or its kernels have one distance.
func (r *race) nearer() *race {
	won := r.patterns[r.best()]
	near := won
	near.Near = true
	if !won.Prefetch || !slices.Contains(fetch.Candidates(r.role), near) {
		return nil
	}
	return raceOf(r.role, []fetch.Pattern{won, near}, preferredNear)
}

// settle adds the result of the race for the distance.
func (r *race) settle(distance *race) {
	if distance == nil || len(distance.times[1]) == 0 {
		return
	}
	r.patterns = append(r.patterns, distance.patterns[1])
	r.near, r.nearWon = distance.score(1)*r.score(r.best()), distance.best() == 1
}

// chosen is the pattern of r's role.
func (r *race) chosen() fetch.Pattern {
	if r.nearWon {
		return r.patterns[len(r.patterns)-1]
	}
	return r.patterns[r.best()]
}

// round measures each candidate that is left once. It begins with another one in each round, so that none has
// an advantage by its place. It reports false where the kernels cannot be measured.
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

// score is the candidate's time relative to the default's: the worse of [race.paired] and [race.undisturbed], each
// of which one kind of neighbour deceives. A candidate that replaces the default is faster by both.
func (r *race) score(i int) float64 {
	switch {
	case i == len(r.times):
		return r.near
	case len(r.times[i]) == 0: // stopped before the first round
		return 1
	}
	return max(r.paired(i), r.undisturbed(i))
}

// paired is the median over rounds of the candidate's time relative to the default's in the same round. A neighbour
// on the same core slows kernels down for milliseconds, which is longer than a role's part of a round.
func (r *race) paired(i int) float64 {
	shares := slices.Clone(r.times[i])
	for n, t := range r.times[0][:len(shares)] {
		shares[n] /= t
	}
	return median(shares)
}

// undisturbed is the candidate's shortest time relative to the default's: neighbours only ever add time.
func (r *race) undisturbed(i int) float64 { return slices.Min(r.times[i]) / slices.Min(r.times[0]) }

// time is how long the candidate takes without neighbours, in seconds: its score times the lower quartile of the
// default.
func (r *race) time(i int) float64 {
	sorted := slices.Sorted(slices.Values(r.times[0]))
	return r.score(i) * sorted[len(sorted)/4]
}

// prune takes slow candidates out and returns how many are left. The default stays, because the others are
// compared with it.
func (r *race) prune() int {
	best, left := r.score(r.best()), 1
	for i := 1; i < len(r.times); i++ {
		if r.out[i] = r.out[i] || min(r.paired(i), r.undisturbed(i)) > slack*best; !r.out[i] {
			left++
		}
	}
	return left
}

// best is the fastest candidate, or the default where none is faster by a margin.
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
	races = append(decided, races...)
	runDistances(races, m, expired, stopped)
	return races
}

// runDistances compares the winners that prefetch with the same at a shorter distance.
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

// deadline returns a function that reports whether a time has passed.
func deadline(d time.Duration) func() bool {
	end := time.Now().Add(d)
	return func() bool { return !time.Now().Before(end) }
}
