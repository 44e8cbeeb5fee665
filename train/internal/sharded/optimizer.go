// Package sharded steps an optimizer of which each rank has a part: the state and the steps of ZeRO.
package sharded

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/heftai/heft/internal/collective"
	"github.com/heftai/heft/train/internal/replicas"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/tensor"
)

// Options configure an [Optimizer].
type Options struct {
	// MaxNorm limits the norm of the gradients before a step. 0 does not.
	MaxNorm float64
	// SkipOverflow skips a step if a gradient of any rank is infinite or NaN.
	SkipOverflow bool
	// ZeroAfterStep drops the gradients after each step.
	ZeroAfterStep bool
}

// Optimizer steps this rank's shards and then makes the weights equal. Step, Gather and Norm are
// calls that all ranks make together. It belongs to the rank's goroutine.
type Optimizer struct {
	optim.Optimizer
	Options

	ctx      context.Context
	group    *replicas.Group
	shards   []*replicas.Shard
	gathered *optim.OptimizerState
	skipped  bool
	norm     float64
}

// replaceable is an optimizer whose parameters can be replaced by their shards.
type replaceable interface {
	optim.Stateful
	Replace(func(optim.Param) (optim.Param, error)) error
}

// New makes o step this rank's part of its parameters only. It fails if o is not made by package
// optim, has stepped, or has parameters of modules that are not prepared. Without shards it changes
// nothing, and the result still applies the options.
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

// Step clips the gradients, steps this rank's shards and copies all ranks' shards to all of them.
// On overflow it skips the step on all ranks.
func (s *Optimizer) Step() error {
	s.skipped = false
	if s.MaxNorm > 0 || s.SkipOverflow {
		if err := s.clip(); err != nil {
			return err
		}
	}
	if !s.skipped {
		if err := s.Optimizer.Step(); err != nil {
			return err
		}
		if err := s.group.Stepped(s.ctx); err != nil {
			return err
		}
	}
	if s.ZeroAfterStep {
		s.ZeroGrad()
	}
	return nil
}

// clip measures the gradients of all ranks, and limits or skips.
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
	n := optim.Norm(shards, p)
	if c.Size() == 1 {
		return n, nil
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

// Scale scales the gradients of shards by min(1, limit/(norm+1e-6)).
func Scale(shards []optim.Param, limit, norm float64) {
	scale := min(float32(1), float32(limit)/(float32(norm)+1e-6))
	if scale == 1 {
		return
	}
	for _, p := range shards {
		g := p.Grad()
		for i := range g {
			g[i] *= scale
		}
	}
}

// Gather collects the whole state for the next [Optimizer.State], on all ranks.
func (s *Optimizer) Gather() error {
	state := s.Optimizer.(optim.Stateful).State()
	for i := range state.Params {
		x := s.shards[i]
		whole := map[string][]float32{}
		for name, part := range state.Params[i].Slots {
			whole[name] = part
		}
		// A rank without a part of this parameter has no slots of it, or empty ones.
		all, err := collective.AllGather(s.ctx, s.group.Comm, shardState{x.Lo, state.Params[i].Step, whole})
		if err != nil {
			return fmt.Errorf("train: state of the optimizer: %w", err)
		}
		state.Params[i] = join(all, x.Param.Len())
	}
	s.gathered = &state
	return nil
}

// shardState is a rank's state of one parameter.
type shardState struct {
	Lo    int
	Step  int64
	Slots map[string][]float32
}

func join(all []shardState, n int) optim.ParamState {
	p := optim.ParamState{Slots: map[string][]float32{}}
	for _, x := range all {
		p.Step = max(p.Step, x.Step)
		for name, part := range x.Slots {
			if p.Slots[name] == nil {
				p.Slots[name] = make([]float32, n)
			}
			copy(p.Slots[name][x.Lo:], part)
		}
	}
	return p
}

// State returns the whole state once after Gather, else that of this rank's shards.
func (s *Optimizer) State() optim.OptimizerState {
	if s.gathered != nil {
		state := *s.gathered
		s.gathered = nil
		return state
	}
	return s.ShardState()
}

// ShardState returns the state of this rank's shards.
func (s *Optimizer) ShardState() optim.OptimizerState {
	return s.Optimizer.(optim.Stateful).State()
}

// LoadState restores this rank's part of a whole state.
func (s *Optimizer) LoadState(state optim.OptimizerState) error {
	part := state
	part.Params = nil
	for i, p := range state.Params {
		if i >= len(s.shards) {
			return fmt.Errorf("train: load state: got %d parameters, want %d", len(state.Params), len(s.shards))
		}
		x, slots := s.shards[i], map[string][]float32{}
		for name, whole := range p.Slots {
			if len(whole) != x.Param.Len() {
				return fmt.Errorf("train: load state: parameter %d: %s has %d elements, want %d", i, name, len(whole), x.Param.Len())
			}
			slots[name] = whole[x.Lo:x.Hi]
		}
		part.Params = append(part.Params, optim.ParamState{Step: p.Step, Slots: slots})
	}
	return s.Optimizer.(optim.Stateful).LoadState(part)
}

// LoadShardState restores a state of this rank's shards.
func (s *Optimizer) LoadShardState(state optim.OptimizerState) error {
	return s.Optimizer.(optim.Stateful).LoadState(state)
}
