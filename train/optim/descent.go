package optim

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
)

// Group holds parameters that share hyperparameters. These may be changed between steps;
// schedulers change LR.
type Group struct {
	Params []Param
	// LR is the learning rate.
	LR float64
	// InitialLR is the rate that schedulers multiply. The first scheduler sets it.
	InitialLR   float64
	WeightDecay float64
	// Momentum is the momentum of SGD and RMSprop, and Adam's first beta.
	Momentum float64
	// Adam makes Muon step the group's matrices by AdamW, too: for embeddings and heads.
	Adam bool

	scheduled bool
}

// Optimizer is the interface that schedulers, the scaler and the wrappers use.
type Optimizer interface {
	Groups() []*Group
	// DefaultLR returns the rate with which the optimizer was created, independent of its groups'
	// rates.
	DefaultLR() float64
	Step() error
	ZeroGrad()
}

// Stateful is an optimizer whose state can be saved and restored.
type Stateful interface {
	State() OptimizerState
	LoadState(OptimizerState) error
}

// OptimizerState is an optimizer's saved state, in the order of its groups and their parameters.
type OptimizerState struct {
	// Rule names the optimizer, as in "AdamW".
	Rule   string
	Groups []GroupState
	Params []ParamState
}

// GroupState holds the hyperparameters of a Group.
type GroupState struct {
	LR, InitialLR, WeightDecay, Momentum float64
	// Params is the number of entries in State.Params that belong to this group.
	Params int
}

// ParamState is an optimizer's state for one parameter: Slots under torch's names ("exp_avg",
// "momentum_buffer", …), each as long as the parameter, or those of [NewAdafactor] and
// [NewAdamW8bit].
type ParamState struct {
	Step  int64
	Slots map[string][]float32
	// Kept holds the slots that are outside memory and replaces Slots; see [Descent.KeepState].
	Kept map[string]Pieces
}

// rule is the arithmetic of one optimizer.
type rule interface {
	name() string
	// slots returns the names of the state arrays that a parameter of g needs, in update's order.
	slots(g *Group) []string
	// update returns the function that steps a run of elements, for a parameter's step-th step
	// (from 1).
	update(g *Group, step int64) func(w, grad []float32, slots [][]float32)
}

// starter is a rule whose state arrays do not start at 0.
type starter interface{ start() float32 }

type memory struct {
	step  int64
	slots map[string][]float32
	kept  map[string]Pieces // replaces slots
	done  int               // elements that an unfinished step has stepped
}

func newMemory() *memory { return &memory{slots: map[string][]float32{}} }

// Descent is an optimizer that steps each parameter in a single pass.
type Descent struct {
	rule   rule
	def    Group
	groups []*Group
	memory map[Param]*memory
	keeper *Keeper // nil if the state is in memory
}

var (
	_ Optimizer = (*Descent)(nil)
	_ Stateful  = (*Descent)(nil)
)

