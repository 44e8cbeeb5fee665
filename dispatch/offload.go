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
// A second call does nothing. Any goroutine may call it.
func (m *Model) Warm(ctx context.Context) {
	if m.warmed.CompareAndSwap(false, true) {
		m.weights.Warm(ctx)
	}
}

// Promote copies the weights of the cpu tier to aligned memory of our own, in the
// background, and lets the mapped pages go: they are read faster there, by a fifth to a third
// where a checkpoint's tensors lie across cache lines. The cpu tier takes no more bytes than
// before, and results stay bitwise the same. It begins when Warm is done. A second call does nothing.
func (m *Model) Promote(ctx context.Context) {
	if m.promoted.CompareAndSwap(false, true) {
		m.weights.Promote(ctx)
	}
}

// Status is what a model holds and has read. Any goroutine may ask for it.
type Status struct {
	// Loading is how far Warm is.
	Loading Loading
	// Promoted says that Promote has come to its end; PromoteErr is what stopped it, which
	// leaves the rest in place.
	Promoted   bool
	PromoteErr error
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
	promoted, promoteErr := m.weights.Promoted()
	if broken := m.changed.Load(); broken != nil {
		p.Err = *broken
	}
	return Status{
		Loading: Loading{BlocksDone: p.UnitsDone, BlocksTotal: p.UnitsTotal, BytesDone: p.BytesDone,
			BytesTotal: p.BytesTotal, SecondsLeft: p.SecondsLeft, Done: p.Done, Err: p.Err},
		Promoted: promoted, PromoteErr: promoteErr, TierBytes: st.TierBytes, TierReadBytes: st.ReadBytes, Stall: st.Stall, Held: m.options.Ledger.Held(),
	}
}
