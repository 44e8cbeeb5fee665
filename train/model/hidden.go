package model

import (
	"fmt"

	"github.com/heftai/heft/internal/nn"
	view "github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/train/tensor"
)

// HiddenStates computes the states after the final norm, [batch length hidden], which the head maps
// to logits. Use it for custom value or reward heads. It is transformers' last_hidden_state. The
// states of padding are zeros.
//
// The result is an operation on the tape: Backward adds to the gradients of the model's parameters,
// including adapters. Of o it uses only Recompute, Dropout, Noise, NoGrad and Base. It omits the routers'
// loss.
func (m *Model) HiddenStates(tp *tensor.Tape, b Batch, o Options) (*tensor.Tensor, error) {
	t, err := m.statesOf(tp, b, o)
	if err != nil {
		return nil, err
	}
	return t.alone(tp)
}

// statesOf returns the task that computes the states after the final norm.
func (m *Model) statesOf(tp *tensor.Tape, b Batch, o Options) (*task, error) {
	if err := m.check(b); err != nil {
		return nil, err
	}
	p, err := m.newPass(tp, b, o, nil)
	if err != nil {
		return nil, err
	}
	return &task{p, func(tp *tensor.Tape) (*tensor.Tensor, error) {
		data, back, err := p.normed()
		if err != nil {
			return nil, err
		}
		out := p.result(tp, data, m.statesShape(b), func(grad []float32) error {
			if err := back(grad); err != nil {
				return err
			}
			return p.backward(1)
		})
		return out, tp.Err()
	}}, nil
}

// AllHiddenStates computes the states between blocks, each [batch length hidden]: the embeddings,
// the result of each block except the last, and the result of the last block after the final norm.
// These are transformers' output_hidden_states. Each may have a gradient; reverse a sum of losses
// once. The results take (blocks+1)·batch·length·hidden floats, and so do their gradients.
// Otherwise it works like HiddenStates.
func (m *Model) AllHiddenStates(tp *tensor.Tape, b Batch, o Options) ([]*tensor.Tensor, error) {
	places := len(m.program.Units) - 1
	kept := &stateTrace{}
	p, last, back, err := m.allStates(tp, b, o, kept)
	if err != nil {
		return nil, err
	}
	if len(kept.states) != places {
		p.leave()
		return nil, fmt.Errorf("model: hidden states: got %d places of %d blocks", len(kept.states), places-1)
	}
	for _, s := range kept.states {
		if rows := p.layout.count(); len(s) != rows*m.spec.Hidden {
			p.leave()
			return nil, fmt.Errorf("model: hidden states: the blocks of this model have several streams, %d numbers for each token and not %d", len(s)/rows, m.spec.Hidden)
		}
	}
	n := len(last)
	data := make([]float32, 0, places*n)
	for _, s := range kept.states[:places-1] {
		data = append(data, p.layout.spread(s, m.spec.Hidden)...)
	}
	data = append(data, last...)
	all := p.result(tp, data, append([]int{places}, m.statesShape(b)...), func(grad []float32) error {
		if err := back(grad[(places-1)*n:]); err != nil {
			return err
		}
		p.add = func(unit int, gradient view.Tensor) {
			if unit < places-1 {
				g := p.layout.take(grad[unit*n:][:n], gradient.Cols())
				p.recorder.Add(gradient, view.Floats(g, gradient.Rows(), gradient.Cols()), 1)
			}
		}
		return p.backward(1)
	})
	out := make([]*tensor.Tensor, places)
	for i := range out {
		out[i] = tp.Select(all, i)
	}
	return out, tp.Err()
}

// allStates runs a batch up to the final norm and keeps the states between blocks.
func (m *Model) allStates(tp *tensor.Tape, b Batch, o Options, kept *stateTrace) (p *pass, last []float32, back func(grad []float32) error, err error) {
	if err := m.check(b); err != nil {
		return nil, nil, nil, err
	}
	if p, err = m.start(tp, b, o, func(p *pass) { p.given.Trace = kept }); err != nil {
		return nil, nil, nil, err
	}
	kept.done = true // omits the norm of rows that are not requested
	last, back, err = p.normed()
	return p, last, back, err
}

// normed computes the states after the final norm. back propagates their gradient to the last
// block. After an error the pass has left.
func (p *pass) normed() (data []float32, back func(grad []float32) error, err error) {
	if data, back, err = p.all((*nn.Training).Norm, p.m.spec.Hidden); err != nil {
		p.leave()
	}
	return data, back, err
}

func (m *Model) statesShape(b Batch) []int {
	return []int{len(b.IDs) / b.Length, b.Length, m.spec.Hidden}
}

// stateTrace copies the states after units.
type stateTrace struct {
	states [][]float32
	done   bool // Backward may run units again
}

// Trace receives the states after a unit.
func (s *stateTrace) Trace(at nn.Point, _ string, x view.Tensor) {
	if s.done || at != nn.PointEmbedding && at != nn.PointLayer {
		return
	}
	v := make([]float32, 0, x.Elements())
	for i := range x.Rows() {
		v = append(v, x.Row(i)...)
	}
	s.states = append(s.states, v)
}
