package model

import (
	"errors"
	"fmt"

	view "github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/train/tensor"
)

// Loss computes the loss of predicting each label from the tokens before it, plus the routers' loss
// if the model has one (see SetAuxiliary). It omits the first label of a text, which has no token
// before it. Without a reduction the result is [batch length], with 0 for padding. Loss never holds
// the logits of the whole batch: it computes the head's gradients together with the loss.
func (m *Model) Loss(tp *tensor.Tape, b Batch, o Options) (*tensor.Tensor, error) {
	t, err := m.lossOf(tp, b, o)
	if err != nil {
		return nil, err
	}
	return t.alone(tp)
}

// lossOf returns the task that computes a loss.
func (m *Model) lossOf(tp *tensor.Tape, b Batch, o Options) (*task, error) {
	l, err := m.newLoss(tp, b, o)
	if err != nil {
		return nil, err
	}
	return &task{l.pass, l.finish}, nil
}

// newLoss makes a loss but does not compute it.
func (m *Model) newLoss(tp *tensor.Tape, b Batch, o Options) (*loss, error) {
	if err := errors.Join(m.check(b), m.base.checkHead()); err != nil {
		return nil, err
	}
	labels := b.Labels
	if labels == nil {
		labels = b.IDs
	}
	ce := o.CrossEntropyOptions
	if err := m.checkLabels(labels, ce); err != nil {
		return nil, err
	}
	p, err := m.newPass(tp, b, o, func(p *pass) {
		if p.auxiliary != 0 {
			p.routers = newRouters(p.session, m.topK())
			p.given.Trace = p.routers
		}
	})
	if err != nil {
		return nil, err
	}
	labels = tensor.ShiftLabels(labels, b.Length, ce)
	p.layout.ignore(labels, b.Length, ce.Ignored())
	l := &loss{pass: p, options: o, o: ce, shape: []int{len(b.IDs) / b.Length, b.Length}, cooling: 1, divisor: ce.Divisor(labels), losses: make([]float32, p.layout.count())}
	if o.Temperature > 0 {
		l.cooling = 1 / o.Temperature
	}
	l.choose(labels)
	l.measures.make(&o, p.layout.count())
	return l, nil
}

// finish computes the loss from the states before the head.
func (l *loss) finish(tp *tensor.Tape) (*tensor.Tensor, error) {
	out, err := l.run(tp)
	if err != nil {
		l.leave()
		return nil, err
	}
	l.measures.take(&l.options, l.layout)
	return out, tp.Err()
}

func (m *Model) checkLabels(labels []int, o tensor.CrossEntropyOptions) error {
	if o.Reduction > tensor.None || !(o.Smoothing >= 0 && o.Smoothing <= 1) {
		return fmt.Errorf("model: loss: invalid reduction %d or label smoothing %g", o.Reduction, o.Smoothing)
	}
	for i, l := range labels {
		if l != o.Ignored() && (l < 0 || l >= m.spec.Vocab) {
			return fmt.Errorf("model: loss: got label %d at position %d, want one below %d", l, i, m.spec.Vocab)
		}
	}
	return nil
}

// loss is the state of one call of Loss.
type loss struct {
	*pass
	options Options
	o       tensor.CrossEntropyOptions
	shape   []int // of the batch
	divisor float64
	cooling float32 // factor of the logits: 1/temperature
	rows    []int32 // that have a label
	labels  []int32 // of all rows
	losses  []float32
	measures
}

// choose selects the rows whose labels count.
func (l *loss) choose(labels []int) {
	l.labels = make([]int32, l.layout.count())
	for i := range l.labels {
		label := labels[l.layout.id(i)]
		if l.labels[i] = int32(label); label != l.o.Ignored() {
			l.rows = append(l.rows, int32(i))
		}
	}
}

// perRow reports whether the losses are not reduced. Then the scales of gradients are unknown
// before Backward, which computes the head again.
func (l *loss) perRow() bool { return l.o.Reduction == tensor.None && l.o.Items <= 0 }

