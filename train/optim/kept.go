package optim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Array is a piece of a state array outside memory, such as a *tensor.Parameter's storage.
type Array interface {
	// Len returns the number of elements.
	Len() int
	// Acquire loads the values into memory until the matching Release. write reports that the
	// caller changes them.
	Acquire(write bool) ([]float32, error)
	Release(write bool) error
}

// Pieces is a state array outside memory: its pieces, one after another.
type Pieces []Array

// Len returns the number of elements of all pieces.
func (p Pieces) Len() int {
	n := 0
	for _, a := range p {
		n += a.Len()
	}
	return n
}

// Each calls f with the values of one piece at a time and the index of their first element. With
// write, f may change them. It stops at the first error.
func (p Pieces) Each(write bool, f func(at int, values []float32) error) error {
	at := 0
	for _, a := range p {
		values, err := a.Acquire(write)
		if err != nil {
			return err
		}
		err = f(at, values)
		if e := a.Release(write); err == nil {
			err = e
		}
		if err != nil {
			return err
		}
		at += a.Len()
	}
	return nil
}

// Put copies values to the elements from at on.
func (p Pieces) Put(at int, values []float32) error {
	first := 0
	for _, a := range p {
		lo, hi := max(at, first), min(at+len(values), first+a.Len())
		if lo < hi {
			dst, err := a.Acquire(true)
			if err != nil {
				return err
			}
			copy(dst[lo-first:hi-first], values[lo-at:hi-at])
			if err := a.Release(true); err != nil {
				return err
			}
		}
		first += a.Len()
	}
	return nil
}

// Names returns the names of the slots, sorted.
func (p ParamState) Names() []string {
	names := slices.Collect(maps.Keys(p.Slots))
	for name := range p.Kept {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Len returns the number of elements of a slot.
func (p ParamState) Len(name string) int {
	if k := p.Kept[name]; k != nil {
		return k.Len()
	}
	return len(p.Slots[name])
}

// Each calls f with the values of a slot, one piece at a time, as [Pieces.Each] does.
func (p ParamState) Each(name string, f func(at int, values []float32) error) error {
	if k := p.Kept[name]; k != nil {
		return k.Each(false, f)
	}
	return f(0, p.Slots[name])
}

// Keeper says where an optimizer stores its state.
type Keeper struct {
	// New returns an array of n elements that all equal start. The name is for errors.
	New func(name string, n int, start float32) Array
	// Elements is the length of a piece, rounded up to a multiple of 65536. A step holds one
	// piece of each state array in memory. 0 means 16 Mi.
	Elements int
}

// KeepState stores d's state outside memory. A step loads one parameter at a time with its
// gradient, and one piece of each of its state arrays. Its results are bit-identical. Step then
// drops each gradient as soon as its parameter has stepped. If it fails, nothing is lost: the
// next Step continues with the remaining elements.
//
// KeepState returns an error if d has stepped, or steps whole matrices, as Adafactor does.
func (d *Descent) KeepState(k Keeper) error {
	if _, ok := d.rule.(shaped); ok {
		return fmt.Errorf("optim: keep state: %s: %w", d.rule.name(), errWhole)
	}
	for _, m := range d.memory {
		if m.step > 0 {
			return errors.New("optim: keep state: the optimizer has stepped")
		}
	}
	if k.Elements <= 0 {
		k.Elements = 16 << 20
	}
	k.Elements = (k.Elements + share - 1) / share * share
	d.keeper = &k
	return nil
}

// KeepsState reports whether the state is outside memory.
func (d *Descent) KeepsState() bool { return d.keeper != nil }

// NewPieces returns an array of n elements where the state is stored, or nil if the state is in
// memory.
func (d *Descent) NewPieces(name string, n int) (all Pieces) {
	if d.keeper == nil {
		return nil
	}
	start := float32(0)
	if r, ok := d.rule.(starter); ok {
		start = r.start()
	}
	for at := 0; at < n || at == 0; at += d.keeper.Elements {
		all = append(all, d.keeper.New(name, min(d.keeper.Elements, n-at), start))
	}
	return all
}

// stepKept steps a parameter that has a gradient, and drops the gradient.
func (d *Descent) stepKept(g *Group, p Param) error {
	m := d.memory[p]
	names, n := d.rule.slots(g), size(p)
	if m.kept == nil {
		m.kept = map[string]Pieces{}
	}
	for _, name := range names {
		if m.kept[name] == nil {
			m.kept[name] = d.NewPieces(name, n)
		}
	}
	err := withGrad(p, false, func(grad []float32) error {
		if len(grad) != n {
			return fmt.Errorf("got %d gradients, want %d", len(grad), n)
		}
		return change(p, func(values []float32) error {
			update := d.rule.update(g, m.step+1)
			for m.done < n {
				lo, hi := m.done, min(m.done+d.keeper.Elements, n)
				err := m.withPieces(names, lo/d.keeper.Elements, nil, func(slots [][]float32) {
					stepAll(update, values[lo:hi], grad[lo:hi], slots)
				})
				if err != nil {
					return err
				}
				m.done = hi
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	m.done = 0
	m.step++
	p.ZeroGrad()
	return nil
}

// withPieces calls f with piece i of the arrays called names, after those in slots.
func (m *memory) withPieces(names []string, i int, slots [][]float32, f func(slots [][]float32)) error {
	if len(names) == 0 {
		f(slots)
		return nil
	}
	a := m.kept[names[0]][i]
	values, err := a.Acquire(true)
	if err != nil {
		return err
	}
	err = m.withPieces(names[1:], i, append(slots, values), f)
	if e := a.Release(true); err == nil {
		err = e
	}
	return err
}

// restored returns the memory of a parameter of n elements with a copy of a state.
func (d *Descent) restored(s ParamState, n int) (*memory, error) {
	m := newMemory()
	m.step = s.Step
	for _, name := range s.Names() {
		if d.keeper == nil {
			x := make([]float32, s.Len(name))
			if err := s.Each(name, func(at int, values []float32) error { copy(x[at:], values); return nil }); err != nil {
				return nil, err
			}
			m.slots[name] = x
			continue
		}
		if m.kept == nil {
			m.kept = map[string]Pieces{}
		}
		m.kept[name] = d.NewPieces(name, n)
		if err := s.Each(name, m.kept[name].Put); err != nil {
			return nil, err
		}
	}
	return m, nil
}
