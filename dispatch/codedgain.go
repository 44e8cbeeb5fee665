package dispatch

import (
	"context"
	"sync"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/kernels/tune"
	"github.com/heftai/heft/meta"
)

// codedPays is how many times faster coded weights must be than plain ones to be used where both fit in memory. What
// they gain has to pay for coding them at each start, and for prompts, which gain nothing.
const codedPays = 1.05

// measureCoded lets a plan ask how many times faster coded weights are than plain ones on this machine. Until five
// starts have measured it, the question takes about 50 ms.
func (o *Options) measureCoded() {
	asked := *o
	o.codedSpeed = sync.OnceValue(asked.codedGain)
}

// codedGain returns what is measured, or 0. Tests measure nothing, so that their plans are the same on every machine.
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

// CodedGain returns how many times faster coded weights are than plain ones on this machine. It is known for the
// options that [Plan] returned if the plan depended on it; otherwise it is 0.
func (o *Options) CodedGain() float64 { return o.gain }

// planFaster is a plan in which all weights are in memory, with long rows coded if that is faster here, for one sequence
// and, if several may run at once, for eight.
func (p *Planner) planFaster(coded Options, plan devicemap.Plan, planned Options) (devicemap.Plan, Options, error) {
	coded.codedColumns = tune.CodedColumns
	if coded.codedSpeed == nil || len(coded.codedBytes(p.skeleton)) == 0 {
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

// mayBeCoded returns the parameters that are coded if that makes them smaller, with their sizes.
func (o *Options) mayBeCoded(skeleton *meta.Model) map[*meta.Param]int64 {
	out := skeleton.Root.Coded(o.mostCoded())
	for p := range out {
		if p.Shape[len(p.Shape)-1] < o.codedColumns {
			delete(out, p)
		}
	}
	return out
}
