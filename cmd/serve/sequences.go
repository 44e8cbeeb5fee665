package main

import (
	"context"
	"log/slog"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/meta"
)

// usualSequences is --max-batch of a model whose weights are in memory, and streamedSequences of one whose
// weights stream: a pass for more sequences takes little longer then.
const usualSequences, streamedSequences = 16, 64

// sequences returns how many sequences run at once: --max-batch, or without it what suits the plan for o. It also
// reports whether a larger number may be faster because weights stream.
func (f *sizeFlags) sequences(skeleton *meta.Model, o dispatch.Options) (n int, streams bool) {
	if f.MaxBatch > 0 {
		return f.MaxBatch, false
	}
	o.MaxSequences = usualSequences
	plan, _, err := dispatch.Plan(skeleton, o)
	if err != nil || plan.BelowLeast || !dispatch.Streams(plan) {
		return usualSequences, false
	}
	o.MaxSequences = streamedSequences
	if more, _, err := dispatch.Plan(skeleton, o); err != nil || more.BelowLeast || more.DiskBytesPerToken > plan.DiskBytesPerToken {
		return usualSequences, true // more take memory from weights
	}
	return streamedSequences, true
}

// sequencesOf returns how many sequences of a model run at once. Where no client waits it is as many as this
// machine is expected to generate fastest, of which it measures the speed.
func (c *runCmd) sequencesOf(ctx context.Context, d *draft) int {
	n, streams := c.sequences(d.skeleton, d.options)
	if !streams || !c.offline {
		return n
	}
	n = dispatch.ChooseSequences(d.skeleton, d.options, probePlan(ctx, d.options, d.checkpoint))
	slog.Info("weights stream from the disk: this machine's speed decides how many sequences run at once", "sequences", n)
	return n
}
