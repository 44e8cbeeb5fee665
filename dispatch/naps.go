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
	on      atomic.Bool
	trial   [2][]time.Duration // of passes without and with naps
	untried int                // passes until the next trial
}

const (
	napTrial  = 32   // passes of a trial
	napPasses = 1000 // passes until the next one
	// napGain is by how much passes must be faster with naps.
	napGain = 0.98
)

// asleep reports whether threads without work sleep during reads.
func (n *naps) asleep() bool { return n.on.Load() }

// passed notes how long a pass of generated tokens took, and chooses for the next one. It allocates in the first trial only.
func (n *naps) passed(took time.Duration) {
	if n.untried > 0 {
		n.untried--
		return
	}
	mode := 0
	if n.on.Load() {
		mode = 1
	}
	n.trial[mode] = append(n.trial[mode], took)
	if len(n.trial[0])+len(n.trial[1]) < napTrial {
		n.on.Store(mode == 0)
		return
	}
	n.on.Store(float64(median(n.trial[1])) < napGain*float64(median(n.trial[0])))
	n.trial[0], n.trial[1], n.untried = n.trial[0][:0], n.trial[1][:0], napPasses
}

// median sorts a list, which is not empty.
func median(list []time.Duration) time.Duration {
	slices.Sort(list)
	return list[len(list)/2]
}
