package dispatch

import (
	"slices"
	"sync/atomic"
	"time"
)

// A sleepTrial decides whether threads without work sleep or spin while experts are read. A
// spinning thread keeps a processor from the reads. A sleeping thread takes a while to wake, tens
// of microseconds in some virtual machines. Neither changes a result. The trial alternates both
// modes pass by pass, and uses the faster one for many passes.
//
// Only the goroutine that uses the model may call passed. Any thread may call sleeps.
type sleepTrial struct {
	on    atomic.Bool
	modes [2]durations // of passes without and with sleep
	left  int          // passes until the next trial
}

// durations are the durations of one mode's passes in a trial.
type durations struct {
	list [trialPasses]time.Duration
	n    int
}

const (
	trialPasses   = 32   // of both modes
	settledPasses = 1000 // until the next trial
	// sleepGain is the maximum duration of passes with sleep, as a share of the duration without
	// sleep, for which sleep is used.
	sleepGain = 0.98
)

// sleeps reports whether threads without work sleep during reads.
func (t *sleepTrial) sleeps() bool { return t.on.Load() }

// passed records how long a pass of generated tokens took, and chooses the mode of the next pass.
// It does not allocate.
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

// median sorts the durations and returns their median. There must be at least one.
func (d *durations) median() float64 {
	slices.Sort(d.list[:d.n])
	return float64(d.list[d.n/2])
}
