package dispatch

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
func (o *Options) measureCoded() {
	asked := *o
	o.codedSpeed = sync.OnceValue(asked.codedGain)
}

// codedGain returns the measured speedup, or 0. In tests nothing is measured, so that plans are
// the same on every machine.
func (o *Options) codedGain() float64 {
	folder := o.measurements()
	if o.Precision == PrecisionHigh || o.MeasurementsDir == "none" || testing.Testing() {
		return 0
	}
	threads := o.Threads
	if threads <= 0 {
		threads = defaultThreads(o.here())
	}
	t := tune.Options{Variant: o.Variant, Threads: threads, StoredOnly: o.Lazy || !o.roomToTune()}
	if o.Ledger != nil {
		t.Ledger = o.ledger()
	}
	r := (&tune.Store{Folder: folder}).Ensure(context.Background(), t)
	if r == nil {
		return 0
	}
	return r.CodedGain(o.Variant, o.MaxSequences != 1)
}

// CodedGain returns the measured speedup of coded weights over plain ones on this machine. It is
// known only for the options that [Plan] returned, and only if the plan depended on it; otherwise
// it is 0.
func (o *Options) CodedGain() float64 { return o.gain }

// planFaster returns a plan in which all weights are in memory, with long rows coded if that is
// faster on this machine. It has to be faster for one sequence and, if several may run at once,
// also for eight.
func (p *Planner) planFaster(coded Options, plan devicemap.Plan, planned Options) (devicemap.Plan, Options, error) {
	coded.codedColumns = tune.CodedColumns
	if coded.codedSpeed == nil || !coded.codesAny(p.skeleton) {
		return plan, planned, nil
	}
	planned.gain = coded.codedSpeed()
	if planned.gain < codedPays {
		return plan, planned, nil
	}
	coded.gain = planned.gain
	faster, with, err := p.planAs(coded)
	if err != nil || onDisk(&faster) {
		return plan, planned, nil
	}
	return faster, with, nil
}

// mayBeCoded returns the parameters that are coded if coding makes them smaller, with their
// sizes.
func (o *Options) mayBeCoded(skeleton *meta.Model) map[*meta.Param]int64 {
	out := skeleton.Root.Coded(o.mostCoded())
	for p := range out {
		if p.Shape[len(p.Shape)-1] < o.codedColumns {
			delete(out, p)
		}
	}
	return out
}
