package finetune

import (
	"context"

	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train"
	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/model"
	"github.com/heftai/heft/train/tensor"
)

// sweeping describes the batches of a step that share a sweep over a streamed base, and the states
// between blocks that they keep until the backward pass.
type sweeping struct {
	batches int   // the maximum
	memory  int64 // bytes of states in memory; passBytes counts those of one batch
	disk    int64 // bytes of states in a scratch file in --output
}

// sweeps chooses as many batches of a step as half of the free disk space allows.
func (s *student) sweeps(m *meta.Model) (w sweeping) {
	root, ok := m.Root.Spec.(*meta.CausalLMSpec)
	if !ok {
		return sweeping{batches: 1}
	}
	states := blocksOf(m) + 1
	if s.Method != "sft" {
		states += asides
	}
	each := 4 * s.batchTokens() * int64(root.Hidden) * states
	w = sweeping{batches: max(s.GradientAccumulationSteps, 1), memory: each}
	if _, free, err := s.space(s.Output); err == nil {
		w.batches = int(min(int64(w.batches), 1+free/2/int64(s.here)/max(each, 1)))
	}
	w.disk = int64(w.batches-1) * each
	return w
}

// asides is the most passes of a batch that learn nothing: those of the reference over the batch,
// and of model and reference over other prompts' answers for kto. Each keeps one state.
const asides = 3

// together returns how many of n batches are computed together.
func (s *student) together(n int) int {
	if !s.model.Sweeps() {
		return 1
	}
	return min(n, max(s.sweep.batches, 1))
}

// losing is a method's function that computes the losses of batches, each summed over its items.
type losing[B any] func(ctx context.Context, batches []B) ([]*tensor.Tensor, error)

// computes sets the functions of a Trainer that compute losses. In training f gets all batches of a
// step that share a sweep, in evaluations one batch without a record.
func computes[B any](s *student, c *train.TrainerConfig[B], f losing[B]) {
	c.ComputeLosses = func(ctx context.Context, batches []B) ([]*tensor.Tensor, error) {
		return f(ctx, batches[:s.together(len(batches))])
	}
	c.ComputeLoss = func(ctx context.Context, b B) (loss *tensor.Tensor, err error) {
		compute := func() {
			var losses []*tensor.Tensor
			if losses, err = f(ctx, []B{b}); err == nil {
				loss = losses[0]
			}
		}
		if s.evaluating {
			s.tape.NoGrad(compute)
		} else {
			compute()
		}
		return loss, err
	}
}

// options returns those of a pass over a batch of the method's data.
func (s *student) options(o tensor.CrossEntropyOptions) model.Options {
	if s.evaluating {
		return model.Options{CrossEntropyOptions: o}
	}
	return model.Options{CrossEntropyOptions: o, Recompute: s.recompute, Dropout: s.acc.Generator()}
}

// passes are passes over batches of tokens. Those of one model share a sweep.
type passes struct {
	*student
	reference *model.Model // the student's model, if its passes skip the adapter
	own, base requests
}

// requests are the arguments of model.Model.Losses, and where the losses go.
type requests struct {
	batches []model.Batch
	options []model.Options
	to      []**tensor.Tensor
}

func (r *requests) add(b data.TokenBatch, o model.Options, to **tensor.Tensor) {
	r.batches, r.options, r.to = append(r.batches, batch(b, 0, b.Rows)), append(r.options, o), append(r.to, to)
}

// compute computes the losses with m.
func (r *requests) compute(tp *tensor.Tape, m *model.Model) error {
	if len(r.batches) == 0 {
		return nil
	}
	m.SetAuxiliary(0)
	losses, err := m.Losses(tp, r.batches, r.options)
	for i, loss := range losses {
		*r.to[i] = loss
	}
	return err
}

// judge requests the losses of tokens under the reference.
func (p *passes) judge(b data.TokenBatch, to **tensor.Tensor) {
	of := &p.base
	if p.reference == p.model {
		of = &p.own
	}
	of.add(b, model.Options{CrossEntropyOptions: perToken, Temperature: p.sampled, Base: true}, to)
}

// run computes the requested losses.
func (p *passes) run() error {
	if err := p.base.compute(p.tape, p.reference); err != nil {
		return err
	}
	return p.own.compute(p.tape, p.model)
}
