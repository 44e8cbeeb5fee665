package tensor

import (
	"encoding"
	"fmt"
	"slices"
)

// Checkpoint runs f on inputs and keeps only the inputs and the result. Backward runs f again to
// recompute the rest, so f must compute the same each time. f may use parameters and its inputs,
// but no other tensors of the tape. sources are the generators from which f draws: each is
// rewound for the second run and then returned to its position. The gradients are bit-identical
// to those without Checkpoint.
func (tp *Tape) Checkpoint(f func(tp *Tape, in []*Tensor) *Tensor, sources []RewindableSource, inputs ...*Tensor) *Tensor {
	if !tp.ready("checkpoint", inputs...) {
		return tp.void()
	}
	begun, err := positions(sources)
	if err != nil {
		return tp.fail("checkpoint: %w", err)
	}
	inner := tp.nested()
	enter := func() ([]*Tensor, *Tensor) {
		in := inner.leaves(inputs)
		return in, f(inner, in)
	}
	var first *Tensor
	inner.NoGrad(func() { _, first = enter() })
	own := false
	if first != nil && first.tape == inner {
		own = first.base == nil && first.lent
		first.root().lent = false
		if p := first.root().param; p != nil && p.memory == nil {
			first.data = slices.Clone(first.data) // the storage may move p when inner is reset
		}
	}
	if err := inner.Reset(); err != nil || first == nil || first.tape != inner {
		return tp.fail("checkpoint: %w", cause(err))
	}
	out := tp.made(first.data, first.shape, inputs...)
	if own && tp.scope > 0 {
		tp.lend(out)
	}
	tp.opaque = true
	out.needs = tp.recording() // parameters of f count too
	return tp.record(out, func(grad []float32) {
		now, err := positions(sources)
		if err == nil {
			err = rewind(sources, begun)
		}
		if err != nil {
			tp.fail("checkpoint: %w", err)
			return
		}
		in, again := enter()
		if err := inner.checkpointBack(again, grad); err != nil {
			tp.fail("checkpoint: %w", err)
			return
		}
		tp.collect(inner, inputs, in)
		if err := rewind(sources, now); err != nil {
			tp.fail("checkpoint: %w", err)
		}
	})
}

// nested returns a tape that shares tp's kernels and memory.
func (tp *Tape) nested() *Tape {
	return &Tape{threads: tp.threads, autocast: tp.autocast, set: tp.set, uses: map[used]*Tensor{}, spare: tp.spare, scope: 1}
}

// leaves puts the values of another tape's tensors on tp.
func (tp *Tape) leaves(of []*Tensor) []*Tensor {
	in := make([]*Tensor, len(of))
	for i, t := range of {
		in[i] = &Tensor{tape: tp, data: t.data, shape: t.shape, needs: t.needs && tp.recording(), pass: tp.pass}
	}
	return in
}

// collect adds the gradients of inner's leaves to those of the matching inputs.
func (tp *Tape) collect(inner *Tape, inputs, leaves []*Tensor) {
	for i, t := range leaves {
		if g := tp.gradient(inputs[i]); g != nil && t.grad != nil {
			tp.add(g, t.grad)
		}
		inner.recycle(t)
	}
}

// checkpointBack is BackwardFrom for a tensor that may need no gradient.
func (tp *Tape) checkpointBack(t *Tensor, grad []float32) error {
	if tp.err == nil && t.needs {
		err := tp.BackwardFrom(t, grad)
		if e := tp.Reset(); err == nil {
			err = e
		}
		return err
	}
	return tp.Reset()
}

// RewindableSource is a [RandomSource] that can be rewound to an earlier position. A generator of train/rng is
// one.
type RewindableSource interface {
	RandomSource
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
}

func positions(sources []RewindableSource) ([][]byte, error) {
	all := make([][]byte, len(sources))
	for i, s := range sources {
		b, err := s.MarshalBinary()
		if err != nil {
			return nil, err
		}
		all[i] = b
	}
	return all, nil
}

func rewind(sources []RewindableSource, to [][]byte) error {
	for i, s := range sources {
		if err := s.UnmarshalBinary(to[i]); err != nil {
			return err
		}
	}
	return nil
}

// cause returns err, or an error if f returned no tensor of its tape.
func cause(err error) error {
	if err == nil {
		return fmt.Errorf("got nil or a tensor of another tape from the function, want a tensor of the tape that it was given")
	}
	return err
}
