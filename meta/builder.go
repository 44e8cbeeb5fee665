package meta

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxElements is the maximum number of elements of a parameter and of a whole tree. An int64 can
// count the bits of this many elements of any dtype.
const maxElements = 1 << 56

// A Builder builds a tree of modules. Each module has a scope, which is a Builder too. Modules
// have the names that transformers uses. By default a parameter is filled by the checkpoint
// tensor of its own dotted name. The Builder records the first error, which Build returns, so
// that an architecture reads like the list of its layers. A Builder is not safe for concurrent
// use.
type Builder struct {
	tree *tree
	node *Module
	path string
	// published is the path of this scope's tensors in published files, or "" if it is the
	// scope's own path.
	published string
	// inBlock is set inside a decoder block. experts is set for the module that stacks the
	// experts of spec.
	inBlock bool
	experts *MoESpec
	// twin is the earlier module that has the parameters of this scope, or nil.
	twin *Module
}

// tree is shared by the scopes of one tree.
type tree struct {
	root   *Module
	dtype  DType
	header CheckpointHeader // nil if there is none
	quantised
	base    string
	noSplit []string
	wrapper *wrapper // nil for a text model
	// textClass is the class of the text model with its head.
	textClass string
	renames   []Rename // in the order in which they are tried
	// published converts names of the tree to those of published files; nil if they are equal.
	published *strings.Replacer
	ignore    []string
	elements  int64
	unread    int64 // see Model.UnreadBytes
	next      int   // number, from 1 on, of the multi-token prediction module that the tree describes; 0 for the model
	err       error
}

// NewBuilder starts a tree whose root has the given class. Parameters have the given dtype.
func NewBuilder(class string, dtype DType) *Builder {
	root := &Module{Class: class}
	return &Builder{tree: &tree{root: root, dtype: dtype}, node: root}
}

// Build returns the root of the tree, or the first error. Do not use the Builder or its scopes
// afterwards.
func (b *Builder) Build() (*Module, error) {
	if b.tree.err != nil {
		return nil, b.tree.err
	}
	return b.tree.root, nil
}

// Module returns the node of this scope.
func (b *Builder) Module() *Module { return b.node }

// Child adds a module below this one and returns its scope.
func (b *Builder) Child(name, class string) *Builder {
	child := &Module{Name: name, Class: class, NoSplit: slices.Contains(b.tree.noSplit, class)}
	b.node.Children = append(b.node.Children, child)
	scope := &Builder{tree: b.tree, node: child, path: Join(b.path, name), inBlock: b.inBlock || b.node.Kind == KindBlock}
	if b.published != "" {
		scope.published = Join(b.published, name)
	}
	if b.twin != nil {
		scope.twin = b.twin.Child(name)
	}
	if spec, ok := b.node.Spec.(*MoESpec); ok && slices.Contains(spec.Stacks(), name) {
		scope.experts = spec
	}
	return scope
}

// weightPlace describes the place of the parameter called name in this scope.
func (b *Builder) weightPlace(name string, shape []int) weightPlace {
	w := weightPlace{inBlock: b.inBlock}
	switch spec, ok := b.node.Spec.(*LinearSpec); {
	case ok && name == "weight":
		w.linear, w.inOut = true, spec.Transposed
	case b.experts != nil && len(shape) == 3:
		w.expert, w.inOut = true, b.experts.Transposed
	}
	return w
}

// Runs sets the kind and spec by which this scope's module runs.
func (b *Builder) Runs(kind Kind, spec any) *Builder {
	b.node.Kind, b.node.Spec = kind, spec
	if m, ok := spec.(*MoESpec); ok && m.Experts == "" {
		b.experts = m
	}
	return b
}

// Published sets the path of this scope's tensors in published files. Files with the names of the
// tree are accepted as well.
func (b *Builder) Published(path string) *Builder {
	b.published = path
	return b
}

// publishes sets replacements from parts of names in the tree to those in published files, as
// pairs. The first match in a name applies. Files with the names of the tree are accepted as
// well.
func (b *Builder) publishes(pairs ...string) { b.tree.published = strings.NewReplacer(pairs...) }

// asPublished returns the alternative sources of a parameter with those of published names first.
func (t *tree) asPublished(sources []TensorSource, others [][]TensorSource) ([]TensorSource, [][]TensorSource) {
	ways := append([][]TensorSource{sources}, others...)
	var first [][]TensorSource
	for _, way := range ways {
		renamed := slices.Clone(way)
		for i := range renamed {
			renamed[i].Tensor = t.published.Replace(renamed[i].Tensor)
		}
		first = append(first, renamed)
	}
	ways = append(first, ways...)
	return ways[0], ways[1:]
}

