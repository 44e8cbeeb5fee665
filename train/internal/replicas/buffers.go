package replicas

import (
	"context"
	"iter"

	"github.com/heftai/heft/internal/collective"
)

// buffers yields the numbers of p's module that are not trained, such as the moments of a batch
// norm.
func (p *Module) buffers() iter.Seq2[string, []float32] {
	if b, ok := p.Module.(interface {
		Buffers() iter.Seq2[string, []float32]
	}); ok {
		return b.Buffers()
	}
	return func(func(string, []float32) bool) {}
}

// bufferLengths returns the length of each buffer.
func (p *Module) bufferLengths() []int {
	var all []int
	for _, x := range p.buffers() {
		all = append(all, len(x))
	}
	return all
}

// broadcastBuffers copies the buffers of rank root to all ranks, in one message. All ranks must have
// the same buffers.
func (p *Module) broadcastBuffers(ctx context.Context, c collective.Comm, root int) error {
	var flat []float32
	for _, x := range p.buffers() {
		flat = append(flat, x...)
	}
	if len(flat) == 0 {
		return nil
	}
	if err := collective.BroadcastFloats(ctx, c, root, flat); err != nil || c.Rank() == root {
		return err
	}
	for _, x := range p.buffers() {
		flat = flat[copy(x, flat):]
	}
	return nil
}

// shareBuffers copies the buffers of rank 0 to all ranks, for the modules that synchronise. While
// ranks join with different numbers of batches, it copies those of the first rank that has a
// batch.
func (g *Group) shareBuffers(ctx context.Context) error {
	root := 0
	if g.Joining {
		root = g.leader
	}
	for _, m := range g.Modules {
		if !m.Sync && !g.Joining {
			continue
		}
		if err := m.broadcastBuffers(ctx, g.Comm, root); err != nil {
			return err
		}
	}
	return nil
}
