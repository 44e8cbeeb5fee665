package model

import (
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/heftai/heft/internal/nn"
	view "github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/tensor"
)

// Sweeps reports whether [Model.Losses] reads streamed weights once for all of its batches. It does
// not if units read more of earlier units than hidden states, or if units share trained parameters,
// because the order of their gradients' sums would change. If adapters drop inputs, one batch must
// have been trained by [Model.Loss] before, which shows how many random numbers a batch draws.
func (m *Model) Sweeps() bool {
	return m.base.streams() && !m.offloads() && m.program.Separable() && !m.sharesTrained() &&
		(m.adapter == nil || m.adapter.Config.Dropout == 0 || m.draws.Load() == drawsAlike)
}

// What passes outside groups have shown about the random numbers that a pass draws.
const (
	drawsUnknown = iota
	drawsAlike   // one for each input of each adapted map, per row
	drawsOther
)

// noteDraws records how many random numbers a pass has drawn.
func (p *pass) noteDraws() {
	d, ok := p.given.Drops.(*dropMask)
	if !ok || d == nil {
		return
	}
	if d.given != p.m.adapter.inputs()*p.layout.count() {
		p.m.draws.Store(drawsOther)
	}
	p.m.draws.CompareAndSwap(drawsUnknown, drawsAlike)
}

// inputs returns the sum of the input widths of adapted maps.
func (a *adapter) inputs() (n int) {
	for i := range a.Pairs {
		n += a.Pairs[i].In
	}
	return n
}

// sharesTrained reports whether two units read the same trained parameter.
func (m *Model) sharesTrained() bool {
	seen := map[*tensor.Parameter]bool{}
	for _, u := range m.units {
		for _, t := range u.trained {
			if t.Trainable && seen[t] {
				return true
			}
			seen[t] = true
		}
	}
	return m.adapter != nil && m.sharesAdapted()
}

// sharesAdapted reports whether two units run an adapted module.
func (m *Model) sharesAdapted() bool {
	for _, p := range m.adapter.Pairs {
		at, units := m.meta.Root.Find(p.Path).Resolve(), 0
		for _, u := range m.program.Units {
			if slices.ContainsFunc(u.Modules, func(n nn.Node) bool { return holds(n.Module, at) }) {
				units++
			}
		}
		if units > 1 {
			return true
		}
	}
	return false
}

// Losses computes [Model.Loss] of several batches. If [Model.Sweeps], all batches pass through a
// unit before the weights of the next unit are read, and so does Backward in reverse: only its call
// for the last of the losses computes the gradients of all. Losses, gradients and random numbers
// are bitwise those of one batch after the other, each followed by its Backward. Reverse all of the
// losses that are recorded, or Reset their tape.
//
// Batches with [Options].NoGrad or Base share the forward sweep of the others. [Activations] limits
// the memory of the states between units.
func (m *Model) Losses(tp *tensor.Tape, batches []Batch, options []Options) ([]*tensor.Tensor, error) {
	return m.together(tp, "losses", batches, options, m.lossOf)
}

// HiddenStatesOfBatches computes [Model.HiddenStates] of several batches, as Losses computes
// losses.
func (m *Model) HiddenStatesOfBatches(tp *tensor.Tape, batches []Batch, options []Options) ([]*tensor.Tensor, error) {
	return m.together(tp, "hidden states", batches, options, m.statesOf)
}

// A task is a pass, and the function that computes its result from the states before the head.
type task struct {
	pass   *pass
	finish func(tp *tensor.Tape) (*tensor.Tensor, error)
}

// alone runs a task outside a group.
func (t *task) alone(tp *tensor.Tape) (*tensor.Tensor, error) {
	if err := t.pass.start(tp); err != nil {
		return nil, err
	}
	return t.finish(tp)
}

