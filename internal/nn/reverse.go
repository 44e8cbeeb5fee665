package nn

import (
	"fmt"
	"slices"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// A Holder loads and releases the weights of units. A unit is held during its forward pass and
// its backward pass. From Hold to Release, the memory returned by Parts must not move, including
// that of experts.
type Holder interface {
	Weights
	// Hold loads unit i. next is the unit that will be held next, so that it can be prefetched,
	// or -1.
	Hold(i, next int) error
	Release(i int)
}

// Training runs forward and backward passes, on a context whose backend is a Recorder.
//
// A pass is [Training.Forward], then any number of [Training.Head], then optionally
// [Training.Backward]. The recorder's weights determine where weight gradients go. Gradients are
// bitwise equal whether or not units are recomputed.
type Training struct {
	*Context
	recorder backend.Recorder
	holder   Holder
	units    []*Unit // all units before the head
	head     *Unit   // nil for a tree without a head
	first    int     // the first unit of the backward pass, which runs last
	way      Way
	dirty    bool // there are gradients that no Backward has used
	marks    []backend.Mark
	begins   []tensor.Tensor // the units' inputs when they were recorded
	widths   []int           // widths of the inputs kept for recomputing the units
	// taken is the output of the next unit of the backward pass. The recorder stores its gradient
	// under this key.
	taken  tensor.Tensor
	inputs tensor.Tensor // input of each unit, [units·rows, width], if units are recomputed
	// choices holds the positions that each unit with an indexer selects, [choosers·rows,
	// chosen], if later units that share them are recomputed.
	choices tensor.Tensor
}

// NewTraining allocates memory for passes within the limits l. l.Outputs bounds the rows of one
// Head. The recorder's weights and h must be two views of the same weights.
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
	for _, m := range []*tensor.Tensor{&t.inputs, &t.choices} {
		if !m.IsZero() {
			t.recorder.Free(*m)
			*m = tensor.Tensor{}
		}
	}
	t.Context.Close()
}

// A Way selects which activations a forward pass keeps for Backward.
type Way uint8

// The ways to run a pass.
const (
	Evaluate  Way = iota // keep nothing; Backward is not possible
	Remember             // keep all activations
	Recompute            // keep the units' inputs; Backward recomputes each unit
	// Reload is Recompute for weights that may move between Release and the next Hold of their
	// unit: Backward recomputes the last unit, too.
	Reload
)

// Forward runs the units before the head. first is the first unit with trained parameters, at
// which Backward stops.
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
	if way >= Recompute {
		if err := t.makeInputs(); err != nil {
			return err
		}
	}
	for i := range t.units {
		if i >= first && way >= Recompute && !t.kept(i) {
			t.saveInput(i)
		}
		t.marks[i], t.begins[i] = t.recorder.Mark(), t.hidden
		if err := t.unit(i, i+1, i >= first && t.kept(i)); err != nil {
			return err
		}
	}
	return nil
}

// kept reports whether the record of unit i is kept for its backward pass. That of the last unit
// always is, because it is reversed first.
func (t *Training) kept(i int) bool {
	return t.way == Remember || t.way == Recompute && i == len(t.units)-1
}

// unit holds and runs unit i.
func (t *Training) unit(i, next int, record bool) error {
	if next >= len(t.program.Units) {
		next = -1
	}
	if err := t.holder.Hold(i, next); err != nil {
		return err
	}
	defer t.holder.Release(i)
	t.takeChoice(i)
	return t.record(t.program.Units[i], record)
}

func (t *Training) record(u *Unit, record bool) error {
	if record {
		t.recorder.Record()
		defer t.recorder.Pause()
	}
	return u.Run(t.Context)
}

// recordAgain records a unit that has run before, so that nothing reads its result unless a Trace does.
func (t *Training) recordAgain(u *Unit) error {
	if s, ok := u.step.(*ruleStep); ok && t.in.Trace == nil {
		_, t.in.unread = s.rule.(*block)
	}
	defer func() { t.in.unread = false }()
	return t.record(u, true)
}

// makeInputs allocates memory for the inputs of the units.
func (t *Training) makeInputs() (err error) {
	if t.inputs.IsZero() {
		t.inputs, err = t.recorder.New(meta.Float32, len(t.units)*t.limits.Rows, t.program.width)
	}
	if n := len(t.program.choosers); err == nil && t.program.choiceShared && t.choices.IsZero() {
		t.choices, err = t.recorder.New(meta.Float32, n*t.limits.Rows, t.program.chosen)
	}
	if err != nil {
		return fmt.Errorf("nn: memory for the inputs of units: %w", err)
	}
	return nil
}

