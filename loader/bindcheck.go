package loader

import (
	"fmt"
	"slices"
	"strings"

	"github.com/heftai/heft/meta"
)

// A BindError lists the tensors that a model needs and that are missing or have the wrong shape.
type BindError struct {
	Checkpoint string
	Problems   []*Error // the first problems
	Count      int      // total number of problems
}

// maxProblems is the number of problems that a BindError lists.
const maxProblems = 10

// Error returns one line with the first problems and the number of others.
func (e *BindError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "loader: %s: %d of the model's tensors cannot be filled: ", e.Checkpoint, e.Count)
	for i, p := range e.Problems {
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "%s %s", printable(p.Tensor), p.Reason)
	}
	if more := e.Count - len(e.Problems); more > 0 {
		fmt.Fprintf(&b, "; and %d more", more)
	}
	return b.String()
}

// Unwrap returns the problems.
func (e *BindError) Unwrap() []error {
	errs := make([]error, len(e.Problems))
	for i, p := range e.Problems {
		errs[i] = p
	}
	return errs
}

// gathered is everything in a model that tensors fill.
type gathered struct {
	entries []entry
	// ties holds the other names of tied parameters.
	ties map[*meta.Param][]string
}

type entry struct {
	*bound
	param  *meta.Param // or
	buffer *meta.Buffer
}

func gather(root *meta.Module) *gathered {
	g := &gathered{ties: map[*meta.Param][]string{}}
	for path, m := range root.Walk() {
		if m.SameAs != nil {
			for name, p := range m.Resolve().AllParams() {
				p = p.Resolve()
				g.ties[p] = append(g.ties[p], meta.Join(path, name))
			}
			continue
		}
		for _, p := range m.Params {
			name := meta.Join(path, p.Name)
			if p.SameAs != nil {
				g.ties[p.Resolve()] = append(g.ties[p.Resolve()], name)
				continue
			}
			g.entries = append(g.entries, entry{param: p, bound: bind(name, p.Shape, p.Sources)})
		}
		for _, b := range m.Buffers {
			if b.Persistent {
				name := meta.Join(path, b.Name)
				g.entries = append(g.entries, entry{buffer: b, bound: bind(name, b.Shape, b.Sources)})
			}
		}
	}
	return g
}

func bind(name string, shape []int, sources []meta.TensorSource) *bound {
	if len(sources) == 0 {
		sources = []meta.TensorSource{{Tensor: name}}
	}
	return &bound{shape: shape, sources: sources}
}

// A checker checks all entries of a binding and collects problems.
type checker struct {
	*Binding
	used     []bool
	problems []*Error
	count    int
	buf      []byte
}

func (c *checker) use(t *Tensor) {
	if t != nil {
		c.used[c.ck.index[t.Name]] = true
	}
}

func (c *checker) problem(name, format string, args ...any) {
	if c.count++; len(c.problems) < maxProblems {
		c.problems = append(c.problems, failf(c.ck.name, name, format, args...))
	}
}

// check resolves every tensor of e. ties are other names under which it may be stored.
func (c *checker) check(e entry, ties []string) {
	for _, s := range e.sources {
		want, reason := wanted(e.shape, s)
		if reason == "" && s.Quant != nil {
			_, reason = s.Stored(e.shape)
		}
		if reason != "" {
			c.problem(s.Tensor, "cannot fill a parameter of shape %v: %s", e.shape, reason)
			continue
		}
		if s.Quant != nil {
			c.quantised(e, s)
			continue
		}
		for i := range max(s.Stack, 1) {
			c.buf = appendName(c.buf[:0], s, i)
			t := c.find(c.buf)
			if t == nil && len(e.sources) == 1 && s.Stack == 0 {
				t = c.tied(e.bound, ties)
			}
			if t == nil {
				c.problem(string(c.buf), "is missing, wanted shape %v", want)
				continue
			}
			c.use(t)
			if from := s.Rows(i); !fits(t.Shape, want, from) {
				c.problem(t.Name, "has shape %v, wanted %s%v", short(t.Shape), rowsText(from), want)
			} else if reason := e.unreadable(t.DType); reason != "" {
				c.problem(t.Name, "holds %v%s in %s, want %s", t.DType, reason, t.File.Name, dtypeList(meta.QuantNone.Row().Codes.DTypes))
			}
		}
	}
}

// CheckReadable returns a *[BindError] if skeleton has weights of a dtype that no kernel
// supports. [Bind] makes the same check for a checkpoint; CheckReadable is for a skeleton without
// one, such as one built only from a config.json. The error calls the model name.
func CheckReadable(name string, skeleton *meta.Model) error {
	c := checker{Binding: &Binding{ck: &Checkpoint{name: name}}}
	for _, e := range gather(skeleton.Root).entries {
		quantized := slices.ContainsFunc(e.sources, func(s meta.TensorSource) bool { return s.Quant != nil })
		if e.param == nil || len(e.sources) == 0 || quantized {
			continue
		}
		if reason := e.unreadable(e.param.DType); reason != "" {
			c.problem(e.sources[0].Tensor, "holds %v%s, want %s", e.param.DType, reason, dtypeList(meta.QuantNone.Row().Codes.DTypes))
		}
	}
	if c.count == 0 {
		return nil
	}
	return &BindError{Checkpoint: name, Problems: c.problems, Count: c.count}
}