// together runs the tasks of several batches: in a group if they share a sweep, and otherwise one
// after the other.
func (m *Model) together(tp *tensor.Tape, name string, batches []Batch, options []Options, of func(*tensor.Tape, Batch, Options) (*task, error)) ([]*tensor.Tensor, error) {
	if len(batches) != len(options) {
		return nil, fmt.Errorf("model: %s: got %d batches and options for %d", name, len(batches), len(options))
	}
	var g *group
	if len(batches) > 1 && m.Sweeps() {
		g = &group{m: m, backs: make([]func() error, len(batches))}
	}
	out := make([]*tensor.Tensor, len(batches))
	var all []*task
	for i, b := range batches {
		t, err := of(tp, b, options[i])
		if err == nil && g == nil {
			out[i], err = t.alone(tp)
		}
		if err != nil {
			return nil, err
		}
		if all = append(all, t); g != nil {
			t.pass.group, t.pass.number = g, i
			g.passes = append(g.passes, t.pass)
		}
	}
	if g == nil {
		return out, nil
	}
	if err := g.run(tp, all, out); err != nil {
		return nil, err
	}
	return out, nil
}

// run runs the tasks of the group's passes up to their results.
func (g *group) run(tp *tensor.Tape, all []*task, out []*tensor.Tensor) error {
	err := g.forward(tp)
	for i, t := range all {
		if err == nil {
			out[i], err = t.finish(tp)
		}
	}
	if err == nil {
		err = g.m.unchanged()
	}
	if err != nil {
		g.dropped = true
		g.end()
		return err
	}
	if !g.over { // Backward follows
		g.lease.weights.leave()
	}
	return tp.Err()
}

// A group is several passes that go through each unit together, in order, so that its weights are
// read once. The passes take turns in one session. Their states between units are in its between.
type group struct {
	m       *Model
	passes  []*pass
	lease   *lease
	open    int            // passes that have not left
	backs   []func() error // by pass: requested by Backward
	dropped bool           // a pass left without Backward
	over    bool
}

var errDropped = errors.New("model: a loss of Losses was dropped without Backward, which the others wait for: reverse all of them")

// forward runs the units before the head.
func (g *group) forward(tp *tensor.Tape) error {
	if err := g.enter(tp); err != nil {
		return err
	}
	w, body := g.lease.weights, len(g.m.units)-1
	for i := range body {
		if err := w.Hold(i, i+1); err != nil {
			return g.m.explain(err)
		}
		g.pack()
		for _, p := range g.passes {
			if err := g.unit(p, i); err != nil {
				return g.m.explain(err)
			}
		}
	}
	g.pack() // the head
	return nil
}

// pack lets the passes share packed weights of the next unit.
func (g *group) pack() { g.lease.backend.KeepPacked(g.lease.packed) }

// enter takes a session with room for each of the passes and begins the passes.
func (g *group) enter(tp *tensor.Tape) (err error) {
	first := g.passes[0]
	if i := slices.IndexFunc(g.passes, func(p *pass) bool { return p.learns }); i >= 0 {
		first = g.passes[i] // the others end with the forward sweep
	}
	if g.lease, err = g.m.enter(tp, first.tokens, first.layout, first.way); err != nil {
		return err
	}
	g.open = len(g.passes)
	runtime.AddCleanup(g, (*lease).end, g.lease)
	s := g.lease.session
	if s.between == nil {
		s.between = newBetween(g.m.activations)
	}
	if n := g.m.base.packed(); n > 0 && s.packed.IsZero() {
		if s.packed, err = s.backend.New(meta.Float32, int(n/4)); err != nil {
			return fmt.Errorf("model: memory for packed weights: %w", err)
		}
	}
	if err := s.weights.begin(first.cast); err != nil {
		return err
	}
	for range 2 { // again once all have room and memory is final
		for _, p := range g.passes {
			if err := s.fit(p.tokens, p.layout, p.way, g.m.outputs()); err != nil {
				return err
			}
			p.given = s.input
		}
	}
	for _, p := range g.passes {
		p.lease = g.lease
		if err := p.draw(); err != nil {
			return err
		}
		p.ready()
		if d, ok := p.given.Drops.(*dropMask); ok {
			d.draw(g.m.adapter.inputs() * p.layout.count()) // before the next pass draws
		}
	}
	return first.expect(first.first)
}

// place returns the place of the states before unit i. States that Backward does not need share a
// place.
func (p *pass) place(i int) int {
	if p.way == nn.Evaluate {
		return 0
	}
	return max(i-p.first, 0)
}

