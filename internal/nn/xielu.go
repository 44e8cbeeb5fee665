package nn

import (
	"math"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// xielu is an MLP's activation function with parameters (xIELU), see [meta.MLPSpec].
type xielu struct {
	path           string
	alphaP, alphaN param
	beta, eps      *meta.Buffer
}

// xielu compiles the activation that an MLP names. It returns nil if there is none.
func (c *compiler) xielu(n Node, name string) (*xielu, error) {
	if name == "" {
		return nil, nil
	}
	child, err := c.child(n, "activation", name)
	if err != nil {
		return nil, err
	}
	x := &xielu{path: child.Path}
	if x.alphaP, err = c.param(child, "alpha_p", 1); err != nil {
		return nil, err
	}
	if x.alphaN, err = c.param(child, "alpha_n", 1); err != nil {
		return nil, err
	}
	for _, buffer := range child.Module.Buffers {
		switch buffer.Name {
		case "beta":
			x.beta = buffer
		case "eps":
			x.eps = buffer
		}
	}
	if x.beta == nil || x.eps == nil {
		return nil, at(child.Path, "no buffers beta and eps")
	}
	return x, nil
}

// numbers reads alpha_p, alpha_n, beta and eps.
func (a *xielu) numbers(c *Context) (of [4]float32) {
	p, n := c.vector(a.alphaP), c.vector(a.alphaN)
	if c.err != nil {
		return of
	}
	for i, t := range []tensor.Tensor{p, n, c.weights.Buffer(a.beta), c.weights.Buffer(a.eps)} {
		if err := c.readNumber(of[i:i+1], t); err != nil {
			c.fail("%s: %w", a.path, err)
			return of
		}
	}
	return of
}

// apply computes x in place.
func (a *xielu) apply(c *Context, x tensor.Tensor) {
	mark := c.arena.used
	square, rest := c.arena.take(x.Rows(), x.Cols()), c.arena.take(x.Rows(), x.Cols())
	of := a.numbers(c)
	if c.err == nil {
		c.backend.Gate(square, x, tensor.Tensor{}, meta.ActReLU2, 0)
		c.backend.Gate(rest, x, tensor.Tensor{}, meta.ActExpRest, -of[3])
		c.backend.Scale(x, of[2], 0)
		a.add(c, x, square, softplus(of[0]), a.alphaP, of[0])
		a.add(c, x, rest, of[2]+softplus(of[1]), a.alphaN, of[1])
	}
	c.arena.used = mark
}

// add adds scale times part to x. scale is softplus of the value of alpha and a constant.
func (a *xielu) add(c *Context, x, part tensor.Tensor, scale float32, alpha param, value float32) {
	if !c.recording() {
		c.backend.Add(x, part, scale)
		return
	}
	slope := 1 / (1 + math.Exp(-float64(value)))
	c.arena.recorder.AddLearned(x, part, scale, backend.Learned{Weight: c.vector(alpha), Slopes: []float32{float32(slope)}})
}

func softplus(x float32) float32 {
	return float32(max(float64(x), 0) + math.Log1p(math.Exp(-math.Abs(float64(x)))))
}