func (l *loss) run(tp *tensor.Tape) (*tensor.Tensor, error) {
	if err := l.entropy(l.learns && !l.perRow(), float32(1/l.divisor)); err != nil {
		return nil, err
	}
	if l.learns && !l.perRow() {
		l.redo = func() error { return l.entropy(true, float32(1/l.divisor)) }
	}
	extra := float32(0)
	if l.routers != nil {
		extra = l.auxiliary * l.routers.loss()
	}
	if l.perRow() {
		for i := range l.losses {
			l.losses[i] += extra
		}
		return l.result(tp, l.layout.spread(l.losses, 1), l.shape, l.backRows), nil
	}
	sum := 0.0
	for _, v := range l.losses {
		sum += float64(v)
	}
	return l.result(tp, []float32{float32(sum/l.divisor) + extra}, nil, func(grad []float32) error {
		if err := l.weights.adopt(l.backend, l.early, grad[0]); err != nil {
			return err
		}
		return l.backward(grad[0])
	}), nil
}

// entropy runs the head on the rows that count. It computes their losses and, if reverse is set,
// scale times the gradients.
func (l *loss) entropy(reverse bool, scale float32) error {
	if reverse {
		l.early = map[*tensor.Parameter][]float32{}
		l.weights.early = l.early
		defer func() { l.weights.early = nil }()
	}
	return l.heads(l.rows, reverse, func(rows []int32, logits, gradient view.Tensor) error {
		labels, losses := make([]int32, len(rows)), make([]float32, len(rows))
		for i, r := range rows {
			labels[i] = l.labels[r]
		}
		l.measure(logits, labels)
		l.crossEntropy(losses, gradient, logits, labels, scale)
		if err := l.recorder.Sync(); err != nil {
			return err
		}
		for i, r := range rows {
			l.losses[r] = losses[i]
		}
		l.keep(rows)
		return nil
	})
}

// crossEntropy computes losses, and scale times their gradients with respect to the logits.
func (l *loss) crossEntropy(losses []float32, gradient, logits view.Tensor, labels []int32, scale float32) {
	if l.cooling != 1 {
		logits = l.cooled(logits, gradient, len(labels))
	}
	l.backend.CrossEntropy(losses, gradient, logits, labels, scale*l.cooling, float32(l.o.Smoothing))
}

// cooled returns logits divided by the temperature. It divides in place if the loss overwrites the
// logits, because gradient then shares their memory, or if there is no gradient.
func (l *loss) cooled(logits, gradient view.Tensor, rows int) view.Tensor {
	to, width := logits, logits.Cols()
	if len(gradient.Data) > 0 && &gradient.Data[0] != &logits.Data[0] {
		to = view.Floats(make([]float32, rows*width), rows, width)
	}
	for i := range rows {
		x, y := logits.Slice(i, i+1).F32()[:width], to.Slice(i, i+1).F32()[:width]
		for k, v := range x {
			y[k] = v * l.cooling
		}
	}
	return to
}

// backRows computes the gradients if each row has its own gradient.
func (l *loss) backRows(grad []float32) error {
	routed := float32(0)
	grad = l.layout.take(grad, 1)
	for _, g := range grad {
		routed += g
	}
	err := l.heads(l.rows, true, func(rows []int32, logits, gradient view.Tensor) error {
		for from := 0; from < len(rows); {
			scale, to := grad[rows[from]], from+1 // process rows with equal scales together, such as those of one sequence
			for to < len(rows) && grad[rows[to]] == scale {
				to++
			}
			labels := make([]int32, to-from)
			for i, r := range rows[from:to] {
				labels[i] = l.labels[r]
			}
			l.crossEntropy(make([]float32, to-from), gradient.Slice(from, to), logits.Slice(from, to), labels, scale)
			from = to
		}
		return l.recorder.Sync()
	})
	if err != nil {
		return err
	}
	if l.routers != nil {
		l.routers.reverse(routed * l.auxiliary)
		l.routers = nil
	}
	return l.backward(1)
}
