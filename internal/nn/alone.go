package nn

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
)

// Separable reports whether units need nothing of a pass but the hidden states before them, so that several passes
// can take turns in each unit: see [Training.Enter]. Keys and values, choices and inputs by layer that later units read
// too are memory of one pass.
func (p *Program) Separable() bool {
	return len(p.shared) == 0 && !p.choiceShared && p.perLayer == 0 && p.joins == 0
}

// Enter makes in the pass that [Training.RunAlone], [Training.ReverseAlone], Head and Norm run, in place of Forward. For
// units behind the first one, Input.Hidden are the states before them, which Enter copies. Passes may take turns if
// their program is [Program.Separable].
func (t *Training) Enter(in *Input) error {
	t.recorder.Pause()
	if t.recorder.Forget(backend.Mark{}); t.dirty {
		t.recorder.Clear()
		t.dirty = false
	}
	return t.Begin(in)
}

// RunAlone runs unit i without a record. [Context.Hidden] is the result. The caller holds the unit.
func (t *Training) RunAlone(i int) error { return t.record(t.units[i], false) }

// ReverseAlone runs unit i, which the caller holds, with a record and reverses it. gradient is that of the unit's result. f
// gets the gradient of Input.Hidden, which is valid during the call; it is not called for a unit that begins with tokens.
// All gradients are bitwise those of [Training.Backward].
func (t *Training) ReverseAlone(i int, gradient tensor.Tensor, f func(gradient tensor.Tensor) error) error {
	begin, mark := t.hidden, t.recorder.Mark()
	t.dirty = true
	if err := t.record(t.units[i], true); err != nil {
		return err
	}
	to := t.recorder.Gradient(t.hidden)
	if tensor.Same(to, t.recorder.Gradient(matrix(t.state[0], t.rows, gradient.Cols()))) { // Backward moves nothing
		t.recorder.Gather(to, gradient, t.iota[:t.rows])
	} else {
		t.recorder.Add(to, gradient, 1)
	}
	t.recorder.Reverse(mark)
	if err := t.synced(t.units[i]); err != nil {
		return err
	}
	return t.takeGradient(begin, f)
}

// TakeGradient calls f with [Training.HiddenGradient], which is then 0.
func (t *Training) TakeGradient(f func(gradient tensor.Tensor) error) error {
	t.dirty = true
	return t.takeGradient(t.hidden, f)
}

func (t *Training) takeGradient(x tensor.Tensor, f func(gradient tensor.Tensor) error) error {
	if !x.IsZero() {
		if err := f(t.recorder.Gradient(x)); err != nil {
			return err
		}
		t.recorder.Drop(x)
	}
	t.dirty = false
	return nil
}
