package train

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/heftai/heft/internal/collective"
	"github.com/heftai/heft/train/tensor"
)

// backwardAll runs a backward pass in a world of several ranks.
func (a *Accelerator) backwardAll(ctx context.Context, loss *tensor.Tensor, scale float32) error {
	before := a.setAside()
	err := tensor.Backward(loss, scale)
	reached := a.putBack(before)
	if err != nil {
		return err
	}
	return a.average(ctx, reached)
}

// setAside takes the gradients off the modules, so that it shows which of them a
// backward pass reaches. One module alone is always what it is about.
func (a *Accelerator) setAside() [][][]float32 {
	if len(a.modules) < 2 {
		return nil
	}
	grads := make([][][]float32, len(a.modules))
	for i, p := range a.modules {
		for _, param := range p.params {
			grads[i] = append(grads[i], param.TakeGrad())
		}
	}
	return grads
}

// putBack undoes setAside and says which modules the pass between them reached.
func (a *Accelerator) putBack(before [][][]float32) []bool {
	reached := make([]bool, len(a.modules))
	if before == nil {
		for i := range reached {
			reached[i] = true
		}
		return reached
	}
	for i, p := range a.modules {
		for j, param := range p.params {
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

// average replaces gradients by their mean over the ranks, for the modules that the
// pass reached and that synchronize. A parameter without a gradient on this rank counts
// as zeros if it has one elsewhere. The ranks agree first on which parameters those
// are, so a rank may be without a gradient that others have.
func (a *Accelerator) average(ctx context.Context, reached []bool) error {
	var has []float32
	any := false
	for i, p := range a.modules {
		for _, param := range p.params {
			flag := float32(0)
			if reached[i] && p.sync {
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
	if a.joining {
		if _, err := a.roll(ctx, true); err != nil {
			return err
		}
	}
	return a.exchange(ctx, has, func(p *tensor.Parameter) []float32 {
		if p.Grad() == nil {
			p.SetGrad(make([]float32, p.Len()))
		}
		return p.Grad()
	})
}

// exchange averages the buffers of those parameters that any rank has.
func (a *Accelerator) exchange(ctx context.Context, has []float32, buffer func(*tensor.Parameter) []float32) error {
	if err := collective.AllReduce(ctx, a.comm, collective.Max, has); err != nil {
		return fmt.Errorf("train: gradients: %w", err)
	}
	i := 0
	for _, p := range a.modules {
		for _, param := range p.params {
			if i++; has[i-1] == 0 {
				continue
			}
			if err := collective.AllReduce(ctx, a.comm, collective.Mean, buffer(param)); err != nil {
				return fmt.Errorf("train: gradients: %w", err)
			}
		}
	}
	return nil
}

// JoinUnevenInputs runs f, a loop in which this rank may have fewer batches than
// others. A rank that is done takes part in the others' backward passes with zeros, the
// divisor staying the whole world, and in the end gets the weights of a rank that went
// on longest. All ranks must call it, and call nothing collective in f but Backward.
//
// The reference does nothing here on CPU; this is what it does on GPUs. Use it with
// DataLoaderConfig.EvenBatches off: loaders whose batches are even need no joining.
func (a *Accelerator) JoinUnevenInputs(ctx context.Context, f func(context.Context) error) error {
	if a.comm.Size() == 1 {
		return f(ctx)
	}
	if a.joining {
		return errors.New("train: joins do not nest")
	}
	a.joining = true
	defer func() { a.joining = false }()
	if err := f(ctx); err != nil {
		return err
	}
	last := true
	for {
		active, err := a.roll(ctx, false)
		if err != nil {
			return err
		}
		if !active {
			return a.adopt(ctx, last)
		}
		last = false
		if err := a.shadow(ctx); err != nil {
			return err
		}
	}
}

// roll tells the others whether this rank still has batches, and returns whether any
// does.
func (a *Accelerator) roll(ctx context.Context, active bool) (bool, error) {
	all, err := collective.AllGather(ctx, a.comm, active)
	if err != nil {
		return false, fmt.Errorf("train: join: %w", err)
	}
	return slices.Contains(all, true), nil
}

// shadow stands in for a backward pass of a rank that has no batch.
func (a *Accelerator) shadow(ctx context.Context) error {
	n := 0
	for _, p := range a.modules {
		n += len(p.params)
	}
	return a.exchange(ctx, make([]float32, n), func(p *tensor.Parameter) []float32 {
		return make([]float32, p.Len())
	})
}

// adopt ends a join: ranks that stopped early take the weights of one that was among
// the last.
func (a *Accelerator) adopt(ctx context.Context, last bool) error {
	all, err := collective.AllGather(ctx, a.comm, last)
	if err != nil {
		return fmt.Errorf("train: join: %w", err)
	}
	root := max(0, slices.Index(all, true))
	for _, p := range a.modules {
		if err := a.share(ctx, p, root); err != nil {
			return err
		}
	}
	return nil
}

// broadcastFloats writes root's x to everybody's, bit for bit.
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
		return fmt.Errorf("train: broadcast: %d bytes for %d numbers", len(b), len(x))
	}
	if c.Rank() == root {
		return nil
	}
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return nil
}
