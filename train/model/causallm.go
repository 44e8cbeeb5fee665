package model

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"

	"github.com/heftai/heft/internal/nn"
	view "github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/tensor"
)

// Options configures [Model.Loss].
type Options struct {
	tensor.CrossEntropyOptions
	// Recompute keeps only the input of each block and computes the block again in Backward. The
	// gradients are bit-identical.
	Recompute bool
	// Dropout draws which inputs of an adapter's pairs are dropped, with the probability in the
	// adapter's config. nil drops none, as in evaluation.
	Dropout tensor.RandomSource
	// Noise is added to the embeddings in training, as NEFTune does. nil adds none.
	Noise *Noise
	// Temperature divides the logits before the loss, like sampling at this temperature. 0 means 1.
	Temperature float32
	// Entropies, if not nil, receives for each label the entropy of its predicted distribution, in
	// nats, [batch length]. It is 0 for labels that do not count.
	Entropies *[]float32
	// MeanLogits, if not nil, receives for each label the mean of the logits over the vocabulary.
	// Top, if not nil, receives whether the label has the highest logit. Both have the shape of
	// Entropies and use the logits before Temperature.
	MeanLogits *[]float32
	Top        *[]bool
	// Auxiliary, if not nil, is the weight of the routers' loss, instead of [Model.SetAuxiliary]'s.
	Auxiliary *float32
	// NoGrad records nothing, as within the tape's NoGrad.
	NoGrad bool
	// Base skips the model's adapter and records nothing. The result is that of the weights without
	// the adapter, as for the reference of preference tuning.
	Base bool
}

// Noise is uniform noise on the embeddings of a batch, within ±Alpha/√(length · width).
type Noise struct {
	Alpha float64
	// Uniform fills x with numbers from lo to hi, as an *rng.Generator does.
	Uniform func(x []float32, lo, hi float32)
}

// of draws the noise for the rows of a batch: [rows, width]. Padding also consumes random numbers.
func (n *Noise) of(l *layout, length, width int) view.Tensor {
	x := make([]float32, l.ids*width)
	most := float32(n.Alpha) / float32(math.Sqrt(float64(length*width)))
	n.Uniform(x, -most, most)
	x = l.take(x, width)
	return view.Floats(x, len(x)/width, width)
}

// pass is one forward pass of a batch and, if needed, its reverse.
type pass struct {
	*lease
	m         *Model
	group     *group // nil for a pass outside a group
	number    int    // in the group
	gone      bool   // a pass of a group that learns nothing has ended
	widths    []int  // of the states before each unit, in a group
	layout    *layout
	length    int     // of the batch's sequences
	tokens    []int32 // of rows
	learns    bool    // Backward may follow
	adapts    bool    // the model's adapter is used
	way       nn.Way
	first     int // the first unit with a trained parameter
	cast      meta.DType
	dropout   tensor.RandomSource
	noise     *Noise
	auxiliary float32                         // weight of the routers' loss
	given     nn.Input                        // the input of Forward
	early     map[*tensor.Parameter][]float32 // gradients computed before Backward
	prepare   func()                          // called before each run; may be nil
	redo      func() error
	routers   *routers // nil if their loss is not needed
	// add, if not nil, adds to the gradient of a unit's result before the unit is reversed.
	add func(unit int, gradient view.Tensor)
}

// newPass makes a pass but does not start it. prepare, if not nil, changes the pass before each
// run.
func (m *Model) newPass(tp *tensor.Tape, b Batch, o Options, prepare func(p *pass)) (*pass, error) {
	switch {
	case tp == nil:
		return nil, errors.New("model: got a nil tape")
	case tp.Err() != nil:
		return nil, tp.Err()
	case !(o.Temperature >= 0):
		return nil, fmt.Errorf("model: Options.Temperature: got %v, want 0 or more", o.Temperature)
	case o.Noise != nil && o.Noise.Uniform == nil:
		return nil, errors.New("model: Options.Noise: got no Uniform that draws it")
	}
	p := &pass{m: m, layout: b.layout(), length: b.Length, first: m.first(), cast: castOf(tp), adapts: !o.Base, widths: make([]int, len(m.units)),
		dropout: o.Dropout, noise: o.Noise, auxiliary: m.auxiliary}
	if o.Auxiliary != nil {
		p.auxiliary = *o.Auxiliary
	}
	for i := range p.layout.count() {
		p.tokens = append(p.tokens, int32(b.IDs[p.layout.id(i)]))
	}
	if prepare != nil {
		p.prepare = func() { prepare(p) }
	}
	body := len(m.units) - 1
	p.learns = tp.Recording() && p.first <= body && !o.NoGrad && !o.Base
	if p.learns && p.first < body {
		switch p.way = nn.Remember; {
		case m.streams():
			p.way = nn.Reload
		case o.Recompute:
			p.way = nn.Recompute
		}
	}
	return p, nil
}

