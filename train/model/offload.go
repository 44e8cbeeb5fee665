package model

import (
	"fmt"
	"slices"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/residency"
	view "github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/internal/chunks"
	"github.com/heftai/heft/train/tensor"
)

// OffloadParameters keeps the values of trained parameters within a memory limit, in bytes. Values
// that are not in use leave memory; changed ones are written to a scratch file in dir. A pass loads
// the parameters of one unit at a time, and Backward computes units again. An optimizer loads one
// parameter at a time. Weights stay bitwise the same. If a write fails, the pass or the step fails,
// but no value is lost. The limit is exceeded if a single unit needs more. It does not include
// gradients and optimizer state, unless a train.GeminiPlugin prepares the model: then they share
// the limit and the scratch file.
//
// Keep the checkpoint open while the model is in use. [Model.Close] removes the scratch file with
// all values in it. OffloadParameters removes scratch files that killed processes have left in dir.
func OffloadParameters(limit int64, dir string) Option {
	return func(o *options) {
		o.offload = &residency.ChangingOptions{Limit: max(limit, 1), Dir: dir, Arena: &arena, Mover: &mover}
	}
}

// OffloadStats are the counters of [OffloadParameters], in bytes.
type OffloadStats struct {
	Size          int64 // of all values
	Held, Peak    int64 // in memory now, and at most
	Read, Written int64 // from and to the scratch file
	Ahead         int64 // of Read, before the values were needed
	Used, Hit     int64 // acquired, and the part of it already in memory
}

// OffloadStats returns the counters. They are zero without [OffloadParameters].
func (m *Model) OffloadStats() OffloadStats {
	if m.changing == nil {
		return OffloadStats{}
	}
	return OffloadStats(m.changing.Stats())
}

// offloadedOf reports whether the values of p are in memory only while in use.
func offloadedOf(p *tensor.Parameter) bool { return chunks.Of(p) != nil }

// offload makes an offloaded parameter whose initial values come from fill.
func (ps *parameters) offload(path string, p *meta.Param, fill func(to []float32) error) *tensor.Parameter {
	return tensor.NewStored(ps.changing.Add(path, int(p.Elements()), fill), p.Shape...)
}

// offloads reports whether any parameter is offloaded, since the model was loaded or prepared.
func (ps *parameters) offloads() bool { return slices.ContainsFunc(ps.order, offloadedOf) }

// bring loads the offloaded parameters of unit i in place of those of another unit. While the pass
// reverses, it also loads their gradients.
func (w *weights) bring(i int) error {
	if !w.offloads || w.brought == i+1 {
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
		if err == nil {
			w.unitHeld = append(w.unitHeld, p)
			w.params[p] = &parts{}
			w.show(p, values)
			err = w.bringGradient(t)
		}
		if err != nil {
			w.putBack()
			return fmt.Errorf("model: %w", err)
		}
	}
	return nil
}

// bringGradient loads the memory to which the pass adds the gradient of t.
func (w *weights) bringGradient(t *tensor.Parameter) error {
	switch {
	case !w.reversing || !t.Trainable || !t.KeepsGrad():
		return nil
	case w.early != nil:
		return w.ahead.bring(t)
	}
	if _, err := t.AcquireGrad(true); err != nil {
		return err
	}
	w.gradsHeld = append(w.gradsHeld, t)
	return nil
}

// putBack releases what bring has acquired.
func (w *weights) putBack() {
	for _, p := range w.unitHeld {
		_ = w.model.trained[p].Release(false) // the values were only read
		delete(w.params, p)
	}
	for _, t := range w.gradsHeld {
		if err := t.ReleaseGrad(); err != nil && w.err == nil {
			w.err = err
		}
	}
	w.ahead.putBack()
	clear(w.gradsHeld)
	w.unitHeld, w.gradsHeld, w.brought = w.unitHeld[:0], w.gradsHeld[:0], 0
}

// An ahead holds gradients of offloaded parameters that are computed before Backward. They are in
// the parameters' stores. It belongs to a session.
type ahead struct {
	arrays map[*tensor.Parameter]*chunks.Array
	values map[*tensor.Parameter][]float32 // of acquired ones
	used   []*tensor.Parameter             // with a gradient, in order
}

// bring acquires the memory for the gradient of t.
func (a *ahead) bring(t *tensor.Parameter) error {
	if a.arrays == nil {
		a.arrays, a.values = map[*tensor.Parameter]*chunks.Array{}, map[*tensor.Parameter][]float32{}
	}
	if a.arrays[t] == nil {
		a.arrays[t] = chunks.Of(t).Store().Add("gradient before backward", t.Len(), nil)
	}
	values, err := a.arrays[t].Acquire(true)
	if err == nil {
		a.values[t] = values
	}
	return err
}

// target returns the memory for the gradient of t, or nil if it is not acquired.
func (a *ahead) target(t *tensor.Parameter) []float32 {
	g := a.values[t]
	if g != nil && !slices.Contains(a.used, t) {
		a.used = append(a.used, t)
	}
	return g
}

func (a *ahead) putBack() {
	for t := range a.values {
		_ = a.arrays[t].Release(true) // an array's Release cannot fail
	}
	clear(a.values)
}

// adopt adds scale times the gradients to those of the parameters.
func (a *ahead) adopt(b backend.Backend, scale float32) error {
	defer a.drop()
	for _, t := range a.used {
		g, err := a.arrays[t].Acquire(false)
		if err != nil {
			return err
		}
		err = add(b, t, g, scale)
		_ = a.arrays[t].Release(false) // an array's Release cannot fail
		if err != nil {
			return err
		}
		a.arrays[t].Drop()
	}
	return nil
}

// add adds scale times g to the gradient of t.
func add(b backend.Backend, t *tensor.Parameter, g []float32, scale float32) error {
	if _, err := t.AcquireGrad(true); err != nil {
		return err
	}
	if t.HasGrad() {
		b.Add(view.Floats(t.Grad(), len(g), 1), view.Floats(g, len(g), 1), scale)
		return t.ReleaseGrad()
	}
	to := t.NewGrad()
	copy(to, g)
	if t.SetGrad(to); scale != 1 {
		b.Scale(view.Floats(to, len(g), 1), scale, 0)
	}
	return t.ReleaseGrad()
}

// drop discards the gradients.
func (a *ahead) drop() {
	for _, t := range a.used {
		a.arrays[t].Drop()
	}
	clear(a.used)
	a.used = a.used[:0]
}
