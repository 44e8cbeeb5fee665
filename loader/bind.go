package loader

import (
	"slices"
	"strconv"
	"strings"

	"github.com/heftai/heft/meta"
)

// A Binding joins the parameters and persistent buffers of a model to the tensors of a
// checkpoint. It holds one small entry per parameter, whatever the number of experts, and
// resolves the names of stacked tensors on request. It is safe for concurrent use.
type Binding struct {
	ck         *Checkpoint
	prefix     string // base prefix with its final dot, or ""
	dialects   []dialect
	dialect    int // of the file
	params     map[*meta.Param]*bound
	buffers    map[*meta.Buffer]*bound
	unexpected []string
	others     Others
}

// Others counts the tensors of parts of a model that Heft does not use, such as a vision tower.
type Others struct {
	Tensors int
	Bytes   int64
}

// A BoundTensor is a tensor, or a range of its rows, that fills a parameter or a part of it.
type BoundTensor struct {
	Tensor *Tensor
	// Expert is the index along the parameter's first dimension that the part fills, or -1 if the
	// part does not belong to a stack.
	Expert int
	// Into is the range of rows to fill: of the parameter's first dimension, or of its second for
	// an expert. From is the range of rows of Tensor. The zero value means all rows.
	Into, From meta.RowRange
	// Slabs reports that Tensor has rows Into of the second dimension of each slab of the
	// parameter's first.
	Slabs bool
	// Transposed reports that the tensor is the [columns, rows] of the parameter's values.
	Transposed bool
	// Quant describes how to compute the values from Tensor, which holds codes, and from Scales,
	// Zeros, Index and Global if the format has them. It is nil if Tensor holds values.
	Quant                        *meta.Quant
	Scales, Zeros, Index, Global *Tensor
}

// shape returns the shape of the rows From.
func (p BoundTensor) shape() []int {
	if p.From.IsAll() || len(p.Tensor.Shape) == 0 {
		return p.Tensor.Shape
	}
	return append([]int{p.From.End - p.From.Begin}, p.Tensor.Shape[1:]...)
}

// Span returns the offset and size in bytes of the part's elements in its tensor.
func (p BoundTensor) Span() (off, size int64) {
	if p.From.IsAll() || len(p.Tensor.Shape) == 0 || p.Tensor.Shape[0] == 0 {
		return 0, p.Tensor.Size
	}
	row := p.Tensor.Size / int64(p.Tensor.Shape[0])
	return row * int64(p.From.Begin), row * int64(p.From.End-p.From.Begin)
}

// Bytes returns the part's elements in place; see [Tensor.Bytes].
func (p BoundTensor) Bytes() ([]byte, error) {
	b, err := p.Tensor.Bytes()
	if err != nil {
		return nil, err
	}
	off, size := p.Span()
	return b[off : off+size : off+size], nil
}

// bound is the entry of a parameter or buffer.
type bound struct {
	shape   []int
	sources []meta.TensorSource
	// alias is the name under which a tied tensor is stored, if it is not stored under its own.
	alias string
}

// A dialect is a difference between the names in a file and the model's. It converts a name of
// the model to one of the file, appended to buf. ok is false for names to which it does not
// apply. A file has one dialect, but single names may deviate.
type dialect func(buf, name []byte) (renamed []byte, ok bool)

// dialectsOf returns the possible dialects of a checkpoint of model, its own first.
func dialectsOf(model *meta.Model) []dialect {
	list := []dialect{func(_, name []byte) ([]byte, bool) { return name, true }}
	if base := model.BasePrefix; base != "" {
		list = append(list, renamed(meta.Rename{Tree: base + "."}), renamed(meta.Rename{File: base + "."}))
	}
	for _, r := range model.Renames {
		list = append(list, renamed(r))
	}
	return list
}

func renamed(r meta.Rename) dialect {
	return func(buf, name []byte) ([]byte, bool) {
		if len(name) <= len(r.Tree) || string(name[:len(r.Tree)]) != r.Tree {
			return nil, false
		}
		return append(append(buf, r.File...), name[len(r.Tree):]...), true
	}
}

