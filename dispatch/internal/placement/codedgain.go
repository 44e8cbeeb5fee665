package placement

import (
	"context"
	"sync"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/kernels/tune"
	"github.com/heftai/heft/meta"
)

// codedPays is the minimum speedup of coded weights over plain ones where both fit in memory. The
// speedup has to pay for coding the weights at each start; prompts gain nothing.
const codedPays = 1.05

// measureCoded lets a plan measure the speedup of coded weights on this machine. Until five
// starts have measured it, the measurement takes about 50 ms.
func (o *Settings) measureCoded() {
	asked := *o
	o.CodedSpeed = sync.OnceValue(asked.codedGain)
}

// codedGain returns the measured speedup, or 0. In tests nothing is measured, so that plans are
// the same on every machine.
func (o *Settings) codedGain() float64 {
	folder := o.Measurements()
	if o.Precision == PrecisionHigh || o.MeasurementsDir == "none" || testing.Testing() {
		return 0
	}
	threads := o.Threads
	if threads <= 0 {
		threads = DefaultThreads(o.Machine())
	}
	t := tune.Options{Variant: o.Variant, Threads: threads, Ledger: o.Ledger, StoredOnly: o.Lazy || !o.RoomToTune()}
	r := (&tune.Store{Folder: folder}).Ensure(context.Background(), t)
	if r == nil {
		return 0
	}
	return r.CodedGain(o.Variant, o.MaxSequences != 1)
}

// planFaster returns a plan in which all weights are in memory, with long rows coded if that is
// faster on this machine. It has to be faster for one sequence and, if several may run at once,
// also for eight.
func (p *Planner) planFaster(coded Settings, stored Placement) Placement {
	coded.codedColumns = tune.CodedColumns
	if coded.CodedSpeed == nil || !coded.codesAny(p.skeleton) {
		return stored
	}
	stored.Settings.Gain = coded.CodedSpeed()
	if stored.Settings.Gain < codedPays {
		return stored
	}
	coded.Gain = stored.Settings.Gain
	faster, err := p.planAs(coded)
	if err != nil || OnDisk(&faster.Plan) {
		return stored
	}
	return faster
}

// mayBeCoded returns the parameters that are coded if coding makes them smaller, with their
// sizes.
func (o *Settings) mayBeCoded(skeleton *meta.Model) map[*meta.Param]int64 {
	out := skeleton.Root.Coded(o.mostCoded())
	for p := range out {
		if p.Shape[len(p.Shape)-1] < o.codedColumns {
			delete(out, p)
		}
	}
	return out
}

// RoomToTune reports whether the limit of the cpu's memory allows the measurement.
func (o *Settings) RoomToTune() bool {
	for _, limit := range o.MaxMemory {
		if limit.Device == devicemap.CPU && limit.Bytes < tuneLimit {
			return false
		}
	}
	return true
}

// tuneLimit is the minimum limit of the cpu's memory with which a model measures how weights are
// read. The measurement takes half a MiB for each thread, at most 16 MiB.
const tuneLimit = 512 << 20