// quantised resolves the tensors of a source of codes.
func (c *checker) quantised(e entry, s meta.TensorSource) {
	stored, _ := s.Stored(e.shape)
	for k, want := range stored {
		s.Tensor = want.Tensor
		for i := range max(s.Stack, 1) {
			c.buf = appendName(c.buf[:0], s, i)
			t := c.find(c.buf)
			if t == nil {
				c.problem(string(c.buf), "is missing, wanted shape %v", want.Shape)
				continue
			}
			c.use(t)
			for _, name := range c.unread(s.Quant, k, c.buf) {
				c.use(c.find([]byte(name)))
			}
			// Companions may lack dimensions of 1: the scale of a whole matrix may be a scalar.
			same := slices.Equal(t.Shape, want.Shape) || k > 0 && slices.Equal(withoutOnes(t.Shape), withoutOnes(want.Shape)) ||
				s.Quant.State > 0 && want.Tensor == s.Quant.Global && len(t.Shape) == 1 && t.Shape[0] < s.Quant.State // another expert's may be longer
			switch {
			case !same:
				c.problem(t.Name, "has shape %v, wanted %v for weights stored as %v", short(t.Shape), want.Shape, s.Quant.Format)
			case k > 0 && t.DType != want.DType || !slices.Contains(want.Reads, t.DType):
				c.problem(t.Name, "holds %v in %s, want %s for weights stored as %v", t.DType, t.File.Name, dtypeList(want.Reads), s.Quant.Format)
			}
		}
	}
}

// unread returns the names of tensors that accompany codes, the k-th tensor of a source, and that
// Heft does not use.
func (c *checker) unread(q *meta.Quant, k int, name []byte) []string {
	if k > 0 {
		return nil
	}
	return q.Format.Unread(string(name))
}

// withoutOnes returns shape without dimensions of 1.
func withoutOnes(shape []int) []int {
	return slices.DeleteFunc(slices.Clone(shape), func(n int) bool { return n == 1 })
}

// unreadable returns the reason why no kernel supports a parameter in dtype d, or "". Buffers are
// converted from any floating-point dtype when they are read.
func (e entry) unreadable(d meta.DType) string {
	switch {
	case e.param == nil && (d.Float() || !e.buffer.DType.Float()), e.param != nil && meta.QuantNone.Row().Codes.Reads(d):
		return ""
	case d.Float() && d.Bits() < 16:
		return " without scales"
	}
	return " (no kernel reads it)"
}

// dtypeList returns "a, b or c".
func dtypeList(list []meta.DType) string {
	text := ""
	for i, d := range list {
		switch {
		case i > 0 && i == len(list)-1:
			text += " or "
		case i > 0:
			text += ", "
		}
		text += d.String()
	}
	return text
}

// tied returns the tensor that is stored under another name of a tied parameter.
func (c *checker) tied(e *bound, ties []string) *Tensor {
	for _, name := range ties {
		if t := c.find([]byte(name)); t != nil {
			e.alias = name
			return t
		}
	}
	return nil
}

// wanted returns the required shape of a source's tensor, or of its rows From.
func wanted(shape []int, s meta.TensorSource) (want []int, reason string) {
	want = slices.Clone(shape)
	if s.Stack > 0 {
		if len(want) == 0 || want[0] != s.Stack {
			return nil, fmt.Sprintf("a stack of %d is not its first dimension", s.Stack)
		}
		want = want[1:]
	}
	if into := s.Into; !into.IsAll() {
		at := 0
		if s.Slabs {
			at = 1
		}
		if len(want) <= at || into.Begin < 0 || into.End <= into.Begin || into.End > want[at] {
			return nil, fmt.Sprintf("it has no rows [%d:%d]", into.Begin, into.End)
		}
		want[at] = into.End - into.Begin
	}
	if s.Transposed {
		n := len(want)
		if n < 2 {
			return nil, "it cannot be transposed"
		}
		want[n-1], want[n-2] = want[n-2], want[n-1]
	}
	return want, ""
}

// fits reports whether a tensor of shape got, or its rows from, has the shape want.
func fits(got, want []int, from meta.RowRange) bool {
	if from.IsAll() {
		return slices.Equal(got, want)
	}
	return len(got) == len(want) && len(got) > 0 && slices.Equal(got[1:], want[1:]) &&
		from.Begin >= 0 && from.End <= got[0] && from.End-from.Begin == want[0]
}

func rowsText(r meta.RowRange) string {
	if r.IsAll() {
		return ""
	}
	return fmt.Sprintf("rows [%d:%d] of shape ", r.Begin, r.End)
}
