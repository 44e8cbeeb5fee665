package nn

import (
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// blockExperts is a MoE layer parallel to the MLP of a block, with norms and a router that belong
// to the block.
type blockExperts struct {
	spec            *meta.ExpertsSpec
	moe             *moe
	in, out, mlpOut *norm
	router          *norm // of its input
	width           int
}

func (c *compiler) blockExperts(n Node, s *meta.ExpertsSpec, width int) (e *blockExperts, err error) {
	e = &blockExperts{spec: s, width: width}
	experts, err := c.child(n, "experts", s.Experts)
	if err != nil {
		return nil, err
	}
	if e.moe, err = c.moe(experts, width); err != nil {
		return nil, err
	}
	for _, norm := range []struct {
		to   **norm
		name string
	}{{&e.in, s.In}, {&e.out, s.Out}, {&e.mlpOut, s.MLPOut}} {
		if *norm.to, err = c.normNamed(n, "norm of the experts", norm.name, width); err != nil {
			return nil, err
		}
	}
	router, err := c.child(n, "router", s.Router)
	if err != nil {
		return nil, err
	}
	projection, err := c.child(n, "router", s.Router+"."+e.moe.spec.Router)
	if err != nil {
		return nil, err
	}
	if err = c.routes(projection, e.moe, e.moe.width); err != nil {
		return nil, err
	}
	c.usedBy(e.moe)
	e.router = &norm{path: router.Path, spec: &meta.NormSpec{Dim: width, Eps: s.RouterEps}, width: width}
	if e.router.weight, err = c.param(router, s.RouterScale, width); err != nil {
		return nil, err
	}
	e.moe.expertScale, err = c.param(router, s.ExpertScale, e.moe.spec.Count)
	return e, err
}

// forward computes the second branch of a block.
func (e *blockExperts) forward(c *Context, mlp *branch, dst, x tensor.Tensor) {
	mark := c.arena.used
	y := c.arena.take(x.Rows(), e.width)
	mlp.pre.forward(c, y, x)
	mlp.body.forward(c, dst, y)
	e.mlpOut.forward(c, dst, dst)

	routed, operand := c.arena.take(x.Rows(), e.width), c.arena.take(x.Rows(), e.width)
	if c.err == nil {
		e.router.forward(c, operand, x)
		c.scale(operand, e.spec.RouterFactor)
		e.in.forward(c, y, x)
		e.moe.routed(c, routed, y, operand)
		e.out.forward(c, routed, routed)
	}
	c.add(dst, routed, 1)
	if mlp.post != nil && c.err == nil {
		mlp.post.forward(c, dst, dst)
	}
	c.arena.used = mark
}

// scaleInput returns x with each row multiplied by its share.
func (m *moe) scaleInput(c scope, x tensor.Tensor, shares []float32) tensor.Tensor {
	scaled, n := c.arena.take(x.Rows(), x.Cols()), len(shares)
	if c.err == nil {
		c.backend.Gather(scaled, matrix(c.zero, 1, m.expertWidth), c.nothing[:n])
		c.backend.ScatterAdd(scaled, x, c.iota[:n], shares)
	}
	return scaled
}

// scaleChosen multiplies the weights of selected experts by their scales.
func (c *Context) scaleChosen(p param, weights []float32, experts []int32) {
	host := c.hostVectors(p)
	if c.err != nil {
		return
	}
	if c.recording() {
		c.arena.recorder.ScaleChosen(weights, experts, host, c.vector(p))
	}
	for i, expert := range experts {
		weights[i] *= host[expert]
	}
}

// readVector reads a dense vector, which may be in a device's memory.
func (c *Context) readVector(to []float32, t tensor.Tensor) error { return c.read(to, t, c.stored) }

// read reads dense numbers, which may be in a device's memory. room has as many bytes as the
// stored numbers take.
func (c *Context) read(to []float32, t tensor.Tensor, room []byte) error {
	if t.Data == nil {
		host := t
		host.Data, host.Address, host.Stride = room[:t.Bytes()], 0, 0
		if err := c.backend.Copy(host, t); err != nil {
			return err
		}
		t = host
	}
	return tensor.Widen(to, t.Data[:t.Bytes()], t.DType)
}

func (e *blockExperts) scratch(rows int) int {
	if e == nil {
		return 0
	}
	return 3*floats(rows, e.width) + e.moe.scratch(rows)
}

// blockParts compiles the parts of a block that are parallel to its two branches or follow them.
func (c *compiler) blockParts(n Node, s *meta.BlockSpec, b *block) (err error) {
	if err := c.residuals(n, s, b); err != nil {
		return err
	}
	if err := c.blockConvs(n, s, b); err != nil {
		return err
	}
	if err := c.branchSums(n, s, b); err != nil {
		return err
	}
	if err := c.blockRates(n, s, b); err != nil {
		return err
	}
	if b.entry, err = c.entry(n, s, b); err != nil {
		return err
	}
	if s.Experts != nil {
		if b.mlp.pre == nil || b.parallel {
			return at(n.Path, "experts beside the MLP of a parallel block or one without a norm")
		}
		if b.experts, err = c.blockExperts(n, s.Experts, b.width); err != nil {
			return err
		}
	}
	if s.Input != nil {
		if b.input, err = c.layerInput(n, s.Input, b.channels()); err != nil {
			return err
		}
	}
	if s.Shortcut != "" || s.Second != nil {
		b.shortcut, err = c.shortcut(n, s, b)
		return err
	}
	if s.Scalar == "" {
		return nil
	}
	for _, buffer := range n.Module.Buffers {
		if buffer.Name == s.Scalar {
			b.scalar = buffer
			return nil
		}
	}
	return at(n.Path, "no buffer %q", s.Scalar)
}
