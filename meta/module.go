package meta

import (
	"iter"
	"strings"
)

// A Module is one node of a model's tree. Its fields are fixed once the tree is
// built; the tree may be read from many goroutines.
type Module struct {
	Name     string    // last element of the path; "" for the root
	Class    string    // the reference's class name: "LlamaDecoderLayer"
	Kind     Kind      // which rule runs it; KindNone for containers
	Spec     any       // how the rule runs it: *BlockSpec for Block, …
	Params   []*Param  // in registration order
	Buffers  []*Buffer // in registration order
	Children []*Module // in registration order
	NoSplit  bool      // of a no-split class: placed on one device as a whole

	// SameAs is set where this name refers to a module object that stands earlier
	// in the tree; all fields but Name are then empty.
	SameAs *Module
}

// A Param is one trainable tensor as it is in memory. A quantised one has the dtype of
// the values that it stands for.
type Param struct {
	Name  string
	Shape []int
	DType DType
	// Stored is the bytes that a quantised parameter takes, codes and scales; 0 for
	// others, which take those of their elements.
	Stored int64
	// Sources fill the parameter. They are empty for a tree that was read from
	// JSON or made by hand, and for a tied parameter.
	Sources []TensorSource
	// SameAs is the parameter this one is tied to, which stands earlier in the
	// tree. Shape and DType are set here as well.
	SameAs *Param
}

// A Buffer is a tensor that is not trained, such as a rotary table.
type Buffer struct {
	Name       string
	Shape      []int
	DType      DType
	Persistent bool // stands in checkpoints
	Sources    []TensorSource
}

// A TensorSource is a checkpoint tensor, or a series of them, that fills a parameter or
// a part of it. The loader knows parameters by their sources only.
//
// A source without Stack fills rows Into of the parameter's first dimension. A
// source with Stack = E stands for E tensors, one for each index i of the first
// dimension: the tensor's name is Tensor with "{}" replaced by i, and it fills rows
// Into of the second dimension of slab i. A zero Into means all rows.
type TensorSource struct {
	Tensor string
	Stack  int
	Into   RowRange
	// From selects rows of the checkpoint's tensor; zero means all of them.
	From RowRange
	// Transposed: the checkpoint's tensor is [columns, rows] of what the
	// parameter holds.
	Transposed bool
	// Quant says how values are made of the tensor's codes, or nil if it holds values.
	Quant *Quant
}

// RowRange is a half-open range [Begin, End). The zero value stands for everything.
type RowRange struct{ Begin, End int }

// IsAll reports whether r is the zero value.
func (r RowRange) IsAll() bool { return r == RowRange{} }

// Elements returns the number of elements of a shape; 1 for a scalar.
func Elements(shape []int) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= int64(d)
	}
	return n
}

// Elements returns the number of the parameter's elements.
func (p *Param) Elements() int64 { return Elements(p.Shape) }

// Bytes returns what the parameter takes in memory, as the checkpoint stores it.
func (p *Param) Bytes() int64 {
	if p.Stored > 0 {
		return p.Stored
	}
	return p.DType.Bytes(p.Elements())
}

// Bytes returns what the buffer takes in memory.
func (b *Buffer) Bytes() int64 { return b.DType.Bytes(Elements(b.Shape)) }

// Resolve returns the module that m's name refers to: m itself, or what it is the same as.
func (m *Module) Resolve() *Module {
	for m.SameAs != nil {
		m = m.SameAs
	}
	return m
}

// Resolve returns the parameter that holds the values: p itself, or what it is tied to.
func (p *Param) Resolve() *Param {
	for p.SameAs != nil {
		p = p.SameAs
	}
	return p
}

// Child returns the child called name, or nil.
func (m *Module) Child(name string) *Module {
	for _, c := range m.Resolve().Children {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// Param returns the parameter called name, or nil.
func (m *Module) Param(name string) *Param {
	for _, p := range m.Resolve().Params {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// Find returns the module at a dotted path below m, or nil. The empty path is m.
func (m *Module) Find(path string) *Module {
	for path != "" && m != nil {
		var name string
		name, path, _ = strings.Cut(path, ".")
		m = m.Child(name)
	}
	return m
}

// Walk yields m and everything below it with its dotted path, parents first, in
// registration order. Modules that are the same as an earlier one are yielded
// (with SameAs set) but not entered.
func (m *Module) Walk() iter.Seq2[string, *Module] {
	return func(yield func(string, *Module) bool) { m.walk("", yield) }
}

func (m *Module) walk(path string, yield func(string, *Module) bool) bool {
	if !yield(path, m) {
		return false
	}
	for _, c := range m.Children {
		if !c.walk(Join(path, c.Name), yield) {
			return false
		}
	}
	return true
}

// AllParams yields every parameter with its dotted path, in registration order, tied
// ones included (their SameAs is set).
func (m *Module) AllParams() iter.Seq2[string, *Param] {
	return func(yield func(string, *Param) bool) {
		for path, node := range m.Walk() {
			for _, p := range node.Params {
				if !yield(Join(path, p.Name), p) {
					return
				}
			}
		}
	}
}

// Join puts a name below a dotted path.
func Join(path, name string) string {
	if path == "" {
		return name
	}
	if name == "" {
		return path
	}
	return path + "." + name
}
