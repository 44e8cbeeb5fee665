package model

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/nn"
	view "github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/tensor"
)

var _ nn.Holder = (*weights)(nil)

// weights gives one pass access to a model's parameters: trained ones in their storage, frozen ones
// in the model's base. It implements record.Weights, which determines where gradients go.
type weights struct {
	model  *parameters
	params map[*meta.Param]*parts
	places []place // by parameter number
	unit   int     // the unit in use
	sweep  sweep
	cast   meta.DType
	// early, if not nil, receives the gradients that are computed before Backward.
	early map[*tensor.Parameter][]float32
	spare map[*tensor.Parameter][]float32 // memory that early may reuse
	held  []*tensor.Parameter             // acquired for the whole pass
	// unitHeld are the offloaded parameters acquired for unit brought-1.
	unitHeld  []*meta.Param
	gradsHeld []*tensor.Parameter // those with an acquired gradient
	ahead     ahead               // replaces early for offloaded parameters
	brought   int
	offloads  bool // some parameters are offloaded
	reversing bool // units are acquired for reversal
	err       error
}

// parts holds the pieces of a trained parameter.
type parts struct {
	whole   []backend.Part
	experts [][]backend.Part // of a stack, or its rows
	// rounded holds the same pieces in float16, for products under autocast.
	rounded *parts
	memory  []byte // backs rounded
	seen    *float32
}

func newWeights(m *parameters) *weights {
	return &weights{model: m, params: map[*meta.Param]*parts{}, spare: map[*tensor.Parameter][]float32{}, sweep: sweep{base: m.base}}
}

// acquire loads the values of all parameters except offloaded ones into memory until release. All
// ranks acquire them in the same order, as sharded parameters require.
func (w *weights) acquire() error {
	w.offloads = w.model.offloads()
	hold := func(p *tensor.Parameter) error {
		if _, err := p.Acquire(false); err != nil {
			return err
		}
		w.held = append(w.held, p)
		return nil
	}
	for _, p := range w.model.order { // the same on all ranks
		if offloadedOf(p) {
			continue // acquired with its unit
		}
		if err := hold(p); err != nil {
			return err
		}
	}
	if a := w.model.adapter; a != nil {
		for _, p := range a.params {
			if err := hold(p); err != nil {
				return err
			}
		}
	}
	return nil
}

// release ends the use of the values. If a storage fails to release values that were only read, the
// next acquire returns the error.
func (w *weights) release() {
	w.leave()
	w.ahead.drop()
	for _, p := range w.held {
		_ = p.Release(false)
	}
	clear(w.held)
	w.held = w.held[:0]
}

// begin updates the addresses of the parameters. If cast is float16, it rounds the operands of
// products.
func (w *weights) begin(cast meta.DType) error {
	w.cast, w.err = cast, nil
	for p, t := range w.model.trained {
		values, grad := t.Data(), t.Grad()
		if offloadedOf(t) {
			delete(w.params, p) // it may have been in memory in an earlier pass
			if cast == meta.Float16 {
				return errors.New("model: OffloadParameters does not support autocast to float16: use bfloat16")
			}
			continue
		}
		if len(values) != int(p.Elements()) {
			return fmt.Errorf("model: parameter of shape %v has %d elements", p.Shape, len(values))
		}
		if grad != nil && len(grad) != len(values) {
			return fmt.Errorf("model: parameter has %d elements and a gradient of %d, want equal lengths", len(values), len(grad))
		}
		h := w.params[p]
		if h == nil || h.seen != unsafe.SliceData(values) {
			w.params[p] = &parts{seen: unsafe.SliceData(values)}
			w.show(p, values)
		}
	}
	if a := w.model.adapter; a != nil {
		for _, t := range a.params {
			w.placed(w.model.numbers[t], t.Data())
		}
	}
	if cast == meta.Float16 { // products round to bfloat16 as they read
		w.round()
	}
	return nil
}

// show sets the parts of a trained parameter to its current values.
func (w *weights) show(p *meta.Param, values []float32) {
	number := w.model.numbers[w.model.trained[p]]
	w.placed(number, values)
	t := view.Floats(values, p.Shape...)
	t.Owner = number
	w.params[p].show(t, w.model.stacked[p])
}

// show sets the parts of a parameter to t, which is dense or a stack of experts.
func (h *parts) show(t view.Tensor, stacked bool) {
	h.whole, h.experts = []backend.Part{{Matrix: backend.Matrix{Tensor: t}}}, nil
	if !stacked {
		return
	}
	for e := range t.Rows() {
		h.experts = append(h.experts, []backend.Part{{Matrix: backend.Matrix{Tensor: t.Index(e)}}})
	}
}

