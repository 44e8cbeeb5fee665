package dispatch

import (
	"slices"
	"sync/atomic"
	"time"
)

// naps decides whether threads that find no work sleep while experts are being read, or spin as they do otherwise. A thread
// that spins keeps a processor from the reads; one that sleeps takes a while to wake, tens of microseconds in some virtual
// machines. Neither changes a result. So both are tried in turn, pass by pass, and the faster one is used for many passes.
//
// The goroutine that uses the model calls passed; any thread may call asleep.
type naps struct {
	on    atomic.Bool
	trial [2]struct { // of passes without and with naps
		took [napTrial]time.Duration
		n    int
	}
	untried int // passes until the next trial
}

const (
	napTrial  = 32   // passes of a trial
	napPasses = 1000 // passes until the next one
	// napGain is by how much passes must be faster with naps.
	napGain = 0.98
)

// asleep reports whether threads without work sleep during reads.
func (n *naps) asleep() bool { return n.on.Load() }

// passed notes how long a pass of generated tokens took, and chooses for the next one. It allocates nothing.
func (n *naps) passed(took time.Duration) {
	if n.untried > 0 {
		n.untried--
		return
	}
	mode := 0
	if n.on.Load() {
		mode = 1
	}
	t := &n.trial[mode]
	t.took[t.n] = took
	if t.n++; n.trial[0].n+n.trial[1].n < napTrial {
		n.on.Store(mode == 0)
		return
	}
	n.on.Store(n.median(1) < napGain*n.median(0))
	n.trial[0].n, n.trial[1].n, n.untried = 0, 0, napPasses
}

// median returns the median duration of a mode's passes in the trial.
func (n *naps) median(mode int) float64 {
	t := &n.trial[mode]
	slices.Sort(t.took[:t.n])
	return float64(t.took[t.n/2])
}
