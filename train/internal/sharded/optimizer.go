// Package sharded splits an optimizer between ranks, as ZeRO does: each rank holds a part of the
// state and steps a part of the parameters.
package sharded

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"

	"github.com/heftai/heft/internal/collective"
	"github.com/heftai/heft/train/internal/replicas"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/tensor"
)

// Options configure an [Optimizer].
type Options struct {
	// MaxNorm limits the norm of the gradients before a step. 0 means no limit.
	MaxNorm float64
	// SkipOverflow skips a step if a gradient of any rank is infinite or NaN.
	SkipOverflow bool
	// ZeroAfterStep drops the gradients after each step.
	ZeroAfterStep bool
}

// Optimizer steps this rank's shards and then makes the weights equal. All ranks must call Step,
// Gather and Norm together. It must be used only by the rank's goroutine.
type Optimizer struct {
	optim.Optimizer
	Options

	ctx      context.Context
	group    *replicas.Group
	shards   []*replicas.Shard
	gathered *optim.OptimizerState
	skipped  bool
	clipped  bool // for a step that has failed since
	norm     float64
	whole    []map[string]optim.Pieces // of the last Gather, of state outside memory
}

// replaceable is an optimizer whose parameters can be replaced by their shards.
type replaceable interface {
	optim.Stateful
	Replace(func(optim.Param) (optim.Param, error)) error
}

// New makes o step only this rank's part of its parameters. It returns an error if o is not from
// package optim, has stepped already, or has parameters of modules that are not prepared. If
// there are no shards it does not change o, but the result still applies the options.
func New(ctx context.Context, g *replicas.Group, o optim.Optimizer, options Options) (*Optimizer, error) {
	s := &Optimizer{Optimizer: o, Options: options, ctx: ctx, group: g}
	r, ok := o.(replaceable)
	if !ok {
		return nil, fmt.Errorf("an optimizer of type %T cannot be split between ranks: use one of package optim, or another plugin", o)
	}
	err := r.Replace(func(p optim.Param) (optim.Param, error) {
		t, ok := p.(*tensor.Parameter)
		if !ok {
			return nil, fmt.Errorf("a parameter of type %T cannot be split between ranks", p)
		}
		own := g.Own(t)
		if own == nil {
			return nil, errors.New("the optimizer has a parameter of no prepared module")
		}
		s.shards = append(s.shards, own)
		return own, nil
	})
	return s, err
}

// Step clips the gradients, steps this rank's shards and copies all ranks' shards to all ranks.
// On overflow it skips the step on all ranks. After an error of an optimizer that stores its
// state outside memory, the next Step continues.
func (s *Optimizer) Step() error {
	if !s.clipped {
		s.skipped = false
		if s.MaxNorm > 0 || s.SkipOverflow {
			if err := s.clip(); err != nil {
				return err
			}
		}
	}
	s.clipped = s.keeps() != nil
	if !s.skipped {
		if err := s.group.Stepping(s.ctx); err != nil {
			return err
		}
		if err := s.Optimizer.Step(); err != nil {
			return err
		}
		if err := s.group.Stepped(s.ctx); err != nil {
			return err
		}
	}
	if s.clipped = false; s.ZeroAfterStep {
		s.ZeroGrad()
	}
	return nil
}

// ZeroGrad drops the gradients, and the rest of a step that failed.
func (s *Optimizer) ZeroGrad() {
	s.clipped = false
	s.Optimizer.ZeroGrad()
}

// keeps returns the optimizer if it stores its state outside memory, or nil.
func (s *Optimizer) keeps() *optim.Descent {
	if d, ok := s.Optimizer.(*optim.Descent); ok && d.KeepsState() {
		return d
	}
	return nil
}

// Shards returns this rank's parts, in the order of the optimizer's parameters.
func (s *Optimizer) Shards() []*replicas.Shard { return s.shards }

