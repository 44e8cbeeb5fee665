package main

import (
	"context"
	"log/slog"

	"github.com/heftai/heft/dispatch"
)

// usualSequences is the default of --max-batch. So many take no memory from weights: a pass has
// room for the logits of as many tokens of one prompt.
const usualSequences = 64

// sequencesOf returns how many sequences of a model run at once. If weights stream and no client
// waits, it measures this machine and returns the number with the highest expected throughput.
func (c *runCmd) sequencesOf(ctx context.Context, d *draft) int {
	if c.MaxBatch > 0 || !c.offline {
		return d.options.MaxSequences
	}
	plan, _, err := d.planner.Plan(d.options)
	if err != nil || plan.BelowLeast || !dispatch.Streams(plan) {
		return d.options.MaxSequences
	}
	n := d.planner.ChooseSequences(d.options, probePlan(ctx, d.options, d.checkpoint))
	slog.Info("weights stream from the disk: this machine's speed decides how many sequences run at once", "sequences", n)
	return n
}
