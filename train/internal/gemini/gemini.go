// Package gemini implements the strategy of Colossal-AI's Gemini for memory and disk. The work is
// split between ranks as in ZeRO's stage 2. Weights, gradients and the optimizer's state are
// arrays of one chunks.Store, which share a limit of memory and are swapped to a scratch file.
//
// A parameter whose values are already in a store, such as one of a model loaded that way, stays
// in that store. The values of other parameters move to the strategy's own store, if it has one.
// The package runs no steps: see sharded and optim.
package gemini

import (
	"fmt"

	"github.com/heftai/heft/train/internal/chunks"
	"github.com/heftai/heft/train/internal/replicas"
	"github.com/heftai/heft/train/internal/sharded"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/tensor"
)

// pieceElements is the number of elements in a piece of an optimizer's state.
const pieceElements = 4 << 20

// Strategy is the strategy of one rank.
type Strategy struct {
	replicas.Sharded
	// Make returns the store for parameters that are in memory when they are prepared. It is
	// called at most once. If it is nil, they stay in memory.
	Make func() *chunks.Store
	// Limit, if not 0, is the memory limit of a store in bytes.
	Limit int64
	// MaxDisk, if not 0, is the largest size in bytes of a store's scratch file.
	MaxDisk int64
	// Static keeps a fixed part in memory: the weights and their gradients except the fraction
	// OffloadParam, and the optimizer's state except the fraction OffloadOptim. Fractions are
	// from 0 to 1. Without a Limit the rest leaves memory after each use.
	Static                     bool
	OffloadParam, OffloadOptim float64

	own    *chunks.Store
	stores []*use
	params quota
}

var _ replicas.Strategy = (*Strategy)(nil)

// use is a store with the number of bytes that stay in memory.
type use struct {
	store *chunks.Store
	stays int64
}

// quota determines which arrays stay in memory.
type quota struct{ total, stays int64 }

// take reports whether an array of n bytes stays in memory. The first arrays do, up to the
// fraction.
func (q *quota) take(n int64, offload float64) bool {
	if float64(q.stays+n) > (1-offload)*float64(q.total) {
		return false
	}
	q.stays += n
	return true
}

// Prepare splits m between the ranks and puts its trainable parameters and their gradients into stores.
func (s *Strategy) Prepare(g *replicas.Group, m *replicas.Module) error {
	if err := s.Sharded.Prepare(g, m); err != nil {
		return err
	}
	for _, p := range m.Params {
		if p.Trainable {
			s.params.total += 4 * int64(p.Len())
		}
	}
	for i, p := range m.Params {
		if !p.Trainable || p.Len() == 0 || s.Make == nil && chunks.Of(p) == nil {
			continue
		}
		if err := s.place(g, i, p); err != nil {
			return fmt.Errorf("parameter %d: %w", i, err)
		}
	}
	return nil
}

// place moves the values and the gradient of a parameter into a store.
func (s *Strategy) place(g *replicas.Group, i int, p *tensor.Parameter) error {
	a := chunks.Of(p)
	if a == nil {
		if s.own == nil {
			s.own = s.Make()
		}
		a = s.own.Add(fmt.Sprintf("parameter %d", i), p.Len(), nil)
	}
	in := s.using(a.Store())
	grad := a.Store().Add(fmt.Sprintf("gradient of parameter %d", i), p.Len(), nil)
	if s.Static && s.params.take(a.Size(), s.OffloadParam) {
		a.Stay()
		grad.Stay()
		in.stays += a.Size() + grad.Size()
	}
	s.limit(in)
	if chunks.Of(p) == nil {
		if err := move(p, a); err != nil {
			return err
		}
	}
	p.KeepGrad(grad)
	if own := s.Own(p); own.Len() > 0 && g.Comm.Size() > 1 {
		own.KeepGrad(a.Store().Add(fmt.Sprintf("averaged gradient of parameter %d", i), own.Len(), nil))
	}
	return nil
}

// move moves the values of p.
func move(p *tensor.Parameter, to *chunks.Array) error {
	err := p.Access(false, func(values []float32) error {
		dst, err := to.Acquire(true)
		if err != nil {
			return err
		}
		copy(dst, values)
		return to.Release(true)
	})
	if err == nil {
		p.Move(to)
	}
	return err
}

// using returns the entry of a store.
func (s *Strategy) using(store *chunks.Store) *use {
	for _, u := range s.stores {
		if u.store == store {
			return u
		}
	}
	u := &use{store: store}
	s.stores = append(s.stores, u)
	return u
}

// limit sets the limit of a store.
func (s *Strategy) limit(u *use) {
	if s.MaxDisk > 0 {
		u.store.SetMaxDisk(s.MaxDisk)
	}
	switch {
	case s.Limit > 0:
		u.store.SetLimit(s.Limit)
	case s.Static:
		u.store.SetLimit(max(u.stays, 1))
	}
}

// Keep makes the optimizer of prepared parameters store its state in their stores. The state of
// parameters in memory stays in memory.
func (s *Strategy) Keep(o *sharded.Optimizer) error {
	var in *use
	total := int64(0)
	for _, x := range o.Shards() {
		if a := chunks.Of(x.Param); a != nil && in == nil {
			in = s.using(a.Store())
		}
		total += 4 * int64(x.Len())
	}
	if in == nil {
		return nil
	}
	d, ok := o.Optimizer.(*optim.Descent)
	if !ok {
		return fmt.Errorf("an optimizer of type %T cannot keep its state outside memory: use one of package optim", o.Optimizer)
	}
	quotas := map[string]*quota{}
	return d.KeepState(optim.Keeper{Elements: pieceElements, New: func(name string, n int, start float32) optim.Array {
		if quotas[name] == nil {
			quotas[name] = &quota{total: total}
		}
		a := in.store.Add("state "+name, n, func(to []float32) error {
			for i := range to {
				to[i] = start
			}
			return nil
		})
		if s.Static && quotas[name].take(a.Size(), s.OffloadOptim) {
			a.Stay()
			in.stays += a.Size()
			s.limit(in)
		}
		return a
	}})
}

// Stores returns the stores of prepared parameters.
func (s *Strategy) Stores() (all []*chunks.Store) {
	for _, u := range s.stores {
		all = append(all, u.store)
	}
	return all
}

// Close removes the strategy's own store, including the values in it.
func (s *Strategy) Close() {
	if s.own != nil {
		s.own.Close()
	}
}
