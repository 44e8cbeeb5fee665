package nn

import (
	"math"
	"slices"
	"strconv"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// altUp is AltUp (alternating updates): the operations around the branches of a block with
// several residual streams.
type altUp struct {
	spec             *meta.AltUpSpec
	path             string
	norm             *norm
	router           *linear
	predict, correct *linear
	scale            param   // of the layer input's operand; its Param is nil if there is none
	laurel           *laurel // nil if there is none
	hidden           int     // channels of a stream
}

// laurel is the low-rank branch parallel to the attention (LAuReL).
type laurel struct {
	down, up *linear
	norm     *norm
}

// altUp compiles the AltUp parts of a block. width is the number of channels of all streams.
func (c *compiler) altUp(n Node, s *meta.BlockSpec, width int) (a *altUp, err error) {
	a = &altUp{spec: s.AltUp}
	count := a.spec.Count
	child, err := c.child(n, "alternating updates", a.spec.Child)
	if err != nil {
		return nil, err
	}
	if count < 1 || width%count != 0 || a.spec.Active < 0 || a.spec.Active >= count {
		return nil, at(child.Path, "stream %d of %d in a width of %d", a.spec.Active, count, width)
	}
	a.path, a.hidden = child.Path, width/count
	c.keeps(width)
	if a.norm, err = c.normNamed(child, "norm of the router", a.spec.RouterNorm, a.hidden); err != nil {
		return nil, err
	}
	for _, l := range []struct {
		to      **linear
		name    string
		in, out int
	}{{&a.router, a.spec.Router, a.hidden, count}, {&a.predict, a.spec.Predict, count, count * count}, {&a.correct, a.spec.Correct, count, count}} {
		if *l.to, err = c.linearNamed(child, "map of alternating updates", l.name, l.in, l.out); err != nil {
			return nil, err
		}
		c.needWhole(*l.to)
		(*l.to).exact = true // rounding would change all streams
	}
	if a.spec.Scale != "" {
		if a.scale, err = c.param(child, a.spec.Scale, a.hidden); err != nil {
			return nil, err
		}
	}
	if s.Laurel != nil {
		a.laurel, err = c.laurel(n, s.Laurel, a.hidden)
	}
	return a, err
}

func (c *compiler) laurel(n Node, s *meta.LaurelSpec, hidden int) (l *laurel, err error) {
	child, err := c.child(n, "low-rank branch", s.Child)
	if err != nil {
		return nil, err
	}
	l = &laurel{}
	if l.down, err = c.linearNamed(child, "first map of the low-rank branch", s.Down, hidden, 0); err != nil {
		return nil, err
	}
	if l.up, err = c.linearNamed(child, "second map of the low-rank branch", s.Up, l.down.out, hidden); err != nil {
		return nil, err
	}
	l.norm, err = c.normNamed(child, "norm of the low-rank branch", s.Norm, hidden)
	return l, err
}

// alternating returns the backend's AltUp operations, or nil if the pass has failed.
func (c *Context) alternating(path string) backend.Alternating {
	b, ok := c.backend.(backend.Alternating)
	if !ok {
		c.fail("%s: alternating updates are not supported on this backend", path)
	}
	if c.err != nil {
		return nil
	}
	return b
}

// routes sets dst to the result of layer by for the routes of x.
func (a *altUp) routes(c *Context, dst, x tensor.Tensor, by *linear) {
	mark := c.arena.used
	normed, routes := c.arena.take(x.Rows(), a.hidden), c.arena.take(x.Rows(), a.spec.Count)
	if c.err == nil {
		a.norm.forward(c, normed, x)
	}
	c.scale(normed, float32(1/float64(a.hidden)))
	a.router.forward(c, routes, normed)
	if c.err == nil {
		c.backend.Gate(routes, routes, tensor.Tensor{}, meta.ActTanh, 0)
	}
	by.forward(c, dst, routes)
	c.arena.used = mark
}

// stream returns a view of stream i of x.
func (a *altUp) stream(x tensor.Tensor, i int) tensor.Tensor {
	return columns(x, i*a.hidden, (i+1)*a.hidden)
}

// through computes x = block(x) for all streams.
func (a *altUp) through(c *Context, b *block, x tensor.Tensor) {
	mark := c.arena.used
	count := a.spec.Count
	weights, y := c.arena.take(x.Rows(), count*count), c.arena.take(x.Rows(), a.hidden)
	active := a.stream(x, a.spec.Active)
	a.routes(c, weights, active, a.predict)
	if ops := c.alternating(a.path); ops != nil {
		ops.PredictStreams(x, weights)
		c.copyRows(y, active)
	}
	a.attend(c, &b.attention, y)
	b.addBranch(c, &b.mlp, y)
	few := columns(weights, 0, count)
	a.routes(c, few, y, a.correct)
	if ops := c.alternating(a.path); ops != nil {
		ops.CorrectStreams(x, y, few, a.spec.Active)
	}
	if b.input != nil {
		a.input(c, b.input, x, y)
	}
	c.arena.used = mark
}

// attend adds the attention branch and the low-rank branch to y.
func (a *altUp) attend(c *Context, branch *branch, y tensor.Tensor) {
	mark := c.arena.used
	normed, out := c.arena.take(y.Rows(), a.hidden), c.arena.take(y.Rows(), a.hidden)
	if c.err == nil {
		branch.pre.forward(c, normed, y)
	}
	branch.body.forward(c, out, normed)
	if branch.post != nil && c.err == nil {
		branch.post.forward(c, out, out)
	}
	c.add(y, out, 1)
	if l := a.laurel; l != nil {
		low := c.arena.take(y.Rows(), l.down.out)
		l.down.forward(c, low, normed)
		l.up.forward(c, out, low)
		if l.norm != nil && c.err == nil {
			l.norm.forward(c, out, out)
		}
		c.add(normed, out, 1)
		c.add(y, normed, 1)
		c.scale(y, float32(1/math.Sqrt2))
	}
	c.arena.used = mark
}

// input adds the layer's input to all streams of x except the first. It overwrites y.
func (a *altUp) input(c *Context, l *layerInput, x, y tensor.Tensor) {
	mark := c.arena.used
	operand := a.stream(x, a.spec.Active)
	if a.scale.Param != nil {
		scale := c.vector(a.scale)
		if c.err == nil {
			scale.Rank, scale.Dims = 2, [tensor.MaxRank]int{1, a.hidden}
			c.backend.Embed(y, backend.Matrix{Tensor: scale}, c.nothing[:y.Rows()], 1)
			c.backend.Gate(y, y, operand, meta.ActNone, 0)
			operand = y
		}
	}
	out := c.arena.take(y.Rows(), a.hidden)
	l.branch(c, out, operand)
	for i := 1; i < a.spec.Count; i++ {
		c.add(a.stream(x, i), out, 1)
	}
	c.arena.used = mark
}

// scratch returns the scratch memory for block b.
func (a *altUp) scratch(b *block, rows int) int {
	one := floats(rows, a.hidden)
	attend := 2*one + b.attention.body.scratch(rows)
	if a.laurel != nil {
		attend = max(attend, 2*one+floats(rows, a.laurel.down.out))
	}
	most := max(attend, one+b.mlp.scratch(rows), one+floats(rows, a.spec.Count), one+b.input.scratch(rows))
	return one + floats(rows, a.spec.Count*a.spec.Count) + most
}

// altUpEnds splits the embeddings into streams before the first block, or merges the streams
// after the last.
type altUpEnds struct {
	path   string
	maps   []*linear
	nodes  []Node
	hidden int
}

func (c *compiler) altUpEnds(n Node, s *meta.AltUpSpec, path string, hidden int) (e *altUpEnds, err error) {
	e = &altUpEnds{path: meta.Join(n.Path, path), hidden: hidden}
	c.together("alternating updates")
	for i := range s.Count - 1 {
		l, err := c.linearNamed(n, "map of streams", path+"."+strconv.Itoa(i), hidden, hidden)
		if err != nil {
			return nil, err
		}
		e.maps = append(e.maps, l)
	}
	if len(e.maps) > 0 {
		e.nodes = []Node{root(n, path)}
	}
	return e, nil
}

// open sets all streams of x after the first, which holds the embeddings.
func (e *altUpEnds) open(c *Context, x tensor.Tensor) {
	first := columns(x, 0, e.hidden)
	for i, l := range e.maps {
		to := x.Columns((i+1)*e.hidden, (i+2)*e.hidden)
		l.forward(c, to, first)
		if ops := c.alternating(e.path); ops != nil {
			ops.Magnify(to, first)
		}
	}
}

// collapse sets dst to the mean of the streams of x.
func (e *altUpEnds) collapse(c scope, dst, x tensor.Tensor) {
	mark := c.arena.used
	first, y := columns(x, 0, e.hidden), c.arena.take(x.Rows(), e.hidden)
	c.copyRows(dst, first)
	for i, l := range e.maps {
		l.compute(c, y, x.Columns((i+1)*e.hidden, (i+2)*e.hidden), 0)
		if ops := c.alternating(e.path); ops != nil {
			ops.Magnify(y, first)
		}
		c.add(dst, y, 1)
	}
	c.scale(dst, 1/float32(len(e.maps)+1))
	c.arena.used = mark
}

func (e *altUpEnds) scratch(rows int) int { return floats(rows, e.hidden) }
func (e *altUpEnds) width() int           { return e.hidden * (len(e.maps) + 1) }

// clip returns ids with all values that are rows or more replaced by 0.
func (c *Context) clip(ids []int32, rows int) []int32 {
	if rows == 0 || !slices.ContainsFunc(ids, func(id int32) bool { return int(id) >= rows }) {
		return ids
	}
	clipped := c.clipped[:len(ids)]
	for i, id := range ids {
		clipped[i] = id
		if int(id) >= rows {
			clipped[i] = 0
		}
	}
	return clipped
}

// channels returns the width of the input of b's branches.
func (b *block) channels() int {
	if b.altUp != nil {
		return b.altUp.hidden
	}
	return b.width
}
