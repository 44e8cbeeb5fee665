package dispatch

import (
	"fmt"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/backend/cpu"
	"github.com/heftai/heft/internal/nn"
	"github.com/heftai/heft/meta"
)

// A model whose weights stream from the disk keeps activations for fewTokens tokens only. A
// longer pass, such as a prompt, takes the memory of its activations from the expert cache or
// from matrices that stay resident during short passes. A long prompt requests nearly all experts
// anyway, so the cache helps it little, and a generated token reads less from the disk.

// fewTokens is the number of tokens whose activations such a model always keeps.
const fewTokens = 64

// keptTokens returns the number of tokens whose activations are always allocated.
func (o *Options) keptTokens() int {
	if !o.borrows && !o.wholePass {
		return o.MaxBatchTokens
	}
	return min(o.MaxBatchTokens, max(fewTokens, o.MaxSequences))
}

// keptTokens returns the number of tokens whose activations are always allocated. Without a
// memory limit these are the activations of the largest pass.
func (m *Model) keptTokens() int {
	if m.plan.Device(devicemap.CPU).LimitBytes == 0 {
		return m.options.MaxBatchTokens
	}
	return m.options.keptTokens()
}

// plannedTokens returns the number of tokens whose activations the plan counts. Longer passes
// borrow from the expert cache.
func (o *Options) plannedTokens() int {
	if o.borrows {
		return o.keptTokens()
	}
	return o.MaxBatchTokens
}

// unusedActivations returns the planned bytes of activations that a pass of the given number of
// tokens does not use. They are lent to streamed matrices.
func (o *Options) unusedActivations(skeleton *meta.Model, program *nn.Program, plan *devicemap.Plan, tokens int) int64 {
	if !lendsToMatrices(plan) {
		return 0
	}
	return max(0, o.activationBytes(skeleton, program, o.limitsOf(o.plannedTokens()))-o.activationBytes(skeleton, program, o.limitsOf(tokens)))
}

// limitsOf returns the limits of passes of at most the given number of tokens.
func (o *Options) limitsOf(tokens int) nn.Limits {
	l := o.limits()
	l.Rows = min(l.Rows, tokens)
	return l
}

// passTokens rounds the tokens of a pass up to a power of two, so that passes of similar lengths use
// the same memory.
func (o *Options) passTokens(tokens int) int {
	n := o.keptTokens()
	for n < tokens {
		n *= 2
	}
	return min(n, o.MaxBatchTokens)
}

// borrowedBytes returns the memory that a pass of the given number of tokens takes from the
// expert cache.
func (o *Options) borrowedBytes(skeleton *meta.Model, program *nn.Program, tokens int) int64 {
	n := o.passTokens(tokens)
	return o.activationBytes(skeleton, program, o.limitsOf(n)) - o.activationBytes(skeleton, program, o.limitsOf(o.keptTokens()))
}

// batchTokens returns the largest number of tokens in a pass whose activations fit into the
// memory limit now.
func (m *Model) batchTokens() int {
	n := m.options.MaxBatchTokens
	for kept := m.options.keptTokens(); m.options.borrows && n > kept && m.options.borrowedBytes(m.skeleton, m.program, n) > m.limit.spare.Load(); {
		n = max(n/2, kept)
	}
	return n
}

// resizeActivations resizes the activations for a pass of the given number of tokens. It takes
// memory from streamed weights or returns memory to them. Call it before the pass.
func (m *Model) resizeActivations(tokens int) error {
	n := m.options.passTokens(tokens)
	if m.keptTokens() == m.options.MaxBatchTokens || n == m.activations {
		return nil
	}
	m.limit.Lock()
	defer m.limit.Unlock()
	m.closeRun()
	err := m.activate(n)
	if err == nil {
		return nil
	}
	if again := m.activate(m.options.keptTokens()); again != nil {
		return again
	}
	return fmt.Errorf("dispatch: activations of %d tokens: %w", tokens, err)
}

// activate allocates activations for the given number of tokens and evicts streamed weights for
// them. The caller holds the lock.
func (m *Model) activate(tokens int) error {
	m.activations = tokens
	if m.options.borrows {
		m.limit.borrowed = m.options.borrowedBytes(m.skeleton, m.program, tokens)
	}
	m.shrinkTo(m.keptLimit(), 0)
	return m.newRun(tokens)
}

// newRun allocates activations for passes of at most the given number of tokens.
func (m *Model) newRun(tokens int) error {
	if b, ok := m.backend.(*cpu.Backend); ok {
		b.LimitScratch(m.options.scratch(m.skeleton, m.program, m.options.limitsOf(tokens)).Scratch)
	}
	run, err := m.program.NewContext(m.backend, m.weights, m.options.limitsOf(tokens))
	if err != nil {
		return err
	}
	p := m.pool()
	p.Lock()
	defer p.Unlock()
	m.run, m.activations = run, tokens
	for _, list := range [][]*adapter{m.adapters, m.loras.resident} {
		for _, a := range list {
			if err := run.Allow(a.bound); err != nil {
				return err
			}
		}
	}
	return nil
}

// closeRun frees the activations.
func (m *Model) closeRun() {
	p := m.pool()
	p.Lock()
	defer p.Unlock()
	m.run.Close()
}

// borrow returns a plan in which long passes borrow activations from the expert cache. It returns
// base if a usual request does not read less from the disk with such a plan.
func (p *placement) borrow(base placed, o Options) placed {
	if base.plan.ExpertCacheBytes == 0 || o.DeviceMap.Pins.Len() > 0 || len(o.Adapters) > 0 || o.AdapterMemory > 0 {
		return base
	}
	best := base
	o.borrows = true
	for _, o.wholePass = range []bool{false, true} {
		if !o.wholePass || streamsDense(&base.plan) {
			best = p.largestBorrow(base, best, o)
		}
	}
	return best
}

// largestBorrow returns the plan whose batch size minimises the disk reads of a usual request. It
// returns best if no batch size reads less.
func (p *placement) largestBorrow(base, best placed, o Options) placed {
	least := best.reads()
	for _, tokens := range append([]int{base.options.MaxBatchTokens}, batchSizes[:]...) {
		if tokens < base.options.MaxBatchTokens || tokens > base.options.Context {
			continue
		}
		o.MaxBatchTokens = tokens
		next, err := p.place(o)
		if err != nil || next.plan.BelowLeast || streamsDense(&next.plan) && !streamsDense(&base.plan) ||
			next.options.borrowedBytes(p.skeleton, p.program, tokens) > next.plan.ExpertCacheBytes-next.plan.LeastExpertBytes() {
			break
		}
		if n := next.reads(); n < least {
			best, least = next, n
		}
	}
	return best
}
