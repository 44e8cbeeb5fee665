package dispatch

import (
	"testing"
	"time"
)

// TestThreadsSleepWherePassesAreFaster: passes take so long in each mode, and two of eight a multiple of it.
func TestThreadsSleepWherePassesAreFaster(t *testing.T) {
	for name, c := range map[string]struct {
		spinning, sleeping time.Duration
		want               bool
	}{
		"faster":     {30, 27, true},
		"slower":     {28, 34, false},
		"no matter":  {20, 20, false},
		"hardly any": {1000, 990, false},
	} {
		t.Run(name, func(t *testing.T) {
			trial := new(sleepTrial)
			for i := range 3 * (trialPasses + settledPasses) {
				took := c.spinning
				if trial.sleeps() {
					took = c.sleeping
				}
				if i%8 > 5 {
					took *= 5
				}
				trial.passed(took * time.Millisecond)
				if at := (i + 1) % (trialPasses + settledPasses); at >= trialPasses && trial.sleeps() != c.want {
					t.Fatalf("after pass %d sleep is %v, want %v", i, trial.sleeps(), c.want)
				}
			}
		})
	}
}

func TestSleepTrialsAllocateNothing(t *testing.T) {
	trial := new(sleepTrial)
	if allocations := testing.AllocsPerRun(trialPasses+settledPasses, func() { trial.passed(time.Millisecond) }); allocations != 0 {
		t.Errorf("%v allocations per pass, want 0", allocations)
	}
}
