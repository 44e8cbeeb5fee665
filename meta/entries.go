package meta

import (
	"cmp"
	"iter"
	"slices"
)

// A TensorEntry describes a tensor of a model in memory.
type TensorEntry struct {
	Name    string // dotted, from the root
	Shape   []int
	DType   DType
	Classes []string // class names from the root to the owner
	Kind    EntryKind
}

// EntryKind distinguishes parameters and buffers.
type EntryKind uint8

// The kinds of entries.
const (
	EntryParameter EntryKind = iota
	EntryBuffer
	EntryNonPersistentBuffer
)

// String returns the kind's name in listings.
func (k EntryKind) String() string {
	return [...]string{"parameter", "buffer", "non_persistent_buffer"}[min(k, EntryNonPersistentBuffer)]
}

// Entries lists all parameters below m in registration order, followed by all buffers. Tied
// parameters occur under each of their names.
func (m *Module) Entries() []TensorEntry {
	var params, buffers []TensorEntry
	var classes []string
	var visit func(path string, m *Module)
	visit = func(path string, m *Module) {
		m = m.Resolve()
		classes = append(classes, m.Class)
		owner := slices.Clone(classes)
		for _, p := range m.Params {
			params = append(params, TensorEntry{Join(path, p.Name), p.Shape, p.DType, owner, EntryParameter})
		}
		for _, b := range m.Buffers {
			kind := EntryNonPersistentBuffer
			if b.Persistent {
				kind = EntryBuffer
			}
			buffers = append(buffers, TensorEntry{Join(path, b.Name), b.Shape, b.DType, owner, kind})
		}
		for _, c := range m.Children {
			visit(Join(path, c.Name), c)
		}
		classes = classes[:len(classes)-1]
	}
	visit("", m)
	return append(params, buffers...)
}

// A CheckpointEntry describes a tensor of a checkpoint.
type CheckpointEntry struct {
	Name  string
	Shape []int
	DType DType
}

// CheckpointEntries lists the tensors of a checkpoint of the model, sorted by name: those that
// the sources of m's parameters and buffers name. A parameter without sources, as in a tree read
// from JSON, has its own name.
func (m *Module) CheckpointEntries() []CheckpointEntry {
	var out []CheckpointEntry
	for path, node := range m.Walk() {
		for _, p := range node.Params {
			if p.SameAs == nil {
				out = appendSources(out, Join(path, p.Name), p.Shape, p.DType, p.Sources)
			}
		}
		for _, b := range node.Buffers {
			if b.Persistent {
				out = appendSources(out, Join(path, b.Name), b.Shape, b.DType, b.Sources)
			}
		}
	}
	slices.SortFunc(out, func(a, b CheckpointEntry) int { return cmp.Compare(a.Name, b.Name) })
	// Several sources may be rows of one tensor. Its height is the highest end of these rows.
	merged := out[:0]
	for _, e := range out {
		if n := len(merged); n > 0 && merged[n-1].Name == e.Name {
			merged[n-1].Shape[0] = max(merged[n-1].Shape[0], e.Shape[0])
			continue
		}
		merged = append(merged, e)
	}
	return merged
}

// appendSources adds the checkpoint tensors that fill one tensor in memory.
func appendSources(out []CheckpointEntry, name string, shape []int, dtype DType, sources []TensorSource) []CheckpointEntry {
	if len(sources) == 0 {
		return append(out, CheckpointEntry{name, slices.Clone(shape), dtype})
	}
	for i := range sources {
		stored, _ := sources[i].Stored(shape)
		for _, t := range stored {
			if t.DType == NoDType {
				t.DType = dtype
			}
			s := sources[i].with(t.Tensor)
			for name := range s.Tensors() {
				out = append(out, CheckpointEntry{name, slices.Clone(t.Shape), t.DType})
			}
		}
	}
	return out
}

// Rows returns the rows of the checkpoint tensor that fill expert i of a stack, or the parameter
// if it is not a stack.
func (s *TensorSource) Rows(i int) RowRange {
	if s.Each > 0 {
		return RowRange{i * s.Each, (i + 1) * s.Each}
	}
	return s.From
}

// intoDim returns the dimension to which the rows of Into refer.
func (s *TensorSource) intoDim() int {
	if s.Slabs {
		return 1
	}
	return 0
}

// Tensors yields the names of the source's tensors: one name, or Stack names.
func (s *TensorSource) Tensors() iter.Seq[string] {
	return func(yield func(string) bool) {
		count := max(s.Stack, 1)
		if s.Each > 0 {
			count = 1
		}
		for i := range count {
			if !yield(s.at(i)) {
				return
			}
		}
	}
}

// Shape returns the shape of each of the source's tensors in the checkpoint, for a parameter of
// the given shape. If the source selects rows, the tensor may have more rows.
func (s *TensorSource) Shape(param []int) []int {
	shape := slices.Clone(param)
	if s.Stack > 0 {
		shape = shape[1:]
	}
	if at := s.intoDim(); len(shape) > at && !s.Into.IsAll() {
		shape[at] = s.Into.End - s.Into.Begin
	}
	if len(shape) > 0 && !s.From.IsAll() {
		shape[0] = s.From.End
	}
	if n := len(shape); s.Transposed && n >= 2 {
		shape[n-1], shape[n-2] = shape[n-2], shape[n-1]
	}
	if len(shape) > 0 && s.Each > 0 {
		shape[0] = s.Stack * s.Each
	}
	return shape
}

// NumParameters returns the number of elements of all parameters. Tied parameters are counted
// once.
func (m *Module) NumParameters() int64 {
	var n int64
	for _, p := range m.AllParams() {
		if p.SameAs == nil {
			n += p.Elements()
		}
	}
	return n
}

// Tied lists the groups of names that share one parameter. Each group is sorted; groups are in
// the order of their first names. A module with two names ties all of its parameters.
func (m *Module) Tied() [][]string {
	names := map[*Param][]string{}
	var visit func(path string, m *Module)
	visit = func(path string, m *Module) {
		m = m.Resolve()
		for _, p := range m.Params {
			names[p.Resolve()] = append(names[p.Resolve()], Join(path, p.Name))
		}
		for _, c := range m.Children {
			visit(Join(path, c.Name), c)
		}
	}
	visit("", m)
	var groups [][]string
	for _, group := range names {
		if len(group) > 1 {
			slices.Sort(group)
			groups = append(groups, group)
		}
	}
	slices.SortFunc(groups, func(a, b []string) int { return cmp.Compare(a[0], b[0]) })
	return groups
}
