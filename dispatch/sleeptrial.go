package dispatch

import (
	"slices"
	"sync/atomic"
	"time"
)

// A sleepTrial decides whether threads that find no work sleep while experts are being read, or spin as they do
// otherwise. A thread that spins keeps a processor from the reads; one that sleeps takes a while to wake, tens of
// microseconds in some virtual machines. Neither changes a result. So both are tried in turn, pass by pass, and the
// faster one is used for many passes.
//
// The goroutine that uses the model calls passed; any thread may call sleeps.
type sleepTrial struct {
	on    atomic.Bool
	modes [2]durations // of passes without and with sleep
	left  int          // passes until the next trial
}

// durations are those of a mode's passes in a trial.
type durations struct {
	list [trialPasses]time.Duration
	n    int
}

const (
	trialPasses   = 32   // of both modes
	settledPasses = 1000 // until the next trial
	// sleepGain is the share of the duration without sleep that passes with sleep take at most where it is used.
	sleepGain = 0.98
)

// sleeps reports whether threads without work sleep during reads.
func (t *sleepTrial) sleeps() bool { return t.on.Load() }

// passed notes how long a pass of generated tokens took, and chooses for the next one. It allocates nothing.
func (t *sleepTrial) passed(took time.Duration) {
	if t.left > 0 {
		t.left--
		return
	}
	spun, slept := &t.modes[0], &t.modes[1]
	if t.on.Load() {
		slept.add(took)
	} else {
		spun.add(took)
	}
	if spun.n+slept.n < trialPasses {
		t.on.Store(!t.on.Load())
		return
	}
	t.on.Store(slept.median() < sleepGain*spun.median())
	spun.n, slept.n, t.left = 0, 0, settledPasses
}

func (d *durations) add(took time.Duration) {
	d.list[d.n] = took
	d.n++
}

// median sorts the durations, of which there is at least one.
func (d *durations) median() float64 {
	slices.Sort(d.list[:d.n])
	return float64(d.list[d.n/2])
}
