package dispatch

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/heftai/heft/internal/backend/cpu"
)

// A waitTrial decides how threads make room for reads while experts are read. A spinning thread
// keeps a processor from the threads that read, and the system may run it in place of the thread
// that it waits for. A sleeping thread takes a while to wake, tens of microseconds in some virtual
// machines. A thread that yields loses time to other processes. None changes a result. The trial
// alternates the modes pass by pass, and uses the fastest one for many passes.
//
// Only the goroutine that uses the model may call passed. Any thread may call mode.
type waitTrial struct {
	now   atomic.Uint32
	modes [waitModes]durations // of passes in each mode of package cpu
	left  int                  // passes until the next trial
}

// durations are the durations of one mode's passes in a trial.
type durations struct {
	list [trialPasses]time.Duration
	n    int
}

const (
	waitModes     = int(cpu.Sleep) + 1
	trialPasses   = 16   // of each mode
	settledPasses = 1000 // until the next trial
	// waitGain is the maximum duration of passes in another mode, as a share of the duration with
	// yielding threads, for which that mode is used. A pass with yielding threads leaves each thread
	// a processor of its own, which makes the next pass of the trial faster too.
	waitGain = 0.95
)

// mode returns how threads wait.
func (t *waitTrial) mode() cpu.Waiting { return cpu.Waiting(t.now.Load()) }

// passed records how long a pass of generated tokens took, and chooses the mode of the next pass.
// It does not allocate.
func (t *waitTrial) passed(took time.Duration) {
	if t.left > 0 {
		if t.left--; t.left == 0 {
			t.now.Store(uint32(cpu.Spin)) // each mode has as many passes
		}
		return
	}
	now := int(t.now.Load())
	t.modes[now].add(took)
	if t.modes[waitModes-1].n < trialPasses {
		t.now.Store(uint32((now + 1) % waitModes))
		return
	}
	best, least := int(cpu.Yield), waitGain*t.modes[cpu.Yield].median()
	for i := range t.modes {
		if median := t.modes[i].median(); median < least {
			best, least = i, median
		}
		t.modes[i].n = 0
	}
	t.now.Store(uint32(best))
	t.left = settledPasses
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
