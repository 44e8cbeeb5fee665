package model

import (
	view "github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/train/tensor"
)

// resident returns the trained parameters, in the order of the units, if all of them stay in
// memory. Otherwise it returns nil: all ranks acquire and release such parameters together, and no
// exchange of gradients may come in between.
func (ps *parameters) resident() []*tensor.Parameter {
	var all []*tensor.Parameter
	for _, t := range ps.numbered {
		if _, ok := t.Storage().(tensor.Memory); !ok || t.KeepsGrad() {
			return nil
		}
		if t.Trainable {
			all = append(all, t)
		}
	}
	return all
}

// watched returns a function that calls p.add after it has told the tape which gradients are
// complete: those of parameters used by no unit that is still to be reversed.
func (p *pass) watched() func(unit int, gradient view.Tensor) {
	tape := p.tape.Value()
	if tape == nil || p.m.resident() == nil {
		return p.add
	}
	done := map[int][]*tensor.Parameter{} // by the first unit that uses them
	seen := map[*tensor.Parameter]bool{}
	for i, u := range p.m.units {
		for _, t := range u.trained {
			if t.Trainable && !seen[t] {
				seen[t] = true
				done[i] = append(done[i], t)
			}
		}
	}
	next := len(p.m.units) - 1
	return func(unit int, gradient view.Tensor) {
		for ; next > unit; next-- {
			for _, t := range done[next] {
				tape.Complete(t)
			}
		}
		if p.add != nil {
			p.add(unit, gradient)
		}
	}
}
