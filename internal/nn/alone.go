package nn

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
)

// Separable reports whether units need nothing of a pass but the preceding hidden states, so that
// several passes can alternate in each unit: see [Training.Enter]. It returns false if later
// units also read cached keys and values, selected positions, or per-layer inputs: these are
// memory of one pass.
func (p *Program) Separable() bool {
	return len(p.shared) == 0 && !p.choiceShared && p.perLayer == 0 && p.joins == 0
}

// Enter starts the pass in that [Training.RunAlone], [Training.ReverseAlone], Head and Norm use,
// instead of Forward. For units after the first one, Input.Hidden holds the preceding hidden
// states, which Enter copies. Passes may alternate if their program is [Program.Separable].
func (t *Training) Enter(in *Input) error {
	t.recorder.Pause()
	if t.recorder.Forget(backend.Mark{}); t.dirty {
		t.recorder.Clear()
		t.dirty = false
	}
	return t.Begin(in)
}

// RunAlone runs unit i without recording it. [Context.Hidden] is the result. The caller holds the
// unit.
func (t *Training) RunAlone(i int) error { return t.record(t.units[i], false) }

// ReverseAlone runs and records unit i, which the caller holds, and computes its backward pass.
// gradient is the gradient of the unit's result. f receives the gradient of Input.Hidden, which
// is valid during the call. It is not called for a unit whose input is tokens. All gradients are
// bitwise those of [Training.Backward].
func (t *Training) ReverseAlone(i int, gradient tensor.Tensor, f func(gradient tensor.Tensor) error) error {
	begin, mark := t.hidden, t.recorder.Mark()
	t.dirty = true
	if err := t.recordAgain(t.units[i]); err != nil {
		return err
	}
	to := t.recorder.Gradient(t.hidden)
	if tensor.Same(to, t.recorder.Gradient(matrix(t.state[0], t.rows, gradient.Cols()))) { // Backward does not move the gradient
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

// TakeGradient calls f with [Training.HiddenGradient], and then sets it to 0.
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
