// Package replicas keeps the copies of modules equal that ranks train on different batches. A
// [Group] initialises them with the same weights and buffers, averages their gradients, and
// copies rank 0's buffers to all ranks after each averaged pass. The package knows no loop and no
// optimizer.
package replicas

import (
	"context"
	"fmt"
	"slices"

	"github.com/heftai/heft/internal/collective"
	"github.com/heftai/heft/train/tensor"
)

// A Module is a prepared module: its parameters, with tied ones only once, and whether to average
// their gradients over the ranks.
type Module struct {
	Module tensor.Module
	Params []*tensor.Parameter
	Sync   bool

	buckets []*Bucket
}

// NewModule returns a Module with m's parameters. It returns an error if one is nil.
func NewModule(m tensor.Module) (*Module, error) {
	p := &Module{Module: m, Sync: true}
	for name, param := range m.Parameters() {
		if param == nil {
			return nil, fmt.Errorf("parameter %q is nil", name)
		}
		if !slices.Contains(p.Params, param) { // tied parameters have several names
			p.Params = append(p.Params, param)
		}
	}
	return p, nil
}

// A Group is one rank's side of the modules that all ranks have prepared in the same order. It
// must be used only by the rank's goroutine. All ranks must call methods with a context together.
type Group struct {
	Comm    collective.Comm
	Modules []*Module
	// Joining reports whether ranks may have different numbers of batches; see AnyActive.
	Joining bool
	// Strategy is the way in which ranks share the work; nil means [Replicated].
	Strategy Strategy
	// BucketBytes is the size of gradients that are exchanged together. 0 means 25 MiB.
	BucketBytes int

	scratch []float32
	leader  int // while joining: the rank whose buffers all ranks take
}

func (g *Group) strategy() Strategy {
	if g.Strategy == nil {
		return Replicated{}
	}
	return g.Strategy
}

// Add adds a module whose weights are equal on all ranks.
func (g *Group) Add(m *Module) error {
	limit := g.BucketBytes
	if limit == 0 {
		limit = bucketBytes
	}
	m.buckets = makeBuckets(m, limit)
	if err := g.strategy().Prepare(g, m); err != nil {
		return err
	}
	g.Modules = append(g.Modules, m)
	return nil
}

// Own returns the part of p that this rank steps, or nil if it steps all of p.
func (g *Group) Own(p *tensor.Parameter) *Shard { return g.strategy().Own(p) }

// NoSync returns the strategy's error for passes whose gradients are not averaged.
func (g *Group) NoSync() error { return g.strategy().NoSync() }

// Stepped makes the weights equal after a step.
func (g *Group) Stepped(ctx context.Context) error { return g.strategy().Stepped(ctx, g) }

// Stepping waits until no rank uses weights that another rank is about to step.
func (g *Group) Stepping(ctx context.Context) error {
	if g.shared() == nil {
		return nil
	}
	return collective.Barrier(ctx, g.Comm)
}

// shared returns the strategy of ranks that share weights, or nil.
func (g *Group) shared() *Shared {
	s, _ := g.Strategy.(*Shared)
	return s
}

// Owner returns the rank that steps p, or -1 if no single rank steps all of it.
func (g *Group) Owner(p *tensor.Parameter) int {
	if s := g.shared(); s != nil && s.shards[p] != nil {
		return s.owners[p]
	}
	return -1
}

// Changes reports whether this rank may change the values of p outside of steps. If p is shared,
// only the first rank may, for all ranks; otherwise all ranks may.
func (g *Group) Changes(p *tensor.Parameter) bool { return g.Comm.Rank() == 0 || g.Owner(p) < 0 }

// Shares returns an error if ranks share their weights. what is the operation that would make the
// weights differ.
func (g *Group) Shares(what string) error {
	if g.shared() == nil || g.Comm.Size() == 1 {
		return nil
	}
	return fmt.Errorf("train: %s: the ranks share their weights: leave out ShareMemory of TorchDDPPlugin", what)
}

// Find returns the group's entry of m, or nil.
func (g *Group) Find(m tensor.Module) *Module {
	for _, p := range g.Modules {
		if p.Module == m {
			return p
		}
	}
	return nil
}