// takeChoice lets unit i write its selected positions to memory of its own, or read those of the
// preceding unit with an indexer.
func (t *Training) takeChoice(i int) {
	if t.choices.IsZero() || t.way < Recompute {
		return
	}
	n, found := slices.BinarySearch(t.program.choosers, i)
	if !found {
		n--
	}
	if n >= 0 {
		at := n * t.limits.Rows
		t.chosen = matrix(t.choices.Slice(at, at+t.rows), t.rows, t.program.chosen)
	}
}

// saveInput saves the hidden state before unit i. The first unit may have none.
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

// Head runs the head on rows and calls f with their logits, [len(rows), vocab], which are valid
// during the call. If reverse is set, f must write the gradient of the logits to gradient, which
// may share their memory. Head then propagates it back through the head.
func (t *Training) Head(rows []int32, reverse bool, f func(logits, gradient tensor.Tensor) error) error {
	return t.end(rows, nil, reverse, f)
}

// Norm is Head for the hidden states after the final norm, [len(rows), hidden], without logits.
func (t *Training) Norm(rows []int32, reverse bool, f func(normed, gradient tensor.Tensor) error) error {
	return t.end(nil, rows, reverse, f)
}

// end runs the last unit for rows of logits or for rows of states after the final norm.
func (t *Training) end(logits, normed []int32, reverse bool, f func(result, gradient tensor.Tensor) error) error {
	if t.head == nil {
		return fmt.Errorf("nn: the module tree has no head")
	}
	if n := max(len(logits), len(normed)); n > t.limits.Outputs {
		return fmt.Errorf("nn: got %d rows for the head, want at most %d", n, t.limits.Outputs)
	}
	t.in.Logits, t.in.Normed, t.dirty = logits, normed, t.dirty || reverse
	trace := t.in.Trace
	t.in.Trace = nil // otherwise each call would compute the norm of all rows
	defer func() { t.in.Trace = trace }()
	begin := t.recorder.Mark()
	if err := t.holder.Hold(len(t.units), len(t.units)-1); err != nil {
		return err
	}
	defer t.holder.Release(len(t.units))
	if err := t.record(t.head, reverse); err != nil {
		return err
	}
	result, gradient := t.Logits(), tensor.Tensor{}
	if len(normed) > 0 {
		result = t.Normed()
	}
	if reverse {
		gradient = t.recorder.Replace(result)
	}
	err := f(result, gradient)
	if err != nil || !reverse {
		return err
	}
	t.recorder.Reverse(begin)
	return t.synced(t.head)
}

// HiddenGradient returns the gradient of the last hidden states before the head. Head adds to it
// and Backward reads it. For a tree without a head the caller writes it.
func (t *Training) HiddenGradient() tensor.Tensor {
	t.dirty = true
	return t.recorder.Gradient(t.hidden)
}

// Gradient returns the gradient of x, which a Trace has received. It is available in a pass that
// remembers, and while Backward recomputes a unit.
func (t *Training) Gradient(x tensor.Tensor) tensor.Tensor { return t.recorder.Gradient(x) }

// Backward runs the backward pass from the last unit to the first one with trained parameters.
// Before each unit it calls add, if not nil, with the unit's number and the gradient of its
// result. add may add to this gradient.
func (t *Training) Backward(add func(unit int, gradient tensor.Tensor)) error {
	t.dirty, t.taken = true, t.hidden
	for i := len(t.units) - 1; i >= t.first; i-- {
		if add != nil {
			add(i, t.recorder.Gradient(t.taken))
		}
		if err := t.reverse(i); err != nil {
			return err
		}
	}
	if !t.taken.IsZero() { // the gradient of the first unit's input is not needed
		t.recorder.Drop(t.taken)
	}
	t.dropUnread()
	t.dirty = false
	return nil
}

// dropUnread clears gradients that belong to units before the first trained one: those that later
// units have passed to them other than through hidden states, such as per-layer inputs and cached
// keys and values.
func (t *Training) dropUnread() {
	if t.first > 0 {
		t.recorder.Drop(t.Context.inputs)
	}
	for _, u := range t.units[:min(t.first, len(t.units))] {
		for _, layer := range u.Layers {
			if !t.program.Shared(layer) {
				continue
			}
			kv := t.in.KV[layer]
			for _, x := range []tensor.Tensor{kv.K, kv.V} {
				t.recorder.Drop(matrix(x, x.Elements(), 1))
			}
		}
	}
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

// again recomputes a unit from its input and moves the gradient of its output to the output's
// present memory.
func (t *Training) again(i int) error {
	t.marks[i] = t.recorder.Mark()
	if t.widths[i] > 0 {
		t.hidden = matrix(t.state[0], t.rows, t.widths[i])
		t.backend.Gather(t.hidden, t.input(i), t.iota[:t.rows])
	}
	t.begins[i] = t.hidden
	t.takeChoice(i)
	if err := t.recordAgain(t.units[i]); err != nil {
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
