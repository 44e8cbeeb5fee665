package plan_test

import (
	"testing"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
)

// TestChooseSequences: as many sequences as balance the disk and computing, a few where all weights are in memory.
func TestChooseSequences(t *testing.T) {
	skeleton := dispatchtest.ModelShape(t, "dense-1b")
	speed := dispatch.MachineSpeed{MemoryBytes: 20e9, DiskBytes: 2e9, Operations16: 100e9, Operations32: 50e9}
	for _, c := range []struct {
		limit int64
		speed func(*dispatch.MachineSpeed)
		want  int
	}{
		{64 << 30, nil, 16},
		{1 << 30, nil, 64},
		{1 << 30, func(s *dispatch.MachineSpeed) { s.DiskBytes /= 4 }, 256},
		{1 << 30, func(s *dispatch.MachineSpeed) { s.DiskBytes *= 100 }, 16},
		{1 << 30, func(s *dispatch.MachineSpeed) { s.DiskBytes = 0 }, 16},
	} {
		s := speed
		if c.speed != nil {
			c.speed(&s)
		}
		o := dispatchtest.ServingOptions(c.limit)
		if got := dispatch.NewPlanner(skeleton).ChooseSequences(o, s); got != c.want {
			t.Errorf("%d bytes, %+v: %d sequences, want %d", c.limit, s, got, c.want)
		}
	}
}