// start runs a batch up to the head.
func (m *Model) start(tp *tensor.Tape, b Batch, o Options, prepare func(p *pass)) (*pass, error) {
	p, err := m.newPass(tp, b, o, prepare)
	if err != nil {
		return nil, err
	}
	return p, p.start(tp)
}

// start runs a pass outside a group up to the head.
func (p *pass) start(tp *tensor.Tape) (err error) {
	if p.lease, err = p.m.enter(tp, p.tokens, p.layout, p.way); err != nil {
		return err
	}
	runtime.AddCleanup(p, (*lease).end, p.lease)
	p.given = p.input
	if err := p.draw(); err != nil {
		p.leave()
		return err
	}
	if err := p.forward(); err != nil {
		p.leave()
		return p.m.explain(err)
	}
	return nil
}

// draw adds the adapter and the random numbers to the input.
func (p *pass) draw() error {
	if p.adapts {
		if err := p.adapt(p.layout.count(), p.dropout); err != nil {
			return err
		}
	}
	if p.learns && p.noise != nil && p.noise.Alpha > 0 {
		p.given.Noise = p.noise.of(p.layout, p.length, p.m.spec.Hidden)
	}
	return nil
}

// ready completes the input for another run.
func (p *pass) ready() {
	if p.prepare != nil {
		p.prepare()
	}
	if p.cast != meta.Float32 {
		p.given.Prompts = slices.Repeat([]bool{true}, p.layout.count())
	}
}

// forward runs the units before the head.
func (p *pass) forward() error {
	p.ready()
	err := p.weights.begin(p.cast)
	if err == nil {
		err = p.expect(p.first)
	}
	if err == nil {
		err = p.training.Forward(&p.given, p.way, p.first)
		p.weights.leave()
	}
	if err == nil {
		err = p.m.unchanged()
	}
	return err
}

// wakeUp makes the pass ready for Backward. If another pass took its session, it runs again.
func (p *pass) wakeUp(tp *tensor.Tape) (err error) {
	if p.wake() {
		return nil
	}
	given := p.given
	if p.lease, err = p.m.enter(tp, p.tokens, p.layout, p.way); err != nil {
		return err
	}
	p.given = p.input
	p.given.Adapters, p.given.Drops, p.given.Noise = given.Adapters, given.Drops, given.Noise
	if len(given.Adapters) > 0 {
		if err := p.training.Allow(given.Adapters[0]); err != nil {
			return fmt.Errorf("model: %w", err)
		}
	}
	if err = p.forward(); err != nil {
		return p.m.explain(err)
	}
	if p.redo != nil {
		return p.redo()
	}
	return nil
}

// expect announces the order in which the pass uses the units: forwards, and backwards to the first
// one with a trained parameter.
func (p *pass) expect(first int) error {
	if p.m.base == nil {
		return nil
	}
	var units []int
	for i := range p.m.units {
		units = append(units, i)
	}
	for i := len(p.m.units) - 2; p.way != nn.Evaluate && i >= first; i-- {
		units = append(units, i)
	}
	return p.m.base.expect(units)
}

// adapt applies the model's adapter to all rows.
func (p *pass) adapt(rows int, dropout tensor.RandomSource) error {
	a := p.m.adapter
	if a == nil {
		return nil
	}
	if err := a.bind(p.m.program); err != nil {
		return err
	}
	p.given.Adapters = slices.Repeat([]*nn.Adapter{a.bound}, rows)
	if err := p.training.Allow(a.bound); err != nil {
		return fmt.Errorf("model: %w", err)
	}
	if rate := a.Config.Dropout; p.learns && dropout != nil && rate > 0 {
		p.given.Drops = newDropMask(dropout, rate)
	}
	return nil
}

// leave returns the session. Afterwards the session does not refer to the pass or the model, so a
// pass that is neither reversed nor freed can be garbage-collected.
func (p *pass) leave() {
	if p.group != nil {
		p.group.left(p)
		return
	}
	p.end()
}

