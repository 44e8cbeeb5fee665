package nn

import (
	"slices"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// linear is the linear layer y = x·Wᵀ + b, or a stack of linear layers, one per expert.
type linear struct {
	path         string // path by which adapters name it
	weight, bias param
	transposed   bool // the parameter is [in, out]
	in, out      int
	exact        bool // its input is never rounded
	number       int  // number in Program.linears, from 1 on; 0 if adapters do not support it
	experts      int  // number of experts in a stack, otherwise 0
	oneBias      bool // all experts of the stack have the same bias
	partial      bool // passes multiply by parts of it, so adapters must not have magnitudes (DoRA),
	magnitudes   bool // unless its rule applies the magnitudes: see scaleHeads
}

// linear compiles a Linear with inputs of width in.
func (c *compiler) linear(n Node, in int) (*linear, error) {
	s, err := spec[meta.LinearSpec](n, meta.KindLinear)
	if err != nil {
		return nil, err
	}
	if s.In != in {
		return nil, at(n.Path, "a linear map of %d columns on %d", s.In, in)
	}
	r, err := c.affine(n, s.In, s.Out, s.Transposed)
	if err == nil {
		c.adaptable(r)
		if !s.Transposed {
			c.banded = append(c.banded, r.weight.Param)
		}
	}
	return r, err
}

// needWhole excludes the weight of r from bands, for rules that need it in one piece.
func (c *compiler) needWhole(r *linear) {
	c.banded = slices.DeleteFunc(c.banded, func(p *meta.Param) bool { return p == r.weight.Param })
}

// inRowGroups records that passes use the first rows of each group of r's rows, then the others.
func (c *compiler) inRowGroups(r *linear, group, first int) {
	if c.program.rowGroups == nil {
		c.program.rowGroups = map[*meta.Param]backend.RowGroups{}
	}
	c.program.rowGroups[r.weight.Param] = backend.RowGroups{Size: group, First: first}
}

// usedNext records the order in which passes use layers: those of list follow all others so far.
// Without it, layers are used in the order in which they are compiled. Nil layers are skipped.
func (c *compiler) usedNext(list ...*linear) {
	for _, r := range list {
		if i := slices.IndexFunc(c.banded, func(p *meta.Param) bool { return r != nil && p == r.weight.Param }); i >= 0 {
			c.banded = append(slices.Delete(c.banded, i, i+1), r.weight.Param)
		}
	}
}

// adaptable assigns a number to r, so that adapters can refer to it.
func (c *compiler) adaptable(r *linear) {
	c.program.linears = append(c.program.linears, r)
	r.number = len(c.program.linears)
}

// affine compiles the weight, and the bias if there is one, of a module of any kind.
func (c *compiler) affine(n Node, in, out int, transposed bool) (*linear, error) {
	if in < 1 || out < 1 {
		return nil, at(n.Path, "a linear map of %d columns to %d", in, out)
	}
	r := &linear{path: n.Path, transposed: transposed, in: in, out: out}
	shape := []int{out, in}
	if transposed {
		shape = []int{in, out}
	}
	var err error
	if r.weight, err = c.param(n, "weight", shape...); err != nil {
		return nil, err
	}
	c.multiplies(r)
	r.bias, err = c.optional(n, "bias", out)
	return r, err
}

// linearNamed compiles the Linear that a spec names and checks its output width. An out of 0
// accepts any.
func (c *compiler) linearNamed(n Node, role, name string, in, out int) (*linear, error) {
	child, err := c.child(n, role, name)
	if err != nil {
		return nil, err
	}
	r, err := c.linear(child, in)
	if err == nil && out != 0 && r.out != out {
		return nil, at(child.Path, "a %s of width %d, wanted %d", role, r.out, out)
	}
	return r, err
}

// forward computes dst = x·Wᵀ + b for all rows.
func (r *linear) forward(c *Context, dst, x tensor.Tensor) { r.compute(c.all(), dst, x, 0) }

// compute computes dst = x·Wᵀ + b in a scope, for one expert if r is a stack.
func (r *linear) compute(c scope, dst, x tensor.Tensor, expert int) {
	r.each(c, x.Rows(), expert, func(c scope, begin, end int, w boundLinear) { w.apply(c, dst.Slice(begin, end), x.Slice(begin, end)) })
	if len(c.lowRank.groups) > 0 {
		c.adaptPart(part{number: r.number, step: 1, expert: expert}, dst, x)
	}
}

// record is compute for a result that nothing reads: it computes what gradients need alone.
func (r *linear) record(c scope, dst, x tensor.Tensor) {
	for _, g := range c.lowRank.groups {
		if g.adapter.pairs[r.number].dora != nil { // whose gradients need the result
			r.compute(c, dst, x, 0)
			return
		}
	}
	c.unread = true
	r.compute(c, dst, x, 0)
}

// bind returns the weight and bias of r, or of one of its experts.
func (r *linear) bind(c *Context, expert int) boundLinear {
	if r.experts == 0 {
		expert = -1
	}
	w := boundLinear{linear: r, weight: c.parts(r.weight, expert)}
	if r.bias.Param != nil {
		if r.oneBias {
			expert = -1
		}
		w.bias = c.parts(r.bias, expert)
	}
	return w
}

func (r *linear) scratch(int) int { return 0 }

func (r *linear) cols() int { return r.out }
