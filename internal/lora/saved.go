package lora

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// A Saved is a parameter of a module that the adapter has as a whole, in place of the base model's
// (modules_to_save). It has the shape of the checkpoint's tensor. The module is a linear map or an
// embedding, and a weight that is tied in the base model is not tied to the saved one.
type Saved struct {
	Path  string // of the module
	Param string // of the parameter there: "weight" or "bias"
	tensor.Tensor

	param *meta.Param
}

// Name returns PEFT's tensor name.
func (s *Saved) Name() string { return prefix + meta.Join(s.Path, s.Param) }

// Base returns the base model's parameter that s takes the place of.
func (s *Saved) Base() *meta.Param { return s.param.Resolve() }

// saves reports whether modules_to_save names the module at path: like PEFT, by the end of its path.
func (c *Config) saves(path string) bool {
	return path != "" && slices.ContainsFunc(c.Save, func(name string) bool { return strings.HasSuffix(path, name) })
}

// saved returns the parameters that modules_to_save names, without values.
func (c *Config) saved(root *meta.Module) ([]Saved, error) {
	var list []Saved
	for path, node := range root.Walk() {
		if !c.saves(path) {
			continue
		}
		linear, _ := node.Spec.(*meta.LinearSpec)
		switch {
		case node.SameAs != nil:
			return nil, fmt.Errorf("%s: modules_to_save names it, but it shares its weights with another module", path)
		case linear != nil && (linear.PairRows > 0 || linear.RowTiling != nil || linear.ColumnTiling != nil || linear.Reordered):
			return nil, fmt.Errorf("%s: modules_to_save names it, but this file has its rows in another order: use the model's safetensors files", path)
		case node.Kind != meta.KindLinear && node.Kind != meta.KindEmbedding:
			return nil, fmt.Errorf("%s: modules_to_save names a %s; linear maps and embeddings are supported", path, node.Class)
		}
		for _, p := range node.Params {
			list = append(list, Saved{Path: path, Param: p.Name, param: p})
		}
	}
	return list, nil
}

// replacement returns the saved values that take the place of a parameter of the merged model, in
// dtype.
func (s *Saved) replacement(dtype meta.DType) ([]byte, error) {
	values, err := elements(s.Tensor)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Name(), err)
	}
	out := make([]byte, dtype.Bytes(int64(len(values))))
	if err := tensor.Narrow(out, values, dtype); err != nil {
		return nil, fmt.Errorf("%s: %w", s.Name(), err)
	}
	return out, nil
}

// ErrTied is returned for a merge into a weight that the model has twice.
var ErrTied = errors.New("is tied to another weight: the merged model would need both; serve the adapter instead")

// Replacements returns how saved parameters replace those of a model, by path. It fails if the base
// model ties one of them.
func (a *Adapter) Replacements(root *meta.Module) (map[string]func(dtype meta.DType) ([]byte, error), error) {
	ties := map[*meta.Param]bool{}
	for _, p := range root.AllParams() {
		if p.SameAs != nil {
			ties[p], ties[p.Resolve()] = true, true
		}
	}
	out := map[string]func(meta.DType) ([]byte, error){}
	for i := range a.Saved {
		s := &a.Saved[i]
		path := meta.Join(s.Path, s.Param)
		if ties[s.param] {
			return nil, fmt.Errorf("lora: %s %w", path, ErrTied)
		}
		out[path] = s.replacement
	}
	return out, nil
}