// TakeGradients removes the gradients of the modules, so that [Group.RestoreGradients] can tell
// which modules a backward pass reaches. With one module it does nothing, because every pass
// reaches it.
func (g *Group) TakeGradients() [][][]float32 {
	if len(g.Modules) < 2 {
		return nil
	}
	grads := make([][][]float32, len(g.Modules))
	for i, p := range g.Modules {
		for _, param := range p.Params {
			grads[i] = append(grads[i], param.TakeGrad())
		}
	}
	return grads
}

// RestoreGradients restores the gradients that TakeGradients removed. It reports which modules the
// pass in between reached.
func (g *Group) RestoreGradients(before [][][]float32) []bool {
	reached := make([]bool, len(g.Modules))
	if before == nil {
		for i := range reached {
			reached[i] = true
		}
		return reached
	}
	for i, p := range g.Modules {
		for j, param := range p.Params {
			was, is := before[i][j], param.Grad()
			if param.HasGrad() {
				reached[i] = true
			}
			if was != nil {
				for k := range is {
					was[k] += is[k]
				}
				param.SetGrad(was)
			}
		}
	}
	return reached
}

// AnyActive tells the other ranks whether this one has more batches, and reports whether any rank
// has.
func (g *Group) AnyActive(ctx context.Context, active bool) (bool, error) {
	all, err := collective.AllGather(ctx, g.Comm, active)
	if err != nil {
		return false, fmt.Errorf("train: join: %w", err)
	}
	g.leader = max(0, slices.Index(all, true))
	return slices.Contains(all, true), nil
}

// Shadow takes part in the averaging of the other ranks' backward passes, for a rank without a
// batch.
func (g *Group) Shadow(ctx context.Context) error {
	for _, p := range g.Modules {
		for _, b := range p.buckets {
			if err := g.reduce(ctx, b, false, true); err != nil {
				return fmt.Errorf("train: gradients: %w", err)
			}
		}
	}
	if err := g.shareBuffers(ctx); err != nil {
		return fmt.Errorf("train: buffers: %w", err)
	}
	return nil
}

// Adopt ends a join: all ranks take the weights of a rank that had the most batches.
func (g *Group) Adopt(ctx context.Context, last bool) error {
	all, err := collective.AllGather(ctx, g.Comm, last)
	if err != nil {
		return fmt.Errorf("train: join: %w", err)
	}
	root := max(0, slices.Index(all, true))
	for _, p := range g.Modules {
		if err := g.share(ctx, p, root); err != nil {
			return err
		}
	}
	return nil
}

// Equal copies rank 0's trainable weights and buffers of p to every rank. It returns an error if
// the ranks have different parameters or buffers.
func (g *Group) Equal(ctx context.Context, p *Module) error {
	shapes := [][]int{p.bufferLengths()}
	for _, param := range p.Params {
		trainable := 0
		if param.Trainable {
			trainable = 1
		}
		shapes = append(shapes, append([]int{param.Len(), trainable}, param.Shape()...))
	}
	all, err := collective.AllGather(ctx, g.Comm, shapes)
	if err != nil {
		return err
	}
	for r, s := range all {
		if !slices.EqualFunc(s[1:], shapes[1:], slices.Equal) {
			return fmt.Errorf("the parameters of rank %d are not those of rank %d", r, g.Comm.Rank())
		}
		if !slices.Equal(s[0], shapes[0]) {
			return fmt.Errorf("the buffers of rank %d are not those of rank %d", r, g.Comm.Rank())
		}
	}
	if s := g.shared(); s != nil {
		if err := s.share(ctx, g, p); err != nil {
			return err
		}
	}
	return g.share(ctx, p, 0)
}

// share copies the trainable weights and the buffers of rank root to all ranks. Frozen weights may be in a
// checkpoint that cannot be written, and stay unchanged.
func (g *Group) share(ctx context.Context, p *Module, root int) error {
	for _, param := range p.Params {
		if !param.Trainable || g.Owner(param) >= 0 {
			continue
		}
		err := param.Access(g.Comm.Rank() != root, func(values []float32) error {
			return collective.BroadcastFloats(ctx, g.Comm, root, values)
		})
		if err != nil {
			return err
		}
	}
	return p.broadcastBuffers(ctx, g.Comm, root)
}
