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
// (modules_to_save). It has the shape of the checkpoint's tensor. A weight that is tied in the base model
// is not tied to the saved one.
type Saved struct {
	Path  string // of the module
	Named string // path of the module that modules_to_save names: this one, or one around it
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

// savedAround returns the module around path that modules_to_save names, or "" if there is none.
func (c *Config) savedAround(path string) string {
	for i, r := range path {
		if r == '.' && c.saves(path[:i]) {
			return path[:i]
		}
	}
	return ""
}

// saved returns the parameters of the modules that modules_to_save names, and of the modules in them,
// without values.
func (c *Config) saved(root *meta.Module) ([]Saved, error) {
	var list []Saved
	for path, node := range root.Walk() {
		named := c.savedAround(path)
		if named == "" && c.saves(path) {
			named = path
		}
		if named == "" {
			continue
		}
		if err := savable(node); err != nil {
			return nil, fmt.Errorf("%s: modules_to_save names it, but %w", path, err)
		}
		for _, p := range node.Params {
			list = append(list, Saved{Path: path, Named: named, Param: p.Name, param: p})
		}
	}
	return list, nil
}

// savable fails if an adapter for transformers' weights of a module does not fit it.
func savable(node *meta.Module) error {
	linear, _ := node.Spec.(*meta.LinearSpec)
	norm, _ := node.Spec.(*meta.NormSpec)
	switch {
	case node.SameAs != nil:
		return errors.New("it shares its weights with another module")
	case linear != nil && (linear.PairRows > 0 || linear.RowTiling != nil || linear.ColumnTiling != nil || linear.Reordered):
		return errors.New("this file has its rows in another order: use the model's safetensors files")
	case norm != nil && norm.Whole:
		return errors.New("this file has its weights with 1 added: use the model's safetensors files")
	case len(node.Buffers) > 0 && len(node.Params) > 0:
		return fmt.Errorf("a %s has buffers (%s), which are not trained", node.Class, node.Buffers[0].Name)
	}
	return nil
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
