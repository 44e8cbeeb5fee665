package nn

import (
	"fmt"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// A Holder brings the weights of units and lets go of them. A unit is held while it runs
// and while it is reversed: from Hold to Release the memory that Parts shows stays where
// it is, experts included.
type Holder interface {
	Weights
	// Hold makes unit i present; next is the unit that is going to be held after it, or
	// -1, so that it can be read ahead.
	Hold(i, next int) error
	Release(i int)
}

// Training runs passes that can be reversed, on a context whose backend is a Recorder.
//
// A pass is [Training.Forward], then any number of [Training.Head], then perhaps
// [Training.Backward]. The gradients of weights go where the recorder's weights say. The
// bits of gradients do not depend on whether units are computed again.
type Training struct {
	*Context
	recorder backend.Recorder
	holder   Holder
	units    []*Unit // before the head
	head     *Unit   // nil for a tree without
	first    int     // the first unit that Backward reverses
	way      Way
	dirty    bool // gradients were begun that no Backward has taken
	marks    []backend.Mark
	begins   []tensor.Tensor // where the units' inputs lay when they were recorded
	widths   []int           // of those that were kept to compute the units again
	// taken is where the gradient lies of what the next unit to be reversed made.
	taken  tensor.Tensor
	inputs tensor.Tensor // of each unit, [units·rows, width], where they are computed again
}

// NewTraining takes memory for passes within limits; Limits.Outputs bounds the rows of one
// Head. The recorder's weights and h are two views of the same.
func (p *Program) NewTraining(r backend.Recorder, h Holder, l Limits) (*Training, error) {
	c, err := p.NewContext(r, h, l)
	if err != nil {
		return nil, err
	}
	t := &Training{Context: c, recorder: r, holder: h, units: p.Units}
	if n := len(p.Units) - 1; p.vocab > 0 && n >= 0 {
		t.units, t.head = p.Units[:n], p.Units[n]
	}
	n := len(t.units)
	t.marks, t.begins, t.widths = make([]backend.Mark, n), make([]tensor.Tensor, n), make([]int, n)
	return t, nil
}

// Close frees the memory.
func (t *Training) Close() {
	if !t.inputs.IsZero() {
		t.recorder.Free(t.inputs)
		t.inputs = tensor.Tensor{}
	}
	t.Context.Close()
}

// A Way is what becomes of what lies between the units' inputs.
type Way uint8

// The ways.
const (
	Evaluate  Way = iota // nothing is to be reversed
	Remember             // it is kept for Backward
	Recompute            // Backward computes it again, unit by unit
)

// Forward runs the units before the head. first is the first unit that has something to
// train, where Backward ends.
func (t *Training) Forward(in *Input, way Way, first int) error {
	t.recorder.Pause()
	if t.recorder.Forget(backend.Mark{}); t.dirty {
		t.recorder.Clear()
		t.dirty = false
	}
	if err := t.Begin(in); err != nil {
		return err
	}
	t.way, t.first = way, first
	if way == Recompute {
		if err := t.makeInputs(); err != nil {
			return err
		}
	}
	for i := range t.units {
		if i >= first && way == Recompute && !t.kept(i) {
			t.saveInput(i)
		}
		t.marks[i], t.begins[i] = t.recorder.Mark(), t.hidden
		if err := t.unit(i, i+1, i >= first && t.kept(i)); err != nil {
			return err
		}
	}
	return nil
}

// kept reports whether the record of unit i is kept for its reverse: that of the last one
// always is, as it is the first to be reversed.
func (t *Training) kept(i int) bool {
	return t.way == Remember || t.way == Recompute && i == len(t.units)-1
}

// unit brings and runs unit i.
func (t *Training) unit(i, next int, record bool) error {
	if next >= len(t.program.Units) {
		next = -1
	}
	if err := t.holder.Hold(i, next); err != nil {
		return err
	}
	defer t.holder.Release(i)
	return t.record(t.program.Units[i], record)
}

func (t *Training) record(u *Unit, record bool) error {
	if record {
		t.recorder.Record()
		defer t.recorder.Pause()
	}
	return u.Run(t.Context)
}

// makeInputs takes memory for the inputs of the units.
func (t *Training) makeInputs() (err error) {
	if t.inputs.IsZero() {
		t.inputs, err = t.recorder.New(meta.Float32, len(t.units)*t.limits.Rows, t.program.width)
	}
	if err != nil {
		return fmt.Errorf("nn: inputs of units: %w", err)
	}
	return nil
}

// saveInput keeps the hidden state before unit i; the first one may have none.
func (t *Training) saveInput(i int) {
	t.widths[i] = 0
	if t.hidden.IsZero() {
		return
	}
	t.widths[i] = t.hidden.Cols()
	t.backend.Gather(t.input(i), t.hidden, t.iota[:t.rows])
}

func (t *Training) input(i int) tensor.Tensor {
	at := i * t.limits.Rows
	return matrix(t.inputs.Slice(at, at+t.rows), t.rows, t.widths[i])
}

// Head runs the head on some rows and gives f their logits, [len(rows), vocab], valid
// within. If reverse is set, f also gets where to write the logits' gradient, perhaps the
// logits' own memory, and it is taken back through the head at once.
func (t *Training) Head(rows []int32, reverse bool, f func(logits, gradient tensor.Tensor) error) error {
	if t.head == nil {
		return fmt.Errorf("nn: the tree has no head")
	}
	if len(rows) > t.limits.Outputs {
		return fmt.Errorf("nn: %d rows of logits in a context for %d", len(rows), t.limits.Outputs)
	}
	t.in.Logits, t.dirty = rows, t.dirty || reverse
	begin := t.recorder.Mark()
	if err := t.holder.Hold(len(t.units), len(t.units)-1); err != nil {
		return err
	}
	defer t.holder.Release(len(t.units))
	if err := t.record(t.head, reverse); err != nil {
		return err
	}
	logits, gradient := t.Logits(), tensor.Tensor{}
	if reverse {
		gradient = t.recorder.Replace(logits)
	}
	err := f(logits, gradient)
	if err != nil || !reverse {
		return err
	}
	t.recorder.Reverse(begin)
	return t.synced(t.head)
}

// HiddenGradient is the gradient of what the units before the head made, which Head adds
// to and Backward takes. A caller whose tree has no head writes it.
func (t *Training) HiddenGradient() tensor.Tensor {
	t.dirty = true
	return t.recorder.Gradient(t.hidden)
}

// Gradient is that of side outputs, as a Trace sees them in a pass that remembers, or
// while Backward computes a unit again.
func (t *Training) Gradient(x tensor.Tensor) tensor.Tensor { return t.recorder.Gradient(x) }

// Backward reverses the units, the last one first, as far as there is something to train.
func (t *Training) Backward() error {
	t.dirty, t.taken = true, t.hidden
	for i := len(t.units) - 1; i >= t.first; i-- {
		if err := t.reverse(i); err != nil {
			return err
		}
	}
	if !t.taken.IsZero() { // nobody wants the gradient of its input
		t.recorder.Drop(t.taken)
	}
	t.dirty = false
	return nil
}

func (t *Training) reverse(i int) error {
	next := i - 1
	if next < t.first {
		next = -1
	}
	if err := t.holder.Hold(i, next); err != nil {
		return err
	}
	defer t.holder.Release(i)
	if !t.kept(i) {
		if err := t.again(i); err != nil {
			return err
		}
	}
	t.recorder.Reverse(t.marks[i])
	t.taken = t.begins[i]
	return t.synced(t.units[i])
}

// again runs a unit from its input and hands the gradient of its result over to where the
// result lies now.
func (t *Training) again(i int) error {
	t.marks[i] = t.recorder.Mark()
	if t.widths[i] > 0 {
		t.hidden = matrix(t.state[0], t.rows, t.widths[i])
		t.backend.Gather(t.hidden, t.input(i), t.iota[:t.rows])
	}
	t.begins[i] = t.hidden
	if err := t.record(t.units[i], true); err != nil {
		return err
	}
	if from, to := t.recorder.Gradient(t.taken), t.recorder.Gradient(t.hidden); !tensor.Same(from, to) {
		t.recorder.Add(to, from, 1)
		t.recorder.Drop(t.taken)
	}
	return nil
}

func (t *Training) synced(u *Unit) error {
	t.sync(u.Path)
	return t.err
}
