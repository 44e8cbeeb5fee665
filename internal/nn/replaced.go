package nn

import (
	"fmt"
	"slices"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/lora"
	"github.com/heftai/heft/internal/tensor"
)

// own holds an adapter's replacement of a module's parameters. The zero value replaces nothing.
type own struct{ weight, bias []backend.Part }

// bindSaved binds a saved parameter to its linear layer, embedding or norm.
func (a *Adapter) bindSaved(p *Program, f *lora.Saved) error {
	to, err := a.ownAt(p, f)
	if err != nil {
		return err
	}
	part := backend.Part{Matrix: backend.Matrix{Tensor: f.Tensor}}
	if a.memory != nil {
		if part.Tensor, err = a.copied(f.Tensor); err != nil {
			return fmt.Errorf("nn: adapter of %s: %w", f.Path, err)
		}
	}
	a.owns = true
	if f.Param == "bias" {
		to.bias = []backend.Part{part}
	} else {
		to.weight = []backend.Part{part}
	}
	return nil
}

// ownAt returns where a saved parameter is stored.
func (a *Adapter) ownAt(p *Program, f *lora.Saved) (*own, error) {
	for i, r := range p.linears {
		if r.path != f.Path || r.experts > 0 {
			continue
		}
		of := map[string]param{"weight": r.weight, "bias": r.bias}[f.Param]
		switch {
		case r.partial:
			return nil, at(r.path, "a saved module that passes take apart is not supported: remove it from modules_to_save")
		case of.Param == nil || !slices.Equal(of.Shape, f.Shape()):
			return nil, at(r.path, "a saved %s of shape %v does not fit", f.Param, f.Shape())
		}
		return &a.linears[i+1], nil
	}
	for i, r := range p.norms {
		of := map[string]param{"weight": r.weight, "bias": r.bias}[f.Param]
		if r.number > 0 && r.path == f.Path && of.Param != nil && slices.Equal(of.Shape, f.Shape()) {
			return &a.norms[i+1], nil
		}
	}
	for i, r := range p.embeddings {
		if r.number >= 0 && r.path == f.Path && f.Param == "weight" && slices.Equal(r.weight.Shape, f.Shape()) {
			return &a.tables[i], nil
		}
	}
	return nil, at(f.Path, "a saved %s of shape %v: no linear map, embedding or norm of this shape can be replaced: remove it from modules_to_save", f.Param, f.Shape())
}

// each calls f for the ranges of input rows of a linear layer that have the same weights: once,
// unless adapters of the pass replace them. The bits of a row do not depend on that.
func (r *linear) each(c scope, rows, expert int, f func(c scope, begin, end int, w boundLinear)) {
	replaced := 0
	if c.lowRank.owns && r.number > 0 && r.experts == 0 {
		for i := range rows {
			if c.ownOf(r, i) != nil {
				replaced++
			}
		}
	}
	if replaced < rows || replaced == 0 || c.banded != nil && c.banded.Banded(r.weight.Param) { // bands are loaded in any case
		f(c, 0, rows, r.bind(c.Context, expert))
	}
	if replaced == 0 {
		return
	}
	c.compute() // before rows of the results are overwritten
	for begin := 0; begin < rows; {
		o, end := c.ownOf(r, begin), begin+1
		for end < rows && c.ownOf(r, end) == o {
			end++
		}
		if o != nil {
			f(c.at(c.passRows(begin, end)), begin, end, boundLinear{linear: r, weight: o.weight, bias: o.bias, ofAdapter: true})
		}
		begin = end
	}
}

// ownOf returns the replacement of r's weights for row i of a scope, or nil.
func (c scope) ownOf(r *linear, i int) *own {
	if c.gathered != nil {
		i = int(c.gathered[i])
	}
	a := c.in.Adapters[i]
	if a == nil || len(a.linears[r.number].weight) == 0 {
		return nil
	}
	return &a.linears[r.number]
}

// passRows returns the rows of the pass for rows [begin, end) of the scope.
func (c scope) passRows(begin, end int) []int32 {
	if c.gathered != nil {
		return c.gathered[begin:end]
	}
	return c.iota[begin:end]
}

// replacedIn returns the replacement of the table for row i of the pass, and reports whether an
// adapter has one.
func (r *embedding) replacedIn(c *Context, i int) (*own, bool) {
	if !c.lowRank.owns || r.number < 0 || c.in.Adapters[i] == nil {
		return nil, false
	}
	o := &c.in.Adapters[i].tables[r.number]
	return o, len(o.weight) > 0
}

// vectors returns the weight and the bias of a norm, as vectors.
func (o *own) vectors() (weight, bias tensor.Tensor) {
	vector := func(list []backend.Part) tensor.Tensor {
		if len(list) == 0 {
			return tensor.Tensor{}
		}
		t := list[0].Tensor
		t.Dims[0], t.Rank, t.Stride = t.Elements(), 1, 0
		return t
	}
	return vector(o.weight), vector(o.bias)
}

// computeEach normalises ranges of rows, each with its weights.
func (r *norm) computeEach(c scope, dst, x tensor.Tensor) {
	for begin := 0; begin < x.Rows() && c.err == nil; {
		o, end := r.ownOf(c, begin), begin+1
		for end < x.Rows() && r.ownOf(c, end) == o {
			end++
		}
		r.apply(c.Context, dst.Slice(begin, end), x.Slice(begin, end), o)
		begin = end
	}
}

// ownOf returns the replacement of r's weights for row i of a scope, or nil.
func (r *norm) ownOf(c scope, i int) *own {
	if c.gathered != nil {
		i = int(c.gathered[i])
	}
	a := c.in.Adapters[i]
	if a == nil {
		return nil
	}
	if o := &a.norms[r.number]; len(o.weight) > 0 || len(o.bias) > 0 {
		return o
	}
	return nil
}

// lookupEach looks up ranges of rows, each in its table.
func (r *embedding) lookupEach(c *Context, dst tensor.Tensor, ids []int32, scale float32) {
	for begin := 0; begin < len(ids) && c.err == nil; {
		o, replaced := r.replacedIn(c, begin)
		end := begin + 1
		for end < len(ids) {
			if other, also := r.replacedIn(c, end); also != replaced || also && other != o {
				break
			}
			end++
		}
		if replaced {
			r.embed(c, dst.Slice(begin, end), o.weight[0].Matrix, ids[begin:end], scale)
		} else {
			r.lookupParts(c, dst.Slice(begin, end), ids[begin:end], scale)
		}
		begin = end
	}
}