func newDescent(r rule, def Group, params []Param) (*Descent, error) {
	switch {
	case !(def.LR >= 0):
		return nil, fmt.Errorf("optim: %s: invalid learning rate %v", r.name(), def.LR)
	case !(def.WeightDecay >= 0):
		return nil, fmt.Errorf("optim: %s: invalid weight decay %v", r.name(), def.WeightDecay)
	case !(def.Momentum >= 0):
		return nil, fmt.Errorf("optim: %s: invalid momentum %v", r.name(), def.Momentum)
	}
	d := &Descent{rule: r, def: def, memory: map[Param]*memory{}}
	if len(params) > 0 {
		if err := d.AddGroup(params); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// AddGroup adds parameters with the optimizer's defaults, which change may modify. A parameter
// may be in only one group.
func (d *Descent) AddGroup(params []Param, change ...func(*Group)) error {
	for i, p := range params {
		if p == nil {
			return fmt.Errorf("optim: parameter %d of the group is nil", i)
		}
		if d.memory[p] != nil {
			return fmt.Errorf("optim: parameter %d of the group is already in the optimizer", i)
		}
		d.memory[p] = newMemory()
	}
	g := d.def
	g.Params = slices.Clone(params)
	for _, f := range change {
		f(&g)
	}
	d.groups = append(d.groups, &g)
	return nil
}

// Replace replaces each parameter by f's result, such as a part of it, in order. It returns an
// error and leaves d unchanged if f fails or if d has stepped. If d steps whole parameters, f's
// results must have a method Whole that reports that they are whole parameters or nothing of
// them.
func (d *Descent) Replace(f func(Param) (Param, error)) error {
	_, shaped := d.rule.(shaped)
	var all [][]Param
	for i, g := range d.groups {
		var params []Param
		for j, p := range g.Params {
			if d.memory[p].step > 0 {
				return errors.New("optim: replace parameters: the optimizer has stepped")
			}
			q, err := f(p)
			if err != nil {
				return fmt.Errorf("optim: group %d, parameter %d: %w", i, j, err)
			}
			if w, ok := q.(interface{ Whole() bool }); shaped && !(ok && w.Whole()) {
				return fmt.Errorf("optim: replace parameters: %s: %w", d.rule.name(), errWhole)
			}
			params = append(params, q)
		}
		all = append(all, params)
	}
	clear(d.memory)
	for i, g := range d.groups {
		g.Params = all[i]
		for _, p := range g.Params {
			d.memory[p] = newMemory()
		}
	}
	return nil
}

// Groups returns the groups. Their hyperparameters may be changed between steps.
func (d *Descent) Groups() []*Group { return d.groups }

// DefaultLR returns the rate with which d was created.
func (d *Descent) DefaultLR() float64 { return d.def.LR }

// StateBytes returns the size in bytes of the state of a parameter with the given shape, once the
// parameter has stepped. A shape without dimensions is one element. It is for groups with the
// optimizer's defaults: Group.Adam and another Momentum may change it.
func (d *Descent) StateBytes(shape ...int) int64 {
	n := int64(1)
	for _, dim := range shape {
		n *= int64(dim)
	}
	if r, ok := d.rule.(shaped); ok {
		_, lengths := r.arrays(&d.def, shape)
		n = 0
		for _, l := range lengths {
			n += int64(l)
		}
		return stateSize * n
	}
	return stateSize * n * int64(len(d.rule.slots(&d.def)))
}

const stateSize = 4 // bytes of a number of the state

// ZeroGrad drops all gradients.
func (d *Descent) ZeroGrad() {
	for _, g := range d.groups {
		for _, p := range g.Params {
			p.ZeroGrad()
		}
	}
}

// Step steps every parameter that has a gradient. If a gradient has the wrong length, Step
// returns an error and steps nothing. If the values of a [Stored] parameter cannot be read or
// written, it returns an error after stepping the earlier parameters; after [Descent.KeepState]
// the next Step then continues.
func (d *Descent) Step() error {
	for i, g := range d.groups {
		for j, p := range g.Params {
			if n := len(p.Grad()); p.Grad() != nil && n != size(p) {
				return fmt.Errorf("optim: group %d, parameter %d: got %d gradients, want %d", i, j, n, size(p))
			}
		}
	}
	for i, g := range d.groups {
		for j, p := range g.Params {
			if !hasGrad(p) {
				continue
			}
			step := d.stepParam
			if d.keeper != nil {
				step = d.stepKept
			}
			if err := step(g, p); err != nil {
				return fmt.Errorf("optim: group %d, parameter %d: %w", i, j, err)
			}
		}
	}
	return nil
}

// stepParam steps a parameter that has a gradient.
func (d *Descent) stepParam(g *Group, p Param) error {
	m := d.memory[p]
	m.step++
	return withGrad(p, false, func(grad []float32) error {
		if r, ok := d.rule.(shaped); ok {
			shape := shapeOf(p)
			names, lengths := r.arrays(g, shape)
			slots := make([][]float32, len(names))
			for i, name := range names {
				slots[i] = d.slot(m, name, lengths[i])
			}
			return change(p, func(values []float32) error { r.stepWhole(g, m.step, shape, values, grad, slots); return nil })
		}
		names := d.rule.slots(g)
		slots := make([][]float32, len(names))
		for i, name := range names {
			slots[i] = d.slot(m, name, size(p))
		}
		return change(p, func(values []float32) error { stepAll(d.rule.update(g, m.step), values, grad, slots); return nil })
	})
}

func (d *Descent) slot(m *memory, name string, n int) []float32 {
	s := m.slots[name]
	if s == nil {
		s = make([]float32, n)
		if r, ok := d.rule.(starter); ok && r.start() != 0 {
			for i := range s {
				s[i] = r.start()
			}
		}
		m.slots[name] = s
	}
	return s
}

// share is the minimum number of elements per goroutine.
const share = 1 << 16

// stepAll steps one parameter, in parts if it is large. Elements are independent of each other,
// so the division does not change the result.
func stepAll(step func(w, grad []float32, slots [][]float32), w, grad []float32, slots [][]float32) {
	inParts(len(w), func(lo, hi int) {
		some := make([][]float32, len(slots))
		for j, s := range slots {
			some[j] = s[lo:hi]
		}
		step(w[lo:hi], grad[lo:hi], some)
	})
}

// inParts calls f with ranges of n elements, one per thread if n is large. Ranges begin at
// multiples of share.
func inParts(n int, f func(lo, hi int)) {
	parts := min(runtime.GOMAXPROCS(0), n/share)
	if parts < 2 {
		f(0, n)
		return
	}
	var wg sync.WaitGroup
	lo := 0
	for i := range parts {
		hi := n
		if i+1 < parts {
			hi = (i + 1) * n / parts / share * share
		}
		begin := lo
		wg.Go(func() { f(begin, hi) })
		lo = hi
	}
	wg.Wait()
}

// State returns d's state. The slots are d's own memory: save them before the next step.
func (d *Descent) State() OptimizerState {
	s := OptimizerState{Rule: d.rule.name()}
	for _, g := range d.groups {
		s.Groups = append(s.Groups, GroupState{g.LR, g.InitialLR, g.WeightDecay, g.Momentum, len(g.Params)})
		for _, p := range g.Params {
			m := d.memory[p]
			slots := make(map[string][]float32, len(m.slots))
			for name, x := range m.slots {
				slots[name] = x
			}
			s.Params = append(s.Params, ParamState{m.step, slots, maps.Clone(m.kept)})
		}
	}
	return s
}

// LoadState restores a copy of s. s must come from an optimizer of the same kind over parameters
// of the same sizes; otherwise LoadState returns an error and d is unchanged. It also returns an
// error if state outside memory cannot be read or written; d then has a part of s.
func (d *Descent) LoadState(s OptimizerState) error {
	if s.Rule != d.rule.name() {
		return fmt.Errorf("optim: load state: got a state of %s, want %s", s.Rule, d.rule.name())
	}
	if len(s.Groups) != len(d.groups) {
		return fmt.Errorf("optim: load state: got %d groups, want %d", len(s.Groups), len(d.groups))
	}
	n := 0
	for i, g := range d.groups {
		if s.Groups[i].Params != len(g.Params) {
			return fmt.Errorf("optim: load state: group %d: got %d parameters, want %d", i, s.Groups[i].Params, len(g.Params))
		}
		for j, p := range g.Params {
			if n++; n > len(s.Params) {
				return errors.New("optim: load state: got fewer parameters than its groups have")
			}
			lengths := slotLengths(d.rule, g, p)
			for _, name := range s.Params[n-1].Names() {
				want := size(p)
				if lengths != nil {
					want = lengths[name]
				}
				if got := s.Params[n-1].Len(name); got != want {
					return fmt.Errorf("optim: load state: group %d, parameter %d: %s has %d elements, want %d", i, j, name, got, want)
				}
			}
		}
	}
	n = 0
	for i, g := range d.groups {
		from := s.Groups[i]
		g.LR, g.InitialLR, g.WeightDecay, g.Momentum = from.LR, from.InitialLR, from.WeightDecay, from.Momentum
		for _, p := range g.Params {
			m, err := d.restored(s.Params[n], size(p))
			if err != nil {
				return fmt.Errorf("optim: load state: parameter %d: %w", n, err)
			}
			d.memory[p] = m
			n++
		}
	}
	return nil
}