// Bind finds the tensors of ck that fill model. Names in the file may have or lack the model's
// base prefix. A parameter without sources is filled by the tensor of its own path. A tied
// parameter may be stored under any of its names.
//
// If tensors are missing or have the wrong shape, Bind returns a [*BindError] that lists them.
// Extra tensors are not an error: see [Binding.Unexpected].
func Bind(ck *Checkpoint, model *meta.Model) (*Binding, error) {
	if ck == nil || model == nil {
		return nil, &Error{Reason: "bind: got a nil checkpoint or model"}
	}
	b := &Binding{ck: ck, params: map[*meta.Param]*bound{}, buffers: map[*meta.Buffer]*bound{}}
	if model.BasePrefix != "" {
		b.prefix = model.BasePrefix + "."
	}
	b.dialects = dialectsOf(model)
	g := gather(model.Root)
	b.dialect = b.chooseDialect(g)
	c := checker{Binding: b, used: make([]bool, len(ck.tensors))}
	for _, e := range g.entries {
		if e.param != nil {
			b.params[e.param] = e.bound
		} else {
			b.buffers[e.buffer] = e.bound
		}
		c.check(e, g.ties[e.param])
	}
	for _, names := range g.ties {
		for _, name := range names {
			c.use(b.find([]byte(name)))
		}
	}
	if c.count > 0 {
		return nil, &BindError{Checkpoint: ck.name, Problems: c.problems, Count: c.count}
	}
	for i := range ck.tensors {
		switch t := &ck.tensors[i]; {
		case c.used[i] || b.ignored(t.Name, model.Ignore):
		case model.OtherPart(t.Name):
			b.others.Tensors++
			b.others.Bytes += t.Size
		case slices.ContainsFunc(besideProducts, func(end string) bool { return strings.HasSuffix(t.Name, end) }):
			return nil, failf(t.File.Name, t.Name, "changes the products of weights, which is not supported: take the model's bfloat16 folder with --quantize q4_0, or a GGUF file")
		default:
			b.unexpected = append(b.unexpected, t.Name)
		}
	}
	return b, nil
}

// besideProducts end the names of tensors by which modelopt multiplies activations, or which it adds to products, without a word in the config.
var besideProducts = []string{".pre_quant_scale", ".svdquant_lora_a", ".svdquant_lora_b"}

// Unexpected returns, in file order, the tensors that no parameter uses and that the model does
// not ignore. Callers should log them once, as a warning.
func (b *Binding) Unexpected() []string { return b.unexpected }

// Others counts the tensors of parts of the model that Heft does not use.
func (b *Binding) Others() Others { return b.others }

// Checkpoint returns the checkpoint to which the model is bound.
func (b *Binding) Checkpoint() *Checkpoint { return b.ck }

// Tensors returns the tensors that fill p, or the parameter that p is tied to: one per source, or
// one per expert for a stacked source. It returns nil for a parameter of another model.
func (b *Binding) Tensors(p *meta.Param) []BoundTensor {
	if e := b.params[p.Resolve()]; e != nil {
		return b.parts(e, -1)
	}
	return nil
}

// ExpertTensors returns the separate tensors that fill slab i of p's first dimension. It is empty
// if p is not filled by separate tensors per expert.
func (b *Binding) ExpertTensors(p *meta.Param, i int) []BoundTensor {
	if e := b.params[p.Resolve()]; e != nil && i >= 0 {
		return b.parts(e, i)
	}
	return nil
}

// BufferTensors returns the tensors that fill a persistent buffer, like Tensors.
func (b *Binding) BufferTensors(buffer *meta.Buffer) []BoundTensor {
	if e := b.buffers[buffer]; e != nil {
		return b.parts(e, -1)
	}
	return nil
}

