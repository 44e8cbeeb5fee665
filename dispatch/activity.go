package dispatch

import (
	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/residency"
)

// A BlockSize describes a part of a model that runs as a whole, such as a decoder layer, with the
// bytes of its weights on each tier. A weight that several blocks share is counted in the first
// of them.
type BlockSize struct {
	Path  string                     `json:"path"`
	Bytes map[devicemap.Device]int64 `json:"bytes"`
}

// Blocks returns the blocks of m in the order in which a pass runs them. It is safe for
// concurrent use.
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

// Activity counts the work of all passes since the model was bound. Counters only grow: the
// difference of two readings is the activity between them.
type Activity struct {
	// Runs counts how often each block has started. Read counts the bytes of its weights that
	// were read from the disk tier. Both have the order of [Model.Blocks].
	Runs, Read []int64
	// MemoryBytes counts the bytes of cpu-tier weights that passes used; of routed experts it
	// counts the selected ones. DiskBytes counts the bytes read from the disk tier.
	MemoryBytes, DiskBytes int64
}

// Activity returns the counters. Counting costs a pass one atomic addition per block. It is safe
// for concurrent use.
func (m *Model) Activity() Activity {
	units, memory, disk := m.weights.Activity(make([]residency.UnitActivity, 0, len(m.program.Units)))
	a := Activity{Runs: make([]int64, len(units)), Read: make([]int64, len(units)), MemoryBytes: memory, DiskBytes: disk}
	for i, u := range units {
		a.Runs[i], a.Read[i] = u.Runs, u.Read
	}
	return a
}
