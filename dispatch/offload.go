package dispatch

import (
	"context"
	"time"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// CPUOffload binds a model with every weight on the cpu tier, used in place (Accelerate's
// cpu_offload).
func CPUOffload(skeleton *meta.Model, checkpoint *loader.Checkpoint, o Options) (*Model, error) {
	return New(skeleton, checkpoint, everywhere(devicemap.CPU), o)
}

// DiskOffload binds a model with every weight on the disk tier (Accelerate's disk_offload):
// it runs in twice the largest block, and copies nothing beforehand.
func DiskOffload(skeleton *meta.Model, checkpoint *loader.Checkpoint, o Options) (*Model, error) {
	return New(skeleton, checkpoint, everywhere(devicemap.Disk), o)
}

func everywhere(d devicemap.Device) devicemap.Map {
	return devicemap.NewMap(devicemap.Entry{Device: d})
}

// Warm reads the weights of the cpu tier in the background, in the order of use, until it
// is done or ctx is. Nothing waits for it.
func (m *Model) Warm(ctx context.Context) { m.weights.Warm(ctx) }

// Status is what a model holds and has read. Any goroutine may ask for it.
type Status struct {
	// Loading is how far Warm is.
	Loading Loading
	// TierBytes are the weights on each tier; TierReadBytes what was read from the disk
	// tier so far; Stall how long computation has waited for it.
	TierBytes     map[devicemap.Device]int64
	TierReadBytes int64
	Stall         time.Duration
	// Held is the memory that the ledger counts, in bytes by purpose.
	Held map[string]int64
}

// Loading is the state of warming.
type Loading struct {
	BlocksDone  int     `json:"blocks_done"`
	BlocksTotal int     `json:"blocks_total"`
	BytesDone   int64   `json:"bytes_done"`
	BytesTotal  int64   `json:"bytes_total"`
	SecondsLeft float64 `json:"seconds_left"`
	Done        bool    `json:"-"`
	Err         error   `json:"-"`
}

// Status reads the counters.
func (m *Model) Status() Status {
	st, p := m.weights.Stats(), m.weights.Warming()
	return Status{
		Loading: Loading{BlocksDone: p.UnitsDone, BlocksTotal: p.UnitsTotal, BytesDone: p.BytesDone,
			BytesTotal: p.BytesTotal, SecondsLeft: p.SecondsLeft, Done: p.Done, Err: p.Err},
		TierBytes: st.TierBytes, TierReadBytes: st.ReadBytes, Stall: st.Stall, Held: m.options.Ledger.Held(),
	}
}