// Param adds a parameter that is filled by the checkpoint tensor of its own name, or of its name
// below the path set by [Builder.Published].
func (b *Builder) Param(name string, shape ...int) *Param {
	own := []TensorSource{{Tensor: Join(b.path, name)}}
	if b.published == "" {
		return b.ParamFrom(name, shape, own)
	}
	return b.ParamFrom(name, shape, []TensorSource{{Tensor: Join(b.published, name)}}, own)
}

// ParamFrom adds a parameter that is filled by sources. Checkpoints with other names may fill it
// from other sources: others lists these alternatives. With a header, ParamFrom takes the first
// alternative whose first tensor exists. In a scope with a twin the parameter is tied to the
// twin's, unless the checkpoint has both.
func (b *Builder) ParamFrom(name string, shape []int, sources []TensorSource, others ...[]TensorSource) *Param {
	if b.twin != nil {
		if first := b.twin.Param(name); b.tree.ties(first, append([][]TensorSource{sources}, others...), b.weightPlace(name, shape)) {
			return b.Tied(name, first)
		}
	}
	p := &Param{Name: name, Shape: shape, DType: b.tree.dtype}
	if b.tree.published != nil {
		sources, others = b.tree.asPublished(sources, others)
	}
	b.tree.resolve(p, sources, others, b.weightPlace(name, shape))
	b.tree.count(Join(b.path, name), shape)
	b.node.Params = append(b.node.Params, p)
	return p
}

// wide records that transformers keeps a parameter of this scope in float32, whatever dtype the
// model has.
func (b *Builder) wide(name string) {
	if p := b.node.Param(name); b.tree.header == nil {
		p.DType = Float32
	}
}

// wideWhere is [Builder.wide] for the parameters of the whole model that keeps selects.
func (b *Builder) wideWhere(keeps func(n *Module, p *Param) bool) {
	if b.tree.header != nil {
		return
	}
	for _, node := range b.tree.root.Walk() {
		for _, p := range node.Params {
			if keeps(node, p) {
				p.DType = Float32
			}
		}
	}
}

// ties reports whether a parameter with the given alternative sources is the same as first. If
// the checkpoint has only the tensors of the alternatives, they fill first. If it has both, they
// are tied if they are equal, as in transformers.
func (t *tree) ties(first *Param, ways [][]TensorSource, w weightPlace) bool {
	if t.header == nil {
		return true
	}
	sources, _ := t.findAny(ways, first.Shape, w.inOut)
	if sources == nil {
		return true
	}
	if _, _, both := t.header.Tensor(first.Sources[0].Tensor); both {
		return t.equal(sources, first.Sources)
	}
	t.resolve(first, sources, nil, w)
	return true
}

// equal reports whether a and b are one plain tensor each, with equal values.
func (t *tree) equal(a, b []TensorSource) bool {
	values, ok := t.header.(TensorComparer)
	if !ok || len(a) != 1 || len(b) != 1 || a[0].Quant != nil {
		return false
	}
	as := a[0]
	as.Tensor = b[0].Tensor
	return as == b[0] && values.EqualTensors(a[0].Tensor, b[0].Tensor)
}

// Tied adds a parameter that shares its tensor with p.
func (b *Builder) Tied(name string, p *Param) *Param {
	tied := &Param{Name: name, Shape: p.Shape, DType: p.DType, Stored: p.Stored, SameAs: p}
	b.node.Params = append(b.node.Params, tied)
	return tied
}

// Buffer adds a tensor that is not trained. A persistent one is filled by the checkpoint tensor
// of its own name.
func (b *Builder) Buffer(name string, dtype DType, persistent bool, shape ...int) *Buffer {
	ways := [][]TensorSource{{{Tensor: Join(b.path, name)}}}
	if b.published != "" {
		ways = append([][]TensorSource{{{Tensor: Join(b.published, name)}}}, ways...)
	}
	return b.bufferFrom(name, dtype, persistent, shape, ways)
}

