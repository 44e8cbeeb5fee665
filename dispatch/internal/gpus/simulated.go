package gpus

import (
	"github.com/heftai/heft/dispatch/internal/testhooks"
	"github.com/heftai/heft/internal/backend"
)

// simulated returns the simulated GPUs of a test. this is the tier of the machine.
func simulated(test *testhooks.GPUs, this Tier) Tier {
	var gpus []GPU
	for i := range test.Number {
		gpus = append(gpus, GPU{Number: i, Name: "test", MemoryBytes: 1 << 30, AvailableBytes: test.Available})
	}
	gpus[0].Reason = test.Unused
	out := Tier{List: func() ([]GPU, string) { return gpus, "" }, Open: this.Open, NoMemory: this.NoMemory,
		Pace: test.Pace, supports: test.Supports, refused: test.Refused}
	if test.Open != nil {
		out.Open = test.Open
	}
	if test.NoMemory != nil {
		out.NoMemory = test.NoMemory
	}
	return out
}

// twice returns a tier whose GPUs 0 and 1 are GPU 0 of this machine.
func twice(this Tier) Tier {
	out := this
	out.List = func() ([]GPU, string) {
		gpus, reason := this.List()
		second := gpus[0]
		second.Number = 1
		return append(gpus[:1:1], second), reason
	}
	out.Open = func(_ int, host backend.Backend) (backend.Backend, error) { return this.Open(0, host) }
	return out
}
