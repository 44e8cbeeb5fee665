package meta

import (
	"iter"
	"slices"
	"strings"
)

// A Module is a node of a model's tree. Its fields do not change once the tree is built, so any
// number of goroutines may read it.
type Module struct {
	Name     string    // last element of the path; "" for the root
	Class    string    // the reference's class name: "LlamaDecoderLayer"
	Kind     Kind      // selects the rule that runs it; KindNone for containers
	Spec     any       // parameters of the rule: *BlockSpec for KindBlock, …
	Params   []*Param  // in registration order
	Buffers  []*Buffer // in registration order
	Children []*Module // in registration order
	NoSplit  bool      // the module must stay on one device

	// SameAs, if not nil, is an earlier module of the tree that this name shares. All fields except
	// Name are then empty.
	SameAs *Module
}

// A Param is one trainable tensor in memory. A quantised one has the dtype of its dequantised
// values.
type Param struct {
	Name  string
	Shape []int
	DType DType
	// Stored is the size in the checkpoint of a quantised parameter, codes and scales, and of one whose
	// tensors differ in dtype. It is 0 for other parameters, whose size follows from their elements.
	Stored int64
	// Sources fill the parameter. It is empty for a tied parameter, and in a tree that was read
	// from JSON or built by hand.
	Sources []TensorSource
	// SameAs, if not nil, is the earlier parameter that this one is tied to. Shape and DType are
	// set here as well.
	SameAs *Param
}

// A Buffer is a tensor that is not trained, such as a rotary table.
type Buffer struct {
	Name       string
	Shape      []int
	DType      DType
	Persistent bool // checkpoints contain it
	Sources    []TensorSource
}

// A TensorSource names a checkpoint tensor, or a series of them, that fills a parameter or a part
// of it. The loader knows parameters by their sources only.
//
// A source without Stack fills rows Into of the parameter's first dimension. A source with Stack =
// E stands for E tensors, one for each index i of the first dimension. The name of tensor i is
// Tensor with "{}" replaced by i. It fills rows Into of the second dimension of slab i. A zero Into
// means all rows.
type TensorSource struct {
	Tensor string
	Stack  int
	Into   RowRange
	// From selects rows of the checkpoint tensor. The zero value selects all rows.
	From RowRange
	// Each > 0 means that Tensor is one tensor with the rows of all Stack experts, one expert
	// after another, Each rows per expert.
	Each int
	// Slabs means that Tensor has a part of each slab of the parameter's first dimension: rows
	// Into of the second. Stack is 0.
	Slabs bool
	// Transposed means that the checkpoint tensor is the [columns, rows] of the parameter.
	Transposed bool
	// Quant describes how to compute the values from the tensor's codes. It is nil if the tensor
	// holds values.
	Quant *Quant
}

// RowRange is a half-open range [Begin, End). The zero value means all rows.
type RowRange struct{ Begin, End int }

// IsAll reports whether r is the zero value.
func (r RowRange) IsAll() bool { return r == RowRange{} }

// Elements returns the number of elements of a shape, 1 for a scalar.
func Elements(shape []int) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= int64(d)
	}
	return n
}

// Elements returns the number of the parameter's elements.
func (p *Param) Elements() int64 { return Elements(p.Shape) }

// Quantised reports whether the checkpoint stores a part of the parameter as codes.
func (p *Param) Quantised() bool {
	return p.Stored > 0 && (len(p.Sources) == 0 || slices.ContainsFunc(p.Sources, func(s TensorSource) bool { return s.Quant != nil }))
}

// Bytes returns the size of the parameter as the checkpoint stores it.
func (p *Param) Bytes() int64 {
	if p.Stored > 0 {
		return p.Stored
	}
	return p.DType.Bytes(p.Elements())
}

// Bytes returns the size of the buffer in memory.
func (b *Buffer) Bytes() int64 { return b.DType.Bytes(Elements(b.Shape)) }

// Resolve returns SameAs if it is set, else m.
func (m *Module) Resolve() *Module {
	for m.SameAs != nil {
		m = m.SameAs
	}
	return m
}

// Resolve returns SameAs if it is set, else p: the parameter that holds the values.
func (p *Param) Resolve() *Param {
	for p.SameAs != nil {
		p = p.SameAs
	}
	return p
}

// Unread reports whether passes read the parameters of m only under their other names: m has a
// spec, but no kind. An example is an adapter of a shared block for another use of the block.
func (m *Module) Unread() bool { return m.Kind == KindNone && m.Spec != nil }

// WithoutUnread returns m without the modules below it that are [Module.Unread]. It returns m
// itself if there are none.
func (m *Module) WithoutUnread() *Module {
	children, same := make([]*Module, 0, len(m.Children)), true
	for _, c := range m.Children {
		if c.Unread() {
			same = false
			continue
		}
		read := c.WithoutUnread()
		children, same = append(children, read), same && read == c
	}
	if same {
		return m
	}
	out := *m
	out.Children = children
	return &out
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

// Walk yields m and everything below it with its dotted path, parents first, in registration order.
// It yields modules with SameAs but does not enter them.
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

// AllParams yields every parameter with its dotted path, in registration order, tied ones included.
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

// Join appends a name to a dotted path.
func Join(path, name string) string {
	if path == "" {
		return name
	}
	if name == "" {
		return path
	}
	return path + "." + name
}
