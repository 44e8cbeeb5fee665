package lora

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// Merge yields the tensors of a checkpoint with the adapter merged into its weights, ready to be
// saved: W + Scale·B·A, computed in float32 and rounded to W's dtype. It holds one weight in memory
// at a time. base is the binding of model's checkpoint. It fails if the adapter changes a quantised
// or tied weight.
func (a *Adapter) Merge(model *meta.Model, base *loader.Binding) (iter.Seq[loader.NamedTensor], error) {
	return a.merged(model, base, 1)
}

// Unmerge is the inverse of Merge, up to rounding.
func (a *Adapter) Unmerge(model *meta.Model, base *loader.Binding) (iter.Seq[loader.NamedTensor], error) {
	return a.merged(model, base, -1)
}

func (a *Adapter) merged(model *meta.Model, base *loader.Binding, sign float32) (iter.Seq[loader.NamedTensor], error) {
	if sign < 0 && a.Config.DoRA {
		return nil, errors.New("lora: an adapter with magnitudes (DoRA) cannot be unmerged: the lengths of the rows before the merge are not known")
	}
	weights := map[string]*Pair{}
	for i := range a.Pairs {
		p := &a.Pairs[i]
		if p.param.SameAs != nil {
			return nil, fmt.Errorf("lora: %s.%s is tied to another weight; merging into tied weights is not supported", p.Path, p.Param)
		}
		weights[meta.Join(p.Path, p.Param)] = p
	}
	replaced, err := a.Replacements(model.Root)
	if err != nil {
		return nil, err
	}
	if sign < 0 && len(replaced) > 0 {
		return nil, errors.New("lora: an adapter with whole modules (modules_to_save) cannot be unmerged: the weights before the merge are not known")
	}
	params, buffers := map[string]*meta.Param{}, map[string]*meta.Buffer{}
	for path, m := range model.Root.Walk() {
		for _, p := range m.Params {
			params[meta.Join(path, p.Name)] = p
		}
		for _, b := range m.Buffers {
			buffers[meta.Join(path, b.Name)] = b
		}
	}
	value := func(path string) (meta.DType, func() ([]byte, error)) {
		if b := buffers[path]; b != nil {
			return first(base.BufferTensors(b)), func() ([]byte, error) { _, data, err := base.BufferValues(b); return data, err }
		}
		return first(base.Tensors(params[path])), func() ([]byte, error) {
			dtype, data, err := base.Values(params[path])
			if replace := replaced[path]; replace != nil && err == nil {
				data, err = replace(dtype)
			}
			if p := weights[path]; p != nil && err == nil {
				data = slices.Clone(data)
				err = p.Add(data, dtype, sign)
			}
			return data, err
		}
	}
	tensors, err := loader.Unbind(model, value)
	if err != nil {
		return nil, fmt.Errorf("lora: %w", err)
	}
	return tensors, nil
}

// first returns the dtype of the first part of a parameter.
func first(parts []loader.BoundTensor) meta.DType {
	if len(parts) == 0 {
		return meta.NoDType
	}
	return parts[0].Tensor.DType
}

// Add adds sign·Scale·B·A to the elements of a weight, which is dense and in its own layout. With
// DoRA it then scales each row to its magnitude.
func (p *Pair) Add(weight []byte, dtype meta.DType, sign float32) error {
	size := dtype.Bytes(int64(p.Out) * int64(p.In))
	if want := int64(p.maps()) * size; int64(len(weight)) != want {
		return fmt.Errorf("lora: %s.%s: got %d bytes of %v, want %d", p.Path, p.Param, len(weight), dtype, want)
	}
	switch dtype {
	case meta.Float32, meta.BFloat16, meta.Float16:
	default:
		return fmt.Errorf("lora: %s.%s: merging into weights of dtype %v is not supported", p.Path, p.Param, dtype)
	}
	a, err := elements(p.A)
	if err != nil {
		return fmt.Errorf("lora: %s: %w", p.Name("A"), err)
	}
	b, err := elements(p.B)
	if err != nil {
		return fmt.Errorf("lora: %s: %w", p.Name("B"), err)
	}
	m, err := elements(p.Magnitude)
	if err != nil {
		return fmt.Errorf("lora: %s: %w", p.Name(magnitude), err)
	}
	for e := range p.maps() {
		if err := p.addOne(weight[int64(e)*size:][:size], dtype, sign, a[e*p.Rank*p.In:], b[e*p.Out*p.Rank:], m); err != nil {
			return fmt.Errorf("lora: %s.%s: %w", p.Path, p.Param, err)
		}
	}
	return nil
}

// addOne adds to one matrix, with magnitudes m if there are any.
func (p *Pair) addOne(weight []byte, dtype meta.DType, sign float32, a, b, m []float32) error {
	row, stored := make([]float32, p.In), make([]float32, p.In)
	size := int(dtype.Bytes(1))
	bytes := make([]byte, size*p.In)
	for o := range p.Out {
		clear(row)
		for r, w := range b[o*p.Rank : (o+1)*p.Rank] {
			for i, v := range a[r*p.In : (r+1)*p.In] {
				row[i] += w * v
			}
		}
		at := func(i int) []byte { return weight[(o*p.In+i)*size:][:size] }
		if p.Transposed {
			at = func(i int) []byte { return weight[(i*p.Out+o)*size:][:size] }
		}
		for i := range row {
			copy(bytes[i*size:], at(i))
		}
		if err := tensor.Widen(stored, bytes, dtype); err != nil {
			return err
		}
		for i, v := range row {
			stored[i] += float32(sign * p.Scale * v)
		}
		if len(m) > 0 {
			resize(stored, m[o])
		}
		if err := tensor.Narrow(bytes, stored, dtype); err != nil {
			return err
		}
		for i := range row {
			copy(at(i), bytes[i*size:])
		}
	}
	return nil
}

// resize scales a row to a length. A row of zeros stays.
func resize(row []float32, length float32) {
	sum := 0.0
	for _, v := range row {
		sum += float64(v) * float64(v)
	}
	if sum == 0 {
		return
	}
	by := length / float32(math.Sqrt(sum))
	for i := range row {
		row[i] *= by
	}
}

// elements returns a copy of a dense matrix as float32, nil for none.
func elements(t tensor.Tensor) ([]float32, error) {
	if t.IsZero() {
		return nil, nil
	}
	out := make([]float32, t.Elements())
	return out, tensor.Widen(out, t.Data[:t.Bytes()], t.DType)
}