// parts resolves the sources of e. If only is not negative, it resolves those of expert only.
func (b *Binding) parts(e *bound, only int) []BoundTensor {
	var parts []BoundTensor
	var buf []byte
	for _, s := range e.sources {
		begin, end := 0, max(s.Stack, 1)
		if only >= 0 {
			if only >= s.Stack {
				continue
			}
			begin, end = only, only+1
		}
		parts = slices.Grow(parts, end-begin)
		for i := begin; i < end; i++ {
			part := BoundTensor{Expert: -1, Into: s.Into, From: s.Rows(i), Slabs: s.Slabs, Transposed: s.Transposed}
			if s.Stack > 0 {
				part.Expert = i
			}
			buf = appendName(buf[:0], s, i)
			if e.alias != "" {
				buf = append(buf[:0], e.alias...)
			}
			part.Tensor = b.find(buf)
			if q := s.Quant; q != nil {
				part.Quant = q
				part.Scales, part.Zeros, part.Index = b.companion(s, q.Scales, i), b.companion(s, q.Zeros, i), b.companion(s, q.Index, i)
				part.Global = b.companion(s, q.Global, i)
			}
			parts = append(parts, part)
		}
	}
	return parts
}

// companion returns the i-th tensor that accompanies a quantised source under name, or nil if the
// format has none.
func (b *Binding) companion(s meta.TensorSource, name string, i int) *Tensor {
	if name == "" {
		return nil
	}
	s.Tensor = name
	return b.find(appendName(nil, s, i))
}

// appendName appends the name of a source's tensor, or of the i-th tensor of its stack.
func appendName(buf []byte, s meta.TensorSource, i int) []byte {
	before, after, ok := strings.Cut(s.Tensor, "{}")
	if s.Stack == 0 || !ok {
		return append(buf, s.Tensor...)
	}
	buf = append(buf, before...)
	buf = strconv.AppendInt(buf, int64(i), 10)
	return append(buf, after...)
}

// find returns the tensor for a name of the model, in the file's dialect or else in another.
func (b *Binding) find(name []byte) *Tensor {
	if t := b.findIn(b.dialect, name); t != nil {
		return t
	}
	for d := range b.dialects {
		if d != b.dialect {
			if t := b.findIn(d, name); t != nil {
				return t
			}
		}
	}
	return nil
}

func (b *Binding) findIn(d int, name []byte) *Tensor {
	var buf [96]byte
	name, ok := b.dialects[d](buf[:0], name)
	if !ok {
		return nil
	}
	i, ok := b.ck.index[string(name)]
	if !ok {
		return nil
	}
	return &b.ck.tensors[i]
}

// chooseDialect returns the dialect that matches most names. On a tie it prefers the model's own.
func (b *Binding) chooseDialect(g *gathered) int {
	hits := make([]int, len(b.dialects))
	var buf []byte
	for _, e := range g.entries {
		for _, s := range e.sources {
			buf = appendName(buf[:0], s, 0)
			for d := range b.dialects {
				if b.findIn(d, buf) != nil {
					hits[d]++
				}
			}
		}
	}
	best := 0
	for d := range hits {
		if hits[d] > hits[best] {
			best = d
		}
	}
	return best
}

// ignored reports whether the model silently ignores the tensor called name.
func (b *Binding) ignored(name string, patterns []string) bool {
	for _, p := range patterns {
		if match(p, name) {
			return true
		}
		if b.prefix != "" {
			bare, has := strings.CutPrefix(name, b.prefix)
			if has && match(p, bare) || !has && match(p, b.prefix+name) {
				return true
			}
		}
	}
	return false
}

// match reports whether name fits pattern, in which "*" stands for any characters except "." and
// "**" for any characters.
func match(pattern, name string) bool {
	for {
		star := strings.IndexByte(pattern, '*')
		if star < 0 {
			return pattern == name
		}
		if !strings.HasPrefix(name, pattern[:star]) {
			return false
		}
		name, pattern = name[star:], pattern[star+1:]
		deep := strings.HasPrefix(pattern, "*")
		if deep {
			pattern = pattern[1:]
		}
		if pattern == "" {
			return deep || !strings.Contains(name, ".")
		}
		for n := 0; ; n++ {
			if match(pattern, name[n:]) {
				return true
			}
			if n == len(name) || !deep && name[n] == '.' {
				return false
			}
		}
	}
}
