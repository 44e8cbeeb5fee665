package main

import (
	"cmp"
	"context"
	"log/slog"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
)

// usualSequences is the default of --max-batch if the weights are in memory, and streamedSequences
// if they stream. A pass over streamed weights takes little longer for more sequences.
const usualSequences, streamedSequences = 16, 64

// planSequences plans o for --max-batch sequences or, without the flag, for a number that suits the
// plan. The returned options have the number. It also reports whether a larger number may be faster
// because weights stream.
func (f *sizeFlags) planSequences(p *dispatch.Planner, o dispatch.Options) (plan devicemap.Plan, planned dispatch.Options, streams bool, err error) {
	o.MaxSequences = cmp.Or(f.MaxBatch, usualSequences)
	plan, planned, err = p.Plan(o)
	if f.MaxBatch > 0 || err != nil || plan.BelowLeast || !dispatch.Streams(plan) {
		return plan, planned, false, err
	}
	o.MaxSequences = streamedSequences
	more, with, err := p.Plan(o)
	if err != nil || more.BelowLeast || more.DiskBytesPerToken > plan.DiskBytesPerToken {
		return plan, planned, true, nil // more sequences take memory from weights
	}
	return more, with, true, nil
}

// sequencesOf returns how many sequences of a model run at once. If no client waits, it measures
// this machine and returns the number with the highest expected throughput.
func (c *runCmd) sequencesOf(ctx context.Context, d *draft) int {
	if c.MaxBatch > 0 {
		return c.MaxBatch
	}
	_, planned, streams, err := c.planSequences(d.planner, d.options)
	if err != nil || !streams || !c.offline {
		return planned.MaxSequences
	}
	n := d.planner.ChooseSequences(d.options, probePlan(ctx, d.options, d.checkpoint))
	slog.Info("weights stream from the disk: this machine's speed decides how many sequences run at once", "sequences", n)
	return n
}