// to makes p the current pass of the session, at unit i.
func (g *group) to(p *pass, i int) error {
	in := p.given
	if i == 0 {
		return p.training.Enter(&in)
	}
	return p.between.use(p.number, p.place(i), p.layout.count()*p.widths[i], false, func(x []float32) error {
		in.Hidden = states(x, p.layout.count())
		return p.training.Enter(&in)
	})
}

// unit runs unit i of a pass.
func (g *group) unit(p *pass, i int) error {
	if err := g.to(p, i); err != nil {
		return err
	}
	if err := p.training.RunAlone(i); err != nil {
		return err
	}
	p.widths[i+1] = p.training.Hidden().Cols()
	return g.keep(p, i+1, p.training.Hidden())
}

// keep stores the states before unit i, or their gradient, in their place.
func (g *group) keep(p *pass, i int, x view.Tensor) error {
	return p.between.put(p.number, p.place(i), x.Elements(), func(to []float32) error {
		return p.recorder.Copy(states(to, x.Rows()), x)
	})
}

// ends calls run to compute the head of a pass. If Backward may follow, the gradient of the states
// before the head replaces them.
func (g *group) ends(p *pass, reverse bool, run func() error) error {
	last := len(g.m.units) - 1
	err := g.to(p, last)
	if err == nil {
		err = run()
	}
	if err == nil && reverse {
		err = p.training.TakeGradient(func(gradient view.Tensor) error { return g.keep(p, last, gradient) })
	}
	return err
}

// scale multiplies the gradient of the states before the head.
func (g *group) scale(p *pass, by float32) error {
	if by == 1 {
		return nil
	}
	last := len(g.m.units) - 1
	return p.between.use(p.number, p.place(last), p.layout.count()*p.widths[last], true, func(x []float32) error {
		p.backend.Scale(states(x, p.layout.count()), by, 0)
		return p.backend.Sync()
	})
}

// reversed records that Backward has reached a pass. The last pass reverses all.
func (g *group) reversed(p *pass, back func() error) error {
	if g.dropped {
		return errDropped
	}
	g.backs[p.number] = back
	if g.open--; g.open > 0 {
		return nil
	}
	defer g.end()
	for _, back := range g.backs {
		if back == nil { // the pass learns nothing
			continue
		}
		if err := back(); err != nil {
			return err
		}
	}
	err := g.backward()
	g.lease.weights.leave()
	if err == nil {
		err = g.lease.weights.err
	}
	if err == nil {
		err = g.m.unchanged()
	}
	if err != nil {
		return g.m.explain(err)
	}
	return nil
}

// backward reverses the units below the head.
func (g *group) backward() error {
	w, first := g.lease.weights, g.passes[0].first
	for i := len(g.m.units) - 2; i >= first; i-- {
		next := i - 1
		if next < first {
			next = -1
		}
		if err := w.Hold(i, next); err != nil {
			return err
		}
		g.pack()
		for _, p := range g.passes {
			if !p.learns {
				continue
			}
			if err := g.reverse(p, i); err != nil {
				return err
			}
		}
	}
	return nil
}

// reverse reverses unit i of a pass.
func (g *group) reverse(p *pass, i int) error {
	if err := g.to(p, i); err != nil {
		return err
	}
	after := p.place(i + 1)
	err := p.between.use(p.number, after, p.layout.count()*p.widths[i+1], false, func(x []float32) error {
		return p.training.ReverseAlone(i, states(x, p.layout.count()), func(gradient view.Tensor) error {
			if i == p.first {
				return nil
			}
			return g.keep(p, i, gradient)
		})
	})
	p.between.drop(p.number, after)
	return err
}

// left records that a pass is no longer needed. If its Backward was still to come, the group ends.
func (g *group) left(p *pass) {
	switch {
	case g.over || p.gone || g.backs[p.number] != nil:
	case p.learns:
		g.dropped = true
		g.end()
	default:
		p.gone = true
		p.between.drop(p.number, 0)
		if g.open--; g.open == 0 {
			g.end()
		}
	}
}

// end returns the session to the pool.
func (g *group) end() {
	if !g.over && g.lease != nil {
		g.lease.end()
	}
	g.over = true
}

// holds reports whether the tree of root contains m.
func holds(root, m *meta.Module) bool {
	for _, node := range root.Walk() {
		if node.Resolve() == m {
			return true
		}
	}
	return false
}
