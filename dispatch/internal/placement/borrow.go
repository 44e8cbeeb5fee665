package placement

import (
	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/nn"
	"github.com/heftai/heft/meta"
)

// A model whose weights stream from the disk keeps activations for fewTokens tokens only. A
// longer pass, such as a prompt, takes the memory of its activations from the expert cache or
// from matrices that stay resident during short passes. A long prompt requests nearly all experts
// anyway, so the cache helps it little, and a generated token reads less from the disk.

// fewTokens is the number of tokens whose activations such a model always keeps.
const fewTokens = 64

// KeptTokens returns the number of tokens whose activations are always allocated.
func (o *Settings) KeptTokens() int {
	if !o.Borrows && !o.wholePass {
		return o.MaxBatchTokens
	}
	return min(o.MaxBatchTokens, max(fewTokens, o.MaxSequences))
}

// plannedTokens returns the number of tokens whose activations the plan counts. Longer passes
// borrow from the expert cache.
func (o *Settings) plannedTokens() int {
	if o.Borrows {
		return o.KeptTokens()
	}
	return o.MaxBatchTokens
}

// UnusedActivations returns the planned bytes of activations that a pass of the given number of
// tokens does not use. They are lent to streamed matrices.
func (o *Settings) UnusedActivations(skeleton *meta.Model, program *nn.Program, plan *devicemap.Plan, tokens int) int64 {
	if !LendsToMatrices(plan) {
		return 0
	}
	return max(0, o.activationBytes(skeleton, program, o.LimitsOf(o.plannedTokens()))-o.activationBytes(skeleton, program, o.LimitsOf(tokens)))
}

// LimitsOf returns the limits of passes of at most the given number of tokens.
func (o *Settings) LimitsOf(tokens int) nn.Limits {
	l := o.Limits()
	l.Rows = min(l.Rows, tokens)
	return l
}

// PassTokens rounds the tokens of a pass up to a power of two, so that passes of similar lengths use
// the same memory.
func (o *Settings) PassTokens(tokens int) int {
	n := o.KeptTokens()
	for n < tokens {
		n *= 2
	}
	return min(n, o.MaxBatchTokens)
}

// BorrowedBytes returns the memory that a pass of the given number of tokens takes from the
// expert cache.
func (o *Settings) BorrowedBytes(skeleton *meta.Model, program *nn.Program, tokens int) int64 {
	n := o.PassTokens(tokens)
	return o.activationBytes(skeleton, program, o.LimitsOf(n)) - o.activationBytes(skeleton, program, o.LimitsOf(o.KeptTokens()))
}

// borrow returns a plan in which long passes borrow activations from the expert cache. It returns
// base if a usual request does not read less from the disk with such a plan.
func (p *placer) borrow(base Placement, o Settings) Placement {
	if base.Plan.ExpertCacheBytes == 0 || o.DeviceMap.Pins.Len() > 0 || len(o.Adapters) > 0 || o.AdapterMemory > 0 {
		return base
	}
	best := base
	o.Borrows = true
	for _, o.wholePass = range []bool{false, true} {
		if !o.wholePass || streamsDense(&base.Plan) {
			best = p.largestBorrow(base, best, o)
		}
	}
	return best
}

// largestBorrow returns the plan whose batch size minimises the disk reads of a usual request. It
// returns best if no batch size reads less.
func (p *placer) largestBorrow(base, best Placement, o Settings) Placement {
	least := best.reads()
	for _, tokens := range append([]int{base.Settings.MaxBatchTokens}, batchSizes[:]...) {
		if tokens < base.Settings.MaxBatchTokens || tokens > base.Settings.Context {
			continue
		}
		o.MaxBatchTokens = tokens
		next, err := p.place(o)
		if err != nil || next.Plan.BelowLeast || streamsDense(&next.Plan) && !streamsDense(&base.Plan) ||
			next.Settings.BorrowedBytes(p.skeleton, p.program, tokens) > next.Plan.ExpertCacheBytes-next.Plan.LeastExpertBytes() {
			break
		}
		if n := next.reads(); n < least {
			best, least = next, n
		}
	}
	return best
}
