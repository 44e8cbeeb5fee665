package dispatch

import (
	"testing"
	"time"

	"github.com/heftai/heft/internal/backend/cpu"
)

// TestThreadsWaitAsPassesAreFastest: passes take so long in each mode, and two of eight a multiple of it.
func TestThreadsWaitAsPassesAreFastest(t *testing.T) {
	for name, c := range map[string]struct {
		spin, yield, sleep time.Duration
		want               cpu.Waiting
	}{
		"sleeping is faster": {30, 29, 27, cpu.Sleep},
		"yielding is faster": {36, 30, 34, cpu.Yield},
		"spinning is faster": {28, 32, 34, cpu.Spin},
		"no matter":          {20, 20, 20, cpu.Yield},
		"little is saved":    {96, 100, 97, cpu.Yield},
	} {
		t.Run(name, func(t *testing.T) {
			const trial = waitModes * trialPasses
			durations := [waitModes]time.Duration{cpu.Spin: c.spin, cpu.Yield: c.yield, cpu.Sleep: c.sleep}
			w := new(waitTrial)
			for i := range 3 * (trial + settledPasses) {
				took := durations[w.mode()]
				if i%8 > 5 {
					took *= 5
				}
				w.passed(took * time.Millisecond)
				if at := i % (trial + settledPasses); at >= trial && at < trial+settledPasses-1 && w.mode() != c.want {
					t.Fatalf("after pass %d the mode is %v, want %v", i, w.mode(), c.want)
				}
			}
		})
	}
}

func TestWaitTrialsAllocateNothing(t *testing.T) {
	w := new(waitTrial)
	if allocations := testing.AllocsPerRun(waitModes*trialPasses+settledPasses, func() { w.passed(time.Millisecond) }); allocations != 0 {
		t.Errorf("%v allocations per pass, want 0", allocations)
	}
}
