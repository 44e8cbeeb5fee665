package model

import (
	"fmt"

	"github.com/heftai/heft/internal/residency"
	view "github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/tensor"
)

// OffloadParameters keeps the values of trained parameters within a limit of memory, in bytes: those that are
// not needed leave it, changed ones for a scratch file in dir. A pass brings the parameters of one unit at a
// time and Backward computes units again; an optimizer brings one parameter at a time. Weights stay bitwise
// the same. A write that fails fails the pass or the step, and loses no value. The limit counts neither
// gradients nor the state of optimizers, and is exceeded if a unit needs more.
//
// Keep the checkpoint open as long as the model is used. [Model.Close] removes the scratch file, and with it
// the values. Scratch files that killed processes have left in dir are removed.
func OffloadParameters(limit int64, dir string) Option {
	return func(c *choices) {
		c.offload = &residency.ChangingOptions{Limit: max(limit, 1), Dir: dir, Arena: &arena, Mover: &mover}
	}
}

// OffloadStats are the counters of [OffloadParameters], in bytes.
type OffloadStats struct {
	Size          int64 // of all values
	Held, Peak    int64 // in memory now, and at most
	Read, Written int64 // from and to the scratch file
}

// OffloadStats returns the counters. They are zero without [OffloadParameters].
func (m *Model) OffloadStats() OffloadStats {
	if m.changing == nil {
		return OffloadStats{}
	}
	return OffloadStats(m.changing.Stats())
}

// An offloaded is the storage of a parameter that leaves memory.
type offloaded struct{ *residency.Changed }

var _ tensor.Storage = offloaded{}

// Len returns the number of elements.
func (s offloaded) Len() int { return int(s.Size() / 4) }

// DType returns float32.
func (s offloaded) DType() meta.DType { return meta.Float32 }

// Resident returns the values while they are acquired.
func (s offloaded) Resident() (int, []float32) { return 0, s.floats(s.Changed.Resident()) }

// Acquire brings the values into memory.
func (s offloaded) Acquire(write bool) ([]float32, error) {
	data, err := s.Changed.Acquire()
	if err != nil {
		return nil, err
	}
	if write {
		s.MarkDirty()
	}
	return s.floats(data), nil
}

// Release ends one Acquire. It does not fail.
func (s offloaded) Release(bool) error {
	s.Changed.Release()
	return nil
}

func (s offloaded) floats(data []byte) []float32 {
	if len(data) == 0 {
		return nil
	}
	return view.Tensor{DType: meta.Float32, Rank: 1, Dims: [view.MaxRank]int{len(data) / 4}, Data: data}.F32()
}

// offloadedOf reports whether the values of p are in memory only while they are needed.
func offloadedOf(p *tensor.Parameter) bool {
	_, ok := p.Storage().(offloaded)
	return ok
}

// offload makes a parameter whose values come from fill.
func (ps *parameters) offload(path string, p *meta.Param, fill func(to []float32) error) *tensor.Parameter {
	g := ps.changing.Add(path, 4*p.Elements(), func(to []byte) error { return fill(offloaded{}.floats(to)) })
	return tensor.NewStored(offloaded{g}, p.Shape...)
}

// bring brings the offloaded parameters of unit i into memory, in place of those of another unit.
func (w *weights) bring(i int) error {
	if w.model.changing == nil || w.brought == i+1 {
		return nil
	}
	w.putBack()
	w.brought = i + 1
	u := &w.model.units[i]
	for k, p := range u.params {
		t := u.trained[k]
		if !offloadedOf(t) {
			continue
		}
		values, err := t.Acquire(false)
		if err != nil {
			w.putBack()
			return fmt.Errorf("model: %w", err)
		}
		w.params[p] = &parts{}
		w.params[p].show(view.Floats(values, p.Shape...), w.model.stacked[p])
		w.unitHeld = append(w.unitHeld, p)
	}
	w.index()
	return nil
}

// putBack releases what bring has acquired.
func (w *weights) putBack() {
	for _, p := range w.unitHeld {
		_ = w.model.trained[p].Release(false) // values that were only read
		delete(w.params, p)
	}
	w.unitHeld, w.brought = w.unitHeld[:0], 0
}
