package optim

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
)

// Param is what an optimizer steps, such as a *tensor.Parameter. Both slices stay the parameter's.
// Optimizers skip a parameter whose Grad is nil.
type Param interface {
	Data() []float32
	Grad() []float32
	// ZeroGrad drops the gradient: Grad is nil afterwards.
	ZeroGrad()
}

// Stored is a Param whose numbers may be elsewhere than in memory, as those of a *tensor.Parameter
// may. Optimizers bring them to memory one parameter at a time.
type Stored interface {
	Param
	// Len is the number of elements.
	Len() int
	// Acquire brings the numbers into memory until the matching Release; write is to change them.
	Acquire(write bool) ([]float32, error)
	// Release ends an Acquire and, after a write, stores the numbers.
	Release(write bool) error
}

// size is the number of elements of p.
func size(p Param) int {
	if s, ok := p.(Stored); ok {
		return s.Len()
	}
	return len(p.Data())
}

// change calls f with the numbers of p, to change them.
func change(p Param, f func(values []float32)) error {
	s, ok := p.(Stored)
	if !ok {
		f(p.Data())
		return nil
	}
	values, err := s.Acquire(true)
	if err != nil {
		return err
	}
	f(values)
	return s.Release(true)
}

// Vector is a Param in memory.
type Vector struct {
	Value    []float32
	Gradient []float32
}

func (v *Vector) Data() []float32 { return v.Value }
func (v *Vector) Grad() []float32 { return v.Gradient }
func (v *Vector) ZeroGrad()       { v.Gradient = nil }

// Group are parameters that are stepped alike. Its numbers may be changed between
// steps; schedulers change LR.
type Group struct {
	Params []Param
	// LR is the learning rate.
	LR float64
	// InitialLR is what a scheduler multiplies; it is set by the first one.
	InitialLR   float64
	WeightDecay float64
	// Momentum is that of SGD and RMSprop, and Adam's first beta.
	Momentum float64

	scheduled bool
}

// Optimizer is what schedulers, the scaler and the wrappers need of one.
type Optimizer interface {
	Groups() []*Group
	// DefaultLR is the rate that the optimizer was made with, whatever its groups have.
	DefaultLR() float64
	Step() error
	ZeroGrad()
}

// Stateful is what survives a restart.
type Stateful interface {
	State() State
	LoadState(State) error
}

// State is what an optimizer remembers between steps, in the order of its groups and
// their parameters.
type State struct {
	// Rule names the optimizer, as in "AdamW".
	Rule   string
	Groups []GroupState
	Params []ParamState
}

// GroupState are the numbers of a Group.
type GroupState struct {
	LR, InitialLR, WeightDecay, Momentum float64
	// Params is how many of State.Params are this group's.
	Params int
}

// ParamState is what an optimizer remembers of one parameter: Slots by torch's names
// ("exp_avg", "momentum_buffer", …), each as long as the parameter.
type ParamState struct {
	Step  int64
	Slots map[string][]float32
}

// rule is the arithmetic of one kind of optimizer.
type rule interface {
	name() string
	// slots are the memories that a parameter of g needs, in the order update gets them.
	slots(g *Group) []string
	// update returns the function that steps a run of elements, for a parameter's
	// step-th step (from 1).
	update(g *Group, step int64) func(w, grad []float32, slots [][]float32)
}

// starter is a rule whose memories do not start at 0.
type starter interface{ start() float32 }

type memory struct {
	step  int64
	slots map[string][]float32
}

// Descent is an optimizer that steps each parameter in a single pass.
type Descent struct {
	rule   rule
	def    Group
	groups []*Group
	memory map[Param]*memory
}

var (
	_ Optimizer = (*Descent)(nil)
	_ Stateful  = (*Descent)(nil)
)