// bufferFrom adds a buffer that is filled by the first of several alternatives that the
// checkpoint has.
func (b *Builder) bufferFrom(name string, dtype DType, persistent bool, shape []int, ways [][]TensorSource) *Buffer {
	buf := &Buffer{Name: name, Shape: shape, DType: dtype, Persistent: persistent}
	if b.tree.published != nil {
		first, others := b.tree.asPublished(ways[0], ways[1:])
		ways = append([][]TensorSource{first}, others...)
	}
	if persistent {
		buf.Sources = ways[0]
		if b.tree.header != nil {
			if found, d := b.tree.findAny(ways, nil, false); found != nil {
				buf.Sources, buf.DType = found, d
			}
		}
	}
	b.tree.count(Join(b.path, name), shape)
	b.node.Buffers = append(b.node.Buffers, buf)
	return buf
}

// Ignore adds patterns of checkpoint tensors that the model does not use, so that they cause no
// warning. A pattern matches with and without the model's base prefix.
func (b *Builder) Ignore(patterns ...string) {
	for _, p := range patterns {
		b.tree.ignore = append(b.tree.ignore, p)
		if bare, ok := strings.CutPrefix(p, b.tree.base+"."); ok {
			b.tree.ignore = append(b.tree.ignore, bare)
		}
	}
}

// count checks a tensor's size and adds it to the size of the tree.
func (t *tree) count(path string, shape []int) {
	n := int64(1)
	for _, d := range shape {
		if d < 0 || d > 0 && n > maxElements/int64(d) {
			n = maxElements + 1
			break
		}
		n *= int64(d)
	}
	if t.elements += min(n, maxElements+1); t.elements > maxElements {
		t.elements = maxElements
		if t.err == nil {
			t.err = fmt.Errorf("meta: %s: shape %v is too large", path, shape)
		}
	}
}

// resolve fills p from the sources that the checkpoint has, with their names and dtype there.
// Without a header it uses the sources of a published checkpoint with this config.
func (t *tree) resolve(p *Param, sources []TensorSource, others [][]TensorSource, w weightPlace) {
	p.Sources = sources
	if t.header == nil {
		if len(t.formats) > 0 && (w.linear || w.expert) {
			p.Sources = slices.Clone(sources)
			for i := range p.Sources {
				t.assume(&p.Sources[i], p.Shape, w)
			}
			p.Stored = t.stored(p.Sources, p.Shape, p.DType)
		}
		return
	}
	found, dtype := t.find(sources, p.Shape, w.inOut)
	if found == nil {
		found, dtype = t.findAny(others, p.Shape, w.inOut)
	}
	if found == nil {
		return
	}
	if p.Sources = found; dtype != NoDType {
		p.DType = dtype
	}
	p.Stored = t.stored(found, p.Shape, p.DType)
}

// rowsOf returns the number of rows of the checkpoint tensor with the given name in the tree. It
// returns 0 if there is no such tensor or no checkpoint.
func (t *tree) rowsOf(name string) int {
	if t.header == nil {
		return 0
	}
	found, _ := t.find([]TensorSource{{Tensor: name}}, nil, false)
	if found == nil {
		return 0
	}
	if shape, _, ok := t.header.Tensor(found[0].Tensor); ok && len(shape) > 0 {
		return shape[0]
	}
	return 0
}

// findAny returns the first of several alternatives that the checkpoint has, or nil if it has
// none.
func (t *tree) findAny(ways [][]TensorSource, shape []int, inOut bool) ([]TensorSource, DType) {
	for _, way := range ways {
		if found, d := t.find(way, shape, inOut); found != nil {
			return found, d
		}
	}
	return nil, NoDType
}

// find renames sources to the names in the checkpoint: their own, those without the base prefix,
// or those of a wrapper's files. It returns nil if the first source has none of these names. The
// dtype is that of the first source that holds values.
func (t *tree) find(sources []TensorSource, shape []int, inOut bool) ([]TensorSource, DType) {
	for _, rename := range t.renames {
		found := slices.Clone(sources)
		var dtype DType
		for i := range found {
			found[i].Tensor = rename.Apply(found[i].Tensor)
			d, ok := t.quantise(&found[i], shape, inOut)
			if i == 0 && !ok {
				found = nil
				break
			}
			if dtype == NoDType {
				dtype = d
			}
		}
		if found != nil {
			return found, dtype
		}
	}
	return nil, NoDType
}

// at returns the name of tensor i of a series.
func (s *TensorSource) at(i int) string {
	if s.Stack == 0 {
		return s.Tensor
	}
	return strings.Replace(s.Tensor, "{}", strconv.Itoa(i), 1)
}