// clip measures the gradients of all ranks, then clips them or skips the step.
func (s *Optimizer) clip() error {
	params := s.params()
	n, err := Norm(s.ctx, s.group.Comm, params, 2)
	if err != nil {
		return err
	}
	s.norm = n
	if s.skipped = s.SkipOverflow && (math.IsInf(n, 0) || math.IsNaN(n)); s.skipped || s.MaxNorm <= 0 {
		return nil
	}
	Scale(params, s.MaxNorm, n)
	return nil
}

func (s *Optimizer) params() []optim.Param {
	var all []optim.Param
	for _, g := range s.Groups() {
		all = append(all, g.Params...)
	}
	return all
}

// Whole reports whether the parts of each rank are whole parameters or empty.
func (s *Optimizer) Whole() bool { return whole(s.params()) }

// StepWasSkipped reports whether the last step was skipped because of an overflow.
func (s *Optimizer) StepWasSkipped() bool { return s.skipped }

// GradNorm returns the norm of the gradients before the last step, if it was measured.
func (s *Optimizer) GradNorm() float64 { return s.norm }

// AgreeOverflow reports whether any rank overflowed.
func (s *Optimizer) AgreeOverflow(mine bool) (bool, error) {
	x := []float32{0}
	if mine {
		x[0] = 1
	}
	err := collective.AllReduce(s.ctx, s.group.Comm, collective.Max, x)
	return x[0] != 0, err
}

// Norm returns the p-norm of the gradients of all ranks' shards together.
func Norm(ctx context.Context, c collective.Comm, shards []optim.Param, p float64) (float64, error) {
	if whole(shards) {
		return wholeNorm(ctx, c, shards, p)
	}
	n, err := optim.GradNorm(shards, p)
	if c.Size() == 1 || err != nil {
		return n, err
	}
	all, err := collective.AllGather(ctx, c, n)
	if err != nil {
		return 0, fmt.Errorf("train: norm: %w", err)
	}
	total := 0.0
	for r, x := range all {
		switch {
		case math.IsInf(p, 1):
			total = max(total, x)
		case math.IsInf(p, -1) && r == 0:
			total = x
		case math.IsInf(p, -1):
			total = min(total, x)
		case p == 0:
			total += x
		default:
			total += math.Pow(x, p)
		}
	}
	if p != 0 && !math.IsInf(p, 0) {
		total = math.Pow(total, 1/p)
	}
	return float64(float32(total)), nil
}

// whole reports whether the parts of each rank are whole parameters or empty.
func whole(shards []optim.Param) bool {
	if len(shards) == 0 {
		return false
	}
	for _, x := range shards {
		if s, ok := x.(*replicas.Shard); !ok || !s.Whole() {
			return false
		}
	}
	return true
}

// wholeNorm is Norm for gradients that are each on one rank. The result has the bits of the norm
// on one rank that holds all gradients.
func wholeNorm(ctx context.Context, c collective.Comm, shards []optim.Param, p float64) (float64, error) {
	norms, err := optim.GradNorms(shards, p)
	if c.Size() > 1 && err == nil {
		var all []map[int]float64
		if all, err = collective.AllGather(ctx, c, norms); err != nil {
			err = fmt.Errorf("train: norm: %w", err)
		}
		for _, x := range all {
			maps.Copy(norms, x)
		}
	}
	return optim.JoinNorms(norms, p), err
}

// Scale scales the gradients of shards by min(1, limit/(norm+1e-6)).
func Scale(shards []optim.Param, limit, norm float64) {
	if whole(shards) {
		optim.LimitGrads(shards, limit, norm)
		return
	}
	scale := min(float32(1), float32(limit)/(float32(norm)+1e-6))
	if scale == 1 {
		return
	}
	for _, p := range shards {
		if s, ok := p.(optim.StoredGrad); ok {
			s.ScaleGrad(scale)
			continue
		}
		g := p.Grad()
		for i := range g {
			g[i] *= scale
		}
	}
}