// result records the result on the tape.
func (p *pass) result(tp *tensor.Tape, data []float32, shape []int, back func(grad []float32) error) *tensor.Tensor {
	switch {
	case !p.learns:
		p.leave()
	case p.group == nil:
		p.noteDraws()
		p.rest()
	}
	return tp.Function(tensor.Function{Name: "model", Data: data, Shape: shape, Trains: p.learns, Free: p.leave, Params: p.m.resident(),
		Backward: func(grad []float32) error {
			if p.group != nil {
				grad = slices.Clone(grad)
				return p.group.reversed(p, func() error { return back(grad) })
			}
			defer p.leave()
			if err := p.wakeUp(tp); err != nil {
				return err
			}
			return back(grad)
		}})
}

// backward reverses the units below the head. In a group that happens for all passes together.
func (p *pass) backward(scale float32) error {
	if p.routers != nil {
		p.routers.reverse(scale * p.auxiliary)
	}
	if p.group != nil {
		return p.group.scale(p, scale)
	}
	if scale != 1 {
		p.recorder.Scale(p.training.HiddenGradient(), scale, 0)
	}
	p.weights.reversing = true
	err := p.training.Backward(p.watched())
	p.weights.reversing = false
	p.weights.leave()
	if err == nil {
		err = p.weights.err
	}
	if err == nil {
		err = p.m.unchanged()
	}
	if err != nil {
		return p.m.explain(err)
	}
	return nil
}

// heads runs the head on rows, in chunks.
func (p *pass) heads(rows []int32, reverse bool, f func(rows []int32, logits, gradient view.Tensor) error) error {
	return p.parts((*nn.Training).Head, rows, reverse, f)
}

// last is the end of a pass: the head, or its norm alone.
type last func(t *nn.Training, rows []int32, reverse bool, f func(result, gradient view.Tensor) error) error

// parts runs the end of a pass on rows, in chunks.
func (p *pass) parts(run last, rows []int32, reverse bool, f func(rows []int32, result, gradient view.Tensor) error) error {
	if p.group != nil {
		return p.group.ends(p, reverse, func() error { return p.someParts(run, rows, reverse, f) })
	}
	p.weights.reversing = reverse
	defer func() {
		p.weights.reversing = false
		p.weights.leave()
	}()
	return p.someParts(run, rows, reverse, f)
}

func (p *pass) someParts(run last, rows []int32, reverse bool, f func(rows []int32, result, gradient view.Tensor) error) error {
	for some := range p.m.groups(rows, p.limits.Outputs) {
		if err := run(p.training, some, reverse, func(result, gradient view.Tensor) error { return f(some, result, gradient) }); err != nil {
			return p.m.explain(err)
		}
	}
	return nil
}

// Logits computes the logits at every position, [batch length vocabulary]. The logits of padding
// are zeros.
func (m *Model) Logits(tp *tensor.Tape, b Batch) (*tensor.Tensor, error) {
	if err := errors.Join(m.check(b), m.base.checkHead()); err != nil {
		return nil, err
	}
	p, err := m.start(tp, b, Options{}, nil)
	if err != nil {
		return nil, err
	}
	data, back, err := p.all((*nn.Training).Head, m.program.Vocab())
	if err != nil {
		p.leave()
		return nil, err
	}
	out := p.result(tp, data, []int{len(b.IDs) / b.Length, b.Length, m.program.Vocab()}, func(grad []float32) error {
		if err := back(grad); err != nil {
			return err
		}
		return p.backward(1)
	})
	return out, tp.Err()
}

// all runs the end of a pass on all rows. It returns the results, [ids, width], with zeros for
// padding. back takes their gradient and computes that of the last block's result.
func (p *pass) all(run last, width int) (data []float32, back func(grad []float32) error, err error) {
	all := make([]int32, p.layout.count())
	for i := range all {
		all[i] = int32(i)
	}
	data = make([]float32, len(all)*width)
	of := func(v []float32, rows []int32) view.Tensor {
		return view.Floats(v[int(rows[0])*width:][:len(rows)*width], len(rows), width)
	}
	err = p.parts(run, all, false, func(rows []int32, result, _ view.Tensor) error {
		return p.recorder.Copy(of(data, rows), result)
	})
	return p.layout.spread(data, width), func(grad []float32) error {
		grad = p.layout.take(grad, width)
		return p.parts(run, all, true, func(rows []int32, _, gradient view.Tensor) error {
			return p.recorder.Copy(gradient, of(grad, rows))
		})
	}, err
}
