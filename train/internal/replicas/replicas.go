// Package replicas keeps the copies of modules that ranks train on different batches equal: a [Group]
// starts them with the same weights and averages their gradients. It knows no loop and no optimizer.
package replicas

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/heftai/heft/internal/collective"
	"github.com/heftai/heft/train/tensor"
)

// A Module is a prepared module: its parameters, tied ones once, and whether to average their
// gradients over the ranks.
type Module struct {
	Module tensor.Module
	Params []*tensor.Parameter
	Sync   bool
}

// NewModule lists m's parameters. It fails if one is nil.
func NewModule(m tensor.Module) (*Module, error) {
	p := &Module{Module: m, Sync: true}
	for name, param := range m.Parameters() {
		if param == nil {
			return nil, fmt.Errorf("parameter %q is nil", name)
		}
		if !slices.Contains(p.Params, param) { // tied ones come under several names
			p.Params = append(p.Params, param)
		}
	}
	return p, nil
}

// A Group is one rank's side of the modules that all ranks have prepared in the same order. It
// belongs to the rank's goroutine. All ranks must call methods with a context together.
type Group struct {
	Comm    collective.Comm
	Modules []*Module
	// Joining says that ranks may have different numbers of batches; see Roll.
	Joining bool
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

// SetAside removes the gradients of the modules, so that [Group.PutBack] can tell which modules a
// backward pass reaches. With one module it does nothing: every pass reaches it.
func (g *Group) SetAside() [][][]float32 {
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

// PutBack undoes SetAside. It reports which modules the pass in between reached.
func (g *Group) PutBack(before [][][]float32) []bool {
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
			if is != nil {
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

// Average replaces gradients by their mean over the ranks, for modules that the pass reached and
// that synchronise. The ranks first agree on the parameters. A parameter without a gradient on this
// rank counts as zeros if another rank has one.
func (g *Group) Average(ctx context.Context, reached []bool) error {
	var has []float32
	any := false
	for i, p := range g.Modules {
		for _, param := range p.Params {
			flag := float32(0)
			if reached[i] && p.Sync {
				any = true
				if param.Grad() != nil {
					flag = 1
				}
			}
			has = append(has, flag)
		}
	}
	if !any {
		return nil
	}
	if g.Joining {
		if _, err := g.Roll(ctx, true); err != nil {
			return err
		}
	}
	return g.exchange(ctx, has, func(p *tensor.Parameter) []float32 {
		if p.Grad() == nil {
			p.SetGrad(make([]float32, p.Len()))
		}
		return p.Grad()
	})
}

// exchange averages the buffers of parameters for which any rank has a gradient.
func (g *Group) exchange(ctx context.Context, has []float32, buffer func(*tensor.Parameter) []float32) error {
	if err := collective.AllReduce(ctx, g.Comm, collective.Max, has); err != nil {
		return fmt.Errorf("train: gradients: %w", err)
	}
	i := 0
	for _, p := range g.Modules {
		for _, param := range p.Params {
			if i++; has[i-1] == 0 {
				continue
			}
			if err := collective.AllReduce(ctx, g.Comm, collective.Mean, buffer(param)); err != nil {
				return fmt.Errorf("train: gradients: %w", err)
			}
		}
	}
	return nil
}

// Roll tells the other ranks whether this one has more batches. It reports whether any rank has.
func (g *Group) Roll(ctx context.Context, active bool) (bool, error) {
	all, err := collective.AllGather(ctx, g.Comm, active)
	if err != nil {
		return false, fmt.Errorf("train: join: %w", err)
	}
	return slices.Contains(all, true), nil
}

// Shadow takes part in the averaging of other ranks' backward passes, for a rank without a batch.
func (g *Group) Shadow(ctx context.Context) error {
	n := 0
	for _, p := range g.Modules {
		n += len(p.Params)
	}
	return g.exchange(ctx, make([]float32, n), func(p *tensor.Parameter) []float32 {
		return make([]float32, p.Len())
	})
}

// Adopt ends a join: all ranks take the weights of a rank that ran longest.
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

// broadcastFloats copies root's x to all ranks.
func broadcastFloats(ctx context.Context, c collective.Comm, root int, x []float32) error {
	var b []byte
	if c.Rank() == root {
		b = make([]byte, 0, 4*len(x))
		for _, v := range x {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
	}
	b, err := c.Broadcast(ctx, root, b)
	if err != nil {
		return fmt.Errorf("train: broadcast: %w", err)
	}
	if len(b) != 4*len(x) {
		return fmt.Errorf("train: broadcast: got %d bytes for %d numbers", len(b), len(x))
	}
	if c.Rank() == root {
		return nil
	}
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return nil
}

// Equal gives p rank 0's trainable weights on every rank. It fails if the ranks have different
// parameters.
func (g *Group) Equal(ctx context.Context, p *Module) error {
	var shapes [][]int
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
		if !slices.EqualFunc(s, shapes, slices.Equal) {
			return fmt.Errorf("the parameters of rank %d are not those of rank %d", r, g.Comm.Rank())
		}
	}
	return g.share(ctx, p, 0)
}

// share copies the trainable weights of rank root to all ranks. Frozen weights may be in a
// checkpoint that cannot be written, and stay unchanged.
func (g *Group) share(ctx context.Context, p *Module, root int) error {
	for _, param := range p.Params {
		if !param.Trainable {
			continue
		}
		err := param.Access(g.Comm.Rank() != root, func(values []float32) error {
			return broadcastFloats(ctx, g.Comm, root, values)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