// A place has the addresses of a parameter's values in this pass, and of their float16 copy.
type place struct{ values, rounded uintptr }

// placed records the address of the values of parameter number.
func (w *weights) placed(number int32, values []float32) {
	if missing := int(number) - len(w.places); missing > 0 {
		w.places = append(w.places, make([]place, missing)...)
	}
	w.places[number-1].values = uintptr(unsafe.Pointer(unsafe.SliceData(values)))
}

// Trains reports whether a view belongs to a trainable parameter.
func (w *weights) Trains(t view.Tensor) bool {
	return t.Owner > 0 && len(t.Data) > 0 && w.model.numbered[t.Owner-1].Trainable
}

// Gradient returns the memory to which the gradient of a view of a trainable parameter must be
// added.
func (w *weights) Gradient(t view.Tensor) (view.Tensor, bool) {
	if !w.Trains(t) {
		return view.Tensor{}, false
	}
	p, begin, size := w.model.numbered[t.Owner-1], w.places[t.Owner-1].values, 4
	if t.DType == meta.Float16 {
		begin, size = w.places[t.Owner-1].rounded, 2
	}
	from, n := int(uintptr(unsafe.Pointer(unsafe.SliceData(t.Data)))-begin)/size, len(t.Data)/size
	t.DType, t.Owner, t.Data = meta.Float32, 0, view.Floats(w.target(p)[from:from+n], n).Data
	return t, true
}

// target returns a parameter's gradient. A new gradient is zeroed.
func (w *weights) target(p *tensor.Parameter) []float32 {
	if w.early == nil {
		if p.Grad() == nil {
			p.SetGrad(p.NewGrad())
		}
		return p.Grad()
	}
	g := w.early[p]
	if g == nil {
		g = w.ahead.target(p)
	}
	if g == nil {
		if g = w.spare[p]; g != nil {
			clear(g)
			delete(w.spare, p)
		} else {
			g = p.NewGrad()
		}
		w.early[p] = g
	}
	return g
}

// adopt adds scale times early gradients to those of the parameters.
func (w *weights) adopt(b backend.Backend, early map[*tensor.Parameter][]float32, scale float32) error {
	for p, g := range early {
		t := view.Floats(g, len(g), 1)
		if p.Grad() == nil {
			if p.SetGrad(g); scale != 1 {
				b.Scale(t, scale, 0)
			}
			continue
		}
		if b.Add(view.Floats(p.Grad(), len(g), 1), t, scale); !p.PutGrad(g) {
			w.spare[p] = g
		}
	}
	if err := w.ahead.adopt(b, scale); err != nil {
		return fmt.Errorf("model: %w", err)
	}
	return nil
}

// Parts returns the pieces of p; see nn.Weights.
func (w *weights) Parts(p *meta.Param, expert int) []backend.Part {
	h := w.params[p]
	if h == nil {
		return w.sweep.parts(p, expert)
	}
	if h.rounded != nil && w.cast == meta.Float16 && w.unit > 0 {
		h = h.rounded
	}
	switch {
	case expert < 0:
		return h.whole
	case expert < len(h.experts):
		return h.experts[expert]
	}
	return nil
}

// Buffer returns a buffer of the checkpoint, or zeros.
func (w *weights) Buffer(b *meta.Buffer) view.Tensor { return w.model.buffers[b] }

// Err returns why Parts has returned nil for a frozen parameter.
func (w *weights) Err() error {
	if w.err != nil {
		return w.err
	}
	return w.sweep.err()
}

// WantExperts does nothing: experts are loaded with their unit.
func (w *weights) WantExperts(*meta.Module, []int32) {}

// HoldExperts loads experts of m.
func (w *weights) HoldExperts(m *meta.Module, experts []int32) (int, error) {
	return w.sweep.holdExperts(m, experts)
}

// Hold acquires the frozen and the offloaded parameters of unit i. next is the following unit.
func (w *weights) Hold(i, next int) error {
	w.unit = i
	if err := w.bring(i); err != nil {
		return err
	}
	return w.sweep.hold(i, next)
}

// leave ends a sweep. It releases the unit in use.
func (w *weights) leave() {
	w.sweep.leave()
	w.putBack()
}

// Release does nothing: the unit stays until the next one is acquired, or until leave. The head is
// held once per chunk of rows, but read once.
func (w *weights) Release(int) {}
