package dispatch

import (
	"fmt"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/backend/cpu"
)

// keptTokens returns the number of tokens whose activations are always allocated. Without a
// memory limit these are the activations of the largest pass.
func (m *Model) keptTokens() int {
	if m.plan.Device(devicemap.CPU).LimitBytes == 0 {
		return m.settings.MaxBatchTokens
	}
	return m.settings.KeptTokens()
}

// batchTokens returns the largest number of tokens in a pass whose activations fit into the
// memory limit now.
func (m *Model) batchTokens() int {
	n := m.settings.MaxBatchTokens
	for kept := m.settings.KeptTokens(); m.settings.Borrows && n > kept && m.settings.BorrowedBytes(m.skeleton, m.program, n) > m.limit.spare.Load(); {
		n = max(n/2, kept)
	}
	return n
}

// resizeActivations resizes the activations for a pass of the given number of tokens. It takes
// memory from streamed weights or returns memory to them. Call it before the pass.
func (m *Model) resizeActivations(tokens int) error {
	n := m.settings.PassTokens(tokens)
	if m.keptTokens() == m.settings.MaxBatchTokens || n == m.activations {
		return nil
	}
	m.limit.Lock()
	defer m.limit.Unlock()
	m.closeRun()
	err := m.activate(n)
	if err == nil {
		return nil
	}
	if again := m.activate(m.settings.KeptTokens()); again != nil {
		return again
	}
	return fmt.Errorf("dispatch: activations of %d tokens: %w", tokens, err)
}

// activate allocates activations for the given number of tokens and evicts streamed weights for
// them. The caller holds the lock.
func (m *Model) activate(tokens int) error {
	m.activations = tokens
	if m.settings.Borrows {
		m.limit.borrowed = m.settings.BorrowedBytes(m.skeleton, m.program, tokens)
	}
	m.shrinkTo(m.keptLimit(), 0)
	return m.newRun(tokens)
}

// newRun allocates activations for passes of at most the given number of tokens.
func (m *Model) newRun(tokens int) error {
	if b, ok := m.backend.(*cpu.Backend); ok {
		b.LimitScratch(m.settings.Scratch(m.skeleton, m.program, m.settings.LimitsOf(tokens)).Scratch)
	}
	run, err := m.program.NewContext(m.backend, m.weights, m.settings.LimitsOf(tokens))
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