func newDescent(r rule, def Group, params []Param) (*Descent, error) {
	switch {
	case !(def.LR >= 0):
		return nil, fmt.Errorf("optim: %s: learning rate %v", r.name(), def.LR)
	case !(def.WeightDecay >= 0):
		return nil, fmt.Errorf("optim: %s: weight decay %v", r.name(), def.WeightDecay)
	case !(def.Momentum >= 0):
		return nil, fmt.Errorf("optim: %s: momentum %v", r.name(), def.Momentum)
	}
	d := &Descent{rule: r, def: def, memory: map[Param]*memory{}}
	if len(params) > 0 {
		if err := d.AddGroup(params); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// AddGroup adds parameters with the optimizer's defaults, which change may change for
// them. A parameter may be in one group only.
func (d *Descent) AddGroup(params []Param, change ...func(*Group)) error {
	for i, p := range params {
		if p == nil {
			return fmt.Errorf("optim: parameter %d of the group is nil", i)
		}
		if d.memory[p] != nil {
			return fmt.Errorf("optim: parameter %d of the group is in the optimizer already", i)
		}
		d.memory[p] = &memory{slots: map[string][]float32{}}
	}
	g := d.def
	g.Params = slices.Clone(params)
	for _, f := range change {
		f(&g)
	}
	d.groups = append(d.groups, &g)
	return nil
}

func (d *Descent) Groups() []*Group   { return d.groups }
func (d *Descent) DefaultLR() float64 { return d.def.LR }

// ZeroGrad drops all gradients.
func (d *Descent) ZeroGrad() {
	for _, g := range d.groups {
		for _, p := range g.Params {
			p.ZeroGrad()
		}
	}
}

// Step steps every parameter that has a gradient. If a gradient has another length than its
// parameter, Step fails and steps nothing. If the numbers of a [Stored] parameter cannot be read or
// written, it fails after it stepped those before.
func (d *Descent) Step() error {
	for i, g := range d.groups {
		for j, p := range g.Params {
			if n := len(p.Grad()); p.Grad() != nil && n != size(p) {
				return fmt.Errorf("optim: group %d, parameter %d: got %d gradients, want %d", i, j, n, size(p))
			}
		}
	}
	for i, g := range d.groups {
		names := d.rule.slots(g)
		for j, p := range g.Params {
			if p.Grad() == nil {
				continue
			}
			m := d.memory[p]
			m.step++
			slots := make([][]float32, len(names))
			for i, name := range names {
				slots[i] = d.slot(m, name, size(p))
			}
			err := change(p, func(values []float32) { stepAll(d.rule.update(g, m.step), values, p.Grad(), slots) })
			if err != nil {
				return fmt.Errorf("optim: group %d, parameter %d: %w", i, j, err)
			}
		}
	}
	return nil
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

// share is how many elements are worth a goroutine.
const share = 1 << 16

// stepAll steps one parameter, in parts where it is large. Elements do not depend on
// each other, so the parts change nothing.
func stepAll(step func(w, grad []float32, slots [][]float32), w, grad []float32, slots [][]float32) {
	inParts(len(w), func(lo, hi int) {
		some := make([][]float32, len(slots))
		for j, s := range slots {
			some[j] = s[lo:hi]
		}
		step(w[lo:hi], grad[lo:hi], some)
	})
}

// inParts calls f with ranges of n elements, one for each thread where they are many. They
// begin at multiples of share.
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

// State returns what d remembers. The slots are d's own memory: save them before the
// next step.
func (d *Descent) State() State {
	s := State{Rule: d.rule.name()}
	for _, g := range d.groups {
		s.Groups = append(s.Groups, GroupState{g.LR, g.InitialLR, g.WeightDecay, g.Momentum, len(g.Params)})
		for _, p := range g.Params {
			m := d.memory[p]
			slots := make(map[string][]float32, len(m.slots))
			for name, x := range m.slots {
				slots[name] = x
			}
			s.Params = append(s.Params, ParamState{m.step, slots})
		}
	}
	return s
}

// LoadState goes on from s, which it copies. s must come from an optimizer of the same
// kind over parameters of the same sizes; otherwise d is unchanged.
func (d *Descent) LoadState(s State) error {
	if s.Rule != d.rule.name() {
		return fmt.Errorf("optim: the state of %s loaded into %s", s.Rule, d.rule.name())
	}
	if len(s.Groups) != len(d.groups) {
		return fmt.Errorf("optim: a state of %d groups loaded into %d", len(s.Groups), len(d.groups))
	}
	n := 0
	for i, g := range d.groups {
		if s.Groups[i].Params != len(g.Params) {
			return fmt.Errorf("optim: group %d: a state of %d parameters loaded into %d", i, s.Groups[i].Params, len(g.Params))
		}
		for j, p := range g.Params {
			if n++; n > len(s.Params) {
				return errors.New("optim: a state with fewer parameters than its groups say")
			}
			for name, x := range s.Params[n-1].Slots {
				if len(x) != size(p) {
					return fmt.Errorf("optim: group %d, parameter %d: %s has %d numbers, want %d", i, j, name, len(x), size(p))
				}
			}
		}
	}
	n = 0
	for i, g := range d.groups {
		from := s.Groups[i]
		g.LR, g.InitialLR, g.WeightDecay, g.Momentum = from.LR, from.InitialLR, from.WeightDecay, from.Momentum
		for _, p := range g.Params {
			m := &memory{step: s.Params[n].Step, slots: map[string][]float32{}}
			for name, x := range s.Params[n].Slots {
				m.slots[name] = slices.Clone(x)
			}
			d.memory[p] = m
			n++
		}
	}
	return nil
}
