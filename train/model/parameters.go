package model

import (
	"errors"
	"fmt"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/nn"
	view "github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/internal/chunks"
	"github.com/heftai/heft/train/tensor"
)

// parameters holds the state that the passes of a model share.
type parameters struct {
	trained map[*meta.Param]*tensor.Parameter // in memory, trainable or not
	order   []*tensor.Parameter               // values of trained, in the order of the tree
	// numbered are those of order, then those of the adapter. A parameter's number is its index
	// plus 1. Views of its values carry the number as their owner.
	numbered []*tensor.Parameter
	numbers  map[*tensor.Parameter]int32
	base     *base // of frozen parameters; nil if there are none
	buffers  map[*meta.Buffer]view.Tensor
	dtypes   map[*meta.Buffer]meta.DType // in the checkpoint
	stacked  map[*meta.Param]bool        // stacks of experts
	units    []unitParameters
	// changing holds the values of offloaded parameters. It is nil if all stay in memory.
	changing *chunks.Store
	adapter  *adapter           // low-rank pairs; nil if there are none
	source   *loader.Checkpoint // of frozen parameters, or nil
}

// unitParameters are the parameters that a unit of the program reads.
type unitParameters struct {
	trained []*tensor.Parameter
	params  []*meta.Param // of trained, without an adapter's pairs at its end
}

// newParameters makes the parameters of a program, with the values of b or as zeros. Parameters
// whose paths o.freeze selects stay in b.
func newParameters(m *meta.Model, p *nn.Program, b *loader.Binding, o options) (*parameters, error) {
	frozen := map[*meta.Param]bool{}
	out := &parameters{trained: map[*meta.Param]*tensor.Parameter{}, numbers: map[*tensor.Parameter]int32{},
		buffers: map[*meta.Buffer]view.Tensor{}, dtypes: map[*meta.Buffer]meta.DType{}, stacked: map[*meta.Param]bool{}}
	if b != nil {
		out.source = b.Checkpoint()
	}
	if o.offload != nil {
		out.changing = chunks.New(*o.offload)
	}
	for _, u := range p.Units {
		for _, n := range u.Experts {
			for _, p := range n.Module.Params {
				out.stacked[p.Resolve()] = true
			}
		}
	}
	for path, node := range m.Root.Walk() {
		if node.SameAs != nil {
			continue
		}
		for _, p := range node.Params {
			if p.SameAs != nil {
				continue
			}
			if o.freeze != nil && o.freeze(meta.Join(path, p.Name)) {
				frozen[p] = true
			} else if err := out.add(meta.Join(path, p.Name), p, b); err != nil {
				return out, err
			}
		}
		for _, buffer := range node.Buffers {
			t, dtype, err := bufferValues(b, buffer)
			if err != nil {
				return out, err
			}
			out.buffers[buffer], out.dtypes[buffer] = t, dtype
		}
	}
	for _, u := range p.Units {
		out.units = append(out.units, out.of(u))
	}
	if len(frozen) == 0 {
		if o.quantize != meta.QuantNone {
			return out, fmt.Errorf("model: Quantize(%v) converts frozen weights, and none are frozen: add Freeze", o.quantize)
		}
		return out, nil
	}
	var err error
	out.base, err = newBase(m, p, b, frozen, o)
	return out, err
}

func (ps *parameters) add(path string, p *meta.Param, b *loader.Binding) error {
	fill := func(to []float32) error {
		if b == nil {
			return nil
		}
		dtype, data, err := b.Values(p)
		if err == nil {
			err = view.Widen(to, data, dtype)
		}
		if err != nil {
			return fmt.Errorf("model: %w", err)
		}
		return nil
	}
	if ps.changing != nil {
		ps.keep(p, ps.offload(path, p, fill))
		return nil
	}
	t := tensor.NewParameter(make([]float32, p.Elements()), p.Shape...)
	ps.keep(p, t)
	return fill(t.Data())
}

// keep adds the trained parameter t for p.
func (ps *parameters) keep(p *meta.Param, t *tensor.Parameter) {
	ps.trained[p], ps.order = t, append(ps.order, t)
	ps.number(t)
}

// number gives t the next number.
func (ps *parameters) number(t *tensor.Parameter) {
	ps.numbered = append(ps.numbered, t)
	ps.numbers[t] = int32(len(ps.numbered))
}

// unchanged returns an error if files of frozen parameters have changed on disk. Results of the
// current pass are then invalid.
func (ps *parameters) unchanged() error {
	if ps.source == nil || ps.base == nil {
		return nil
	}
	return ps.source.Unchanged()
}

// close frees everything that parameters hold outside the Go heap.
func (ps *parameters) close() {
	if ps.base != nil {
		ps.base.close()
	}
	if ps.changing != nil {
		ps.changing.Close()
	}
}

// streams reports whether parameters move between passes or units. If so, the record of a pass must
// not refer to their memory beyond the unit that reads them.
func (ps *parameters) streams() bool { return ps.offloads() || ps.base.streams() }

// explain adds the file's name to an error caused by a memory fault of a mapped file.
func (ps *parameters) explain(err error) error {
	var fault *backend.FaultError
	if errors.As(err, &fault) && ps.source != nil {
		if f, ok := ps.source.FileAt(fault.Address); ok {
			return fmt.Errorf("model: %s: %w", f.Path, err)
		}
	}
	return fmt.Errorf("model: %w", err)
}

// of returns the parameters that a unit reads.
func (ps *parameters) of(u *nn.Unit) (out unitParameters) {
	seen := map[*meta.Param]bool{}
	for _, n := range u.Modules {
		for _, m := range n.Module.Walk() {
			for _, p := range m.Resolve().Params {
				if p = p.Resolve(); seen[p] {
					continue
				}
				seen[p] = true
				if t := ps.trained[p]; t != nil {
					out.trained, out.params = append(out.trained, t), append(out.params, p)
				}
			}
		}
	}
	return out
}

// first returns the index of the first unit with something to train, or len(units) if there is
// none.
func (ps *parameters) first() int {
	for i, u := range ps.units {
		for _, t := range u.trained {
			if t.Trainable {
				return i
			}
		}
	}
	return len(ps.units)
}
