package dispatch

import (
	"fmt"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/backend/cpu"
	"github.com/heftai/heft/internal/nn"
	"github.com/heftai/heft/meta"
)

// A model whose weights stream keeps activations for few tokens. A pass of more tokens takes memory for its
// activations from the experts' cache, as a long prompt requests nearly all experts anyway, or from
// matrices that stay in memory while passes are short. Generated tokens then read less.

// fewTokens is the number of tokens whose activations such a model always keeps.
const fewTokens = 64

// keptTokens returns the number of tokens whose activations are always in memory.
func (o *Options) keptTokens() int {
	if !o.borrows && !o.wholePass {
		return o.MaxBatchTokens
	}
	return min(o.MaxBatchTokens, max(fewTokens, o.MaxSequences))
}

// keptTokens returns the number of tokens whose activations are always in memory: all that a pass may have
// if the model has no limit to keep to.
func (m *Model) keptTokens() int {
	if m.plan.Device(devicemap.CPU).LimitBytes == 0 {
		return m.options.MaxBatchTokens
	}
	return m.options.keptTokens()
}

// plannedTokens returns the number of tokens whose activations the plan has memory for. Longer passes
// borrow from the experts' cache.
func (o *Options) plannedTokens() int {
	if o.borrows {
		return o.keptTokens()
	}
	return o.MaxBatchTokens
}

// unusedActivations returns the planned bytes of activations that passes of so many tokens lend to matrices.
func (o *Options) unusedActivations(skeleton *meta.Model, program *nn.Program, plan *devicemap.Plan, tokens int) int64 {
	if !lendsToMatrices(plan) {
		return 0
	}
	return max(0, o.activationBytes(skeleton, program, o.limitsOf(o.plannedTokens()))-o.activationBytes(skeleton, program, o.limitsOf(tokens)))
}

// limitsOf returns limits for passes of at most so many tokens.
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

// borrowedBytes returns the memory that a pass of so many tokens takes from the experts' cache.
func (o *Options) borrowedBytes(skeleton *meta.Model, program *nn.Program, tokens int) int64 {
	n := o.passTokens(tokens)
	return o.activationBytes(skeleton, program, o.limitsOf(n)) - o.activationBytes(skeleton, program, o.limitsOf(o.keptTokens()))
}

// batchTokens returns the most tokens of a pass whose activations fit into the memory limit now.
func (m *Model) batchTokens() int {
	n := m.options.MaxBatchTokens
	for kept := m.options.keptTokens(); m.options.borrows && n > kept && m.options.borrowedBytes(m.skeleton, m.program, n) > m.limit.spare.Load(); {
		n = max(n/2, kept)
	}
	return n
}

// resizeActivations makes the memory for activations fit a pass of so many tokens. It takes more from
// streamed weights, or returns it. It runs before a pass.
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

// activate takes memory for activations of so many tokens from streamed weights. It needs the lock.
func (m *Model) activate(tokens int) error {
	m.activations = tokens
	if m.options.borrows {
		m.limit.borrowed = m.options.borrowedBytes(m.skeleton, m.program, tokens)
	}
	m.shrinkTo(m.keptLimit(), 0)
	return m.newRun(tokens)
}

// newRun allocates activations for passes of at most so many tokens.
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

// borrow returns a plan in which long passes borrow activations from the experts' cache. It returns
// base if a usual request does not read less with it.
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

// largestBorrow returns the plan whose batch size makes a usual request read least, or best.
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
