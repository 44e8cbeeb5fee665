package dispatch

import (
	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/residency"
)

// A BlockSize is a part of a model that runs as a whole, such as a decoder layer, with the bytes of
// its weights on each tier. A weight that several blocks share counts for the first of them.
type BlockSize struct {
	Path  string                     `json:"path"`
	Bytes map[devicemap.Device]int64 `json:"bytes"`
}

// Blocks returns the blocks of m in the order in which a pass runs them. Any goroutine may call it.
func (m *Model) Blocks() []BlockSize {
	blocks := make([]BlockSize, len(m.program.Units))
	for i, u := range m.program.Units {
		blocks[i] = BlockSize{Path: u.Path, Bytes: map[devicemap.Device]int64{}}
		for d, n := range m.weights.UnitTiers(i) {
			blocks[i].Bytes[d] = n
		}
	}
	return blocks
}

// Activity counts what passes have done since the model was bound. The counters never fall, so the
// difference of two readings is the activity between them.
type Activity struct {
	// Runs is how often each block has begun to run, and Read how many bytes of its weights were read
	// from the disk tier, in the order of [Model.Blocks].
	Runs, Read []int64
	// MemoryBytes are the bytes of weights of the cpu tier that passes have used, of experts only the
	// selected ones. DiskBytes are those read from the disk tier.
	MemoryBytes, DiskBytes int64
}

// Activity returns the counters. Passes pay an atomic addition per block for them. Any goroutine may
// call it.
func (m *Model) Activity() Activity {
	units, memory, disk := m.weights.Activity(make([]residency.UnitActivity, 0, len(m.program.Units)))
	a := Activity{Runs: make([]int64, len(units)), Read: make([]int64, len(units)), MemoryBytes: memory, DiskBytes: disk}
	for i, u := range units {
		a.Runs[i], a.Read[i] = u.Runs, u.Read
	}
	return a
}
