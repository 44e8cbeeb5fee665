package dispatch

import (
	"fmt"

	"github.com/heftai/heft/internal/nn"
)

// A model whose routed experts stream keeps activations for few tokens. A pass of more tokens takes
// memory for its activations from the experts' cache: a long prompt requests nearly all experts anyway,
// and generated tokens get the larger cache.

// fewTokens is the number of tokens whose activations such a model always keeps.
const fewTokens = 64

// keptTokens returns the number of tokens whose activations are always in memory.
func (o *Options) keptTokens() int {
	if !o.borrows {
		return o.MaxBatchTokens
	}
	return min(o.MaxBatchTokens, max(fewTokens, o.MaxSequences))
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
func (o *Options) borrowedBytes(program *nn.Program, tokens int) int64 {
	n := o.passTokens(tokens)
	return program.ScratchBytes(o.limitsOf(n)) - program.ScratchBytes(o.limitsOf(o.keptTokens()))
}

// batchTokens returns the most tokens of a pass whose activations fit into the memory limit now.
func (m *Model) batchTokens() int {
	n := m.options.MaxBatchTokens
	for kept := m.options.keptTokens(); n > kept && m.options.borrowedBytes(m.program, n) > m.limit.spare.Load(); {
		n = max(n/2, kept)
	}
	return n
}

// resizeActivations makes the memory for activations fit a pass of so many tokens. It takes more from
// the experts' cache, or returns it. It runs before a pass.
func (m *Model) resizeActivations(tokens int) error {
	if !m.options.borrows {
		return nil
	}
	n := m.options.passTokens(tokens)
	if n == m.activations {
		return nil
	}
	m.limit.Lock()
	defer m.limit.Unlock()
	m.run.Close()
	m.limit.borrowed = m.options.borrowedBytes(m.program, n)
	m.shrinkTo(m.limitNow(), 0)
	err := m.newRun(n)
	if err == nil {
		return nil
	}
	m.limit.borrowed = 0
	m.shrinkTo(m.limitNow(), 0)
	if again := m.newRun(m.options.keptTokens()); again != nil {
		return again
	}
	return fmt.Errorf("dispatch: activations of %d tokens: %w", tokens, err)
}

// newRun allocates activations for passes of at most so many tokens.
func (m *Model) newRun(tokens int) error {
	run, err := m.program.NewContext(m.backend, m.weights, m.options.limitsOf(tokens))
	if err != nil {
		return err
	}
	m.run, m.activations = run, tokens
	for _, a := range m.adapters {
		if err := run.Allow(a.bound); err != nil {
			return err
		}
	}
	return nil
}

// borrow returns the plan with which long passes borrow activations from the experts' cache, or base if
// a usual request then reads no less.
func (p *placement) borrow(base placed, o Options) placed {
	if base.plan.ExpertCacheBytes == 0 || o.DeviceMap.Pins.Len() > 0 || len(o.Adapters) > 0 || o.AdapterMemory > 0 {
		return base
	}
	best, least := base, base.reads()
	o.borrows = true
	for _, tokens := range append([]int{base.options.MaxBatchTokens}, batchSizes[:]...) {
		if tokens < base.options.MaxBatchTokens || tokens > base.options.Context {
			continue
		}
		o.MaxBatchTokens = tokens
		next, err := p.place(o)
		if err != nil || next.plan.BelowLeast || streamsDense(&next.plan) && !streamsDense(&base.plan) ||
			next.options.borrowedBytes(p.program, tokens) > next.plan.ExpertCacheBytes-next.plan.LeastExpertBytes() {
			break
		}
		if n := next.reads(); n < least {
			best, least = next, n
		}
	}
	return best
}
